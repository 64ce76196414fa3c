"""Several runs behind one provider id: ids can come again. Which run an observation belongs to, the provider's reading
decides (`Reading.is_same_run`); the first run of an id has the id's own run id.
"""

from enum import Enum

from steno.engine.state.facts import RunFacts
from steno.engine.state.reading import Reading, Tick
from steno.engine.state.run import Run
from steno.engine.state.world import World
from steno.events.clock import SECOND, foreign_run_id

APART = 60 * SECOND  # two machines of a cluster may have clocks of their own
WINDOW = 600 * SECOND  # how long after our call the provider may date a submission of ours: a controller can be slow


class Match(Enum):
    """No known run."""

    NONE = "it is another run"
    UNDECIDED = "another source of the provider has to say whether the id came again"


def behind(state: World, key: str) -> list[Run]:
    """The runs that had a provider's id (`<provider>/<provider_id>`), the newest first."""
    known = state.by_provider.get(key)
    if known is None:
        return []
    run = state.runs[known]
    return [state.runs[run_id] for run_id in reversed(run.same_id)] or [run]


def find(state: World, reading: Reading | None, key: str, facts: RunFacts, tick: Tick | None) -> Run | Match:
    """The run that an observation under a provider's id belongs to. `tick`: its poll, if it is recorded already."""
    if reading is None or not reading.ids_recur:
        known = state.by_provider.get(key)
        return Match.NONE if known is None else state.runs[known]
    match = Match.NONE
    for run in behind(state, key):
        same = _is_same(reading, run, facts, tick)
        if same:
            return run
        if same is None:
            match = Match.UNDECIDED
    return match


def _is_same(reading: Reading, run: Run, facts: RunFacts, tick: Tick | None) -> bool | None:
    if run.facts is None:
        return is_submission(run, facts)
    witness = None if tick is None else tick.scope.witness
    listed, asked_at = run.views.get(witness or ""), None if tick is None else run.started.get(tick.asked)
    since = None if tick is None or asked_at is None else tick.started_at - asked_at
    return reading.is_same_run(run.facts, facts, views=run.views, listed=listed, since=since)


def is_submission(run: Run, facts: RunFacts) -> bool | None:
    """True if an observation is the submission of a run of ours that no poll has shown yet. A record of older versions
    does not have its time by the provider's clock.
    """
    if facts.mark is not None:
        return facts.mark == run.run_id
    if run.submitted_from is None:
        return True
    return None if facts.submitted_at is None else -APART <= facts.submitted_at - run.submitted_from <= WINDOW


def new_id(state: World, provider: str, facts: RunFacts) -> str:
    """The run id of a run that Steno did not submit: the provider id's own, or with its first known submission where
    another run has that.
    """
    first, *later = foreign_ids(provider, facts.provider_id, facts.submitted_at)
    return later[0] if later and f"{provider}/{facts.provider_id}" in state.by_provider else first


def foreign_ids(provider: str, provider_id: str, submitted_at: int | None) -> tuple[str, ...]:
    """The run ids that a run of that id and first submission can have."""
    first = foreign_run_id(provider, provider_id)
    if submitted_at is None:
        return (first,)
    return first, foreign_run_id(provider, f"{provider_id}@{submitted_at // SECOND}")


def add(state: World, key: str, run: Run) -> list[Run]:
    """Put a run among those that had its provider's id, in order of submission; the others."""
    others = [other for other in behind(state, key) if other is not run]
    group = sorted([*others, run], key=began)
    for member in group if others else ():
        member.same_id = tuple([each.run_id for each in group])
    state.by_provider[key] = group[-1].run_id
    return others


def rename(state: World, key: str, before: str, run: Run) -> None:
    """Let a run take the place of the run `before` among those that had its provider's id."""
    ids = tuple([run.run_id if same == before else same for same in run.same_id])
    for run_id in ids:
        state.runs[run_id].same_id = ids
    if state.by_provider.get(key) == before:
        state.by_provider[key] = run.run_id


def began(run: Run) -> int:
    """When it was submitted: by the provider, by our call, or by its first sight; orders the runs of one id."""
    times = (run.submitted_at, run.submitted_from, run.first_at)
    return next(at for at in times if at is not None)
