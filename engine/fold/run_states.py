"""The states of a run and the table between them, as data: both steppers and the diagrams read this."""

from enum import StrEnum
from typing import Final, NamedTuple


class State(StrEnum):
    """Where a run is, in our words."""

    REQUESTED = "requested"  # asked for; no poll has shown it yet
    QUEUED = "queued"  # the provider has it and gives it no machine yet, or again none
    PROVISIONING = "provisioning"  # a machine is being made or chosen
    PULLING = "pulling"  # the machine fetches the image
    RUNNING = "running"  # the commands run
    FINISHING = "finishing"  # over or told to stop, and nothing decisive said yet
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"
    LOST = "lost"  # the source answers and no longer knows the run; not terminal


class Trigger(StrEnum):
    """What can move a run."""

    QUEUE = "queue"
    PROVISION = "provision"
    PULL = "pull"
    RUN = "run"
    FINISH = "finish"
    RETRY = "retry"  # `pending`, or a higher submission number
    SUCCEED = "succeed"
    FAIL = "fail"
    STOP = "stop"
    LOSE = "lose"  # ten answered minutes without it
    REOPEN = "reopen"  # the provider takes an end back


class Edge(NamedTuple):
    """One row of the table."""

    trigger: Trigger
    sources: tuple[State, ...]
    dest: State


PROGRESS: Final = (
    State.REQUESTED,
    State.QUEUED,
    State.PROVISIONING,
    State.PULLING,
    State.RUNNING,
    State.FINISHING,
)
"""The live states in their order; a run moves forward in it, skipping what no poll happened to show."""

TERMINAL: Final = (State.SUCCEEDED, State.FAILED, State.STOPPED)


def _before(state: State) -> tuple[State, ...]:
    return (*PROGRESS[: PROGRESS.index(state)], State.LOST)


EDGES: Final[tuple[Edge, ...]] = (
    Edge(Trigger.QUEUE, _before(State.QUEUED), State.QUEUED),
    Edge(Trigger.PROVISION, _before(State.PROVISIONING), State.PROVISIONING),
    Edge(Trigger.PULL, _before(State.PULLING), State.PULLING),
    Edge(Trigger.RUN, _before(State.RUNNING), State.RUNNING),
    Edge(Trigger.FINISH, _before(State.FINISHING), State.FINISHING),
    Edge(Trigger.RETRY, (*PROGRESS[2:], State.LOST), State.QUEUED),
    Edge(Trigger.SUCCEED, (*PROGRESS, State.LOST, State.FAILED, State.STOPPED), State.SUCCEEDED),
    Edge(Trigger.FAIL, (*PROGRESS, State.LOST, State.SUCCEEDED, State.STOPPED), State.FAILED),
    Edge(Trigger.STOP, (*PROGRESS, State.LOST, State.SUCCEEDED, State.FAILED), State.STOPPED),
    Edge(Trigger.LOSE, PROGRESS, State.LOST),
    Edge(Trigger.REOPEN, TERMINAL, State.QUEUED),
)
"""Every legal move. From one terminal state to another only by a newer decisive observation that contradicts it."""

TRIGGER_TO: Final[dict[State, Trigger]] = {
    State.QUEUED: Trigger.QUEUE,
    State.PROVISIONING: Trigger.PROVISION,
    State.PULLING: Trigger.PULL,
    State.RUNNING: Trigger.RUN,
    State.FINISHING: Trigger.FINISH,
    State.SUCCEEDED: Trigger.SUCCEED,
    State.FAILED: Trigger.FAIL,
    State.STOPPED: Trigger.STOP,
    State.LOST: Trigger.LOSE,
}
"""The trigger by which a reading moves a run to a state."""


def is_terminal(state: State) -> bool:
    """Whether the state is a verdict: succeeded, failed or stopped."""
    return state in TERMINAL
