"""A machine as the fold knows it: the provider's words, our state, who was on it, what we intend."""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from functools import lru_cache
from typing import Final, Literal

import msgspec

from steno.engine.state.changes import Tracked, VmMoved, VmStep
from steno.engine.state.facts import VmFacts
from steno.engine.state.states import VmReason, VmState
from steno.events.clock import foreign_run_id, format_second

DrainBy = Literal["idle", "user", "create", "room", "orphan", "lever"]

BILLED: Final = frozenset(state for state in VmState if state not in (VmState.REQUESTED, VmState.TERMINATED))
"""States in which a machine may be billed: such a machine is never forgotten."""


class Phase(StrEnum):
    """How an interval of a machine's life is billed."""

    PROVISIONING = "provisioning"
    BUSY = "busy"
    IDLE = "idle"
    TERMINATING = "terminating"
    UNCONFIRMED = "unconfirmed"


PHASE_OF: Final[dict[VmState, Phase]] = {
    state: Phase.IDLE if state is VmState.DRAINING else Phase(state.value) for state in BILLED
}


@lru_cache(maxsize=1024)
def vm_id_of(provider: str, provider_id: str) -> str:
    """The id of a machine: uuid5 of provider and provider id, the same everywhere."""
    return foreign_run_id(provider, provider_id)


