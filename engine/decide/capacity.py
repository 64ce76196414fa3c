"""What becomes of a run the provider had no capacity for: the same request is made again, for a while."""

from collections.abc import Iterator
from typing import Final

from engine.decide.decisions import Requeue
from engine.decide.source_view import Scene
from engine.fold.queries import source_of
from engine.fold.run import Run
from engine.policy import MINUTE, Policy
from engine.states import Reason, State, VmState
from events.clock import SECOND
from events.duration import backoff, span

FIRST: Final = 15 * SECOND
MOST: Final = 5 * MINUTE
"""The pause once every GPU was asked for: twice as long each time, up to the most."""


def requeues(scene: Scene) -> Iterator[Requeue]:
    """Runs to be asked for again, in order of request."""
    for run in scene.state.runs.values():
        if run.state is State.FAILED and run.reason is Reason.NO_CAPACITY and _is_wanted(scene, run):
            yield _again(scene, run)


def _is_wanted(scene: Scene, run: Run) -> bool:
    if run.requested_at is None or run.provider_id is None or run.stop_by is not None:
        return False
    # The record may be ahead of a clock that jumped back.
    age = max(scene.now, run.last_at) - run.requested_at
    return not _ran(run) and age < scene.policy.queue_patience and source_of(run) == scene.source


def capacity_sentence(run: Run, policy: Policy, now: int) -> str | None:
    """How often a run of ours without capacity was submitted, and why it is not submitted again, or until when it is.

    None: it did not fail for want of capacity, or was not submitted through Steno.
    """
    if run.state is not State.FAILED or run.reason is not Reason.NO_CAPACITY or run.requested_at is None:
        return None
    tries = "once" if run.requeues == 0 else f"{run.requeues + 1} times"
    patience, limit = (
        policy.queue_patience,
        f"{span(policy.queue_patience)} after the request (`queue.patience`)",
    )
    if run.stop_by is not None:
        why = "it is not submitted again, because a stop was requested"
    elif _ran(run):
        why = "it is not submitted again, because it had started"
    elif patience == 0:
        why = "it is not submitted again, because `queue.patience` is 0"
    elif now - run.requested_at < patience:
        why = f"it is submitted again until {limit}"
    else:
        why = f"it is not submitted again, because the limit of {limit} has passed"
    return f"Steno submitted it {tries}; {why}."


def _ran(run: Run) -> bool:
    return run.started_at is not None or any(step.after is State.RUNNING for step in run.transitions)


def _again(scene: Scene, run: Run) -> Requeue:
    fallback = run.terms.fallback if run.terms is not None else ()
    asked = run.requeues + 1
    rounds, turn = divmod(asked, 1 + len(fallback))
    pause = 0 if turn or _was_forestalled(scene, run) else backoff(rounds, first=FIRST, most=MOST)
    return Requeue(
        run_id=run.run_id,
        provider_id=run.provider_id or "",
        attempt=asked + 1,
        gpu=fallback[turn - 1] if turn else None,
        not_before=scene.now + pause,
    )


def _was_forestalled(scene: Scene, run: Run) -> bool:
    """Whether it was sent to an idle machine that went to another run, or went away: no cloud was asked for one."""
    if run.placed is None or run.placed.creation != "reuse" or run.placed.vm_id is None:
        return False
    vm = scene.state.vms.get(run.placed.vm_id)
    return vm is None or vm.state is not VmState.IDLE
