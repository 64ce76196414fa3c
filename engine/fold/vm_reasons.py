"""Why a machine is where it is, in our words."""

from enum import StrEnum


class VmReason(StrEnum):
    """The reason beside the end of a machine."""

    IDLE_TIMEOUT = "idle_timeout"  # also 0.19.37's `Idle timeout`
    STOPPED_BY_POLICY = "stopped_by_policy"  # our own decision
    STOPPED_BY_USER = "stopped_by_user"
    INTERRUPTED = "interrupted"
    UNREACHABLE = "unreachable"
    PROVISIONING_FAILED = "provisioning_failed"
    FLEET_DELETED = "fleet_deleted"
    PROVIDER_ERROR = "provider_error"
    UNKNOWN_REASON = "unknown_reason"
