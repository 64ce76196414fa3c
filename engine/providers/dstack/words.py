"""The words dstack uses for statuses and reasons (0.19.37 to 0.22.5), and its retry event for each reason.

Source: `JobStatus`, `RunStatus`, `RunTerminationReason`, `JobTerminationReason.to_status` and `.to_retry_event` of
dstack 0.22.5. Older local records use them too, with `supervisor_lost`. `error`, a machine's reason, is the provider's
failure for runs and jobs too.
"""

from typing import Final

from steno.engine.state.states import Reason, State, VmReason, VmState

FINAL_RUN_STATUSES: Final = frozenset({"terminated", "failed", "done"})  # after these only `deleted` changes

_STATE: Final = {
    "submitted": State.QUEUED,
    "provisioning": State.PROVISIONING,
    "running": State.RUNNING,
    "terminating": State.FINISHING,
}
RUN_STATE: Final = {"pending": State.QUEUED, **_STATE}  # a run's status → its state
RUN_STATUSES: Final = FINAL_RUN_STATUSES | RUN_STATE.keys()
JOB_STATE: Final = {"pulling": State.PULLING, **_STATE}  # as `RUN_STATE`, of a job
ENDED_JOB_STATUSES: Final = FINAL_RUN_STATUSES | {"aborted"}
JOB_STATUSES: Final = ENDED_JOB_STATUSES | JOB_STATE.keys()

SLURM: Final = "slurm"  # the backend whose machines are jobs of a Slurm cluster
MASTER_DONE: Final = "master-done"  # `stop_criteria` of a task that ends, and stops its workers, with its job 0
MARK: Final = "steno-run"  # the tag with Steno's run id (docs/adr/0027); all servers return tags

STOPS: Final = {"stopped_by_user": Reason.STOPPED_BY_USER, "aborted_by_user": Reason.ABORTED_BY_USER}
SERVER_REASONS: Final = frozenset({"server_error", "gateway_error", "error"})
RUN_REASONS: Final = SERVER_REASONS | STOPS.keys() | {"all_jobs_done", "job_failed", "retry_limit_exceeded"}


def run_cause(status: str | None, reason: str | None) -> Reason | None:
    """Why a run ends, by its own words: `steno.engine.state.facts.RunFacts.cause`."""
    if reason in STOPS:
        return STOPS[reason]
    if reason == "all_jobs_done" or status == "done":
        return Reason.EXIT_ZERO
    if reason in SERVER_REASONS:
        return Reason.PROVIDER_ERROR
    return Reason.UNKNOWN_REASON if reason is not None or status == "failed" else None


NO_CAPACITY: Final = "no-capacity"
INTERRUPTION: Final = "interruption"
ERROR: Final = "error"
RETRY_EVENTS: Final = frozenset({NO_CAPACITY, INTERRUPTION, ERROR})

_JOB_REASONS: Final[dict[str, tuple[str | None, Reason | None]]] = {
    "failed_to_start_due_to_no_capacity": (NO_CAPACITY, Reason.NO_CAPACITY),
    "interrupted_by_no_capacity": (INTERRUPTION, Reason.INTERRUPTED),
    "instance_unreachable": (ERROR, Reason.UNREACHABLE),
    "container_exited_with_error": (ERROR, Reason.EXIT_NONZERO),
    "max_duration_exceeded": (None, Reason.TIMED_OUT),
    "inactivity_duration_exceeded": (None, Reason.TIMED_OUT),
    "terminated_due_to_utilization_policy": (None, Reason.STOPPED_BY_POLICY),
    "supervisor_lost": (None, Reason.NODE_FAILED),
    **dict.fromkeys(
        (
            "instance_access_revoked",
            "waiting_instance_limit_exceeded",
            "waiting_runner_limit_exceeded",
            "volume_error",
            "gateway_error",
            "ports_binding_failed",
            "creating_container_error",
            "executor_error",
            "error",
            "log_quota_exceeded",
        ),
        (ERROR, Reason.PROVIDER_ERROR),
    ),
    **dict.fromkeys(
        ("terminated_by_user", "aborted_by_user", "terminated_by_server", "scaled_down", "done_by_runner"),
        (None, None),
    ),
}
"""Every job reason: the retry event it triggers (None: dstack never retries it), and why the job failed (None: it is no
failure of the job itself).
"""
RETRY_EVENT_OF: Final = {word: event for word, (event, _) in _JOB_REASONS.items()}

NO_FAILURE: Final = frozenset({None, "done_by_runner", "terminated_by_user", "aborted_by_user", "scaled_down"})
"""Reasons of a job that say of no failure."""

BY_SERVER: Final = "terminated_by_server"  # of every other job, once the run fails

MACHINE_LOST: Final = frozenset(  # the machine, or dstack's agent on it, no longer answered
    {
        "interrupted_by_no_capacity",
        "instance_unreachable",
        "waiting_instance_limit_exceeded",
        "waiting_runner_limit_exceeded",
    }
)


