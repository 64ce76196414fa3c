"""An event as the record has it: the fact, where it stands and when it was."""

import msgspec

from events.types import Event


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """One event of a record."""

    position: int
    stream: str
    version: int
    """Its place in its stream, from 1."""
    type: str
    type_version: int
    """The version it was written as; `data` is of the newest."""
    event_id: str | None
    observed_at: int
    took: int
    """Microseconds from question to answer; 0 for what is no poll."""
    recorded_at: int
    data: Event
    scope: int | None
    """The part with a poll's question (`Record.scope`)."""
    body: int | None
    """The part with a poll's answer (`Record.listing`), or with what an observation saw (`Record.item`)."""
    hash: str
    """The first 16 hex digits of its hash (all 64 at every hundredth position)."""
