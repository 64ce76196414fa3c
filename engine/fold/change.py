"""What an event changed: the fold's output beside its state."""

from collections import deque
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Final

import msgspec

from engine.fold.vm import VmStep
from engine.states import State

DETAIL: Final = 1000
"""Characters of an anomaly's detail."""
NOTES: Final = 4_096
"""Anomalies and gaps kept by `Touched`; who is behind the oldest of them reads the record."""


class Transition(msgspec.Struct, frozen=True, kw_only=True):
    """A run moved."""

    position: int
    at: int
    """`observed_at` of the poll that moved it."""
    before: State
    after: State
    rule: str


class AnomalyKind(StrEnum):
    """What should not be."""

    CONTRADICTION = "contradiction"  # the provider takes back an end, or says two things of one thing at once
    ILLEGAL_TRANSITION = "illegal_transition"  # a newer answer shows the run behind where it was
    SCHEMA_DRIFT = "schema_drift"  # a word or a type we do not know
    ORPHAN = "orphan"  # a machine that nobody we know of asked for
    ORPHAN_SUSPECTED = "orphan_suspected"  # told to go and not seen gone: still billed
    AMBIGUOUS_VM = "ambiguous_vm"  # two machines fit a run equally well
    AMBIGUOUS_SUBMISSION = "ambiguous_submission"  # a run at the provider that may be ours, or only says so
    CLOCK_SKEW = "clock_skew"  # the provider's clock is more than 2 s off ours
    COST_DIVERGENCE = "cost_divergence"  # the provider's figure cannot be explained by its own answers
    GPU_MISMATCH = "gpu_mismatch"  # the machine has another GPU than was asked for


class Anomaly(msgspec.Struct, frozen=True, kw_only=True):
    """Something the provider said that should not be."""

    kind: AnomalyKind
    subject: str
    """`run/<run_id>`, `vm/<vm_id>` or `source/<source>`."""
    position: int
    detail: str

    def __post_init__(self) -> None:
        """Cut a long detail: it may repeat what a caller sent, and it appears in logs, lists and notices."""
        if len(self.detail) > DETAIL:
            msgspec.structs.force_setattr(self, "detail", self.detail[: DETAIL - 1] + "…")


class Blind(msgspec.Struct, frozen=True, kw_only=True):
    """A time in which we did not see a source: from its last answered poll to its next."""

    source: str
    since: int
    until: int | None


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    """One run after a tick: how it moved, or None where only what the provider reports changed."""

    run_id: str
    transition: Transition | None


class VmMoved(msgspec.Struct, frozen=True, kw_only=True):
    """One machine after a tick: how it moved, or None where only what the provider reports changed."""

    vm_id: str
    step: VmStep | None


Change = Moved | VmMoved | Anomaly | Blind


class Touched:
    """Ids by the newest position at which each was touched, and the newest anomalies and gaps."""

    def __init__(self, floor: int = 0) -> None:
        self.floor = floor
        """It knows everything behind this position."""
        self._runs: dict[str, int] = {}
        self._vms: dict[str, int] = {}
        self._notes: deque[tuple[int, Anomaly | Blind]] = deque()
        self._now_runs: dict[str, None] = {}
        self._now_vms: dict[str, None] = {}

    def runs(self, run_ids: Iterable[str]) -> None:
        """These runs may be other than they were."""
        self._now_runs.update(dict.fromkeys(run_ids))

    def vms(self, vm_ids: Iterable[str]) -> None:
        """These machines may be other than they were."""
        self._now_vms.update(dict.fromkeys(vm_ids))

    def note(self, position: int, changes: Iterable[Change]) -> None:
        """What an event changed."""
        for change in changes:
            match change:
                case Moved():
                    self._now_runs[change.run_id] = None
                case VmMoved():
                    self._now_vms[change.vm_id] = None
                case Anomaly() | Blind():
                    self._notes.append((position, change))

    def end(self, position: int) -> None:
        """A batch of events is folded, up to this position."""
        for known, now in ((self._runs, self._now_runs), (self._vms, self._now_vms)):
            for one in now:
                known.pop(one, None)
                known[one] = position
            now.clear()
        while len(self._notes) > NOTES:
            self.floor = max(self.floor, self._notes.popleft()[0])

    def runs_since(self, position: int) -> list[str]:
        """The runs touched behind a position, which is not before `floor`."""
        return _since(self._runs, position)

    def vms_since(self, position: int) -> list[str]:
        """The machines touched behind a position, which is not before `floor`."""
        return _since(self._vms, position)

    def notes_since(self, position: int) -> Iterator[Anomaly | Blind]:
        """The anomalies and gaps behind a position, which is not before `floor`, in order."""
        return (one for at, one in self._notes if at > position)


def _since(known: dict[str, int], position: int) -> list[str]:
    found = []
    for one, at in reversed(known.items()):
        if at <= position:
            break
        found.append(one)
    return found
