"""Every decision about one source now: a pure function of the world, the policy and the time. A decision is the event
that records it. It depends on the record only, so deciding again, after a crash or in another process, gives the same;
what is recorded is not decided again.
"""

from engine.decide.budget import due_alerts
from engine.decide.idle_policy import shutdown
from engine.decide.queue import plan, requeues
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


def decide(state: WorldState, source: str, policy: Policy, now: int, watched: bool = True) -> tuple[Decision, ...]:
    """The decisions about one source's runs and machines, in the order in which to carry them out. Drains are cancelled
    before anything is placed. A run for a machine whose drain is cancelled gets its place in the next decision, when
    the machine is free by the record.

    Args:
        now: microseconds, UTC; only back-offs and the age of requests are measured by it, no machine's timer is.
        watched: the caller goes on recording, and ends idle machines itself.
    """
    scene = Scene(state=live_part(state), source=source, policy=policy, now=now, watched=watched)
    queued = plan(scene)
    machines = tuple(shutdown(scene, queued))
    held = {run.run_id: run.held.why for run in scene.queue if run.held is not None}
    runs = [one for one in queued.decided if not isinstance(one, types.RunHeld) or held.get(one.run_id) != one.why]
    kept = [one for one in machines if isinstance(one, types.VmDrainCancelled)]
    others = [one for one in machines if not isinstance(one, types.VmDrainCancelled)]
    alerts = () if policy.free else due_alerts(scene.state, policy)
    return (*kept, *requeues(scene), *runs, *losers(scene), *others, *alerts)
