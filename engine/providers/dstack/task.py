"""A task for dstack: validated by its own models, completed from the environment, worded for the call.

Each refusal is one line that names the field. Importing dstack takes 0.9 s, so it happens inside the functions.
"""

import difflib
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from steno.engine.errors import NotConfigured, TaskInvalid
from steno.engine.providers.base import Submission
from steno.engine.providers.dstack.lenient import at, objects
from steno.engine.providers.dstack.requirements import idle_of
from steno.engine.providers.dstack.settings import default_gpu
from steno.engine.providers.dstack.words import MARK
from steno.engine.providers.kind import TaskProfile
from steno.engine.providers.task import Draft, check_name, read_task_file, resolve_env
from steno.engine.settings.settings import Settings
from steno.events.clock import SECOND
from steno.events.installation import installing

_UNION_STEP = re.compile(r"^[a-z_]+\[")
EXAMPLE_IMAGE = "rocm/dev-ubuntu-24.04"
CREATE = "create"  # Steno's own `creation_policy`: a new machine, never a warm one
_OTHER_TYPES = ("service", "volume", "dev-environment", "gateway", "fleet")
_NO_FLEET_NODES = "No ssh_config or nodes specified"
"""dstack's words for a fleet without machines; taken for "fleets do not work with clouds" by those who met them."""


def completed(draft: Draft, settings: Settings) -> dict[str, object]:
    """The draft for dstack: valid, with the settings' backend, and for a bare command their GPU, if it names none.

    Raises TaskInvalid if dstack would refuse it, or a file that it needs does not exist.
    """
    task, resources = dict(draft.configuration), draft.configuration.get("resources")
    gpu = default_gpu(settings) if draft.bare and at(resources, "gpu") is None else None
    if gpu is not None:
        task["resources"] = {**(resources if isinstance(resources, dict) else {}), "gpu": gpu}
    backend = settings.value("dstack.backend")
    if backend:
        task.setdefault("backends", [backend])
    try:
        task = complete_task(task, draft.environ, draft.where, draft.fallback)
    except TaskInvalid as error:
        if gpu is None or task.get("image"):
            raise
        whose = f"the GPU, {gpu}, comes from the setting dstack.gpu; change it with --gpu or STENO_GPU; off: no GPU"
        raise TaskInvalid(f"{error} ({whose})") from None
    if draft.folder is not None and (task.get("files") or task.get("repos")):
        from steno.engine.providers.dstack.uploads import check_local

        check_local(task, draft.folder)
    return task


def complete_task(
    configuration: Mapping[str, object], environ: Mapping[str, str], where: str, fallback: Sequence[str] = ()
) -> dict[str, object]:
    """The configuration ready to be sent: valid, `env` with every value, nothing left to look up on this machine.

    `environ` fills `env: [NAME]`, as `dstack apply` does; `where` names the configuration in messages; `fallback` has
    GPU models of later submissions. Raises TaskInvalid if dstack would refuse it or a variable is not set.
    """
    _check_kind(configuration, where)
    expect_package()
    task = dict(configuration)
    task["env"] = resolve_env(task.get("env"), environ, where)
    if not task["env"]:
        del task["env"]
    name = _check_model(task, where, fallback)
    if name is not None:
        task["name"] = check_name(name)
    return _interpolated(task, where)


def expect_package() -> None:
    """Raises NotConfigured if the package `dstack` is not installed, or not in 0.22: its models check every task."""
    if find_spec("dstack") is None:
        raise NotConfigured(f"a task for dstack needs the package dstack: `{installing('dstack')}`")
    if not (there := metadata.version("dstack")).startswith("0.22."):
        raise NotConfigured(f"a task for dstack needs the package dstack 0.22, not {there}: `{installing('dstack')}`")


def normal_task(task: Mapping[str, object]) -> dict[str, object]:
    """The task with every shorthand written out, as in dstack's model (`resources.gpu.name` is a list …)."""
    expect_package()
    from dstack._internal.core.models.configurations import TaskConfiguration

    dumped = TaskConfiguration.model_validate(for_dstack(task)).model_dump(mode="json")
    normal = {str(key): value for key, value in dumped.items()}
    return {**normal, "creation_policy": CREATE} if task.get("creation_policy") == CREATE else normal


def for_dstack(task: Mapping[str, object]) -> dict[str, object]:
    """The task without `creation_policy: create`, which dstack does not know."""
    return {key: value for key, value in task.items() if key != "creation_policy" or value != CREATE}


def _check_kind(configuration: Mapping[str, object], where: str) -> None:
    kind = configuration.get("type")
    if kind == "task":
        return
    if kind is None:
        raise TaskInvalid(f"{where}: `type` is missing; write `type: task`")
    if kind == "fleet" and configuration.get("nodes") is None and configuration.get("ssh_config") is None:
        raise TaskInvalid(
            f"{where}: this is a fleet, and dstack refuses it: {_NO_FLEET_NODES}; fleets of a cloud do work, "
            "give it `nodes: 0..2` (Steno makes the fleet a task needs by itself)"
        )
    remedy = "write `type: task`"
    if kind in _OTHER_TYPES:
        file = shlex.quote(where) if where.endswith((".yml", ".yaml")) else "FILE"
        remedy = f"create it with dstack itself: `dstack apply -f {file}`"
    raise TaskInvalid(f"{where}: `type` is {kind!r}, and Steno runs tasks only; {remedy}")


