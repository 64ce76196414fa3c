"""Which runs and machines a fold has touched since a position, so that a read model writes those and no others."""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final

from engine.fold.change import Anomaly, Blind, Change, Moved, VmMoved

NOTES: Final = 4_096
"""Anomalies and gaps kept; who is behind the oldest of them reads the record."""


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
