"""A task as dstack will take it: validated with dstack's own models, completed from this machine's environment.

Every refusal is one line that names the field. Importing dstack takes 0.9 s, so it happens inside the functions.
"""

import difflib
import re
from collections.abc import Mapping, Sequence

from engine.errors import TaskInvalid
from engine.providers.naming import check_name

_VARIABLE = re.compile("[a-zA-Z_][a-zA-Z0-9_]*")
_UNION_STEP = re.compile(r"^[a-z_]+\[")
EXAMPLE_IMAGE = "rocm/dev-ubuntu-24.04"
CREATE = "create"
"""Steno's own `creation_policy` beside dstack's two: a machine of its own, never a warm one."""
_NO_FLEET_NODES = "No ssh_config or nodes specified"
"""dstack's words for a fleet without machines; taken for "fleets do not work with clouds" by those who met them."""


def complete_task(
    configuration: Mapping[str, object], environ: Mapping[str, str], where: str, fallback: Sequence[str] = ()
) -> dict[str, object]:
    """The configuration ready to be sent: valid, `env` with every value, nothing left to look up on this machine.

    Args:
        configuration: the plain values of a task file, or of flags.
        environ: where `env: [NAME]` without a value gets it, as `dstack apply` does.
        where: what to call the configuration in a message: the file's name, or `the flags`.
        fallback: GPU models that the same task may be submitted for later.

    Raises:
        TaskInvalid: dstack would refuse it, or a variable it asks for is not set.
    """
    _check_kind(configuration, where)
    task = dict(configuration)
    task["env"] = resolve_env(task.get("env"), environ, where)
    if not task["env"]:
        del task["env"]
    name = _check_model(task, where, fallback)
    if name is not None:
        task["name"] = check_name(name)
    return _interpolated(task, where)


def normal_task(task: Mapping[str, object]) -> dict[str, object]:
    """The same task with every shorthand written out, as dstack's model has it (`resources.gpu.name` is a list …)."""
    from dstack._internal.core.models.configurations import TaskConfiguration

    dumped = TaskConfiguration.model_validate(for_dstack(task)).model_dump(mode="json")
    normal = {str(key): value for key, value in dumped.items()}
    return {**normal, "creation_policy": CREATE} if task.get("creation_policy") == CREATE else normal


def for_dstack(task: Mapping[str, object]) -> dict[str, object]:
    """The task without the one word dstack does not know: `creation_policy: create`."""
    return {key: value for key, value in task.items() if key != "creation_policy" or value != CREATE}


def resolve_env(env: object, environ: Mapping[str, str], where: str) -> object:
    """`env` as a mapping with every value; what is no `env` at all comes back as it is, for the model to refuse.

    Raises:
        TaskInvalid: a name without a value is not set in `environ`, or a name comes twice.
    """
    if env is None:
        return {}
    if isinstance(env, dict):
        for name in env:
            _check_variable(name, where)
        return {name: _env_value(value) for name, value in env.items()}
    if not isinstance(env, list) or not all(isinstance(entry, str) for entry in env):
        return env
    found: dict[str, str] = {}
    for entry in env:
        name, given, value = entry.partition("=")
        _check_variable(name, where)
        if name in found:
            raise TaskInvalid(f"{where}: env has {name} twice")
        if not given and name not in environ:
            raise TaskInvalid(f"{where}: env wants {name} from your environment, where it is not set; export it first")
        found[name] = value if given else environ.get(name, "")
    return found


def _check_kind(configuration: Mapping[str, object], where: str) -> None:
    kind = configuration.get("type")
    if kind == "task":
        return
    if kind is None:
        raise TaskInvalid(f"{where}: `type` is missing; write `type: task`")
    if kind == "fleet":
        if configuration.get("nodes") is None and configuration.get("ssh_config") is None:
            raise TaskInvalid(
                f"{where}: this is a fleet, and dstack refuses it: {_NO_FLEET_NODES}; fleets of a cloud do work, "
                "give it `nodes: 0..2` (Steno makes the fleet a task needs by itself)"
            )
        raise TaskInvalid(f"{where}: this is a fleet, and Steno submits tasks; make the fleet with `dstack apply`")
    raise TaskInvalid(f"{where}: `type` is {kind!r}, and Steno submits tasks only; write `type: task`")


