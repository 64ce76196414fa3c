"""One poll as the fold sees it. Polls, failures included, are the only ticks: timers need no other clock."""

import msgspec

from engine.facts import RunFacts, VmEvent, VmFacts
from engine.providers.reading import Scope


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """One run in an answer."""

    facts: RunFacts
    cost: int | None = None
    """The provider's own figure, micro-dollars; moves at every poll. None too where nobody has read it yet."""


class Tick(msgspec.Struct, frozen=True, kw_only=True):
    """One poll, read."""

    position: int
    source: str
    """Who was asked, as the recorder named it."""
    scope: Scope
    started_at: int
    observed_at: int
    answered: bool
    runs: tuple[Seen, ...] = ()
    """In the order of the answer, as `vms`."""
    vms: tuple[VmFacts, ...] = ()
    """Rows of machines, placeholders too."""
    events: tuple[VmEvent, ...] = ()
    """Status changes of machines that the provider dates."""
    not_exists: bool = False
    """The source said `resource_not_exists`."""
    server_time: int | None = None
    """The provider's own clock (HTTP `Date`); looked at where something is shown for the first time."""
    odd: tuple[str, ...] = ()
    """What of the answer could not be read at all."""
    imported: bool = False
    """It was imported. Asked of a source's first poll only."""
    archive: str | None = None
    """The archive it belongs to; None: a live source. The world fills it in."""
