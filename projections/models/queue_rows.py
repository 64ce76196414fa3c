"""Runs that wait in Steno's queue, with their place and when they may start."""

from typing import Annotated

import msgspec
from msgspec import Meta

from engine.decide.queue import Queued, queue
from engine.fold.queries import policy_of, source_of
from engine.fold.run import Run
from engine.fold.world_codec import WorldState
from projections.models.wire import Shape, Time


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


class QueuedRun(Shape, frozen=True, kw_only=True):
    """A place in Steno's queue, and why the run waits there."""

    run_id: str
    position: Annotated[int, Meta(ge=1, description="In the queue, from 1.")]
    why: str
    detail: str
    estimated_start: Time | None


def queued_run(one: Queued) -> QueuedRun:
    """A place in the queue as its public object."""
    return msgspec.convert(one, QueuedRun, from_attributes=True)
