"""The offset of a provider's clock from ours, measured by the HTTP `Date` of answers that show something new. A `Date`
has whole seconds and may be old: a loaded server sent one of 18 s ago. So a date ahead of our clock proves that the
provider's is ahead; one behind it proves nothing until it is older than any server makes it. Provider times are shifted
to our clock only if the two clocks are more than 2 s apart for certain.
"""

from typing import TypeVar

from msgspec.structs import replace

from engine.facts import AttemptFacts, RunFacts, Schedule, VmFacts
from engine.fold.change import AnomalyKind
from engine.fold.sources import Source
from engine.fold.tick import Seen, Tick
from engine.fold.turn import Turn
from engine.fold.vm import vm_id_of
from engine.fold.world_codec import WorldState
from engine.server_clock import skew_of
from events.clock import SECOND

Facts = TypeVar("Facts", RunFacts, AttemptFacts, Schedule, VmFacts)


def shows_new(state: WorldState, provider: str, runs: tuple[Seen, ...], vms: tuple[VmFacts, ...]) -> bool:
    """Whether an answer shows a run or machine for the first time; placeholders are none."""
    for seen in runs:
        key = f"{provider}/{seen.facts.provider_id}"
        if key not in state.by_provider and key not in state.former:
            return True
    return any(facts.price is not None and vm_id_of(provider, facts.provider_id) not in state.vms for facts in vms)


def compare_clocks(turn: Turn, source: Source, tick: Tick) -> None:
    """Measure how far the source's clock is ahead of ours, and record changes."""
    if tick.server_time is None or not shows_new(turn.state, tick.scope.provider, tick.runs, tick.vms):
        return
    source.ahead = tick.server_time - tick.observed_at
    skew = skew_of(tick.server_time, tick.started_at, tick.observed_at, known=source.skew)
    if skew == source.skew:
        return
    source.skew = skew
    apart = tick.server_time - tick.observed_at if skew > 0 else -skew
    detail = f"its clock is {apart / SECOND:.0f} s {'ahead of' if skew > 0 else 'behind'} ours"
    turn.note_source(tick.source, AnomalyKind.CLOCK_SKEW, detail if skew else "its clock is ours again")


def shifted(tick: Tick, skew: int) -> Tick:
    """The poll with its provider's times shifted to our clock."""
    return replace(
        tick,
        runs=tuple(Seen(facts=_run(seen.facts, skew), cost=seen.cost) for seen in tick.runs),
        vms=tuple(_back(facts, skew, "created", "finished_at") for facts in tick.vms),
    )


def _run(facts: RunFacts, skew: int) -> RunFacts:
    jobs = tuple(
        replace(job, attempts=tuple(_back(one, skew, "submitted_at", "finished_at") for one in job.attempts))
        for job in facts.jobs
    )
    due = None if facts.schedule is None else _back(facts.schedule, skew, "next_at")
    return replace(_back(facts, skew, "submitted_at"), jobs=jobs, schedule=due)


def _back(facts: Facts, skew: int, *times: str) -> Facts:
    known = {name: moment for name in times if (moment := getattr(facts, name)) is not None}
    return replace(facts, **{name: moment - skew for name, moment in known.items()})
