"""What `/metrics` shows, gathered at the moment somebody asks."""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from importlib.metadata import version
from typing import Any, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from engine.decide.budget import account
from engine.errors import NotConfigured
from engine.fold.archives import live_part
from engine.fold.sources import BLIND_AFTER, Observability, Source, observability
from engine.fold.state_machines import TERMINAL
from engine.fold.world_codec import WorldState
from engine.policy import DOLLAR
from engine.states import Reason, State, VmState
from events.clock import SECOND
from events.errors import StenoError
from projections.api.feed.listener import Dropped
from projections.api.reads.money import policy_at
from projections.api.service import Service
from projections.api.tally import Durations, entered_at
from projections.models.view import waits

_LASTING: Final = tuple(state for state in State if state not in TERMINAL)
_PRESENT: Final = tuple(state for state in VmState if state is not VmState.TERMINATED)
_Rows = Iterable[tuple[tuple[str, ...], float]]
"""(the values of the labels, the number)."""


def watched(state: WorldState) -> dict[str, Source]:
    found = state.sources.items()
    return {name: one for name, one in found if not one.archive and (one.failed or one.last_answered is not None)}


class ServiceCollector(Collector):
    """The metrics of one service."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._feed = service.feed
        self._tally = service.feed.tally

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        """Everything, as it is now; blocks, so it is for worker threads."""
        software = (version("steno"), ".".join(map(str, sys.version_info[:3])))
        yield _gauges("steno_build_info", "The software that answers.", ("version", "python"), [(software, 1)])
        ready = float(self._feed.trouble is None)
        yield _gauge("steno_ready", "1: the record is followed; 0: /readyz says why not.", ready)
        with suppress(StenoError):  # `/readyz` says what is wrong with the record
            yield from self._lag()
            yield from self._money()
            yield from self._world()
        yield from self._polls()
        yield from self._notices()
        yield from self._streams()
        yield from self._http()

    # -- the process -------------------------------------------------------------------------------------------------

    def _lag(self) -> Iterator[Metric]:
        lag, head = self._service.projector.lag, self._feed.head()
        yield _gauge("steno_record_position", "Where the record ends.", head)
        yield _gauge("steno_projection_lag_positions", "Events that the read models do not show yet.", lag.positions)
        yield _gauge("steno_projection_lag_seconds", "Age of the oldest event they do not show yet.", lag.seconds)
        behind = max(0, head - self._feed.position)
        yield _gauge("steno_stream_lag_positions", "Events not yet published to listeners.", behind)

    def _streams(self) -> Iterator[Metric]:
        yield _gauge("steno_stream_clients", "Who listens to a stream now.", len(self._feed.listeners))
        yield _counters(
            "steno_stream_clients_dropped",
            "Clients dropped because they were too slow.",
            ("reason",),
            (((reason.value,), self._feed.dropped[reason]) for reason in Dropped),
        )
        appends = "From when something was observed to its place in the record."
        yield _histogram("steno_append_latency_seconds", appends, (), {(): self._tally.appends})
        publishing = "From the record to those who listen."
        yield _histogram("steno_publish_latency_seconds", publishing, (), {(): self._tally.publishing})

    def _http(self) -> Iterator[Metric]:
        requests, labels = self._tally.requests, ("method", "route", "status")
        yield _counters("steno_http_requests", "Requests answered.", labels, tuple(requests.answered.items()))
        took = "How long answers took; streams left out."
        yield _histogram("steno_http_request_duration_seconds", took, labels[:2], requests.durations)

    def _polls(self) -> Iterator[Metric]:
        tally, labels = self._tally, ("source", "endpoint")
        yield _histogram("steno_poll_duration_seconds", "How long polls took.", labels, tally.polls)
        failures = ((key, tally.failures[key]) for key in tuple(tally.polls))
        yield _counters("steno_poll_failures", "Polls without an answer.", labels, failures)

    def _notices(self) -> Iterator[Metric]:
        tally = self._tally
        yield _gauge("steno_notices_pending", "Notices with no outcome yet.", len(tally.pending))
        yield _gauge("steno_notices_given_up", "Notices given up since one was last delivered.", tally.undelivered)
        yield CounterMetricFamily("steno_notices_delivered", "Notices the webhook took.", value=tally.delivered)
        failed = (((str(final).lower(),), tally.failed[final]) for final in (False, True))
        yield _counters("steno_notice_failures", "Notices it did not take.", ("final",), failed)

    # -- the budget --------------------------------------------------------------------------------------------------

    def _money(self) -> Iterator[Metric]:
        """Where the budget stands, in dollars; nothing where the settings make no policy."""
        with self._service.pool.now() as look:
            state, settled = look.view.ledger(look.now)
            try:
                policy = policy_at(self._service, state, past=False)
            except NotConfigured:
                return
            found = account(state, policy, look.now, settled)
        for name, said, amount in (
            ("steno_budget_limit_usd", "The whole budget.", found.total),
            ("steno_budget_spent_usd", "Every machine's bill since ever.", found.spent),
            ("steno_budget_committed_usd", "The worst that live runs and machines may still cost.", found.committed),
            ("steno_budget_remaining_usd", "Budget less spent.", found.remaining),
            ("steno_spend_last_day_usd", "Spent in the last 24 hours.", found.spent_day),
            ("steno_spend_rate_usd_per_hour", "What all machines that may be billed cost now.", found.rate_now),
        ):
            if amount is not None:
                yield _gauge(name, said, amount / DOLLAR)
        if found.exhausted_at is not None:
            used_up, at = "When the budget is used up at the rate of the last day.", found.exhausted_at / SECOND
            yield _gauge("steno_budget_exhausted_timestamp_seconds", used_up, at)
        if policy.budget_total is not None and policy.thresholds:
            first = "The first part of the budget at which an alert is given."
            yield _gauge("steno_budget_threshold_ratio", first, min(policy.thresholds) / 1000)

    # -- runs, machines, sources -------------------------------------------------------------------------------------

    def _world(self) -> Iterator[Metric]:
        now = self._service.clock.now()
        with self._feed.state() as whole:  # the fold waits: only what is needed is taken
            state = live_part(whole)
            all_runs = tuple(state.runs.values())
            unsettled = [state.runs[run_id] for run_id in state.unsettled]
            machines = Counter(state.vms[vm_id].state for vm_id in state.open_vms)
            sources = [(name, one.last_answered, one.failed, observability(one, now))
                       for name, one in watched(state).items()]  # fmt: skip
            last_at = state.last_at
        runs: Counter[tuple[State, Reason | None]] = Counter({(one, None): 0 for one in State})
        runs.update((run.state, run.reason) for run in all_runs)
        yield _gauges(
            "steno_runs",
            "Runs of the record by state and reason.",
            ("state", "reason"),
            (((one.value, reason.value if reason else ""), n) for (one, reason), n in sorted(runs.items(), key=str)),
        )
        yield _gauges(
            "steno_run_oldest_seconds",
            "For how long a run has been in a state, the longest.",
            ("state",),
            (
                ((one.value,), max([0, *(now - entered_at(run) for run in unsettled if run.state is one)]) / SECOND)
                for one in _LASTING
            ),
        )
        dwelt = {(one.value,): self._tally.dwelt[one] for one in _LASTING}
        yield _histogram("steno_run_state_seconds", "How long runs were in a state.", ("state",), dwelt)
        yield _gauge("steno_queue_length", "Runs in Steno's own queue.", sum(map(waits, unsettled)))
        phases = (((phase.value,), machines[phase]) for phase in _PRESENT)
        yield _gauges("steno_machines", "Machines not seen gone, by phase.", ("phase",), phases)
        anomalies = (((kind,), count) for kind, count in tuple(self._tally.anomalies.items()))
        yield _counters("steno_anomalies", "Anomalies since the server started.", ("kind",), anomalies)
        yield _gauges(
            "steno_source_last_answer_timestamp_seconds",
            "When a source last answered.",
            ("source",),
            (((name,), last / SECOND) for name, last, _, _ in sources if last is not None),
        )
        yield _gauges(
            "steno_source_observability",
            "1 for what a source is now, 0 for the others.",
            ("source", "state"),
            (((name, one.value), float(one is seen)) for name, _, _, seen in sources for one in Observability),
        )
        lasting_gaps = {
            name: now - last for name, last, failed, _ in sources if last and (failed or now - last > BLIND_AFTER)
        }
        yield _counters(
            "steno_source_blind_seconds",
            "Time in which a source told us nothing.",
            ("source",),
            (((name,), (self._tally.blind[name] + lasting_gaps.get(name, 0)) / SECOND) for name, *_ in sources),
        )
        if last_at is not None:
            newest = "The newest poll, answered or not."
            yield _gauge("steno_record_last_poll_timestamp_seconds", newest, last_at / SECOND)


def _gauge(name: str, said: str, value: float) -> Metric:
    return GaugeMetricFamily(name, said, value=value)


def _gauges(name: str, said: str, labels: tuple[str, ...], rows: _Rows) -> Metric:
    family = GaugeMetricFamily(name, said, labels=labels)
    for values, number in rows:
        family.add_metric(values, number)
    return family


def _counters(name: str, said: str, labels: tuple[str, ...], rows: _Rows) -> Metric:
    family = CounterMetricFamily(name, said, labels=labels)
    for values, number in rows:
        family.add_metric(values, number)
    return family


def _histogram(name: str, said: str, labels: tuple[str, ...], found: Mapping[Any, Durations]) -> Metric:
    family = HistogramMetricFamily(name, said, labels=labels)
    for values, durations in tuple(found.items()):
        family.add_metric(values, buckets=durations.buckets(), sum_value=durations.sum)
    return family
