"""Our figure against the provider's own, every difference a line; the lines sum to the difference exactly. The provider
charges a run price × (finished − submitted) of each submission, rounded to four decimals: with queueing, without the
machine's time before and after. We charge a run its part of its machine's bill, and the machine's own time to the
machine. Both are compared over the same time, so no line is explained by its size alone.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from fractions import Fraction
from itertools import pairwise
from typing import Final, NamedTuple

from steno.engine.money.bill import Line
from steno.engine.money.costs import Charge
from steno.engine.money.life import silent_from
from steno.engine.money.prices import Book, Tariff, exact, rung_at
from steno.engine.state.changes import Anomaly, AnomalyKind
from steno.engine.state.kernel_mark import gpu_kept
from steno.engine.state.policy import CENT, HOUR
from steno.engine.state.run import Run
from steno.engine.state.vm import Vm
from steno.engine.state.world import World
from steno.engine.wire import Shape, Usd, usd

HALF_STEP: Final = 50  # the provider rounds to 100 micro-dollars


class Cause(StrEnum):
    """Why the two figures differ. Positive lines are in ours only, negative lines in the provider's only."""

    QUEUEING = "queueing"  # submitted, and no machine busy with it yet
    SILENT = "machine silent"  # the provider charges it, and the machine no longer answered
    BETWEEN_POLLS = "between polls"  # the provider charges it; neither polls nor its own times show the machine busy
    KERNELS = "kernels"  # a listener's: the provider charges it, and its kernels pay, or it is idle
    CLEANING_UP = "cleaning up"  # the machine still busy behind the run
    NO_MACHINE = "no machine seen"  # the provider charges a submission whose machine we never saw
    BLOCKS = "blocks"  # the run had a part of the machine, or several parts
    RATE = "rate override"
    PRICE = "price change"  # the provider charges all of a submission at one price
    LIMITS = "request limits"  # the provider's figure leaves submissions out
    RUNNING = "still running"  # the two figures are not of the same moment
    ROUNDING = "rounding"  # the provider's four decimals, our micro-dollars
    IDLE = "idle"
    TEAR_DOWN = "tear-down"
    UNCONFIRMED = "unconfirmed"
    NOBODY = "machine time of nobody"  # busy or being made, for no run we know of
    MINIMUM = "billing granularity"
    NO_FIGURE = "no provider figure"  # a run that the provider never gave a cost of
    UNEXPLAINED = "unexplained"


_OF: Final = {
    Line.PROVISIONING: Cause.NOBODY,
    Line.BUSY: Cause.NOBODY,
    Line.IDLE: Cause.IDLE,
    Line.TERMINATING: Cause.TEAR_DOWN,
    Line.UNCONFIRMED: Cause.UNCONFIRMED,
    Line.UNATTRIBUTED: Cause.NOBODY,
    Line.ROUNDING: Cause.MINIMUM,
}  # if no run pays
Sums = dict[Cause, Fraction]  # micro-dollars by cause; 0 by default


class Difference(Shape, frozen=True, rename={"amount": "amount_usd"}):
    """A reason why two figures differ; positive is in ours only."""

    cause: Cause
    amount: Usd


class Reconciliation(
    Shape,
    frozen=True,
    kw_only=True,
    rename={"ours": "ours_usd", "theirs": "theirs_usd", "divergence": "divergence_usd"},
):
    """Our figure beside the provider's, of one run or of everything; the lines sum to the difference exactly."""

    run_id: str | None  # None: everything
    name: str | None  # the run's, else its id
    ours: Usd
    theirs: Usd | None  # None where the provider gives no figure
    lines: tuple[Difference, ...]  # without lines of 0
    divergence: Usd  # what stays unexplained, if that is more than a cent; else 0


