"""Everything counted while the service runs: requests, polls, appends, moves of runs, anomalies, gaps, notices."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from engine.fold.archives import archive_about, live_part
from engine.fold.change import Anomaly, Blind, Change, Moved
from engine.providers.readings import READINGS
from engine.states import State
from events.clock import SECOND
from events.store.record import Stored
from events.types import (
    NoticeDelivered,
    NoticeFailed,
    NoticeIntended,
    PollFailed,
    PollRecorded,
    ProviderEventSeen,
    RunObserved,
    VmObserved,
)
from projections.api.operations.meters import LONG, SHORT, Durations, Requests

if TYPE_CHECKING:
    from engine.fold.run import Run
    from engine.fold.world_codec import WorldState
    from events.store.record import Record

_NOTICES = frozenset({"NoticeIntended", "NoticeDelivered", "NoticeFailed"})


class Tally:
    """Written by the thread that folds, `requests` by the event loop's; read by whoever answers `/metrics`."""

    def __init__(self) -> None:
        self._imported = False
        """Whether the last poll was."""
        self.requests = Requests()
        self.polls: defaultdict[tuple[str, str], Durations] = defaultdict(partial(Durations, SHORT))
        """(source, endpoint) → how long answers took."""
        self.failures: Counter[tuple[str, str]] = Counter()
        """(source, endpoint) → polls without an answer."""
        self.appends = Durations(SHORT)
        """From the moment something was observed to when it was recorded."""
        self.publishing = Durations(SHORT)
        """From when something was recorded to when listeners were told."""
        self.dwelt: dict[State, Durations] = {state: Durations(LONG) for state in State}
        """State → how long runs were in it; of all runs of the record."""
        self.anomalies: Counter[str] = Counter()
        self.blind: Counter[str] = Counter()
        """Source → microseconds of gaps that have ended."""
        self.pending: set[str] = set()
        """Notices that have no outcome yet; of all of the record, as the next two."""
        self.delivered = 0
        self.failed: Counter[bool] = Counter()
        """Whether for good → how often a notice was not taken."""
        self.undelivered = 0
        """Notices given up since one was last delivered."""

    def begin(self, record: "Record", state: "WorldState", position: int) -> None:
        """Count what the record holds already."""
        for run in live_part(state).runs.values():
            for step in run.transitions:
                self._dwell(step.before, step.at - entered_at(run, step.position))
        for stored in record.read(until=position, types=_NOTICES):
            self._notice(stored)

    def take(self, record: "Record", events: Iterable[Stored], changes: Iterable[Change], state: "WorldState") -> None:
        """Count what has happened since; what was imported did not happen now."""
        for one in events:
            if self._was_imported(one):
                continue
            if isinstance(one.data, PollRecorded | PollFailed) and one.scope is not None:
                self._poll(record, one, one.scope)
            elif one.type in _NOTICES:
                self._notice(one)
            self.appends.add(max(0, one.recorded_at - one.observed_at) / SECOND)
        for change in changes:
            match change:
                case Moved(transition=step) if step is not None:
                    run = state.runs.get(change.run_id)
                    if run is not None and run.archive is None:
                        self._dwell(step.before, step.at - entered_at(run, step.position))
                case Anomaly() if archive_about(state, change.subject) is None:
                    self.anomalies[change.kind.value] += 1
                case Blind() if change.until is not None and archive_about(state, f"source/{change.source}") is None:
                    self.blind[change.source] += change.until - change.since
                case _:
                    pass

    def _was_imported(self, one: Stored) -> bool:
        """Whether an event is an imported poll, or an observation, which follows its poll."""
        if isinstance(one.data, PollRecorded | PollFailed):
            self._imported = one.event_id is not None
            return self._imported
        return self._imported and isinstance(one.data, RunObserved | VmObserved | ProviderEventSeen)

    def _poll(self, record: "Record", one: Stored, scope_id: int) -> None:
        asked = record.scope(scope_id)
        key = (one.stream.removeprefix("source/"), READINGS.scope(asked.path, bytes(asked.req)).endpoint)
        self.polls[key].add(one.took / SECOND)
        if isinstance(one.data, PollFailed):
            self.failures[key] += 1

    def _notice(self, one: Stored) -> None:
        match one.data:
            case NoticeIntended(notice_id=name, kind=kind):
                if kind != "test":  # whoever sent it waits for the answer; nobody sends it again
                    self.pending.add(name)
            case NoticeDelivered(notice_id=name):
                self.pending.discard(name)
                self.delivered += 1
                self.undelivered = 0
            case NoticeFailed(notice_id=name, final=final):
                self.failed[final] += 1
                if final:
                    self.pending.discard(name)
                    self.undelivered += 1
            case _:
                pass

    def _dwell(self, state: State, duration: int) -> None:
        self.dwelt[state].add(max(0, duration) / SECOND)


def entered_at(run: "Run", left: int | None = None) -> int:
    """When a run came into its state, or into the one that it left at the position `left`."""
    before = [step.at for step in run.transitions if left is None or step.position < left]
    return before[-1] if before else run.first_at if run.requested_at is None else run.requested_at
