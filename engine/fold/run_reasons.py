"""Why a run is where it is, in our words."""

from enum import StrEnum


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
