"""Everything there is to decide about one source now: a pure function of the world, the policy and the time.

It looks at the record only, so that deciding again after a crash, or in another process, gives the same; what is
already written down is not decided again.
"""

from engine.decide.budget import due_alerts
from engine.decide.capacity import requeues
from engine.decide.decisions import CancelDrain, Decision, Hold
from engine.decide.idle_policy import shutdown
from engine.decide.queue import plan
from engine.decide.source_view import Scene
from engine.fold.archives import live_part
from engine.fold.world_codec import WorldState
from engine.policy import Policy


def decide(
    state: WorldState,
    source: str,
    policy: Policy,
    now: int,
    watched: bool = True,
) -> tuple[Decision, ...]:
    """The decisions about one source's runs and machines, in the order in which they are to be carried out.

    Drains are taken back before anything is placed. A run that goes to a machine whose drain is taken back gets its
    place in the next decision, when the machine is free by the record.

    Args:
        source: `<provider>/<project>`, as its polls are named.
        now: microseconds, UTC; only back-offs and the age of requests are measured by it, no machine's timer is.
        watched: whoever decides goes on recording, and ends idle machines itself.
    """
    scene = Scene(state=live_part(state), source=source, policy=policy, now=now, watched=watched)
    queued = plan(scene)
    machines = tuple(shutdown(scene, queued))
    runs = tuple(one for one in queued.decided if not isinstance(one, Hold) or _is_news(scene, one))
    kept = tuple(one for one in machines if isinstance(one, CancelDrain))
    others = tuple(one for one in machines if not isinstance(one, CancelDrain))
    return (*kept, *requeues(scene), *runs, *others, *_alerts(scene))


def _is_news(scene: Scene, hold: Hold) -> bool:
    held = scene.state.runs[hold.run_id].held
    return held is None or held.why != hold.why


def _alerts(scene: Scene) -> tuple[Decision, ...]:
    if scene.policy.free or scene.policy.budget_total is None:
        return ()
    return due_alerts(scene.state, scene.policy, scene.now)
