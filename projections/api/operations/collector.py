"""What `/metrics` shows, gathered at the moment somebody asks."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from engine.fold.archives import live_part
from engine.fold.sources import BLIND_AFTER, Observability, observability
from engine.fold.state_machines import TERMINAL
from engine.states import State, VmState
from events.clock import SECOND
from events.errors import StenoError
from projections.api.feed.listener import Dropped
from projections.api.operations.money import money_of
from projections.models.queue_rows import waits

if TYPE_CHECKING:
    from engine.fold.run import Run
    from engine.fold.sources import Source
    from projections.api.service import Service

_LASTING: Final = tuple(state for state in State if state not in TERMINAL)
_PRESENT: Final = tuple(state for state in VmState if state is not VmState.TERMINATED)


class WorldFigures:
    """What is taken from the feed's world, in one short moment."""

    def __init__(self, service: Service) -> None:
        self.now = service.clock.now()
        with service.feed.state() as whole:
            state = live_part(whole)
            self.last_at = state.last_at
            self.runs = list(state.runs.values())
            self.unsettled = [state.runs[run_id] for run_id in state.unsettled]
            self.machines = Counter(state.vms[vm_id].state for vm_id in state.open_vms)
            self.sources = [(name, one.last_answered, one.failed, observability(one, self.now))
                            for name, one in state.sources.items() if _is_watched(one)]  # fmt: skip


def _is_watched(source: Source) -> bool:
    return not source.archive and (source.failed or source.last_answered is not None)