def reconciliation(
    amounts: Mapping[Cause, int], *, ours: int, theirs: int | None, run_id: str | None = None, name: str | None = None
) -> Reconciliation:
    """Two figures and the parts of their difference, in micro-dollars."""
    unexplained = amounts.get(Cause.UNEXPLAINED, 0)
    return Reconciliation(
        run_id=run_id,
        name=name or run_id,
        ours=ours,
        theirs=theirs,
        lines=tuple(Difference(cause, amounts[cause]) for cause in Cause if amounts.get(cause)),
        divergence=unexplained if abs(unexplained) > CENT else 0,
    )


class Charged(NamedTuple):
    key: str  # as in `Occupancy.job`
    since: int
    until: int  # its end; while it goes on, the newest poll of the run
    price: int

    @property
    def cost(self) -> Fraction:
        """Micro-dollars."""
        return Fraction((self.until - self.since) * self.price, HOUR)


def reconcile_sums(
    *, ours: int, paid: int, theirs: int, causes: Mapping[Cause, int], nobodys: Mapping[Line, int]
) -> Reconciliation:
    """Everything, from sums in micro-dollars: `ours`, what all machines cost; `paid`, what known runs pay of it;
    `theirs`, what the provider charges these runs; `causes`, why the two differ; `nobodys`, what no run pays, by line.
    What is left then is paid by unknown runs.
    """
    amounts = Counter(causes)
    for line, cost in nobodys.items():
        amounts[_OF[line]] += cost
    amounts[Cause.NOBODY] += ours - paid - sum(nobodys.values())
    return reconciliation(amounts, ours=ours, theirs=theirs)


def reconcile_run(
    run: Run, charges: Iterable[Charge], state: World, machines: Mapping[tuple[str, str], Vm]
) -> Reconciliation:
    """A run's two figures. `machines`: (run_id, submission) → the machine it was on."""
    mine = list(charges)
    ours = sum(charge.cost for charge in mine)
    if run.cost is None:
        return reconciliation({Cause.NO_FIGURE: ours}, ours=ours, theirs=None, run_id=run.run_id, name=run.name)
    sums: Sums = defaultdict(Fraction)
    theirs = Fraction(0)
    spans: dict[str, list[Charged]] = defaultdict(list)
    for submission in charged(run):
        theirs += submission.cost
        vm = machines.get((run.run_id, submission.key))
        if vm is None:
            sums[Cause.NO_MACHINE] -= submission.cost
        else:
            spans[vm.vm_id].append(submission)
    unseen = Cause.BETWEEN_POLLS if gpu_kept(run) is None else Cause.KERNELS
    for vm_id in dict.fromkeys((*(charge.vm_id for charge in mine), *spans)):
        on_it = [charge for charge in mine if charge.vm_id == vm_id]
        _compare(state.vms[vm_id], on_it, spans.get(vm_id, []), sums, unseen)
    if abs(theirs - run.cost) <= HALF_STEP + 1:
        cause = Cause.ROUNDING
    elif not is_settled(run):
        cause = Cause.RUNNING
    else:
        cause = Cause.LIMITS if is_cut(run) else Cause.UNEXPLAINED
    sums[cause] += theirs - run.cost
    rounded = Counter({cause: round(amount) for cause, amount in sums.items()})
    rounded[Cause.ROUNDING] += ours - run.cost - sum(rounded.values())
    return reconciliation(rounded, ours=ours, theirs=run.cost, run_id=run.run_id, name=run.name)


