"""The Run machine: its triggers and moves."""

from enum import StrEnum
from typing import Final, TypeAlias

from engine.fold.state_machine import Row, StateMachine, Stepper
from engine.states import PROGRESS, State


class Trigger(StrEnum):
    """What can move a run."""

    QUEUE = "queue"
    PROVISION = "provision"
    PULL = "pull"
    RUN = "run"
    FINISH = "finish"
    RETRY = "retry"  # back in its queue, or a higher attempt number
    SUCCEED = "succeed"
    FAIL = "fail"
    STOP = "stop"
    LOSE = "lose"  # ten answered minutes without it
    REOPEN = "reopen"  # the provider takes an end back


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
