"""Why a run of dstack ended and what to do, by its job's reason and message (servers 0.19.37 to 0.22.5).

Source: `JobTerminationReason`, `RunTerminationReason` and the messages that dstack 0.22.5 writes beside them
(`termination_reason_message`: the server's pipelines, its shim and its runner), and what clouds answer in them.
"""

from functools import lru_cache, partial
from typing import Final

from msgspec.structs import replace

from steno.engine.state.facts import Blame, Finding


def _cause(blame: Blame | None, why: str, remedy: str = "", *, again: bool = False) -> Finding:
    return Finding(why=why, remedy=remedy, blame=blame, again=again)


_task, _site = partial(_cause, Blame.TASK), partial(_cause, Blame.SITE)
_provider, _user = partial(_cause, Blame.PROVIDER), partial(_cause, Blame.USER)


REASONS: Final = {
    "failed_to_start_due_to_no_capacity": None,  # as the general table says
    "container_exited_with_error": _task(
        "Its command never ran, or ended without an exit status",
        "check that the image has the task's shell, and read its output: `steno logs {name} --tail 50`",
    ),
    "max_duration_exceeded": None,
    "interrupted_by_no_capacity": _provider(
        "Its machine was taken away or no longer answered, as spot machines do", again=True
    ),
    "instance_unreachable": _provider(
        "dstack lost the connection to its machine for more than two minutes", again=True
    ),
    "instance_access_revoked": _site(
        "Its project may no longer use the machine: the fleet is not imported into the project any more",
        "have the fleet imported again, or name another in the task (`fleets`)",
    ),
    "waiting_instance_limit_exceeded": _provider(
        "Its machine did not start in time, or ended before the run did", again=True
    ),
    "waiting_runner_limit_exceeded": _provider(
        "Its machine started, but dstack's agent on it did not answer in time", again=True
    ),
    "terminated_by_user": _user("A user stopped it"),
    "aborted_by_user": _user("A user aborted it: it was stopped at once, without time to clean up"),
    "volume_error": _site(
        "A volume of it could not be attached",
        "check that the volume exists, is free and is in the machine's region: `dstack volume list`",
    ),
    "gateway_error": _site(
        "dstack could not set up the service at its gateway", "check that the gateway runs: `dstack gateway list`"
    ),
    "scaled_down": _cause(None, "dstack scaled the service down and ended this replica"),
    "done_by_runner": None,
    "terminated_by_server": _provider(
        "dstack itself ended the job, in most cases because another job of the run failed",
        "read what the others say: `steno explain {name}`",
    ),
    "inactivity_duration_exceeded": _user(
        "dstack ended it because nobody was connected for as long as it allows",
        "raise `inactivity_duration` in its configuration",
    ),
    "terminated_due_to_utilization_policy": _user(
        "dstack ended it by its utilization policy: a GPU was used too little for too long",
        "use every GPU that it asks for, or change `utilization_policy` in the task",
    ),
    "ports_binding_failed": _task(
        "A port that it asks for is in use on its machine",
        "map another port in the task (`ports`), or end what uses it",
    ),
    "creating_container_error": _task(
        "Its container could not be made", "check the image's name, `registry_auth` and the machine's GPU driver"
    ),
    "executor_error": _provider(
        "dstack's agent could not start its command on the machine",
        "check the task's image, repository and user, and the machine's driver",
    ),
    "log_quota_exceeded": _task(
        "It wrote more output than dstack allows in an hour", "print less, or write the output to a file"
    ),
    # of the run: dstack gives it if no job says more
    "retry_limit_exceeded": _task(
        "dstack tried it for as long as its `retry` allows, and no try succeeded", "raise `retry.duration` in the task"
    ),
    "server_error": _provider("dstack's server failed on it", "read the server's log"),
    # of older local records
    "supervisor_lost": _site("The process that watched it ended, or this machine restarted", again=True),
    "error": _provider("It could not be started", "read its output: `steno logs {name} --tail 50`"),
}
"""Every reason of a job, and those of a run that say more than its jobs: `done_by_runner` and the like say nothing."""

GENERAL: Final = frozenset({"all_jobs_done", "job_failed", "stopped_by_user", "aborted_by_user"})
"""Words of a run that repeat what its jobs say."""

