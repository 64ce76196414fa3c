"""Every decision about one source now: a pure function of the world, the policy and the time. A decision is the event
that records it. It depends on the record only, so deciding again, after a crash or in another process, gives the same;
what is recorded is not decided again.
"""

from collections.abc import Callable, Iterable
from typing import Final

from engine.decide.budget import due_alerts
from engine.decide.idle_policy import cancelled_drains, machine_endings
from engine.decide.placement import Plan
from engine.decide.queue import placements, plan, requeues
from engine.decide.race import losers
from engine.decide.source_view import Scene
from engine.fold.archives import live_part
from engine.fold.world_codec import WorldState
from engine.policy import Policy
from events import types

QueueDecision = types.RunHeld | types.RunPlaced | types.RunRequeued  # written to the source's queue, all or none
Decision = (
    QueueDecision
    | types.IntentAbandoned
    | types.SubmitFailed
    | types.VmDrainStarted
    | types.VmDrainCancelled
    | types.StopRequested
    | types.VmStopIntended
    | types.BudgetCrossed
)

RULES: Final[tuple[Callable[[Plan], Iterable[Decision]], ...]] = (
    cancelled_drains,  # a run for such a machine is placed by the next decision, when the record shows the machine free
    requeues,
    placements,
    losers,
    machine_endings,
    due_alerts,
)
"""The rules, in the order in which their decisions are carried out. All see the same world and the same plan."""


def decide(state: WorldState, source: str, policy: Policy, now: int, watched: bool = True) -> tuple[Decision, ...]:
    """The decisions of all `RULES` about one source's runs and machines.

    Args:
        now: microseconds, UTC; only back-offs and the age of requests are measured by it, no machine's timer is.
        watched: the caller goes on recording, and ends idle machines itself.
    """
    planned = plan(Scene(state=live_part(state), source=source, policy=policy, now=now, watched=watched))
    return tuple(decision for rule in RULES for decision in rule(planned))
