"""What a rule says of one observation: a verdict, or where the run is before its end."""

import msgspec

from engine.states import Reason, State


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The run is over, says a rule."""

    state: State
    reason: Reason
    exit_status: int | None = None
    rule: str


class Live(msgspec.Struct, frozen=True, kw_only=True):
    """The run is not over, says a rule."""

    state: State | None
    """None where the observation does not say; the run stays where it is."""
    rule: str
    pending: bool = False
    """The provider has taken the run back to its queue, whatever it did before."""
    sure: bool = True
    """False where the observation may lag: it moves the run forward and is no anomaly when it is behind."""


Move = Verdict | Live
