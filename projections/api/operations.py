"""`/metrics`, `/healthz` and `/readyz`: the current state; counters are in the tally."""

import platform
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import starmap
from typing import Final, Literal

from anyio import to_thread
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from steno.engine.errors import NotConfigured
from steno.engine.notify.collector import is_counted, newest_samples
from steno.engine.state.archives import live_part
from steno.engine.state.changes import AnomalyKind
from steno.engine.state.run import Run
from steno.engine.state.samples import Sample
from steno.engine.state.sources import BLIND_AFTER, Observability, observability
from steno.engine.state.states import State, VmState
from steno.engine.state.world import source_of
from steno.engine.wire import DOLLAR, Shape, wire
from steno.events.clock import SECOND
from steno.events.errors import StenoError
from steno.events.installation import version
from steno.events.store.store import Store
from steno.projections.api.bodies import fresh_answer
from steno.projections.api.counters import LASTING, entered_at
from steno.projections.api.openapi import TEXT, Operation, Reply, routed
from steno.projections.api.parameters import asked_of
from steno.projections.api.problems import Problem
from steno.projections.api.reads.money import policy_at
from steno.projections.api.service import Service
from steno.projections.read_models.projector import Building, Lag
from steno.projections.read_models.view import SourceView, source_view, waits, watched

_PRESENT: Final = tuple(state for state in VmState if state is not VmState.TERMINATED)
_KINDS: Final = 50
_GPUS: Final[dict[str, tuple[str, Callable[[list[Sample]], float]]]] = {
    "steno_gpu_runs": ("Runs that run and have samples of their GPUs.", lambda _: 1),
    "steno_gpu_low_use_runs": (
        "Of these, runs with all GPUs below 5 % of use.",
        lambda gpus: max(gpu.use or 0 for gpu in gpus) < 5,
    ),
    "steno_gpu_devices": ("Their GPUs.", len),
    "steno_gpu_use_ratio": (
        "How busy these are; 1 for each that is fully busy.",
        lambda gpus: sum(gpu.use or 0 for gpu in gpus) / 100,
    ),
    "steno_gpu_memory_used_bytes": ("Memory in use of these.", lambda gpus: sum(gpu.memory or 0 for gpu in gpus) << 20),
}
_Figures = Iterator[tuple[str, str, float]]  # (name, what it is, number)


