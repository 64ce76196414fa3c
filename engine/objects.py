"""The public JSON objects of runs, machines and blind times, for the command line, API, stream and webhook. That of an
anomaly is `steno.engine.state.changes.Anomaly` itself. Keys, their order and their meaning are public; a key is added
at the end of its object or not at all. Times are ISO 8601 UTC, money is decimal strings of US dollars with six
decimals, None is unknown.
"""

from itertools import groupby
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from steno.engine.money.bill import Bill
from steno.engine.money.use_split import UseSplit
from steno.engine.rules.sets import RuleSet
from steno.engine.state.changes import Blind, GapKind
from steno.engine.state.facts import Waits
from steno.engine.state.kernel_mark import read_mark
from steno.engine.state.run import Reported, Run
from steno.engine.state.state_machines import TERMINAL
from steno.engine.state.vm import Vm
from steno.engine.wire import money
from steno.events.clock import SECOND, format_time


class TransitionObject(msgspec.Struct, frozen=True, kw_only=True, rename={"origin": "from", "target": "to"}):
    """A change of state, at the poll that caused it."""

    position: int
    at: str
    origin: str | None
    target: str
    rule: str | None


class AttemptObject(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt at a run, of a provider that dates its attempts."""

    number: int
    status: str | None  # the provider's own word
    exit_status: int | None
    hosts: str | None  # what it ran on
    submitted_at: str | None
    started_at: str | None  # when it got what it runs on
    finished_at: str | None
    waited_seconds: float | None  # from its submission to its start


class BusyObject(msgspec.Struct, frozen=True, kw_only=True):
    """How GPUs spent a busy time, by their samples. The times sum to it and the money to its cost."""

    working_seconds: float
    idle_inside_seconds: float
    unknown_seconds: float
    working_usd: str
    idle_inside_usd: str
    unknown_usd: str


class RunObject(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run."""

    run_id: str
    provider_id: str | None
    name: str | None
    provider: str
    state: str
    reason: str | None
    exit_status: int | None
    rule: str | None
    evidence: tuple[int, ...]
    reported: Reported | None
    attempts: int
    vm_id: str | None
    start: str | None
    submitted_at: str | None
    started_at: str | None
    finished_at: str | None
    execution_seconds: float | None
    cost_usd: str | None
    provider_cost_usd: str | None
    transitions: tuple[TransitionObject, ...]
    archive: str | None = None  # the archive that holds it; no key for a live run
    waits: Waits | None = None  # why it waits at its provider; no key if not said
    group: str | None = None  # the provider's id of what it was submitted as a part of; no key for a run of its own
    strategy: str | None = None  # what distinguishes it from runs requested together with it; else no key
    attempt_list: tuple[AttemptObject, ...] = ()  # oldest first; no key if the provider does not date them
    unpriced: str | None = None  # why its cost leaves out what it ran on; no key if it leaves out nothing
    kernel: str | None = None  # the problem that it solves; no key for a run that is not a kernel
    array: str | None = None  # the run that requested the array of which it is a task; no key for a run of its own
    tasks: int = 0  # how many tasks of this array are known; no key if it is not an array
    same_provider_id: tuple[str, ...] = ()  # other runs that had its provider's id, oldest first; no key if none had
    provider_submitted_at: str | None = None
    """When its provider got it; `submitted_at` is then when it was requested. No key for a run submitted elsewhere, nor
    while it waits in Steno's queue.
    """
    kind: str | None = None  # `schedule`: each of its firings is a run; no key for any other run
    next_at: str | None = None  # when its next firing is due; no key if it is not a schedule, or has ended
    schedule: str | None = None  # the run that is the schedule of which it is a firing; no key for a run of its own
    busy: BusyObject | None = None  # how its GPUs spent its time; no key without samples: all of it is unknown

    @property
    def ended(self) -> bool:
        """True if there is a verdict."""
        return self.state in TERMINAL


class RanObject(msgspec.Struct, frozen=True, kw_only=True):
    """The command of a run, where it runs, and for whom."""

    type: str | None  # of its configuration: `task`, or another kind that the provider has
    command: str | None  # its lines; at most `COMMAND_SHOWN` characters
    image: str | None  # the container's image
    gpu_asked: str | None  # `MI300X:2`; several models with commas; `none`
    gpu_got: str | None = None  # that of its machine, in the same form
    project: str | None = None
    source: str = ""  # whose polls show it, or its archive
    user: str | None = None  # as whom its provider runs it
    submitter: str | None = None  # who asked Steno for it; None: it was submitted elsewhere


COMMAND_SHOWN: Final = 1000


class IntervalObject(msgspec.Struct, frozen=True, kw_only=True, rename={"start": "from", "end": "to"}):
    """A stretch of a machine's life in one phase at one price; `to` is None while it lasts."""

    phase: str
    start: str
    end: str | None
    cost_usd: str | None


class VmObject(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A machine with its bill; an open bill goes to the last poll."""

    vm_id: str
    provider_id: str
    name: str | None
    state: str
    reason: str | None
    price_usd_per_hour: str | None
    runs: tuple[str, ...]  # run ids, in the order they were on it
    cost_usd: str | None
    cost_low_usd: str | None
    cost_high_usd: str | None
    intervals: tuple[IntervalObject, ...]
    source: str  # the source whose polls show it
    archive: str | None = None  # the archive that holds it; no key for a live machine
    busy: BusyObject | None = None  # how its GPUs spent the time of runs; no key if no run on it has samples


class BlindObject(msgspec.Struct, frozen=True, kw_only=True, rename={"start": "from", "end": "to"}):
    """A gap in which a source was not seen; `to` is None while it lasts."""

    source: str
    start: str
    end: str | None
    kind: Annotated[GapKind, Meta(description="Whether it was polled and did not answer, or no process polled it.")] = (
        GapKind.NO_ANSWER
    )


def run_object(run: Run, rules: RuleSet, cost: int | None = None, use: UseSplit | None = None) -> RunObject:
    """A run; `cost` is ours (`steno.engine.money.costs.Costs`) in micro-dollars, None if unknown, and `use` the split
    of its busy time. A rule set without metadata shows no costs, neither the provider's nor ours.
    """
    mark = None if run.said is None else read_mark(run.said.mark)
    due = None if run.facts is None or run.facts.schedule is None or run.terminal else run.facts.schedule.next_at
    return RunObject(
        run_id=run.run_id,
        provider_id=run.provider_id,
        name=run.name,
        provider=run.provider,
        state=run.state.value,
        reason=None if run.reason is None else run.reason.value,
        exit_status=run.exit_status if rules.metadata else None,
        rule=run.rule,
        evidence=tuple(run.evidence),
        reported=run.reported,
        attempts=run.attempts,
        vm_id=run.vm_id,
        start=run.start,
        submitted_at=_time(run.waiting_since),
        started_at=_time(_started(run)),
        finished_at=_time(run.finished_at),
        execution_seconds=_execution_seconds(run),
        cost_usd=money(cost) if rules.metadata else None,
        provider_cost_usd=money(run.cost) if rules.metadata else None,
        transitions=tuple(
            TransitionObject(
                position=step.position,
                at=format_time(step.at),
                origin=step.before.value,
                target=step.after.value,
                rule=step.rule,
            )
            for step in run.transitions
        ),
        archive=run.archive,
        waits=None if run.facts is None or run.terminal else run.facts.waits,
        group=None if run.facts is None else run.facts.group,
        strategy=None if run.terms is None else run.terms.strategy,
        attempt_list=_attempts(run),
        unpriced=_unpriced(run),
        kernel=None if mark is None else mark.problem,
        array=run.array,
        tasks=len(run.tasks),
        same_provider_id=tuple([run_id for run_id in run.same_id if run_id != run.run_id]),
        provider_submitted_at=None if run.requested_at is None else _time(run.submitted_at),
        kind="schedule" if run.is_schedule else None,
        next_at=_time(due),
        schedule=run.schedule,
        busy=_busy(use) if rules.metadata else None,
    )


def _busy(use: UseSplit | None) -> BusyObject | None:
    if use is None:
        return None
    return BusyObject(
        working_seconds=use.working_time / SECOND,
        idle_inside_seconds=use.idle_time / SECOND,
        unknown_seconds=use.unknown_time / SECOND,
        working_usd=money(use.working_cost),
        idle_inside_usd=money(use.idle_cost),
        unknown_usd=money(use.unknown_cost),
    )


def _unpriced(run: Run) -> str | None:
    attempts = () if run.facts is None else run.facts.attempts
    return next((attempt.unpriced for attempt in attempts if attempt.unpriced is not None), None)


def _attempts(run: Run) -> tuple[AttemptObject, ...]:
    attempts = run.facts.jobs[0].attempts if run.facts is not None and run.facts.jobs else ()
    if all(attempt.hosts is None for attempt in attempts):
        return ()
    return tuple(
        AttemptObject(
            number=number,
            status=attempt.status,
            exit_status=attempt.exit_status,
            hosts=attempt.hosts,
            submitted_at=_time(attempt.submitted_at),
            started_at=_time(attempt.started_at),
            finished_at=_time(attempt.finished_at),
            waited_seconds=(
                None
                if attempt.started_at is None or attempt.submitted_at is None
                else max(0, attempt.started_at - attempt.submitted_at) / SECOND
            ),
        )
        for number, attempt in enumerate(attempts, max(1, run.attempts - len(attempts) + 1))
    )


def vm_object(vm: Vm, bill: Bill, use: UseSplit | None = None) -> VmObject:
    """A machine with its bill; adjacent parts in one phase at one price are one interval, whoever used it. `use`: the
    split of its busy time.
    """
    phases = [list(parts) for _, parts in groupby(bill.intervals, key=lambda part: (part.phase, part.hourly))]
    return VmObject(
        vm_id=vm.vm_id,
        provider_id=vm.provider_id,
        name=vm.facts.name,
        state=vm.state.value,
        reason=None if vm.reason is None else vm.reason.value,
        price_usd_per_hour=money(bill.hourly),
        runs=tuple(vm.runs),
        cost_usd=money(bill.cost),
        cost_low_usd=money(bill.low),
        cost_high_usd=money(bill.high),
        intervals=tuple(
            IntervalObject(
                phase=parts[0].phase.value,
                start=format_time(parts[0].since),
                end=_time(parts[-1].until),
                cost_usd=money(sum(part.cost for part in parts)),
            )
            for parts in phases
        ),
        source=vm.source,
        archive=vm.archive,
        busy=_busy(use),
    )


def blind_object(blind: Blind) -> BlindObject:
    return BlindObject(source=blind.source, start=format_time(blind.since), end=_time(blind.until), kind=blind.kind)


def _execution_seconds(run: Run) -> float | None:
    """Seconds from the start of the last attempt to the end, at least 0; None if unknown."""
    started = _started(run)
    if started is None or run.finished_at is None:
        return None
    return max(0, run.finished_at - started) / SECOND


def _started(run: Run) -> int | None:
    """When the last attempt started: by its provider if that says so, else at the first poll that showed it."""
    dated = () if run.facts is None else (job.started_at for job in run.facts.newest if job.started_at is not None)
    return max(dated, default=run.started_at)


def _time(moment: int | None) -> str | None:
    return None if moment is None else format_time(moment)
