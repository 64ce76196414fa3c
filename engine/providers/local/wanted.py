"""What of a submission says where it may run."""

from collections.abc import Mapping

from engine.errors import TaskInvalid
from engine.providers.base import Submission
from engine.providers.dstack.requirements import gpus_of, idle_of
from engine.providers.local.placement import Wanted


def wanted(submission: Submission) -> Wanted:
    """The terms of a submission; a machine made for it is kept warm only where it or its task says so.

    Raises:
        TaskInvalid: its `idle_duration` is none.
    """
    configuration = submission.configuration
    resources = configuration.get("resources")
    gpus, count = gpus_of(resources.get("gpu") if isinstance(resources, Mapping) else None)
    return Wanted(
        slot=submission.slot,
        fresh=submission.creation != "reuse" and configuration.get("creation_policy") == "create",
        reuse=submission.creation == "reuse",
        idle=_idle(configuration.get("idle_duration"), submission.idle),
        gpus=gpus if submission.gpu is None else (submission.gpu,),
        gpu_count=count,
    )


def _idle(value: object, otherwise: int | None) -> int:
    if value is None or value is True:
        return otherwise or 0
    told = idle_of(value)
    if told is None:
        raise TaskInvalid(f"idle_duration: {value!r} is not a duration; write seconds, or 30s, 10m, 2h, or off")
    return told if otherwise is None or otherwise < 0 else min(told, otherwise)