class ServiceCollector(Collector):
    """The metrics of one service."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def describe(self) -> Iterable[Metric]:
        """Nothing is known beforehand."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Everything, as it is now; blocks, so it is for worker threads."""
        yield from self._build()
        with suppress(StenoError):  # `/readyz` says what is wrong with the record
            yield from self._lag()
            yield from money_of(self._service)
            world = WorldFigures(self._service)
            yield from self._runs(world)
            yield from self._sources(world)
        yield from self._polls()
        yield from self._notices()
        yield from self._streams()
        yield from self._http()

    # -- the process -------------------------------------------------------------------------------------------------

    def _build(self) -> Iterator[Metric]:
        build = GaugeMetricFamily("steno_build_info", "The software that answers.", labels=("version", "python"))
        build.add_metric((version("steno"), ".".join(map(str, sys.version_info[:3]))), 1)
        yield build
        feed = self._service.feed
        yield GaugeMetricFamily(
            "steno_ready", "1: the record is followed; 0: /readyz says why not.", value=float(feed.trouble is None)
        )

    def _lag(self) -> Iterator[Metric]:
        service = self._service
        lag, head = service.projector.lag, service.feed.head()
        yield GaugeMetricFamily("steno_record_position", "Where the record ends.", value=head)
        yield GaugeMetricFamily(
            "steno_projection_lag_positions", "Events that the read models do not show yet.", value=lag.positions
        )
        yield GaugeMetricFamily(
            "steno_projection_lag_seconds", "Age of the oldest event they do not show yet.", value=lag.seconds
        )
        yield GaugeMetricFamily(
            "steno_stream_lag_positions",
            "Events not yet published to listeners.",
            value=max(0, head - service.feed.position),
        )

    def _streams(self) -> Iterator[Metric]:
        feed, tally = self._service.feed, self._service.feed.meters.tally
        yield GaugeMetricFamily("steno_stream_clients", "Who listens to a stream now.", value=feed.clients)
        dropped = CounterMetricFamily(
            "steno_stream_clients_dropped", "Clients dropped because they were too slow.", labels=("reason",)
        )
        for reason in Dropped:
            dropped.add_metric((reason.value,), feed.dropped[reason])
        yield dropped
        for name, said, found in (
            (
                "steno_append_latency_seconds",
                "From when something was observed to its place in the record.",
                tally.appends,
            ),
            ("steno_publish_latency_seconds", "From the record to those who listen.", tally.publishing),
        ):
            family = HistogramMetricFamily(name, said)
            found.tell(family)
            yield family

    def _http(self) -> Iterator[Metric]:
        requests = self._service.feed.meters.requests
        answered = CounterMetricFamily(
            "steno_http_requests", "Requests answered.", labels=("method", "route", "status")
        )
        for (method, route, status), count in tuple(requests.answered.items()):
            answered.add_metric((method, route, str(status)), count)
        yield answered
        durations = HistogramMetricFamily(
            "steno_http_request_duration_seconds",
            "How long answers took; streams left out.",
            labels=("method", "route"),
        )
        for (method, route), found in tuple(requests.durations.items()):
            found.tell(durations, (method, route))
        yield durations

    # -- runs and machines -------------------------------------------------------------------------------------------

    def _runs(self, world: WorldFigures) -> Iterator[Metric]:
        runs = GaugeMetricFamily("steno_runs", "Runs of the record by state and reason.", labels=("state", "reason"))
        found = Counter((run.state, run.reason) for run in world.runs)
        for state in State:
            found.setdefault((state, None), 0)
        for (state, reason), count in sorted(found.items(), key=str):
            runs.add_metric((state.value, "" if reason is None else reason.value), count)
        yield runs
        oldest = GaugeMetricFamily(
            "steno_run_oldest_seconds", "For how long a run has been in a state, the longest.", labels=("state",)
        )
        since = dict.fromkeys(_LASTING, world.now)
        for run in world.unsettled:
            if run.state in since:
                since[run.state] = min(since[run.state], _entered_at(run))
        for state, at in since.items():
            oldest.add_metric((state.value,), max(0, world.now - at) / SECOND)
        yield oldest
        dwelt = HistogramMetricFamily("steno_run_state_seconds", "How long runs were in a state.", labels=("state",))
        for state, durations in self._service.feed.meters.tally.dwelt.items():
            if state not in TERMINAL:
                durations.tell(dwelt, (state.value,))
        yield dwelt
        yield GaugeMetricFamily(
            "steno_queue_length", "Runs in Steno's own queue.", value=sum(waits(run) for run in world.unsettled)
        )
        machines = GaugeMetricFamily("steno_machines", "Machines not seen gone, by phase.", labels=("phase",))
        for phase in _PRESENT:
            machines.add_metric((phase.value,), world.machines[phase])
        yield machines
        anomalies = CounterMetricFamily("steno_anomalies", "Anomalies since the server started.", labels=("kind",))
        for kind, count in tuple(self._service.feed.meters.tally.anomalies.items()):
            anomalies.add_metric((kind,), count)
        yield anomalies

    # -- sources -----------------------------------------------------------------------------------------------------

    def _sources(self, world: WorldFigures) -> Iterator[Metric]:
        answered = GaugeMetricFamily(
            "steno_source_last_answer_timestamp_seconds", "When a source last answered.", labels=("source",)
        )
        seeing = GaugeMetricFamily(
            "steno_source_observability", "1 for what a source is now, 0 for the others.", labels=("source", "state")
        )
        blind = CounterMetricFamily(
            "steno_source_blind_seconds", "Time in which a source told us nothing.", labels=("source",)
        )
        for name, last, failed, word in world.sources:
            if last is not None:
                answered.add_metric((name,), last / SECOND)
            for one in Observability:
                seeing.add_metric((name, one.value), float(one is word))
            gap = 0 if last is None else world.now - last
            lasting = gap if failed or gap > BLIND_AFTER else 0
            blind.add_metric((name,), (self._service.feed.meters.tally.blind[name] + lasting) / SECOND)
        yield from (answered, seeing, blind)
        if world.last_at is not None:
            yield GaugeMetricFamily(
                "steno_record_last_poll_timestamp_seconds",
                "The newest poll, answered or not.",
                value=world.last_at / SECOND,
            )

    def _polls(self) -> Iterator[Metric]:
        tally, labels = self._service.feed.meters.tally, ("source", "endpoint")
        polls = HistogramMetricFamily("steno_poll_duration_seconds", "How long polls took.", labels=labels)
        failures = CounterMetricFamily("steno_poll_failures", "Polls without an answer.", labels=labels)
        for key, durations in tuple(tally.polls.items()):
            durations.tell(polls, key)
            failures.add_metric(key, tally.failures[key])
        yield from (polls, failures)

    def _notices(self) -> Iterator[Metric]:
        tally = self._service.feed.meters.tally
        yield GaugeMetricFamily("steno_notices_pending", "Notices with no outcome yet.", value=len(tally.pending))
        yield GaugeMetricFamily(
            "steno_notices_given_up", "Notices given up since one was last delivered.", value=tally.undelivered
        )
        yield CounterMetricFamily("steno_notices_delivered", "Notices the webhook took.", value=tally.delivered)
        failed = CounterMetricFamily("steno_notice_failures", "Notices it did not take.", labels=("final",))
        for final in (False, True):
            failed.add_metric((str(final).lower(),), tally.failed[final])
        yield failed


def _entered_at(run: Run) -> int:
    if run.transitions:
        return run.transitions[-1].at
    return run.requested_at if run.requested_at is not None else run.first_at
