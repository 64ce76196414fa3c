"""The record: event types, codec, store, hash chain, vault and traces. What an event means is `engine/`'s."""
