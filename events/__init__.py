"""The record: event types, codec, store, hash chain, vault and traces. What an event means is `engine/`'s."""

if __name__ != "steno.events":
    raise ImportError("Steno's packages are inside `steno`: import steno.events, not events")