def _compare(vm: Vm, mine: list[Charge], spans: list[Charged], sums: Sums, unseen: Cause) -> None:
    """The charges of both sides for one run on one machine, over the same time; `unseen`: why only the provider
    does.
    """
    listed, silent = Book().tariff(vm), silent_from(vm)
    covered = [(charge.since, charge.until) for charge in mine]
    for span in spans:
        for start, end in _outside(span.since, span.until, covered):
            cut = [silent] if silent is not None and start < silent < end else []
            for since, until in pairwise([start, *cut, end]):
                waits = any(charge.since > since for charge in mine)
                cause = Cause.QUEUEING if waits else unseen
                cause = Cause.SILENT if silent is not None and since >= silent else cause
                sums[cause] -= span._replace(since=since, until=until).cost
    first = min((span.since for span in spans), default=None)
    for charge in mine:
        length = charge.until - charge.since
        if length == 0:
            continue
        cuts = [
            span._replace(since=max(span.since, charge.since), until=min(span.until, charge.until)) for span in spans
        ]
        both = [span for span in cuts if span.until > span.since]
        outside = _outside(charge.since, charge.until, [(span.since, span.until) for span in both])
        alone = sum(end - start for start, end in outside)
        before = first is None or charge.until <= first
        sums[Cause.NOBODY if before else Cause.CLEANING_UP] += Fraction(charge.cost * alone, length)
        if both:
            _prices(vm, charge, listed, both, length - alone, sums)


def _prices(vm: Vm, charge: Charge, listed: Tariff, both: list[Charged], shared: int, sums: Sums) -> None:
    """Where both sides charge (`shared`): an override, a part of the machine, a price that changed."""
    length = charge.until - charge.since
    ours, rate = Fraction(charge.cost * shared, length), Fraction(0)
    if charge.hourly and rung_at(listed, charge.since).best != charge.hourly:
        rate = ours - ours * exact(listed, charge.since, charge.until) / (charge.hourly * length)
    rest = ours - sum(span.cost for span in both) - rate
    sums[Cause.RATE] += rate
    if abs(rest) <= 2:
        sums[Cause.ROUNDING] += rest
    else:
        sums[Cause.BLOCKS if (vm.facts.total_blocks or 1) > 1 or len(both) > 1 else Cause.PRICE] += rest


def _outside(since: int, until: int, covered: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The parts of a span that none of the others covers."""
    inside = [(max(start, since), min(end, until)) for start, end in covered if end > since and start < until]
    edges = sorted({since, until, *(edge for pair in inside for edge in pair)})
    return [
        (start, end)
        for start, end in pairwise(edges)
        if not any(first <= start and end <= last for first, last in inside)
    ]


def charged(run: Run) -> Iterator[Charged]:
    """Every submission of the newest answer that the provider charges for."""
    for job in () if run.facts is None else run.facts.jobs:
        for attempt in job.attempts:
            if attempt.submitted_at is None or not attempt.price:
                continue
            until = attempt.finished_at if attempt.finished_at is not None else run.last_at
            if until > attempt.submitted_at:
                yield Charged(
                    f"{job.replica_num}/{job.job_num}/{attempt.num}", attempt.submitted_at, until, attempt.price
                )


def is_settled(run: Run) -> bool:
    """True if its figure is final: the run and its submissions have ended."""
    jobs = () if run.facts is None else run.facts.jobs
    return run.terminal and all(attempt.finished_at is not None for job in jobs for attempt in job.attempts)


def is_cut(run: Run) -> bool:
    """True if the newest answer leaves submissions out."""
    jobs = () if run.facts is None else run.facts.jobs
    counts = ((len(job.attempts), 1 + max((attempt.num for attempt in job.attempts), default=0)) for job in jobs)
    return not jobs or any(listed < made for listed, made in counts)


def divergences(state: World) -> tuple[Anomaly, ...]:
    """An anomaly for each run whose figure is more than a cent off what its own submissions give. A figure that may
    still change, or whose answer left submissions out, is not a contradiction.
    """
    anomalies = []
    for run in state.runs.all():
        if run.cost is None or not is_settled(run) or is_cut(run):
            continue
        given = sum((charge.until - charge.since) * charge.price for charge in charged(run)) // HOUR
        if abs(given - run.cost) > CENT:
            detail = f"{run.provider} says {usd(run.cost)}, its own submissions give {usd(given)}"
            position = run.cost_at if run.cost_at is not None else run.last_position
            kind = AnomalyKind.COST_DIVERGENCE
            anomalies.append(Anomaly(kind=kind, subject=f"run/{run.run_id}", position=position, detail=detail))
    return tuple(anomalies)
