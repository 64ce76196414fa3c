"""Following the record, as the one who polls or as one who looks on; whoever holds the lease changes over time."""

from types import TracebackType
from typing import TYPE_CHECKING

from engine.fold.change import Change
from engine.fold.world import World
from engine.recorder.recorder import Recorder, Round
from events.clock import SECOND

if TYPE_CHECKING:
    from events.store.store import Lease

LOOK = SECOND // 5
"""Microseconds between looks at a record somebody else writes."""


class Watch:
    """Keeps a world up to date: polls while it holds the lease, else reads what the holder appends.

    A holder that dies leaves the lease, and this one takes it: somebody always looks.
    """

    def __init__(self, recorder: Recorder, lease: str) -> None:
        """
        Args:
            lease: its name, that of the source: who records one project does not act for another.
        """
        self._recorder = recorder
        self._store = recorder.live.record.store
        self._lease_name = lease
        self._lease: Lease | None = None

    @property
    def world(self) -> World:
        """What the record says so far."""
        return self._recorder.world

    @property
    def holds(self) -> bool:
        """Whether this process is the one that polls and acts."""
        return self._lease is not None

    def hold(self) -> bool:
        """Take the lease if it is free; whether it is ours now.

        Raises:
            RecordNotWritable: the lease cannot be made or opened.
        """
        if self._lease is None:
            self._lease = self._store.lease(self._lease_name)
        return self._lease is not None

    def round(self) -> Round:
        """Poll, decide and act if the lease is ours or free, else fold what others appended."""
        if self.hold():
            return self._recorder.round()
        return Round(polls=0, answered=0, changes=self.catch_up(), trouble=None, pause=LOOK)

    def catch_up(self) -> tuple[Change, ...]:
        """Fold what the record has that the world has not; what changed since the last round."""
        return self._recorder.catch_up()

    def release(self) -> None:
        """Let another process act; one that ends while a call of its is under way keeps the lease until it is gone."""
        if self._lease is not None:
            lease, self._lease = self._lease, None
            if self._recorder.close():
                lease.release()

    def __enter__(self) -> "Watch":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
