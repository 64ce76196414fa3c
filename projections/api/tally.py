"""Everything counted while the service runs: requests, polls, appends, moves of runs, anomalies, gaps, notices."""

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache, partial
from typing import Final

from engine.fold.archives import archive_about, live_part
from engine.fold.change import Anomaly, Blind, Change, Moved, Transition
from engine.fold.run import Run
from engine.fold.world_codec import WorldState
from engine.providers.readings import READINGS
from engine.states import State
from events.clock import SECOND
from events.store.record import Record, Stored
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

SHORT: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Of answers and appends, seconds."""
LONG: Final = (1.0, 5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 10800.0, 43200.0, 86400.0)
"""Of what runs do, seconds."""
OTHER: Final = "other"
_ROUTES: Final = (
    (re.compile(r"/api/(runs|vms)/[^/]+"), r"/api/\1/{id}"),
    (re.compile(r"/api/runs/[^/]+/(timeline|explain|events|costs|logs|stop|stream)"), r"/api/runs/{id}/\1"),
    (re.compile(r"/api/vms/[^/]+/stop"), "/api/vms/{id}/stop"),
    (re.compile(r"/api/(events|polls)/[^/]+"), r"/api/\1/{position}"),
    (re.compile(r"/api/amd/runs/[^/]+/stream"), "/api/amd/runs/{id}/stream"),
    (re.compile(r"/api/amd/(submit|metrics|schema|problems)|/metrics|/healthz|/readyz|/openapi\.json"), r"\g<0>"),
    (re.compile("/api/(runs|vms|costs|budget|overview|events|polls|incidents|record|offers|sources)"), r"\g<0>"),
    (re.compile("/api/(session|stream)"), r"\g<0>"),
    (re.compile(r"/assets/.*"), "/assets/{path}"),
    (re.compile(r"/((runs|machines|costs|submit|record|incidents)(/[^/]+)?)?"), "/{page}"),
)
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "DELETE", "OPTIONS"})
_NOTICES = frozenset({"NoticeIntended", "NoticeDelivered", "NoticeFailed"})


class Durations:
    """How many durations fell into each bucket, and their sum."""

    __slots__ = ("_bounds", "_counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, seconds: float) -> None:
        self._counts[bisect_left(self._bounds, seconds)] += 1
        self.sum += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """As Prometheus counts: each bucket has those of the smaller ones too."""
        total, found = 0, []
        for bound, count in zip((*map(str, self._bounds), "+Inf"), tuple(self._counts), strict=True):
            total += count
            found.append((bound, float(total)))
        return found


@lru_cache(maxsize=4096)
def route_of(path: str) -> str:
    """The route a path belongs to; `other` for any we do not have, so that nobody can make up labels."""
    found = next(((match, route) for pattern, route in _ROUTES if (match := pattern.fullmatch(path))), None)
    return OTHER if found is None else found[0].expand(found[1])


class Requests:
    """Requests answered since the server started; used by the event loop's thread only."""

    def __init__(self) -> None:
        self.answered: Counter[tuple[str, str, str]] = Counter()
        """(method, route, status) → how often."""
        self.durations: defaultdict[tuple[str, str], Durations] = defaultdict(partial(Durations, SHORT))
        """(method, route) → how long answers took; streams are left out, they take as long as somebody listens."""

    def count(self, method: str, path: str, status: int, seconds: float) -> None:
        """Count one answer; status 0 is none."""
        method = method if method in _METHODS else OTHER
        route = route_of(path)
        self.answered[method, route, str(status)] += 1
        if not route.endswith("/stream"):
            self.durations[method, route].add(seconds)


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

    def begin(self, record: Record, state: WorldState, position: int) -> None:
        """Count what the record holds already."""
        for run in live_part(state).runs.values():
            for step in run.transitions:
                self._left(run, step)
        for stored in record.read(until=position, types=_NOTICES):
            self._notice(stored)

    def take(self, record: Record, events: Iterable[Stored], changes: Iterable[Change], state: WorldState) -> None:
        """Count what has happened since; what was imported did not happen now."""
        for one in events:
            if self._was_imported(one):
                continue
            if isinstance(one.data, PollRecorded | PollFailed) and one.scope is not None:
                asked = record.scope(one.scope)
                key = (one.stream.removeprefix("source/"), READINGS.scope(asked.path, bytes(asked.req)).endpoint)
                self.polls[key].add(one.took / SECOND)
                self.failures[key] += isinstance(one.data, PollFailed)
            elif one.type in _NOTICES:
                self._notice(one)
            self.appends.add(max(0, one.recorded_at - one.observed_at) / SECOND)
        for change in changes:
            match change:
                case Moved(transition=step) if step is not None:
                    run = state.runs.get(change.run_id)
                    if run is not None and run.archive is None:
                        self._left(run, step)
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

    def _left(self, run: "Run", step: "Transition") -> None:
        """A run left a state."""
        self.dwelt[step.before].add(max(0, step.at - entered_at(run, step.position)) / SECOND)


def entered_at(run: "Run", left: int | None = None) -> int:
    """When a run came into its state, or into the one that it left at the position `left`."""
    before = [step.at for step in run.transitions if left is None or step.position < left]
    return before[-1] if before else run.first_at if run.requested_at is None else run.requested_at
