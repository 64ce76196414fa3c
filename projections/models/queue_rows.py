"""Runs that wait in Steno's queue, with their place and when they may start."""

from engine.decide.queue import Queued, queue
from engine.fold.queries import policy_of, source_of
from engine.fold.run import Run
from engine.fold.world_codec import WorldState
from events.clock import format_time


def waits(run: Run) -> bool:
    """Whether a run was asked of us and has not been handed over yet."""
    return run.requested_at is not None and run.provider_id is None and run.placed is None and not run.terminal


def queues(state: WorldState, now: int) -> dict[str, Queued]:
    """run id → its place, of every run that waits; each source has a queue of its own.

    Args:
        state: with every run in memory: how long runs usually last is learnt from those that ended.
    """
    waiting = (run for run_id in state.unsettled if waits(run := state.runs[run_id]))
    sources = dict.fromkeys(source_of(run) for run in waiting)
    return {one.run_id: one for source in sources for one in queue(state, source, policy_of(state, source), now)}


def queued_object(one: Queued) -> dict[str, object]:
    """A place in the queue as JSON values."""
    start = one.estimated_start
    return {
        "run_id": one.run_id,
        "position": one.position,
        "why": one.why,
        "detail": one.detail,
        "estimated_start": None if start is None else format_time(start),
    }