class ServiceCollector(Collector):
    def __init__(self, service: Service) -> None:
        self._service = service
        self._feed = service.feed
        self._blind = dict[str, int]()  # source → the most that was told

    def collect(self) -> Iterator[Metric]:
        """The current metrics; blocks: call it in a worker thread."""
        software = (version(), platform.python_version())
        yield _gauges("steno_build_info", "The software that answers.", ("version", "python"), [(software, 1)])
        ready = float(self._feed.trouble is None)
        yield GaugeMetricFamily("steno_ready", "1: the record is followed; 0: /readyz says why not.", ready)
        with suppress(StenoError):  # `/readyz` says what is wrong with the record
            yield from starmap(GaugeMetricFamily, self._lag())
            yield from starmap(GaugeMetricFamily, self._money())
            yield from self._world()
            yield from self._gpus()
        yield GaugeMetricFamily("steno_stream_clients", "Who listens to a stream now.", len(self._feed.listeners))
        too_slow = "Clients dropped because they were too slow."
        dropped = CounterMetricFamily("steno_stream_clients_dropped", too_slow, labels=("reason",))
        for reason, count in self._feed.dropped.items():
            dropped.add_metric((reason.value,), count)
        yield dropped

    # -- the process -------------------------------------------------------------------------------------------------

    def _lag(self) -> _Figures:
        lag, head = self._service.projector.lag, self._feed.head()
        yield "steno_record_position", "Where the record ends.", head
        yield "steno_projection_lag_positions", "Events that the read models do not show yet.", lag.positions
        yield "steno_projection_lag_seconds", "Age of the oldest event they do not show yet.", lag.seconds
        behind = max(0, head - self._feed.position)
        yield "steno_stream_lag_positions", "Events not yet published to listeners.", behind

    # -- the budget --------------------------------------------------------------------------------------------------

    def _money(self) -> _Figures:
        """The budget in dollars; nothing if the settings make no policy."""
        with self._service.pool.now() as look:
            try:
                policy = policy_at(self._service, look.view.state)
            except NotConfigured:
                return
            account = look.view.account(policy, look.now)
        for name, meaning, amount in (
            ("steno_budget_limit_usd", "The whole budget.", account.total),
            ("steno_budget_spent_usd", "Every machine's bill since ever.", account.spent),
            ("steno_budget_committed_usd", "The worst that live runs and machines may still cost.", account.committed),
            ("steno_budget_remaining_usd", "Budget less spent.", account.remaining),
            ("steno_spend_last_day_usd", "Spent in the last 24 hours.", account.spent_day),
            ("steno_spend_rate_usd_per_hour", "What all machines that may be billed cost now.", account.rate_now),
        ):
            if amount is not None:
                yield name, meaning, amount / DOLLAR
        if account.exhausted_at is not None:
            used_up, at = "When the budget is used up at the rate of the last day.", account.exhausted_at / SECOND
            yield "steno_budget_exhausted_timestamp_seconds", used_up, at
        if policy.budget_total is not None and policy.thresholds:
            first = "The first part of the budget at which an alert is given."
            yield "steno_budget_threshold_ratio", first, min(policy.thresholds) / 1000

    # -- runs, machines, sources -------------------------------------------------------------------------------------

    def _world(self) -> Iterator[Metric]:
        now = self._service.clock.now()
        with self._feed.state() as whole:  # the fold waits: only what is needed is taken
            state = live_part(whole)
            known = state.runs.sums("counted by state", _state_of)
            unsettled = [run for run in state.runs.open() if is_counted(run)]
            machines = Counter(vm.state for vm in state.vms.open())
            sources = [
                (each.name, each.last_answered, each.failed, observability(each, now)) for each in watched(state)
            ]
            last_at = state.last_at
        runs = {f"{each.value} ": 0 for each in State} | known
        states = ((tuple(name.split(" ")), number) for name, number in sorted(runs.items()))
        yield _gauges("steno_runs", "Runs of the record by state and reason.", ("state", "reason"), states)
        ages = {phase: [now - entered_at(run) for run in unsettled if run.state is phase] for phase in LASTING}
        oldest = (((phase.value,), max([0, *spans]) / SECOND) for phase, spans in ages.items())
        longest = "For how long a run has been in a state, the longest."
        yield _gauges("steno_run_oldest_seconds", longest, ("state",), oldest)
        yield GaugeMetricFamily("steno_queue_length", "Runs in Steno's own queue.", sum(map(waits, unsettled)))
        phases = (((phase.value,), machines[phase]) for phase in _PRESENT)
        yield _gauges("steno_machines", "Machines not seen gone, by phase.", ("phase",), phases)
        answers = (((name,), last / SECOND) for name, last, _, _ in sources if last is not None)
        last_answer = "steno_source_last_answer_timestamp_seconds"
        yield _gauges(last_answer, "When a source last answered.", ("source",), answers)
        seen = (
            ((name, kind.value), float(kind is current)) for name, _, _, current in sources for kind in Observability
        )
        meaning = "1 for what a source is now, 0 for the others."
        yield _gauges("steno_source_observability", meaning, ("source", "state"), seen)
        silent = "Time in which a source told us nothing."
        blind = CounterMetricFamily("steno_source_blind_seconds", silent, labels=("source",))
        for name, last, failed, _ in sources:
            gap = now - last if last and (failed or now - last > BLIND_AFTER) else 0
            total = max(self._feed.tally.blind[name] + gap, self._blind.get(name, 0))  # no clock turns it back
            self._blind[name] = total
            blind.add_metric((name,), total / SECOND)
        yield blind
        if last_at is not None:
            newest = "The newest poll, answered or not."
            yield GaugeMetricFamily("steno_record_last_poll_timestamp_seconds", newest, last_at / SECOND)

    def _gpus(self) -> Iterator[Metric]:
        """Sums over the newest runs that run, by source and model: of `_KINDS` pairs, and of the others together."""
        there = defaultdict[tuple[str, str], list[list[Sample]]](list)
        with self._service.pool.now() as look:
            state = live_part(look.view.state)
            for run, gpus in newest_samples(look.record, state.runs.open(), look.now):
                vm = state.vms.get(run.vm_id or "")
                kind = source_of(run), (vm and vm.facts.gpu) or "unknown"
                there[kind if kind in there or len(there) < _KINDS else ("other", "other")].append(gpus)
        for name, (meaning, amount) in _GPUS.items():
            yield _gauges(
                name, meaning, ("source", "gpu"), [(kind, sum(map(amount, runs))) for kind, runs in there.items()]
            )


def _state_of(run: Run) -> tuple[str, int] | None:
    """The state and the reason of a run, for a tally; None: it is not counted."""
    return (f"{run.state.value} {run.reason.value if run.reason else ''}", 1) if is_counted(run) else None


def _gauges(name: str, meaning: str, labels: tuple[str, ...], rows: Iterable[tuple[tuple[str, ...], float]]) -> Metric:
    """A gauge; `rows`: (label values, number)."""
    family = GaugeMetricFamily(name, meaning, labels=labels)
    for values, number in rows:
        family.add_metric(values, number)
    return family


