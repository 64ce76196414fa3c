"""The configuration as it is sent: the task's own, with what was decided about its machine."""

from collections.abc import Mapping

from engine.providers.base import Submission
from engine.providers.dstack.task import for_dstack
from engine.readings.terms import idle_of
from engine.readings.words import MARK
from events.clock import SECOND


def wording(submission: Submission) -> dict[str, object]:
    """The configuration dstack gets.

    - `creation_policy: create` is Steno's own word and never sent; a task that says `reuse` is sent as `reuse`
      whatever was decided, because `reuse-or-create` could rent a machine nobody asked for.
    - A slot replaces `fleets`: the run goes there or nowhere.
    - The tag `MARK` names our run: dstack gives a run's tags back in every answer, and puts them on the machine that is
      made for it, where the cloud has tags.
    - `idle_duration` is what was decided, or the task's own where that is no longer (0 is something said): dstack would
      take five minutes.
    """
    found: dict[str, object] = {**for_dstack(with_gpu(submission)), "name": submission.name}
    tags = found.get("tags")
    found["tags"] = {**(tags if isinstance(tags, dict) else {}), MARK: submission.run_id}
    if submission.creation == "reuse":
        found["creation_policy"] = "reuse"
    if submission.slot is not None:
        found["fleets"] = [submission.slot]
    said = idle_of(found.get("idle_duration"))
    if submission.idle is not None and (said is None or 0 <= submission.idle < said):
        found["idle_duration"] = _idle_duration(submission.idle)
    return found


def _idle_duration(idle: int) -> str:
    """In dstack's words, whole seconds and never less than asked; below zero is for ever."""
    return "off" if idle < 0 else f"{-(-idle // SECOND)}s"


def with_gpu(submission: Submission) -> Mapping[str, object]:
    """The task with the GPU model decided on: as many as before, unless it says how many (`MI210:64GB:2`).

    Memory and maker asked of the first GPU are not asked of the second: they came with its name.
    """
    task, gpu = submission.configuration, submission.gpu
    if gpu is None:
        return task
    before = task.get("resources")
    resources = before if isinstance(before, dict) else {}
    count = None if ":" in gpu else _count(resources.get("gpu"))
    model: object = {"name": [gpu], "count": count} if count is not None else gpu if ":" in gpu else {"name": [gpu]}
    return {**task, "resources": {**resources, "gpu": model}}


def _count(gpu: object) -> object:
    """How many GPUs were asked for, in the form dstack's model has it; None where nothing was said of GPUs."""
    if gpu is None:
        return None
    from dstack._internal.core.models.resources import GPUSpec

    try:
        dumped: Mapping[str, object] = GPUSpec.model_validate(gpu).model_dump(mode="json")
    except (ValueError, TypeError, AttributeError):
        return None
    return dumped.get("count")
