"""The waste of some days by user, run or GPU: paid for and not used; and what to ask for next time. Time without
samples is unknown, never waste.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from math import ceil, log2
from typing import Final, Literal

from steno.engine.money.bill import Line
from steno.engine.money.costs import Charge, Costs, charges, cut_by_keeper
from steno.engine.money.daily import day_text, range_of
from steno.engine.money.report import user_of
from steno.engine.money.use_split import UseSplit, UseSplitter
from steno.engine.state.gpu_use import BUSY_FROM
from steno.engine.state.kernel_mark import is_kept
from steno.engine.state.policy import DAY
from steno.engine.state.run import Run
from steno.engine.wire import Shape, Usd
from steno.events.clock import SECOND
from steno.projections.answers.costs import ChartRange
from steno.projections.read_models.view import View

By = Literal["user", "run", "gpu"]
Resource = Literal["gpus", "memory_gb", "cpus"]
WASTED: Final = ("idle_inside", "unused_gpus", "idle_between")
_KINDS: Final = ("working", "idle_inside", "unknown", "busy", "unused_gpus", "idle_between")
_UNASKED: Final = {
    "gpus": 0,
    "memory_gb": 8,
    "cpus": 2,
}  # what a run gets that asks for nothing: it cannot ask for less
_Part = tuple[str | None, Run | None, dict[str, tuple[int, int]]]  # who paid; kind → micro-dollars and microseconds


class WasteRow(Shape, frozen=True, kw_only=True):
    """The waste of a user, a run or a kind of GPU."""

    key: str  # user, run id or `MI300X:2`; `(idle)` for machines between runs
    label: str
    wasted_usd: Usd  # idle inside, unused GPUs and idle between
    usd: dict[str, Usd]  # working, idle inside and unknown sum to busy; unused GPUs are their share of working
    seconds: dict[str, float]  # likewise
    runs: int
    unknown_runs: int  # those of which no time is known: without samples of their GPUs


class Advice(Shape, frozen=True, kw_only=True):
    """Resources that the runs of one name asked for, on all nodes, and did not use."""

    name: str
    user: str
    resource: Resource
    asked: float
    runs: int
    used: float  # the highest of all runs; of CPUs the highest mean
    ask: float  # next time: the GPUs used; of all else the power of two that holds twice what was used
    busy_usd: Usd  # what these runs paid


class WasteReport(Shape, frozen=True, kw_only=True):
    """The waste of some days."""

    by: By
    days: tuple[str, str]  # the first and the last, UTC
    rows: tuple[WasteRow, ...]  # the most wasted first
    total: WasteRow
    advice: tuple[Advice, ...]  # the most paid first


def waste(view: View, by: By, of: ChartRange) -> WasteReport:
    """The waste of whole days; by default of the last 30."""
    days, state, costs = range_of(of.since, of.until, of.now), view.state, Costs(view.state)
    first, end, splitter = days.first * DAY, (days.last + 1) * DAY, UseSplitter(state)
    groups = defaultdict[tuple[str, str], list[_Part]](list)
    for machine in view.store.vms.days(first):
        vm = state.vms[machine.vm_id]
        bill = () if is_kept(vm) else charges(costs.bill(vm.vm_id))
        cuts = (cut for charge in bill if charge.line in (Line.BUSY, Line.IDLE) for cut in cut_by_keeper(charge, vm))
        for part, use, keeper in ((*day, keeper) for cut, keeper in cuts for day in splitter.parts(cut)):
            if first <= part.since < end:
                run = state.runs.get(part.run_id or "")
                user = (keeper or "(idle)") if part.run_id is None else "unknown" if run is None else user_of(run)
                key = machine.gpu if by == "gpu" else user if by == "user" else part.run_id or user
                label = key if run is None or by != "run" else run.name or key
                groups[key, label].append((part.run_id, run, _amounts(part, run, use)))
    rows = [_row(*key, parts) for key, parts in groups.items()]
    every = [part for parts in groups.values() for part in parts]
    return WasteReport(
        by=by,
        days=(day_text(days.first), day_text(days.last)),
        rows=tuple(sorted(rows, key=lambda row: (-row.wasted_usd, row.key))),
        total=_row("total", "total", every),
        advice=tuple(sorted(_advice(every), key=lambda line: (-line.busy_usd, line.name, line.resource))),
    )


def _amounts(part: Charge, run: Run | None, use: UseSplit | None) -> dict[str, tuple[int, int]]:
    if part.run_id is None:
        return {"idle_between": (part.cost, part.time)}
    known = UseSplit().of(part.time, part.cost) if use is None else use
    amounts = dict(zip(_KINDS, zip(known[3:], known[:3], strict=True), strict=False))
    unused = next((1 - used / wanted for resource, wanted, used in _asked(run) if resource == "gpus"), 0)
    cost, time = (round(amount * unused) for amount in amounts["working"])
    return amounts | {"busy": (part.cost, part.time), "unused_gpus": (cost, time)}


def _row(key: str, label: str, parts: Iterable[_Part]) -> WasteRow:
    usd, time, known = Counter(dict.fromkeys(_KINDS, 0)), Counter(dict.fromkeys(_KINDS, 0)), Counter[str]()
    for run_id, _, amounts in parts:
        if run_id is not None:
            known[run_id] += amounts["working"][1] + amounts["idle_inside"][1]
        for kind, (cost, length) in amounts.items():
            usd[kind] += cost
            time[kind] += length
    wasted, seconds = sum(usd[kind] for kind in WASTED), {kind: length / SECOND for kind, length in time.items()}
    number, unknown = len(known), sum(not length for length in known.values())
    return WasteRow(
        key=key, label=label, wasted_usd=wasted, usd=usd, seconds=seconds, runs=number, unknown_runs=unknown
    )


def _asked(run: Run | None) -> Iterator[tuple[Resource, float, float]]:
    """(resource, what a run asked for on all its nodes, what it used) where both are known."""
    if run is None or run.use is None or run.terms is None:
        return
    use, terms = run.use, run.terms
    if wanted := terms.gpu_count * terms.nodes:
        unused = sum(device.use is not None and device.use < BUSY_FROM for device in use.devices)
        yield "gpus", wanted, wanted - min(unused, max(0, wanted - (len(use.devices) - unused + use.more)))
    if terms.first_node_only:
        return
    if terms.memory.least and use.task_memory is not None:
        yield "memory_gb", terms.memory.least * terms.nodes, use.task_memory / 1024
    if terms.cpus.least and use.cpu is not None:
        yield "cpus", terms.cpus.least * terms.nodes, use.cpu / 100


def _advice(parts: Iterable[_Part]) -> Iterator[Advice]:
    groups = defaultdict[tuple[str, str, Resource, float], list[tuple[str, float, int]]](list)
    for _, run, amounts in parts:
        for resource, wanted, used in _asked(run):
            if run is not None:
                key = run.name or run.run_id, user_of(run), resource, wanted
                groups[key].append((run.run_id, used, amounts["busy"][0]))
    for (name, user, resource, wanted), uses in groups.items():
        ids, all_used, costs = zip(*uses, strict=True)
        used, runs, cost = round(max(all_used), 2), len(set(ids)), sum(costs)
        ask = used if resource == "gpus" else 2 ** ceil(log2(max(1, 2 * used)))
        if ask < wanted and wanted > _UNASKED[resource]:
            yield Advice(
                name=name, user=user, resource=resource, asked=wanted, runs=runs, used=used, ask=ask, busy_usd=cost
            )