MOST_LAG: Final = 15.0  # seconds that read models may be behind
MOST_SILENCE: Final = 30.0  # seconds since the record was last read by the feed
MOST_LOCKED: Final = 5.0  # seconds that another process may have the vault: a request waits no longer for it


class Health(Shape, frozen=True, kw_only=True):
    """The answer of `/healthz`."""

    status: Literal["ok"] = "ok"


class Readiness(Shape, frozen=True, kw_only=True):
    """The answer of `/readyz`."""

    status: str  # `ready` or `not_ready`
    reasons: tuple[str, ...]
    position: int  # the last position sent to listeners
    head: int | None  # where the record ends; None where it cannot be read
    lag: Lag | None
    building: Building | None  # how far read models are that have to be built first
    sources: tuple[SourceView, ...]
    clock: str | None  # what the wall clock of this machine did last; None: nothing


def readiness(service: Service) -> Readiness:
    """The current readiness; blocks: call it in a worker thread."""
    feed, now, reasons = service.feed, service.clock.now(), list[str]()
    head: int | None = None
    lag: Lag | None = None
    sources: tuple[SourceView, ...] = ()
    clock: str | None = None
    if not feed.alive:
        reasons.append("the thread that follows the record has stopped: restart the server")
    elif feed.trouble is not None:
        reasons.append(feed.trouble)
    elif feed.live.silence > MOST_SILENCE:
        reasons.append(f"the record was last read {feed.live.silence:.0f} s ago")
    try:
        head = feed.head()
        lag = service.projector.lag
    except StenoError as error:
        reasons.append(str(error))
    if not _vault_is_free(service.store):
        reasons.append(f"another process has had the vault for {MOST_LOCKED:.0f} s: no secret of a request can be kept")
    building = service.projector.building
    if building is not None:
        reasons.append(f"the read models are being built: {building}")
    elif lag is not None and lag.seconds > MOST_LAG:
        reasons.append(f"the read models are {lag.positions} positions and {lag.seconds:.0f} s behind the record")
    if feed.trouble is None:
        try:
            with feed.state() as state:
                sources = tuple(source_view(source, now) for source in watched(state))
                newest = reversed(state.anomalies)
                clock = next((note.detail for note in newest if note.kind is AnomalyKind.CLOCK_JUMP), None)
        except Problem as problem:
            reasons.append(problem.detail)
    return Readiness(
        status="not_ready" if reasons else "ready",
        reasons=tuple(dict.fromkeys(reasons)),
        position=feed.position,
        head=head,
        lag=lag,
        building=building,
        sources=sources,
        clock=clock,
    )


def _vault_is_free(store: Store) -> bool:
    """True if a secret can be kept, if there are any; waits while another process keeps its own."""
    vault, end = store.blob("vault"), time.monotonic() + MOST_LOCKED
    with suppress(StenoError):  # a service that only reads keeps none; of a database that is away the head tells
        while vault.stamp() is not None:
            with vault.try_locked() as held:
                if held is not None:
                    break
            if time.monotonic() > end:
                return False
            time.sleep(0.1)
    return True


_TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"


def routes(service: Service) -> list[BaseRoute]:
    registry = CollectorRegistry()
    for collector in (ProcessCollector, PlatformCollector, GCCollector):
        collector(registry=registry)
    registry.register(ServiceCollector(service))  # waits for the first fold, which the tally counts
    registry.register(service.feed.tally.registry)

    async def metrics(request: Request) -> Response:
        asked_of(request, ())
        text = await to_thread.run_sync(generate_latest, registry)
        return Response(text, headers={"Cache-Control": "no-store", "Content-Type": _TEXT})

    async def healthz(request: Request) -> Response:
        asked_of(request, ())
        return fresh_answer(Health())

    async def readyz(request: Request) -> Response:
        asked_of(request, ())
        now = await to_thread.run_sync(readiness, service)
        return fresh_answer(wire(now), status=503 if now.reasons else 200)

    return routed(OPERATIONS, metrics, healthz, readyz)


_TAG: Final = "operations"
_READY: Final = Reply("It is ready.", Readiness)
_UNREADY: Final = Reply("It is not ready; `reasons` says why.", Readiness)
OPERATIONS: Final = (
    Operation("GET /metrics", "Metrics in the Prometheus text format", _TAG, {200: Reply("Metrics.", str, TEXT)}),
    Operation("GET /healthz", "Whether the process is alive", _TAG, {200: Reply("It is alive.", Health)}),
    Operation("GET /readyz", "Whether the service is ready", _TAG, {200: _READY, 503: _UNREADY}),
)
