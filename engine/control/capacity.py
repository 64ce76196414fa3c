"""What becomes of a run the provider had no capacity for: the same request is made again, for a while."""

from collections.abc import Iterator
from typing import Final

from engine.control.decisions import Requeue
from engine.control.scene import Scene
from engine.policy import MINUTE
from engine.run.reasons import Reason
from engine.run.states import State
from engine.world.holdings import source_of
from engine.world.runs import Run
from events.clock import SECOND

FIRST: Final = 15 * SECOND
MOST: Final = 5 * MINUTE
"""The pause once every GPU was asked for: twice as long each time, up to the most."""


def requeues(scene: Scene) -> Iterator[Requeue]:
    """Runs to be asked for again, in order of request."""
    for run in scene.state.runs.values():
        if run.state is State.FAILED and run.reason is Reason.NO_CAPACITY and _is_wanted(scene, run):
            yield _again(run, scene.now)


def _is_wanted(scene: Scene, run: Run) -> bool:
    if run.requested_at is None or run.provider_id is None or run.stop_by is not None:
        return False
    ran = run.started_at is not None or any(step.after is State.RUNNING for step in run.transitions)
    # The record may be ahead of a clock that jumped back.
    age = max(scene.now, run.last_at) - run.requested_at
    return not ran and age < scene.policy.queue_patience and source_of(run) == scene.source


def _again(run: Run, now: int) -> Requeue:
    fallback = run.terms.fallback if run.terms is not None else ()
    asked = run.requeues + 1
    rounds, turn = divmod(asked, 1 + len(fallback))
    pause = 0 if turn else min(MOST, FIRST * 2 ** min(rounds - 1, 20))
    return Requeue(
        run_id=run.run_id,
        provider_id=run.provider_id or "",
        attempt=run.attempts + 1,
        gpu=fallback[turn - 1] if turn else None,
        not_before=now + pause,
    )
