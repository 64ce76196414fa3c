"""Every decision about one source now: a pure function of the world, the policy and the time. A decision is the event
that records it. It depends on the record only, so deciding again, after a crash or in another process, gives the same;
what is recorded is not decided again.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, get_args

from msgspec.structs import replace

from steno.engine.decide import idle_policy
from steno.engine.decide.budget import due_alerts
from steno.engine.decide.placement import Plan
from steno.engine.decide.queue import placements, plan, requeues
from steno.engine.decide.situation import Situation
from steno.engine.state.archives import live_part
from steno.engine.state.inventory import race_of
from steno.engine.state.outbox import Outbox
from steno.engine.state.policy import Policy
from steno.engine.state.run import Run
from steno.engine.state.states import State
from steno.engine.state.world import World
from steno.events import types
from steno.events.types import StopRequested


def losers(plan: Plan) -> Iterator[StopRequested]:
    """Stops for the runs that lost their race: they were asked for together, and only the first that runs is wanted.
    The round that shows the winner decides, from the record alone, so a crash at any point changes nothing.
    """
    situation = plan.situation
    going = [run for run in situation.live if race_of(run) is not None and run.stop_by is None]
    races = {race: situation.state.runs.raced(race) for race in filter(None, map(race_of, going))}
    won = {race: winner(runs) for race, runs in races.items()}
    for run in going:
        first = won[race_of(run) or ""]
        if first is not None and run is not first:
            project = run.project or situation.source.partition("/")[2]
            yield idle_policy.stop_request(run, project, by="policy", submitter=idle_policy.STENO)


def winner(runs: Iterable[Run]) -> Run | None:
    """The run of a race that is wanted; None: none has run yet. A loser stays a loser, even if the winner is queued
    again as if it had never run. A run that is over, or ending, before any was seen to run has not won. Of several that
    started between two polls the earliest start wins, then the earliest request.
    """
    started = (
        run for run in runs if run.started_at is not None or run.exit_status is not None or run.state is State.SUCCEEDED
    )
    ran = [run for run in started if run.stop_by != "policy"]
    return min(ran, key=lambda run: (_started(run), run.first_position), default=None)


def _started(run: Run) -> int:
    """When it was first seen running; if it ended between two polls, when it ended."""
    return next(at for at in (run.started_at, run.finished_at) if at is not None)


QueueDecision = types.RunHeld | types.RunPlaced | types.RunRequeued  # written to the source's queue, all or none
Decision = (
    QueueDecision
    | types.IntentAbandoned
    | types.SubmitFailed
    | types.VmDrainStarted
    | types.VmDrainCancelled
    | types.StopRequested
    | types.RunIdleWarned
    | types.VmStopIntended
    | types.BudgetCrossed
)
DECISIONS: Final = frozenset(kind.__name__ for kind in get_args(Decision))

RULES: Final[tuple[Callable[[Plan], Iterable[Decision]], ...]] = (
    idle_policy.cancelled_drains,  # the next decision places a run there, when the record shows the machine free
    requeues,
    placements,
    idle_policy.lever_stops,
    losers,
    idle_policy.machine_endings,
    idle_policy.idle_runs,
    due_alerts,
)
"""The rules, in the order in which their decisions are carried out. All see the same world and the same plan."""


def decide(state: World, source: str, policy: Policy, now: int, watched: bool = True) -> tuple[Decision, ...]:
    """The decisions of all `RULES` about one source's runs and machines.

    Args:
        now: microseconds, UTC; only back-offs and the age of requests are measured by it, no machine's timer is.
        watched: the caller goes on recording, and ends idle machines itself.
    """
    planned = plan(Situation(state=live_part(state), source=source, policy=policy, now=now, watched=watched))
    made = [decision for rule in RULES for decision in rule(planned)]
    stops = {each.run_id: each for each in reversed(made) if isinstance(each, StopRequested)}  # the first of each run
    return tuple(each for each in made if not isinstance(each, StopRequested) or stops[each.run_id] is each)


def is_news(decision: Decision, outbox: Outbox) -> bool:
    """True if the decision is new and still valid: nothing in the record contradicts it by now."""
    match decision:
        case types.RunHeld() | types.RunPlaced() | types.IntentAbandoned() | types.SubmitFailed():
            submit = outbox.submits.get(decision.run_id)
            if submit is None or submit.handed:
                return False
            return submit.held is None or replace(submit.held, decided_at=decision.decided_at) != decision
        case types.RunRequeued():
            known = outbox.provider_ids.get(decision.run_id) == decision.provider_id
            return known and decision.run_id not in outbox.stops
        case types.StopRequested():
            return decision.run_id not in outbox.stops and decision.run_id not in outbox.taken
        case types.VmStopIntended():
            return decision.vm_id not in outbox.vm_stops
        case _:
            return True