def _check_model(task: Mapping[str, object], where: str, fallback: Sequence[str]) -> str | None:
    if not task.get("commands") and not task.get("image") and not task.get("groups"):
        missing, example = "`commands` is missing", "`commands: [nvidia-smi]`"
        if needs_image(task, fallback):
            missing = "`image` and `commands` are missing"
            example = f"`image: {EXAMPLE_IMAGE}` and `commands: [rocm-smi]`"
        raise TaskInvalid(f"{where}: {missing}, so there is nothing to run; write for example {example}")
    from dstack._internal.core.models.configurations import TaskConfiguration

    model = validated(TaskConfiguration, for_dstack(task), where, set(TaskConfiguration.model_fields))
    if model.working_dir is not None and not str(model.working_dir).startswith("/"):
        raise TaskInvalid(f"{where}: working_dir must be absolute, not {model.working_dir!r}")
    if needs_image(task, fallback):
        raise TaskInvalid(
            f"{where}: `image` is missing: dstack's default image supports only NVIDIA GPUs; for an AMD GPU write for "
            f"example `image: {EXAMPLE_IMAGE}`"
        )
    return None if model.name is None else str(model.name)


def validated(model: Any, value: Mapping[str, object], where: str, fields: set[str]) -> Any:
    """The value as a model of dstack's; TaskInvalid with the first error. `fields`: to suggest for an unknown field."""
    import pydantic

    try:
        return model.model_validate(value)
    except pydantic.ValidationError as error:
        raise TaskInvalid(f"{where}: {_first_error(error, fields)}") from None
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        # some parsers of dstack raise a bare Python error on a value of the wrong type
        raise TaskInvalid(f"{where}: dstack cannot read it: {' '.join(str(error).split())[:200]}") from None


def _first_error(error: object, fields: set[str]) -> str:
    first = error.errors(include_url=False)[0]  # type: ignore[attr-defined]
    steps = [str(step) for step in first["loc"] if not _UNION_STEP.match(str(step))]
    field = ".".join(steps).replace("..", ".")
    if steps and steps[0] == "env":
        return "`env`: write each entry as NAME=value, as NAME (taken from your environment), or as NAME: value"
    if "registry_auth" in steps:  # neither its text nor a key of it, which may be a part of the text
        return "`registry_auth`: write it as {username: NAME, password: TEXT}"
    if first["type"] == "extra_forbidden":
        near = difflib.get_close_matches(steps[-1], sorted(fields), n=1) if len(steps) == 1 else []
        return f"unknown field `{field}`" + (f"; did you mean `{near[0]}`?" if near else "; dstack knows no such field")
    message = str(first["msg"]).removeprefix("Value error, ").replace("Input should be", "must be")
    message = " ".join(message.split())[:300]
    if field == "creation_policy":
        message = f"must be '{CREATE}', 'reuse' or 'reuse-or-create'"
    return f"`{field}`: {message} (it is {str(first['input'])[:60]!r})" if field else message


def needs_image(task: Mapping[str, object], fallback: Sequence[str] = ()) -> bool:
    """True if the task lacks the image it needs: dstack's default image supports only NVIDIA GPUs."""
    if task.get("image") or task.get("docker"):
        return False
    gpu = at(task, "resources", "gpu")
    return any(_is_other_makers(name) for name in (gpu, *fallback))


def _gpu_spec(gpu: object) -> Any:
    """dstack's model of a `resources.gpu`; None if dstack cannot read it."""
    from dstack._internal.core.models.resources import GPUSpec

    try:
        return None if gpu is None else GPUSpec.model_validate(gpu)
    except (ValueError, TypeError, AttributeError):
        return None


def _is_other_makers(gpu: object) -> bool:
    from dstack._internal.utils.gpu import detect_gpu_vendors_by_gpu_name
    from gpuhunt import AcceleratorVendor

    spec = _gpu_spec(gpu)
    if spec is None or (spec.count is not None and spec.count.max == 0):
        return False
    vendors = {spec.vendor} if spec.vendor else set()
    for name in spec.name or () if not vendors else ():
        vendors |= detect_gpu_vendors_by_gpu_name(name)
    return bool(vendors - {AcceleratorVendor.NVIDIA, AcceleratorVendor.GOOGLE})


