"""A task as a user describes it: flags laid over a file, variables from the environment, models to fall back to.

What is valid in it is for the provider to say (`ProviderKind.complete`).
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from engine.errors import TaskInvalid

_VARIABLE = re.compile("[a-zA-Z_][a-zA-Z0-9_]*")
RESOURCES = ("gpu", "cpu", "memory", "disk")
"""Flags that are fields of `resources`."""


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """A task before its provider has completed it."""

    configuration: dict[str, object]
    """JSON values; `type: task` with `commands`."""
    where: str
    """What to call it in a message: the file's name, or `the flags`."""
    environ: Mapping[str, str]
    """Where `env: [NAME]` without a value gets it."""
    fallback: tuple[str, ...] = ()
    """GPU models that the same task may be submitted for later."""
    bare: bool = False
    """It is a command with flags, without a file."""
    folder: Path | None = None
    """The folder that relative paths start from; None: nothing of this machine may be read."""


class Completed(msgspec.Struct, frozen=True, kw_only=True):
    """A task ready to be requested; secret values are in clear and in memory only."""

    name: str
    configuration: dict[str, object]
    base: str | None = None
    """The folder that relative `files:` and `repos:` paths start from."""
    fallback: tuple[str, ...] = ()
    """GPU models to ask for in turn where the provider has none of the task's own."""


def overlaid(
    base: Mapping[str, object] | None, *, command: Sequence[str] = (), env: Sequence[str] = (), **flags: object
) -> dict[str, object]:
    """The configuration with the flags over it: a flag that is given replaces the field of its name. Not validated.

    Args:
        base: the task file's values; None: there is no file, and `command` is what runs.
        command: one word is a shell line as it stands, several are quoted into one.
        env: `NAME=value`, or `NAME` for the value it has here.
        flags: by field; those of `RESOURCES` go into `resources`; None and () are not given.
    """
    found: dict[str, object] = dict(base) if base is not None else {"type": "task"}
    if command:
        found["commands"] = [command[0] if len(command) == 1 else shlex.join(command)]
    given = {name: value for name, value in flags.items() if value is not None and value != ()}
    wanted = {name: given.pop(name) for name in RESOURCES if name in given}
    if wanted:
        resources = found.get("resources") or {}
        if not isinstance(resources, dict):
            raise TaskInvalid("`resources`: must be a mapping (`gpu:`, `cpu:`, `memory:`, `disk:`)")
        found["resources"] = {**resources, **wanted}
    found.update({name: list(value) if isinstance(value, tuple) else value for name, value in given.items()})
    if env:
        found["env"] = _merged(found.get("env"), env)
    return found


def complete_plain(draft: Draft) -> dict[str, object]:
    """A task of which only commands and variables matter: every variable with its value.

    Raises:
        TaskInvalid: it is not a task, has no commands, or a variable it asks for is not set.
    """
    task = dict(draft.configuration)
    if task.get("type", "task") != "task":
        raise TaskInvalid(
            f"{draft.where}: `type` is {task['type']!r}, and Steno submits tasks only; write `type: task`"
        )
    commands = task.get("commands")
    if not isinstance(commands, list) or not commands or not all(isinstance(line, str) for line in commands):
        raise TaskInvalid(f"{draft.where}: `commands` must be a list of shell lines")
    task["env"] = resolve_env(task.get("env"), draft.environ, draft.where)
    return task


def resolve_env(env: object, environ: Mapping[str, str], where: str) -> object:
    """`env` as a mapping with every value; anything but a mapping or a list of texts comes back as it is.

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


def _check_variable(name: object, where: str) -> None:
    if not isinstance(name, str) or _VARIABLE.fullmatch(name) is None:
        raise TaskInvalid(f"{where}: env: {name!r} is not a variable name; write NAME=value, NAME, or NAME: value")


def _env_value(value: object) -> object:
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _merged(before: object, env: Sequence[str]) -> object:
    """The file's `env` with the flags' entries over it, as the list form: a bare NAME keeps its meaning there."""
    if before is None:
        before = []
    if isinstance(before, dict):
        before = [f"{name}={value}" for name, value in before.items()]
    if not isinstance(before, list):
        return before
    latest = {entry.partition("=")[0]: entry for entry in env}
    kept = [entry for entry in before if not (isinstance(entry, str) and entry.partition("=")[0] in latest)]
    return [*kept, *latest.values()]