def _check_model(task: Mapping[str, object], where: str, fallback: Sequence[str]) -> str | None:
    """The run's name in the configuration, if it has one."""
    if not task.get("commands") and not task.get("image") and not task.get("groups"):
        if needs_image(task, fallback):
            missing, example = (
                "`image` and `commands` are missing",
                f"`image: {EXAMPLE_IMAGE}` and `commands: [rocm-smi]`",
            )
        else:
            missing, example = "`commands` is missing", "`commands: [nvidia-smi]`"
        raise TaskInvalid(f"{where}: {missing}, so there is nothing to run; write for example {example}")
    import pydantic
    from dstack._internal.core.models.configurations import TaskConfiguration

    try:
        model = TaskConfiguration.model_validate(for_dstack(task))
    except pydantic.ValidationError as error:
        raise TaskInvalid(f"{where}: {_first_error(error, set(TaskConfiguration.model_fields))}") from None
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        # some of dstack's own parsers let a bare Python error through on a value of the wrong type
        raise TaskInvalid(f"{where}: dstack cannot read it: {' '.join(str(error).split())[:200]}") from None
    if model.working_dir is not None and not str(model.working_dir).startswith("/"):
        raise TaskInvalid(f"{where}: working_dir must be absolute, not {model.working_dir!r}")
    if needs_image(task, fallback):
        raise TaskInvalid(
            f"{where}: `image` is missing: dstack's default image supports only NVIDIA GPUs; for an AMD GPU write for "
            f"example `image: {EXAMPLE_IMAGE}`"
        )
    return None if model.name is None else str(model.name)


def _first_error(error: object, fields: set[str]) -> str:
    """The first of pydantic's errors in one line: field, then what is wrong with it."""
    first = error.errors(include_url=False)[0]  # type: ignore[attr-defined]
    steps = [str(step) for step in first["loc"] if not _UNION_STEP.match(str(step))]
    field = ".".join(steps).replace("..", ".")
    if steps and steps[0] == "env":
        return "`env`: write each entry as NAME=value, as NAME (taken from your environment), or as NAME: value"
    if first["type"] == "extra_forbidden":
        near = difflib.get_close_matches(steps[-1], sorted(fields), n=1) if len(steps) == 1 else []
        return f"unknown field `{field}`" + (f"; did you mean `{near[0]}`?" if near else "; dstack knows no such field")
    message = str(first["msg"]).removeprefix("Value error, ").replace("Input should be", "must be")
    message = " ".join(message.split())[:300]
    if field == "creation_policy":
        message = f"must be '{CREATE}', 'reuse' or 'reuse-or-create'"
    return f"`{field}`: {message} (it is {str(first['input'])[:60]!r})" if field else message


def needs_image(task: Mapping[str, object], fallback: Sequence[str] = ()) -> bool:
    """Whether the task must name an image and does not: dstack's default image supports only NVIDIA GPUs."""
    if task.get("image") or task.get("docker"):
        return False
    resources = task.get("resources")
    gpu = resources.get("gpu") if isinstance(resources, dict) else None
    return any(one is not None and _is_other_makers(one) for one in (gpu, *fallback))


def _is_other_makers(gpu: object) -> bool:
    from dstack._internal.core.models.resources import GPUSpec
    from dstack._internal.utils.gpu import detect_gpu_vendors_by_gpu_name
    from gpuhunt import AcceleratorVendor

    try:
        spec = GPUSpec.model_validate(gpu)
    except (ValueError, TypeError, AttributeError):
        return False
    if spec.count is not None and spec.count.max == 0:
        return False
    vendors = {spec.vendor} if spec.vendor else set()
    for name in spec.name or () if not vendors else ():
        vendors |= detect_gpu_vendors_by_gpu_name(name)
    return bool(vendors - {AcceleratorVendor.NVIDIA, AcceleratorVendor.GOOGLE})


def _interpolated(task: dict[str, object], where: str) -> dict[str, object]:
    """`${{ run.args }}` and the registry's `${{ env.NAME }}` replaced; `${{ secrets.* }}` is the server's to fill."""
    from dstack._internal.utils.interpolator import InterpolatorError, VariablesInterpolator

    env = task.get("env")
    try:
        commands = task.get("commands")
        if isinstance(commands, list) and any("${{" in str(command) for command in commands):
            skip = {"secrets": VariablesInterpolator.validate_name, "groups": lambda _: True}
            runs = VariablesInterpolator({"run": {"args": ""}}, skip=skip)
            task["commands"] = [runs.interpolate_or_error(str(command)) for command in commands]
        registry = task.get("registry_auth")
        if isinstance(registry, dict):
            values = VariablesInterpolator({"env": env if isinstance(env, dict) else {}}, skip=["secrets"])
            task["registry_auth"] = {key: values.interpolate_or_error(str(text)) for key, text in registry.items()}
    except InterpolatorError as error:
        raise TaskInvalid(f"{where}: {' '.join(str(error).split())[:200]}") from None
    return task


def _check_variable(name: object, where: str) -> None:
    if not isinstance(name, str) or _VARIABLE.fullmatch(name) is None:
        raise TaskInvalid(f"{where}: env: {name!r} is not a variable name; write NAME=value, NAME, or NAME: value")


def _env_value(value: object) -> object:
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value