MESSAGES: Final = {
    ("no matching fleet", "failed to use specified fleets", "failed to use specified instances"): _site(
        "No fleet of the project may run it",
        "compare what the task asks for (GPU, backend, `fleets`) with `dstack fleet list`, and change one of them",
    ),
    (
        "insufficient_credit",
        "insufficient credit",
        "insufficient fund",
        "insufficient balance",
        "payment",
        "billing",
    ): _site("The cloud account has no credit left", "add credit at the cloud"),
    ("quota", "limitexceeded", "limit exceeded", "limit reached at"): _site(
        "A limit of the cloud account forbids another machine",
        "have the limit raised at the cloud, or end a machine: `steno machines`",
    ),
    ("no offers",): _task(
        "No offer fits what it asks for",
        "ask for another GPU{rerun --gpu NAME:COUNT}, or raise `max_price`; `dstack offer` lists what there is",
    ),
    ("fleet is at capacity",): _site(
        "Every place of its fleet is taken", "wait until a run ends, or raise the fleet's `nodes.max`"
    ),
    ("could not reuse any instance",): _provider("The machine that it was to use was taken or gone", again=True),
    (
        "pull access denied",
        "unauthorized",
        "authentication required",
        "requested access to the resource is denied",
    ): _task(
        "Its image may not be pulled: it does not exist, or needs a login",
        "name another in `image`{rerun --image IMAGE}, or give `registry_auth` in the task",
    ),
    (
        "manifest unknown",
        "manifest for",
        "no matching manifest",
        "repository does not exist",
        "no such image",
        "invalid reference format",
    ): _task("Its image does not exist, or not for this processor", "name another in `image`{rerun --image IMAGE}"),
    ("toomanyrequests", "pull rate limit"): _site(
        "The image registry limits how often an image is pulled", "give `registry_auth`, or wait an hour"
    ),
    ("no space left on device",): _task(
        "The machine's disk is full", "ask for a larger disk{rerun --disk 200GB}, or use a smaller image"
    ),
    (
        "could not select device driver",
        "nvidia-container",
        "nvml",
        "driver/library version",
        "/dev/kfd",
        "/dev/dri",
    ): _site(
        "The machine's GPU driver does not work with containers",
        "end that machine (`steno machines` names it), or use another backend or image",
    ),
    ("no such host", "i/o timeout", "tls handshake timeout", "connection refused"): _site(
        "The machine could not reach the image registry", "check the registry in `image`, and the machine's network"
    ),
    ("does not support inactivity_duration",): _site(
        "Its machine runs a version of dstack's agent that cannot do `inactivity_duration`",
        "leave `inactivity_duration` out, or use a new machine",
    ),
    ("failed to acquire gpus",): _provider("dstack put it on a machine whose GPUs were in use", again=True),
    ("port is already allocated", "address already in use"): _task(
        "A port that it asks for is in use on its machine", "map another port in the task (`ports`)"
    ),
    (
        "set up the repo",
        "set up repo",
        "setup repo",
        "git clone",
        "failed to clone",
        "could not read from remote",
    ): _task(
        "Its repository could not be fetched on the machine",
        "check its address, its branch and that dstack may read it",
    ),
    ("secrets interpolation",): _task(
        "It names a secret that the project does not have", "add it: `dstack secret set`"
    ),
    ("executable file not found", "exec format error", "no such file or directory"): _task(
        "The image lacks the program that is to run", "correct the task's `commands`, `shell` or `image`"
    ),
    ("could not establish dstack server access",): _provider(
        "dstack's server and the machine could not reach each other", again=True
    ),
}
"""Words in the message, in lower case → the cause, which says more than the reason."""
_OPEN: Final = frozenset(  # reasons of many causes: the message says which
    {
        "failed_to_start_due_to_no_capacity",
        "interrupted_by_no_capacity",
        "container_exited_with_error",
        "creating_container_error",
        "executor_error",
        "terminated_by_server",
        "error",
    }
)


@lru_cache(maxsize=1024)
def ending(reason: str | None, message: str | None) -> Finding | None:
    """Why a run ended by the word and message of its job, or its own word; None: they say no more than its reason."""
    if reason is None or reason in GENERAL:
        return None
    cause, says_which = REASONS.get(reason), reason in _OPEN or reason not in REASONS
    if message and says_which:
        text = message.lower()
        cause = next((better for words, better in MESSAGES.items() if any(word in text for word in words)), cause)
    if cause is None and (not says_which or (reason in REASONS and not message)):
        return None
    return replace(cause or Finding(why=""), word=reason, message=message)