class VmDate(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A status change that the provider dates itself: it refines the edge that two polls bracket."""

    at: int
    before: str  # values of `VmState`
    after: str


class PriceStep(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The provider's price from here on."""

    at: int  # the first poll that shows it; `created` for the first price
    low_at: int  # the last poll that showed the price before
    hourly: int  # micro-dollars an hour of the whole machine


class Pause(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A time of its life for which it is not charged: it was suspended. The provider says how long it lasted; when it
    was, lies between two polls.
    """

    since: int
    until: int


class SilentSpan(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """A time in which the machine did not answer the provider."""

    since: int  # the first poll that shows it
    until: int | None
    reached_at: int | None = None  # the newest poll before that shows it reached; None: there is none

    def __str__(self) -> str:
        """`last reached at 14:05`, in full."""
        if self.reached_at is None:
            return f"last reached before {format_second(self.since)}"
        return f"last reached at {format_second(self.reached_at)}"


class Occupancy(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """A submission of a run on this machine."""

    run_id: str
    job: str  # `<replica_num>/<job_num>/<attempt>`
    since: int  # the submission's `submitted_at`; the machine's life clips it
    seen_at: int  # the first poll that shows it there
    until: int | None = None  # its `finished_at`, else the first poll that shows it over; None: it goes on
    cold: bool  # the machine was created at or after the submission's `submitted_at`
    blocks: int | None = None  # of the machine's `total_blocks`; None: not said, which reads as one
    free_at: int | None = None  # the newest poll of the machine without it, before one showed it there
    answered_at: int | None = None  # the machine answered the provider about it then or later
    cut_off: bool = False  # it ended because the machine stopped answering
    forgotten: bool = False  # `until` is when we lost sight of it, not when it ended
    started_at: int | None = None  # when it began to run there; None: it has not, or its provider does not say


class Drain(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """Our intent that no more runs come."""

    position: int
    at: int
    by: DrainBy
    detail: str = ""  # in words: `run train needs its place`

    def __str__(self) -> str:
        return f"{self.by}: {self.detail}" if self.detail else self.by


class Told(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """Our stop requests to the provider."""

    position: int
    intended_at: int
    by: DrainBy
    taken_at: int | None = None  # when the provider accepted it; None: no outcome yet, or refused
    refused_at: int | None = None
    error: str | None = None
    times: int = 1  # tries since the drain began, refused or accepted


class Wish(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A user's request to end this machine."""

    position: int
    at: int
    when_idle: bool


class KeptSpan(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """A time for which somebody keeps the machine, and pays while it is idle."""

    lever_id: str
    by: str
    why: str
    since: int
    until: int  # it was released then, if it was
    released: bool = False


class Vm(Tracked, kw_only=True):
    """The state of one machine. Times are microseconds UTC, money micro-dollars."""

    vm_id: str  # uuid5 of provider and provider id, as for foreign runs
    provider_id: str
    source: str  # whose polls show it
    state: VmState = VmState.REQUESTED
    reason: VmReason | None = None
    facts: VmFacts  # the newest observation
    created: int  # the provider's, else the first poll that shows it
    skew: int = 0  # by how much `created` was shifted to our clock, microseconds
    finished_at: int | None = None  # the provider's, else the first poll that shows it terminated
    finished_low: int | None = None
    """The earliest possible end: `finished_at` if that is the provider's, else the last poll before."""
    unseen_end: bool = False
    """It was over when a poll first showed it, and no source says since when: `finished_at` is the end of the last run
    known on it (else `created`); it ended by `first_at` at the latest.
    """
    confirmed: bool = False  # somebody saw `finished_at` in the cloud's own console
    prices: tuple[PriceStep, ...] = ()
    steps: tuple[VmStep, ...] = ()
    dates: tuple[VmDate, ...] = ()  # in order of time, shifted by `skew`
    pauses: tuple[Pause, ...] = ()  # in order of time
    unreachable: tuple[SilentSpan, ...] = ()
    runs: tuple[str, ...] = ()  # runs that were on it, in order
    occupancies: tuple[Occupancy, ...] = ()
    idle_from: int | None = None
    """The source's answered time when it was first seen idle in this idle phase; None: not idle. Idle evidence is the
    source's answered time now, less this.
    """
    idle_since: int | None = None  # when that was
    made_for: str | None = None  # the run whose cold start made it
    ours: bool = False
    """Steno made it: we ensured its fleet, or it was made for a run we submitted, or it is this machine's."""
    drain: Drain | None = None
    told: Told | None = None
    wish: Wish | None = None
    keeps: tuple[KeptSpan, ...] = ()  # in order of time; none overlaps another
    ending_since: int | None = None  # when it was told to stop, or first seen terminating
    ending_from: int | None = None  # its source's answered time then

    @property
    def subject(self) -> str:
        return f"vm/{self.vm_id}"

    def moved(self, step: VmStep | None = None) -> VmMoved:
        return VmMoved(vm_id=self.vm_id, step=step)

    @property
    def over_at(self) -> int | None:
        """From when on no run was on it; None: it may be there still."""
        end = self.first_at if self.unseen_end else self.finished_at
        return end if self.state is VmState.TERMINATED else None

    @property
    def silence(self) -> SilentSpan | None:
        """That which lasts, or lasted to its end; None: it answers."""
        last = self.unreachable[-1:]
        return last[0] if last and last[0].until is None else None

    def kept(self, moment: int) -> KeptSpan | None:
        """The time for which somebody keeps it at a moment of record time."""
        return next((span for span in self.keeps if span.since <= moment < span.until), None)

    @property
    def outlasted(self) -> KeptSpan | None:
        """The newest time for which somebody kept it, if that is to end it once it is over: it was idle in it."""
        kept = self.keeps[-1] if self.keeps else None
        if kept is None or kept.released or self.idle_since is None or self.idle_since > kept.until:
            return None
        return kept

    @property
    def billed(self) -> bool:
        return self.state in BILLED

    @property
    def occupants(self) -> tuple[Occupancy, ...]:
        return tuple(occupancy for occupancy in self.occupancies if occupancy.until is None)


def last_asked(vm: Vm) -> int:
    """When the newest poll that showed the machine was asked: its answer may be that old."""
    return vm.last_at if vm.asked_at is None else min(vm.last_at, vm.asked_at)


def paused(known: Iterable[Pause], total: int, *, since: int, low: int, until: int) -> tuple[Pause, ...]:
    """The pauses of a life from `since` to `until`, `total` together (as far as it is that long). What came since the
    poll before, asked at `low`, continues the last pause if that lasted up to then; else it lies just before `until`.
    What is too much is taken from the end.
    """
    pauses = [Pause(since=pause.since, until=min(pause.until, until)) for pause in known if pause.since < until]
    more = min(total, max(0, until - since)) - sum(pause.until - pause.since for pause in pauses)
    while more < 0:
        last = pauses.pop()
        more += last.until - last.since
        if more > 0:
            pauses.append(Pause(since=last.since, until=last.since + more))
            more = 0
    if more and pauses and pauses[-1].until >= low:
        last = pauses.pop()
        length = min(more, until - last.until)
        pauses.append(Pause(since=last.since, until=last.until + length))
        more -= length
    for place in reversed(range(len(pauses) + 1)):
        begins = pauses[place - 1].until if place else since
        ends = pauses[place].since if place < len(pauses) else until
        length = min(more, ends - begins)
        if length > 0:
            pauses.insert(place, Pause(since=ends - length, until=ends))
            more -= length
    return tuple(_joined(pauses))


def _joined(pauses: Iterable[Pause]) -> Iterator[Pause]:
    before: Pause | None = None
    for pause in pauses:
        if before is not None and before.until < pause.since:
            yield before
            before = None
        before = pause if before is None else Pause(since=before.since, until=pause.until)
    if before is not None:
        yield before
