"""One step of a replay."""

from dataclasses import dataclass

from engine.fold.change import Change
from events.poll import Poll


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One event, folded."""

    position: int
    at: int
    """Its `observed_at`."""
    poll: Poll | None
    """None where the event is one of our own intents or outcomes."""
    changes: tuple[Change, ...]
    """What it changed, in order; empty for most polls."""
