"""The common part of runs and machines, and the changes that an event made: the fold's output beside its state."""

from collections import deque
from collections.abc import Iterable, Iterator
from enum import StrEnum
from itertools import takewhile
from typing import Final

import msgspec

from steno.engine.state.states import State, VmState

DETAIL: Final = 1000  # characters of an anomaly's detail
NOTES: Final = 4_096  # anomalies and gaps kept by `Touched`; behind the oldest, read the record


class Transition(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    position: int
    at: int  # `observed_at` of the poll that moved it
    before: State
    after: State
    rule: str


class VmStep(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A machine moved, at some time between `low_at` and `at`."""

    position: int
    at: int  # `observed_at` of the first poll that showed (or the event that made) the new state
    low_at: int  # when the last poll of the state before was asked; `at` for our own event
    before: VmState
    after: VmState


class AnomalyKind(StrEnum):
    CONTRADICTION = "contradiction"  # the provider takes back an end, or says two things of one thing at once
    ILLEGAL_TRANSITION = "illegal_transition"  # a newer answer shows the run behind where it was
    SCHEMA_DRIFT = "schema_drift"  # a word or a type we do not know
    ORPHAN = "orphan"  # a machine that nobody we know of asked for
    ORPHAN_SUSPECTED = "orphan_suspected"  # told to go, or no longer listed, and not seen gone: still billed
    UNREACHABLE = "unreachable"  # a machine that its provider does not reach any more
    AMBIGUOUS_VM = "ambiguous_vm"  # two machines fit a run equally well
    AMBIGUOUS_SUBMISSION = "ambiguous_submission"  # a run at the provider that may be ours, or only says so
    CLOCK_SKEW = "clock_skew"  # the provider's clock is more than 2 s off ours
    CLOCK_JUMP = "clock_jump"  # the wall clock of this machine was set, or is not believed
    COST_DIVERGENCE = "cost_divergence"  # the provider's figure cannot be explained by its own answers
    UNHEALTHY = "unhealthy"  # the provider's health check of a machine found something
    GPU_IDLE = "gpu_idle"  # the GPUs of a run are idle, and a policy is about to stop it
    GPU_MISMATCH = "gpu_mismatch"  # the machine has another GPU than was asked for


class Anomaly(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Something the provider said that should not be."""

    kind: AnomalyKind
    subject: str  # `run/<run_id>`, `vm/<vm_id>` or `source/<source>`
    position: int
    detail: str

    def __post_init__(self) -> None:
        """Cut a long detail: it may repeat what a caller sent, and it appears in logs, lists and notices."""
        if len(self.detail) > DETAIL:
            msgspec.structs.force_setattr(self, "detail", self.detail[: DETAIL - 1] + "…")


class GapKind(StrEnum):
    """Why a source was not seen for a time: of both, the longer part decides."""

    NO_ANSWER = "no_answer"  # we polled it, it did not answer
    NOT_POLLED = "not_polled"  # no process of ours polled it

    @property
    def words(self) -> str:
        return self.value.replace("_", " ")


class Blind(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A time in which we did not see a source: from its last answered poll to its next."""

    source: str
    since: int
    until: int | None
    kind: GapKind = GapKind.NO_ANSWER


class Missing(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    source: str
    since: int  # the source's answered time (`steno.engine.state.sources`) when a complete sweep first left it out
    at: int = 0  # when that was
    not_exists: bool = False  # the source said of the id that it does not exist


class Tracked(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A run or machine. Times are microseconds UTC."""

    provider: str
    first_position: int
    first_at: int  # `observed_at` of the first poll that showed it, or when it was requested
    last_position: int
    last_at: int  # of the newest poll that showed it
    started: dict[str, int] = {}  # source → the newest `started_at` of a poll of it that showed it
    missing: Missing | None = None
    noted: tuple[str, ...] = ()  # anomalies already written down for it
    archive: str | None = None  # the archive that alone shows it; None: it is live, or was requested here
    hidden: bool = False  # lists leave it out

    @property
    def asked_at(self) -> int | None:
        """When the newest poll that showed it was asked; None: no poll showed it."""
        return max(self.started.values(), default=None)

    def shown_again(self, source: str, started_at: int, position: int, at: int) -> None:
        """Repeated polls, up to the one at `position`, showed it unchanged."""
        self.started[source] = max(self.started.get(source, started_at), started_at)
        if position > self.last_position:
            self.last_position, self.last_at = position, at


class Moved(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A run after a tick: how it moved; None: only what the provider reports changed."""

    run_id: str
    transition: Transition | None


class VmMoved(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A machine after a tick: how it moved; None: only what the provider reports changed."""

    vm_id: str
    step: VmStep | None


class Heard(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A source among several changed its view of a run, whether anything follows from it or not."""

    run_id: str


Change = Moved | VmMoved | Heard | Anomaly | Blind


class Touched:
    """Ids by the newest position at which each was touched, and the newest anomalies and gaps."""

    def __init__(self, floor: int = 0) -> None:
        self.floor = floor  # everything after this position is known
        self._ids: dict[str, int] = {}
        self._now: set[str] = set()
        self._notes: deque[tuple[int, Anomaly | Blind]] = deque()

    def add(self, ids: Iterable[str]) -> None:
        """These runs and machines may have changed."""
        self._now.update(ids)

    def note(self, position: int, changes: Iterable[Change]) -> None:
        for change in changes:
            match change:
                case Moved() | Heard():
                    self._now.add(change.run_id)
                case VmMoved():
                    self._now.add(change.vm_id)
                case Anomaly() | Blind():
                    self._notes.append((position, change))

    def end(self, position: int) -> None:
        """A batch of events is folded, up to this position."""
        for key in self._now:
            self._ids.pop(key, None)  # newest last
            self._ids[key] = position
        self._now.clear()
        while len(self._notes) > NOTES:
            self.floor = max(self.floor, self._notes.popleft()[0])

    def since(self, position: int) -> set[str]:
        """The ids of runs and machines touched after a position, which is at least `floor`."""
        return set(takewhile(lambda key: self._ids[key] > position, reversed(self._ids)))

    def notes_since(self, position: int) -> Iterator[Anomaly | Blind]:
        """The anomalies and gaps after a position, which is at least `floor`, in order."""
        return (note for at, note in self._notes if at > position)
