"""The demand that a record shows on one source, and what it came to. Times are microseconds, money micro-dollars."""

from collections import Counter
from collections.abc import Iterable
from operator import itemgetter
from typing import Any, NamedTuple

from msgspec.structs import replace

from steno.engine.decide.situation import NOBODY
from steno.engine.errors import NothingRecorded
from steno.engine.money.bill import Line
from steno.engine.money.costs import Costs, charges, cut_at
from steno.engine.money.report import start_time
from steno.engine.state.facts import VmFacts
from steno.engine.state.run import Requirements, Run
from steno.engine.state.states import State, VmState
from steno.engine.state.vm import Vm
from steno.engine.state.world import PolicyStep, World, source_of
from steno.engine.whatif.lags import BlindSpans, Lags, lags_of
from steno.events.clock import format_second

_KIND = (
    *("backend", "region", "spot", "instance_type", "gpu", "gpu_count"),
    *("gpu_memory_mib", "cpus", "memory_mib", "disk_mib"),
)


class Outcome(NamedTuple):
    """The figures of a window."""

    bill: int
    low: int  # of the bill, as far as the times of machines are known
    high: int
    idle_share: float  # of the machines' time: nothing ran on them
    cold: int  # runs for which a machine was made
    refused: int  # runs that could not have their machines
    waits: tuple[int, ...]  # from the request of each run until it ran, or to the end of the window, ascending


class RunDemand(NamedTuple):
    """A run of the demand."""

    run_id: str
    name: str
    requested_at: int
    terms: Requirements
    lasts: int | None  # from its start to its end; None: it did not end
    starts: bool  # it was seen running
    made: VmFacts  # the kind of machine that is made for it


class Demand(NamedTuple):
    """Everything a simulation needs of a record."""

    source: str
    since: int  # the window that figures are of
    until: int
    begins: int  # the last moment up to `since` at which no machine and no run was there: the simulation begins here
    work: tuple[RunDemand, ...]  # in order of request
    policies: tuple[PolicyStep, ...]
    blind: BlindSpans
    lags: Lags
    left_out: int  # runs of the window that never had a machine, or that Steno did not submit
    outcome: Outcome  # what really happened


def demand_of(state: World, source: str | None, since: int, until: int) -> Demand:
    """The demand on a source between two moments; None: on the source with most runs.

    Raises:
        NothingRecorded: no such source or policy, its machines are free, or no run of the window had a machine.
    """
    window = f"between {format_second(since)} and {format_second(until)}: choose another --since and --until."
    submitted = [run for run in state.runs.all() if run.requested_at is not None and run.archive is None]
    names = Counter(source_of(run) for run in submitted if since <= (run.requested_at or 0) < until)
    source = source or next((name for name, _ in names.most_common(1)), None)
    if source is None:
        raise NothingRecorded(f"No run was submitted through Steno {window if submitted else 'yet.'}")
    if source not in state.sources:
        raise NothingRecorded(f"No source {source} in the record; `steno sources` lists them.")
    policies = state.policies.get(source, ())
    if not policies:
        raise NothingRecorded(f"No policy of {source} is recorded, so nothing can be compared: `steno up` records one.")
    if policies[-1].policy.free:
        raise NothingRecorded(f"Machines of {source} cost nothing, so there is no bill to predict.")
    runs = [run for run in submitted if source_of(run) == source and run.links and not run.is_schedule]
    vms = [vm for vm in state.vms.all() if vm.source == source and vm.ours and vm.archive is None]
    lives = [(vm.created, vm.finished_at if vm.state is VmState.TERMINATED else None) for vm in vms]
    lives += [(run.requested_at or 0, (run.finished_at or run.last_at) if run.terminal else None) for run in runs]
    begins = quiet_before(since, lives)
    wanted = [run for run in runs if run.terms is not None and begins <= (run.requested_at or 0) < until]
    inside = [run for run in wanted if (run.requested_at or 0) >= since]
    if not inside:
        raise NothingRecorded(f"No run that Steno submitted to {source} had a machine {window}")
    others = (run for run in state.runs.all() if source_of(run) == source and run.archive is None)
    blind = BlindSpans(tuple((gap.since, gap.until or until) for gap in state.blind if gap.source == source))
    return Demand(
        source=source,
        since=since,
        until=until,
        begins=begins,
        work=tuple(sorted((_work(state, run) for run in wanted), key=lambda work: work.requested_at)),
        policies=policies,
        blind=blind,
        lags=lags_of(state, runs, vms, blind),
        left_out=sum(since <= (run.waiting_since or run.first_at) < until for run in others) - len(inside),
        outcome=outcome_of(Costs(state), vms, inside, since, until),
    )


