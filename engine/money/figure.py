"""dstack's own figure of a run's cost, as its submissions give it: Σ price × (finished − submitted), four decimals."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from engine.fold.change import Anomaly, AnomalyKind
from engine.fold.run import Run
from engine.fold.world_codec import WorldState
from engine.money.prices import HOUR
from engine.money.words import usd
from engine.policy import DOLLAR

CENT: Final = DOLLAR // 100


class Charged(NamedTuple):
    """One submission as dstack charges it."""

    key: str
    """`<replica_num>/<job_num>/<submission_num>`."""
    since: int
    until: int
    """Its end; of one that goes on, the newest poll of the run."""
    price: int


def charged(run: Run) -> Iterator[Charged]:
    """Every submission of the newest answer that dstack charges for."""
    for job in () if run.facts is None else run.facts.jobs:
        for one in job.attempts:
            if one.submitted_at is None or not one.price:
                continue
            until = one.finished_at if one.finished_at is not None else run.last_at
            if until > one.submitted_at:
                yield Charged(f"{job.replica_num}/{job.job_num}/{one.num}", one.submitted_at, until, one.price)


def is_settled(run: Run) -> bool:
    """Whether its figure can no longer move: it has ended, and so have its submissions."""
    jobs = () if run.facts is None else run.facts.jobs
    return run.terminal and all(one.finished_at is not None for job in jobs for one in job.attempts)


def is_cut(run: Run) -> bool:
    """Whether the newest answer shows fewer submissions than there were."""
    jobs = () if run.facts is None else run.facts.jobs
    counts = ((len(job.attempts), 1 + max((one.num for one in job.attempts), default=0)) for job in jobs)
    return not jobs or any(shown < made for shown, made in counts)


def divergences(state: WorldState) -> tuple[Anomaly, ...]:
    """An anomaly for each run whose figure is more than a cent off what its own submissions give.

    A figure whose answer left submissions out, or that may still move, is no contradiction.
    """
    found = []
    for run in state.runs.values():
        if run.cost is None or not is_settled(run) or is_cut(run):
            continue
        given = sum((one.until - one.since) * one.price for one in charged(run)) // HOUR
        if abs(given - run.cost) > CENT:
            detail = f"dstack says {usd(run.cost)}, its own submissions give {usd(given)}"
            position = run.cost_at if run.cost_at is not None else run.last_position
            kind = AnomalyKind.COST_DIVERGENCE
            found.append(Anomaly(kind=kind, subject=f"run/{run.run_id}", position=position, detail=detail))
    return tuple(found)