def job_cause(reason: str | None) -> Reason | None:
    """Why a job failed, by its reason; None if it means no failure or is unknown."""
    return _JOB_REASONS.get(reason or "", (None, None))[1]


def retry_event(reason: str | None, exit_status: int | None) -> str | None:
    """The retry event that an ended job triggers; None if dstack never retries it."""
    if job_cause(reason) is not None:
        return RETRY_EVENT_OF[reason or ""]
    return ERROR if exit_status else None


def is_retried(reason: str | None, exit_status: int | None, retry_on: frozenset[str]) -> bool:
    """True if the task's retry policy covers how a job ended; any covers an unknown reason unless exit status 0."""
    if reason is not None and reason not in RETRY_EVENT_OF and exit_status != 0:
        return bool(retry_on)
    return retry_event(reason, exit_status) in retry_on


def never_ran(reason: str | None, message: str | None) -> bool:
    """True if the job ended before anything of it ran, by a cause that may be over: another had its machine's GPUs."""
    return reason == "executor_error" and "failed to acquire gpus" in (message or "").lower()


VM_STATE: Final = {
    "pending": VmState.REQUESTED,  # with or without a price no machine yet
    "provisioning": VmState.PROVISIONING,
    "idle": VmState.IDLE,
    "busy": VmState.BUSY,
    "terminating": VmState.TERMINATING,
    "terminated": VmState.TERMINATED,
}

HEALTH: Final = frozenset({"healthy", "warning", "failure"})  # `healthy` is also the word for what nobody checked
INSTANCE_STATUSES: Final = VM_STATE.keys()  # of dstack 0.19.37 to 0.22.5

_VM_CAUSE: Final[dict[str, VmReason]] = {
    "idle_timeout": VmReason.IDLE_TIMEOUT,
    "terminated_by_user": VmReason.STOPPED_BY_USER,
    "provisioning_timeout": VmReason.PROVISIONING_FAILED,
    "no_offers": VmReason.PROVISIONING_FAILED,
    "master_failed": VmReason.PROVISIONING_FAILED,
    "unreachable": VmReason.UNREACHABLE,
    "error": VmReason.PROVIDER_ERROR,
    "no_balance": VmReason.PROVIDER_ERROR,
    "job_finished": VmReason.STOPPED_BY_POLICY,
    "max_instances_limit": VmReason.STOPPED_BY_POLICY,
    "fleet_spec_mismatch": VmReason.STOPPED_BY_POLICY,
}
INSTANCE_REASONS: Final = frozenset(_VM_CAUSE)  # `InstanceTerminationReason` of dstack 0.22.5

OLD_INSTANCE_REASONS: Final[dict[str, str]] = {  # free text before 0.20.1 → later word (`from_legacy_str`)
    "Idle timeout": "idle_timeout",
    "Instance has not become running in time": "provisioning_timeout",
    "Provisioning timeout expired": "provisioning_timeout",
    "Proivisioning timeout expired": "provisioning_timeout",
    "The proivisioning timeout expired": "provisioning_timeout",
    "Unsupported private SSH key type": "error",
    "Failed to locate internal IP address on the given network": "error",
    "Specified internal IP not found among instance interfaces": "error",
    "Cannot split into blocks": "error",
    "Backend not available": "error",
    "Error while waiting for instance to become running": "error",
    "Empty profile, requirements or instance_configuration": "error",
    "Unable to locate the internal ip-address for the given network": "error",
    "Private SSH key is encrypted, password required": "error",
    "Cannot parse private key, key type is not supported": "error",
    "All offers failed": "no_offers",
    "No offers found": "no_offers",
    "There were no offers found": "no_offers",
    "Retry duration expired": "no_offers",
    "The retry's duration expired": "no_offers",
    "Master instance failed to start": "master_failed",
    "Instance job finished": "job_finished",
    "Termination deadline": "unreachable",
    "Fleet has too many instances": "max_instances_limit",
    "Low account balance": "no_balance",
}

_OLD_ERROR: Final = "Error to parse profile, requirements or instance_configuration:"


def instance_reason(text: str) -> str | None:
    """The word of dstack 0.22.5 for a reason that any server gives; None if unknown."""
    if text in INSTANCE_REASONS:
        return text
    return "error" if text.startswith(_OLD_ERROR) else OLD_INSTANCE_REASONS.get(text)


def vm_cause(word: str | None, *, gives_end: bool = True) -> VmReason:
    """Why a machine ends. A server without reasons (0.19.37) omits one only if the machine or its fleet was deleted
    (`_terminate_fleet_instances`); later servers call that `terminated_by_user`.
    """
    if word is None:
        return VmReason.UNKNOWN_REASON if gives_end else VmReason.FLEET_DELETED
    known = instance_reason(word)
    if known is not None:
        return _VM_CAUSE[known]
    return next((reason for reason in VmReason if reason == word), VmReason.UNKNOWN_REASON)
