"""The provider's clock beside ours: measured where its times are first met, in an answer that shows something new.

Provider times are shifted to our clock only where the two are more than 2 s apart for certain.
"""

from typing import Final

from msgspec.structs import replace

from engine.facts import JobFacts, RunFacts, SubmissionFacts, VmFacts
from engine.world.change import Anomaly, AnomalyKind
from engine.world.sources import Source
from engine.world.state import WorldState
from engine.world.tick import Seen, Tick
from engine.world.vms import vm_id_of
from events.clock import SECOND

SKEW: Final = 2 * SECOND
"""Clocks that differ by no more are equal."""


def shows_new(state: WorldState, provider: str, runs: tuple[Seen, ...], vms: tuple[VmFacts, ...]) -> bool:
    """Whether an answer shows a run or machine for the first time; placeholders are none."""
    return any(_is_new(state, f"{provider}/{seen.facts.provider_id}") for seen in runs) or any(
        facts.price is not None and vm_id_of(provider, facts.provider_id) not in state.vms for facts in vms
    )


def _is_new(state: WorldState, key: str) -> bool:
    return key not in state.by_provider and key not in state.former


def compare_clocks(state: WorldState, source: Source, tick: Tick) -> Anomaly | None:
    """Measure how far the source's clock is ahead of ours, and tell where that has changed for the worse."""
    if tick.server_time is None or not shows_new(state, tick.scope.provider, tick.runs, tick.vms):
        return None
    skew = skew_of(tick.server_time, tick.started_at, tick.observed_at)
    if abs(skew - source.skew) <= SKEW:
        return None
    source.skew = skew
    detail = f"its clock is {abs(skew) / SECOND:.0f} s {'ahead of' if skew > 0 else 'behind'} ours"
    detail = detail if skew else "its clock is ours again"
    kind = AnomalyKind.CLOCK_SKEW
    return Anomaly(kind=kind, subject=f"source/{tick.source}", position=tick.position, detail=detail)


def skew_of(server_time: int, started_at: int, observed_at: int) -> int:
    """How far (microseconds) a provider's clock is certainly ahead of ours, below zero: behind it; 0 where that may be
    no more than 2 s. `server_time` has whole seconds and was taken somewhere between question and answer.
    """
    ahead, behind = server_time - observed_at, server_time + SECOND - started_at
    if ahead > SKEW:
        return ahead
    return behind if behind < -SKEW else 0


def shifted(tick: Tick, skew: int) -> Tick:
    """The poll with its provider's times as our clock would have had them."""
    return replace(
        tick,
        runs=tuple(Seen(facts=_run(seen.facts, skew), cost=seen.cost) for seen in tick.runs),
        vms=tuple(
            replace(facts, created=_back(facts.created, skew), finished_at=_back(facts.finished_at, skew))
            for facts in tick.vms
        ),
    )


def _run(facts: RunFacts, skew: int) -> RunFacts:
    return replace(
        facts,
        submitted_at=_back(facts.submitted_at, skew),
        jobs=tuple(_job(job, skew) for job in facts.jobs),
        latest=None if facts.latest is None else _submission(facts.latest, skew),
    )


def _job(job: JobFacts, skew: int) -> JobFacts:
    submissions = tuple(_submission(one, skew) for one in job.submissions)
    return replace(job, submissions=submissions, newest=submissions[-1] if submissions else None)


def _submission(one: SubmissionFacts, skew: int) -> SubmissionFacts:
    return replace(one, submitted_at=_back(one.submitted_at, skew), finished_at=_back(one.finished_at, skew))


def _back(moment: int | None, skew: int) -> int | None:
    return None if moment is None else moment - skew
