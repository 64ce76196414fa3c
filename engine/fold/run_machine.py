"""The Run machine: its states, triggers and moves, and the reasons of its states."""

from enum import StrEnum
from typing import Final, TypeAlias

from engine.fold.state_machine import Row, StateMachine, Stepper


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


class Reason(StrEnum):
    """The reason beside a verdict (or beside `lost`)."""

    EXIT_ZERO = "exit_zero"
    EXIT_NONZERO = "exit_nonzero"
    STOPPED_BY_USER = "stopped_by_user"
    ABORTED_BY_USER = "aborted_by_user"
    STOPPED_BY_POLICY = "stopped_by_policy"
    TIMED_OUT = "timed_out"
    NO_CAPACITY = "no_capacity"
    INTERRUPTED = "interrupted"
    UNREACHABLE = "unreachable"
    REJECTED = "rejected"  # the provider refused the task, or it was never handed over
    COMPILE_ERROR = "compile_error"
    WRONG_ANSWER = "wrong_answer"
    RUNTIME_ERROR = "runtime_error"
    NODE_FAILED = "node_failed"
    DELETED = "deleted"  # of `lost` only: the provider says the id does not exist
    PROVIDER_ERROR = "provider_error"
    UNKNOWN_REASON = "unknown_reason"


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


RUN: Final = StateMachine(
    "run",
    State,
    Trigger,
    (
        Row(Trigger.QUEUE, _before(State.QUEUED), State.QUEUED),
        Row(Trigger.PROVISION, _before(State.PROVISIONING), State.PROVISIONING),
        Row(Trigger.PULL, _before(State.PULLING), State.PULLING),
        Row(Trigger.RUN, _before(State.RUNNING), State.RUNNING),
        Row(Trigger.FINISH, _before(State.FINISHING), State.FINISHING),
        Row(Trigger.RETRY, (*PROGRESS[2:], State.LOST), State.QUEUED),
        Row(Trigger.SUCCEED, (*PROGRESS, State.LOST, State.FAILED, State.STOPPED), State.SUCCEEDED),
        Row(Trigger.FAIL, (*PROGRESS, State.LOST, State.SUCCEEDED, State.STOPPED), State.FAILED),
        Row(Trigger.STOP, (*PROGRESS, State.LOST, State.SUCCEEDED, State.FAILED), State.STOPPED),
        Row(Trigger.LOSE, PROGRESS, State.LOST),
        Row(Trigger.REOPEN, TERMINAL, State.QUEUED),
    ),
    ends=TERMINAL,
)
"""From one terminal state to another only by a newer decisive observation that contradicts it."""

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

RunStepper: TypeAlias = Stepper[State, Trigger]


def is_terminal(state: State) -> bool:
    """Whether the state is a verdict: succeeded, failed or stopped."""
    return state in TERMINAL
