"""Counters of the running service: requests, polls, appends, run transitions, anomalies, gaps, notices."""

import re
from collections import defaultdict
from collections.abc import Iterable
from functools import lru_cache, partial
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics

from engine.fold.archives import archive_about
from engine.fold.change import Anomaly, Blind, Change, Moved, Transition
from engine.fold.run import Run
from engine.fold.state_machines import TERMINAL
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

disable_created_metrics()  # type: ignore[no-untyped-call]
LASTING: Final = tuple(state for state in State if state not in TERMINAL)
SHORT: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Buckets for answers and appends, in seconds."""
LONG: Final = (1.0, 5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 10800.0, 43200.0, 86400.0)
"""Buckets for runs, in seconds."""
OTHER: Final = "other"
_ROUTES: Final = (
    (re.compile(r"/api/(runs|vms|kernels(?!/leaderboard$))/[^/]+"), r"/api/\1/{id}"),
    (
        re.compile(r"/api/runs/[^/]+/(timeline|explain|events|costs|logs|stop|stream|request|rerun|like)"),
        r"/api/runs/{id}/\1",
    ),
    (re.compile(r"/api/vms/[^/]+/stop"), "/api/vms/{id}/stop"),
    (re.compile(r"/api/(events|polls)/[^/]+"), r"/api/\1/{position}"),
    (re.compile(r"/api/amd/runs/[^/]+/stream"), "/api/amd/runs/{id}/stream"),
    (re.compile(r"/api/amd/(submit|metrics|schema|problems)|/metrics|/healthz|/readyz|/openapi\.json"), r"\g<0>"),
    (
        re.compile(
            "/api/(runs|vms|costs|spend|utilisation|starts|budget|overview|events|polls|incidents|record|offers|sources)"
        ),
        r"\g<0>",
    ),
    (re.compile(r"/api/tokens/[^/]+"), "/api/tokens/{id}"),
    (re.compile("/api/(session|stream|filters|compare|notices|audit|tokens|kernels/leaderboard)"), r"\g<0>"),
    (re.compile(r"/assets/.*"), "/assets/{path}"),
    (re.compile(r"/((runs|machines|costs|kernels|submit|record|incidents|docs|compare|admin)(/[^/]+)?)?"), "/{page}"),
)
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "DELETE", "OPTIONS"})
_NOTICES = frozenset({"NoticeIntended", "NoticeDelivered", "NoticeFailed"})


def route_of(path: str) -> str:
    """The route of a path; `other` for unknown paths, so that clients cannot create labels."""
    found = next(((match, route) for pattern, route in _ROUTES if (match := pattern.fullmatch(path))), None)
    return OTHER if found is None else found[0].expand(found[1])


class Tally:
    """Counts requests in the event loop's thread, everything else in the folding thread."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()  # all but the gaps
        counter, gauge = partial(Counter, registry=self.registry), partial(Gauge, registry=self.registry)
        histogram = partial(Histogram, registry=self.registry, buckets=SHORT)
        self._answered = counter("steno_http_requests", "Requests answered.", ("method", "route", "status"))
        took = "How long answers took; streams left out."
        self._took = histogram("steno_http_request_duration_seconds", took, ("method", "route"))
        self._request = lru_cache(maxsize=4096)(self._metrics_of)
        labels = ("source", "endpoint")
        self._polls = histogram("steno_poll_duration_seconds", "How long polls took.", labels)
        self._poll_failures = counter("steno_poll_failures", "Polls without an answer.", labels)
        appends = "From when something was observed to its place in the record."
        self._appends = histogram("steno_append_latency_seconds", appends)
        self.publishing = histogram("steno_publish_latency_seconds", "From the record to those who listen.")
        dwelt = "How long runs were in a state that they left since the server started."
        self._dwelt = histogram("steno_run_state_seconds", dwelt, ("state",), buckets=LONG)
        for state in LASTING:
            self._dwelt.labels(state.value)
        self._anomalies = counter("steno_anomalies", "Anomalies since the server started.", ("kind",))
        self.blind = defaultdict[str, int](int)  # source → microseconds of gaps that have ended
        # of all notices of the record
        self._delivered = counter("steno_notices_delivered", "Notices delivered, traces included.")
        self._not_taken = counter("steno_notice_failures", "Notices not taken.", ("final",))
        for final in ("false", "true"):
            self._not_taken.labels(final)
        self._given_up = gauge("steno_notices_given_up", "Notices given up since one was last delivered.")
        self._pending: set[str] = set()
        gauge("steno_notices_pending", "Notices with no outcome yet.").set_function(lambda: len(self._pending))
        self._imported = False  # whether the last poll was

    def request(self, method: str, path: str, status: int, seconds: float) -> None:
        """Count one answer; status 0 means none."""
        answered, took = self._request(method, path, status)
        answered.inc()
        if took is not None:
            took.observe(seconds)

    def _metrics_of(self, method: str, path: str, status: int) -> tuple[Counter, Histogram | None]:
        """The counter and histogram of such answers; streams have no histogram, as the client sets their duration."""
        method, route = method if method in _METHODS else OTHER, route_of(path)
        took = None if route.endswith("/stream") else self._took.labels(method, route)
        return self._answered.labels(method, route, status), took

    def begin(self, record: Record, position: int) -> None:
        """Count the notices that the record already holds."""
        for stored in record.read(until=position, types=_NOTICES):
            self._notice(stored)

    def take(self, record: Record, events: Iterable[Stored], changes: Iterable[Change], state: WorldState) -> None:
        """Count new events, except imported ones."""
        for one in events:
            if self._was_imported(one):
                continue
            if isinstance(one.data, PollRecorded | PollFailed) and one.scope is not None:
                asked = record.scope(one.scope)
                key = (one.stream.removeprefix("source/"), READINGS.scope(asked.path, bytes(asked.req)).endpoint)
                self._polls.labels(*key).observe(one.took / SECOND)
                self._poll_failures.labels(*key).inc(isinstance(one.data, PollFailed))
            elif one.type in _NOTICES:
                self._notice(one)
            self._appends.observe(max(0, one.recorded_at - one.observed_at) / SECOND)
        for change in changes:
            match change:
                case Moved(transition=step) if step is not None:
                    run = state.runs.get(change.run_id)
                    if run is not None and run.archive is None:
                        self._left(run, step)
                case Anomaly() if archive_about(state, change.subject) is None:
                    self._anomalies.labels(change.kind.value).inc()
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
                    self._pending.add(name)
            case NoticeDelivered(notice_id=name):
                self._pending.discard(name)
                self._delivered.inc()
                self._given_up.set(0)
            case NoticeFailed(notice_id=name, final=final):
                self._not_taken.labels(str(final).lower()).inc()
                if final:
                    self._pending.discard(name)
                    self._given_up.inc()
            case _:
                pass

    def _left(self, run: Run, step: Transition) -> None:
        if step.before in LASTING:
            seconds = max(0, step.at - entered_at(run, step.position)) / SECOND
            self._dwelt.labels(step.before.value).observe(seconds)


def entered_at(run: Run, left: int | None = None) -> int:
    """When a run entered its state, or the state that it left at position `left`."""
    before = [step.at for step in run.transitions if left is None or step.position < left]
    return before[-1] if before else run.first_at if run.requested_at is None else run.requested_at
