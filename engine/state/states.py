"""The states of runs and machines, and the reasons beside them: the words that facts, rules and the fold share."""

from enum import StrEnum
from typing import Final


class State(StrEnum):
    """Where a run is, in our words."""

    REQUESTED = "requested"  # asked for; no poll has shown it yet
    QUEUED = "queued"  # the provider has it and gives it no machine yet, or no longer
    PROVISIONING = "provisioning"  # a machine is being made or chosen
    PULLING = "pulling"  # the machine fetches the image
    RUNNING = "running"  # the commands run
    FINISHING = "finishing"  # over or told to stop, and nothing decisive said yet
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"
    LOST = "lost"  # the source answers and no longer knows the run; not terminal


PROGRESS: Final = (
    State.REQUESTED,
    State.QUEUED,
    State.PROVISIONING,
    State.PULLING,
    State.RUNNING,
    State.FINISHING,
)
"""The live states in order; a run moves forward in it, skipping what no poll showed."""


class Reason(StrEnum):
    """The reason beside a verdict (or beside `lost`)."""

    EXIT_ZERO = "exit_zero"
    EXIT_NONZERO = "exit_nonzero"
    STOPPED_BY_USER = "stopped_by_user"
    ABORTED_BY_USER = "aborted_by_user"
    STOPPED_BY_POLICY = "stopped_by_policy"
    GPU_IDLE = "gpu_idle"  # a policy stopped it, because its GPUs were idle
    TIMED_OUT = "timed_out"
    NO_CAPACITY = "no_capacity"
    INTERRUPTED = "interrupted"
    UNREACHABLE = "unreachable"
    REJECTED = "rejected"  # the provider refused the task, or it was never submitted
    COMPILE_ERROR = "compile_error"
    WRONG_ANSWER = "wrong_answer"
    RUNTIME_ERROR = "runtime_error"
    CHEATING_SUSPECTED = "cheating_suspected"  # a kernel did what an honest one does not
    OUT_OF_MEMORY = "out_of_memory"
    NODE_FAILED = "node_failed"
    DUPLICATE = "duplicate"  # its submission arrived twice, and another job of it does the work
    DELETED = "deleted"  # of `lost` only: the provider says the id does not exist
    PROVIDER_ERROR = "provider_error"
    UNKNOWN_REASON = "unknown_reason"


class VmState(StrEnum):
    """Where a machine is, in our words."""

    REQUESTED = "requested"  # asked for; no poll has shown it yet
    PROVISIONING = "provisioning"  # it is being made, and billed
    IDLE = "idle"  # up, no run on it
    BUSY = "busy"  # up, a run on it
    DRAINING = "draining"  # idle, and by our own intent gets no more runs; billed as idle
    TERMINATING = "terminating"  # told to stop
    TERMINATED = "terminated"  # seen gone
    UNCONFIRMED = "unconfirmed"  # not seen gone, though it should be, or its status is an unknown word: billed


class VmReason(StrEnum):
    """The reason beside the end of a machine."""

    IDLE_TIMEOUT = "idle_timeout"
    STOPPED_BY_POLICY = "stopped_by_policy"  # our own decision
    STOPPED_BY_USER = "stopped_by_user"
    RUN_ENDED = "run_ended"  # it was one run's own
    INTERRUPTED = "interrupted"
    UNREACHABLE = "unreachable"
    PROVISIONING_FAILED = "provisioning_failed"
    FLEET_DELETED = "fleet_deleted"
    PROVIDER_ERROR = "provider_error"
    UNKNOWN_REASON = "unknown_reason"