def _interpolated(task: dict[str, object], where: str) -> dict[str, object]:
    """Replaces `${{ run.args }}` and the registry's `${{ env.NAME }}`; the server fills in `${{ secrets.* }}`."""
    from dstack._internal.utils.interpolator import InterpolatorError, VariablesInterpolator

    env = task.get("env")
    try:
        commands = task.get("commands")
        if isinstance(commands, list) and any("${{" in str(command) for command in commands):
            skip = {"secrets": VariablesInterpolator.validate_name, "groups": lambda _: True}
            runs = VariablesInterpolator({"run": {"args": ""}}, skip=skip)
            task["commands"] = [runs.interpolate_or_error(str(command)) for command in commands]
    except InterpolatorError as error:
        raise TaskInvalid(f"{where}: {' '.join(str(error).split())[:200]}") from None
    registry = task.get("registry_auth")
    if isinstance(registry, dict):
        values = VariablesInterpolator({"env": env if isinstance(env, dict) else {}}, skip=["secrets"])
        try:
            filled = {key: values.interpolate(str(text), return_missing=True) for key, text in registry.items()}
        except InterpolatorError:  # its message repeats the text
            raise TaskInvalid(f"{where}: `registry_auth`: write a reference as ${{{{ env.NAME }}}}") from None
        if missing := sorted({name for _, names in filled.values() for name in names}):
            raise TaskInvalid(f"{where}: `registry_auth`: {', '.join(missing)} is not set: give it in `env`")
        task["registry_auth"] = {key: text for key, (text, _) in filled.items()}
    return task


def wording(submission: Submission) -> dict[str, object]:
    """The configuration that dstack gets.

    - `creation_policy`: never `create`. A task with `reuse` keeps it: `reuse-or-create` could rent a machine. Not with
      `retry`: dstack's later tries keep the policy, and find no machine once the first is gone.
    - `fleets`: the slot, if there is one; the run goes there or nowhere.
    - The tag `MARK` names our run: dstack returns a run's tags in every answer, and tags its machine where the cloud
      can.
    - `idle_duration`: what was decided, or the task's own if not longer (0 counts); dstack's default is five minutes.
    """
    task: dict[str, object] = {**for_dstack(with_gpu(submission)), "name": submission.name}
    tags = task.get("tags")
    task["tags"] = {**(tags if isinstance(tags, dict) else {}), MARK: submission.run_id}
    if submission.creation == "reuse":
        task["creation_policy"] = "reuse"
    elif task.get("retry") not in (None, False):
        task.pop("creation_policy", None)
    if submission.slot is not None:
        task["fleets"] = [submission.slot]
    own = idle_of(task.get("idle_duration"))
    idle = submission.idle
    if idle is not None and (own is None or 0 <= idle < own):
        # whole seconds, rounded up; negative is for ever
        task["idle_duration"] = "off" if idle < 0 else f"{-(-idle // SECOND)}s"
    return task


def with_gpu(submission: Submission) -> Mapping[str, object]:
    """The task with the GPU model decided on, in the same number unless it gives one (`MI210:64GB:2`).

    Memory and vendor of the first GPU do not apply to the second.
    """
    task, gpu = submission.configuration, submission.gpu
    if gpu is None:
        return task
    before = task.get("resources")
    resources = before if isinstance(before, dict) else {}
    spec = None if ":" in gpu else _gpu_spec(resources.get("gpu"))
    count = None if spec is None else spec.model_dump(mode="json").get("count")
    model: object = {"name": [gpu], "count": count} if count is not None else gpu if ":" in gpu else {"name": [gpu]}
    return {**task, "resources": {**resources, "gpu": model}}


PLACES = "./.dstack/profiles.yml and ~/.dstack/profiles.yml"


def find_profile(name: str | None, environ: Mapping[str, str]) -> TaskProfile | None:
    """The profile; None if no file has it. `environ`: dstack's client also reads `DSTACK_PROFILE` and
    `DSTACK_NO_PROFILE`. Raises UnreadableInput, or TaskInvalid for a profile that dstack would refuse.
    """
    if name is None:
        if environ.get("DSTACK_NO_PROFILE", "").lower() in ("1", "true", "on"):
            return None
        named = environ.get("DSTACK_PROFILE")
        if named is not None:
            profile = find_profile(named, environ)
            if profile is None:
                raise TaskInvalid(f"DSTACK_PROFILE is {named!r}, and no profile has that name; see {PLACES}")
            return profile
    for file in _files():
        for model, given in _profiles(file):
            if model.default if name is None else model.name == name:
                fields = {key: value for key, value in given.items() if key not in ("name", "default")}
                return TaskProfile(name=model.name or "default", file=str(file), fields=fields)
    return None


def _files() -> Iterator[Path]:
    for folder in (Path(), Path.home()):
        files = (folder / ".dstack" / f"profiles{ending}" for ending in (".yml", ".yaml"))
        yield from [file for file in files if file.exists()][:1]


def _profiles(file: Path) -> Iterator[tuple[Any, dict[str, object]]]:
    """Each as dstack reads it, and as it stands in the file, where `2h` is `2h`."""
    expect_package()
    from dstack._internal.core.models.profiles import ProfileParams, ProfilesConfig

    content = read_task_file(file, needs="`profiles:`")
    names = {*ProfileParams.model_fields, "name", "default", "profiles"}
    return zip(validated(ProfilesConfig, content, str(file), names).profiles, objects(content["profiles"]), strict=True)