def quiet_before(since: int, lives: Iterable[tuple[int, int | None]]) -> int:
    """The newest moment up to `since` at which no life (begin, end; None: it goes on) was under way."""
    for begin, end in sorted(lives, key=itemgetter(0), reverse=True):
        if begin < since and (end is None or end >= since):
            since = begin
    return since


def _work(state: World, run: Run) -> RunDemand:
    vm = state.vms[run.vm_id or next(iter(run.links.values()))]
    price = vm.prices[-1].hourly if vm.prices else vm.facts.price
    kind: dict[str, Any] = {name: getattr(vm.facts, name) for name in _KIND}
    made = VmFacts(provider_id="", project=run.project, price=price, **kind)
    # What its provider did for it (a retry, a race, another GPU) is in how long it had its machine.
    terms = replace(run.terms or NOBODY, race=None, retry=False, fallback=(), plan="", crons=())
    lasts: int | None = None
    if run.terminal:
        stays = [stay for vm_id in dict.fromkeys(run.links.values()) for stay in state.vms[vm_id].occupancies]
        own = sorted((stay.since, stay.until or stay.since) for stay in stays if stay.run_id == run.run_id)
        ended = max(run.finished_at or 0, own[-1][1])
        lasts = 0 if run.started_at is None else max(0, ended - run.started_at)
        lasts += sum(until - since for since, until in own[: -terms.nodes])  # of its earlier attempts
    starts = run.started_at is not None
    return RunDemand(run.run_id, run.name or run.run_id, run.requested_at or 0, terms, lasts, starts, made)


def outcome_of(costs: Costs, vms: Iterable[Vm], runs: Iterable[Run], since: int, until: int) -> Outcome:
    """The figures of machines, and of runs requested since then."""
    spent = low = high = time = idle = 0
    for vm in vms:
        bill = costs.bill_of(vm)
        parts = [part for charge in charges(bill) for part in cut_at(charge, (since, until))]
        inside = [part for part in parts if since <= part.since and part.until <= until]
        cost = sum(part.cost for part in inside)
        spent += cost
        low += round(cost * bill.low / (bill.cost or 1))
        high += round(cost * bill.high / (bill.cost or 1))
        time += sum(part.time for part in inside)
        idle += sum(part.time for part in inside if part.line is Line.IDLE)
    wanted = [run for run in runs if run.requested_at is not None and since <= run.requested_at < until]
    began = [run for run in wanted if run.start is not None and (run.started_at or run.first_at) <= until]
    return Outcome(
        bill=spent,
        low=low,
        high=high,
        idle_share=idle / time if time else 0.0,
        cold=sum(run.start == "cold" for run in began),
        refused=sum(run.state is State.FAILED and not run.links for run in wanted),
        waits=tuple(sorted(wait for run in wanted if (wait := _wait(run, until)) is not None)),
    )


def _wait(run: Run, until: int) -> int | None:
    """None: it ended without having run, or was tried again."""
    if run.started_at is not None and run.started_at <= until:
        return start_time(run)
    over = run.terminal and (run.finished_at or run.last_at) <= until
    return None if over else until - (run.requested_at or until)
