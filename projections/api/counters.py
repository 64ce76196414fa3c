"""Counters of the running service: requests, polls, appends, run transitions, anomalies, gaps, notices."""

from collections import defaultdict
from collections.abc import Iterable
from functools import lru_cache, partial
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics

from steno.engine.providers.registry import READINGS
from steno.engine.state.archives import archive_about
from steno.engine.state.changes import Anomaly, Blind, Change, Moved, Transition
from steno.engine.state.run import Run
from steno.engine.state.state_machines import TERMINAL
from steno.engine.state.states import State
from steno.engine.state.world import World
from steno.events.clock import SECOND
from steno.events.store.record import Record, Stored
from steno.events.types import (
    NoticeDelivered,
    NoticeFailed,
    NoticeIntended,
    PollFailed,
    PollRecorded,
    ProviderEventSeen,
    RunObserved,
    VmObserved,
)
from steno.projections.api.problems import OTHER

disable_created_metrics()  # type: ignore[no-untyped-call]
LASTING: Final = tuple(state for state in State if state not in TERMINAL)
SHORT: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Buckets for answers and appends, in seconds."""
LONG: Final = (1.0, 5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 10800.0, 43200.0, 86400.0)
"""Buckets for runs, in seconds."""
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "DELETE", "OPTIONS"})
_NOTICES = frozenset({"NoticeIntended", "NoticeDelivered", "NoticeFailed"})


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

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one answer; status 0 means none."""
        answered, took = self._request(method, route, status)
        answered.inc()
        if took is not None:
            took.observe(seconds)

    def _metrics_of(self, method: str, route: str, status: int) -> tuple[Counter, Histogram | None]:
        """The counter and histogram of such answers; streams have no histogram, as the client sets their duration."""
        method = method if method in _METHODS else OTHER
        took = None if route.endswith("/stream") else self._took.labels(method, route)
        return self._answered.labels(method, route, status), took

    def begin(self, record: Record, position: int) -> None:
        """Count the notices that the record already holds."""
        for stored in record.read(until=position, types=_NOTICES):
            self._notice(stored)

    def take(self, record: Record, events: Iterable[Stored], changes: Iterable[Change], state: World) -> None:
        """Count new events, except imported events."""
        for stored in events:
            if self._was_imported(stored):
                continue
            if isinstance(stored.data, PollRecorded | PollFailed) and stored.scope is not None:
                scope = record.scope(stored.scope)
                key = (stored.stream.removeprefix("source/"), READINGS.scope(scope.path, bytes(scope.req)).endpoint)
                self._polls.labels(*key).observe(max(0, stored.took) / SECOND)
                self._poll_failures.labels(*key).inc(isinstance(stored.data, PollFailed))
            elif stored.type in _NOTICES:
                self._notice(stored)
            self._appends.observe(max(0, stored.recorded_at - stored.observed_at) / SECOND)
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

    def _was_imported(self, stored: Stored) -> bool:
        """True for an imported poll, or an observation, which follows its poll."""
        if isinstance(stored.data, PollRecorded | PollFailed):
            self._imported = stored.event_id is not None
            return self._imported
        return self._imported and isinstance(stored.data, RunObserved | VmObserved | ProviderEventSeen)

    def _notice(self, stored: Stored) -> None:
        match stored.data:
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
