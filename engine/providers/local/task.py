"""The parts of a task that apply on this machine: command, environment, folder, limits. It ignores the rest."""

import re
import shlex
from collections.abc import Mapping
from pathlib import Path

import msgspec

from steno.engine.errors import TaskInvalid
from steno.engine.providers import registry
from steno.engine.providers.local.state import Command
from steno.engine.providers.task import resolve_env
from steno.events.clock import UNITS

DEFAULT_GRACE = 10  # default seconds between SIGTERM and SIGKILL

INHERITED = (  # variables a run gets from the submitter; tokens and others only if the task says so
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "LD_LIBRARY_PATH",
)  # fmt: skip

_MEANT = frozenset(
    {
        "type", "name", "commands", "entrypoint", "shell", "env", "working_dir", "max_duration", "stop_duration",
        "nodes", "idle_duration", "creation_policy", "tags",
    }
)  # fmt: skip
_DURATION = re.compile(r"(\d+) *([smhdw])")


class LocalTask(Command, frozen=True, kw_only=True):
    """A task made ready for this machine."""

    environment: dict[str, str]  # secrets in clear: never written down


MAX_ARGUMENT = 128 * 1024  # bytes of one argument with its NUL: Linux's MAX_ARG_STRLEN


def local_task(
    configuration: Mapping[str, object], *, base: Path, inherited: Mapping[str, str], labelled: bool = False
) -> LocalTask:
    """The task that this configuration describes, on this machine.

    `base` is the default folder, and that of a relative `working_dir`; `inherited` is the submitter's environment, for
    `INHERITED`; `labelled`: this host has a GPU label, so the task's GPU is not ignored. Raises TaskInvalid if it is
    not a task, has nothing to run, or needs more than this machine.
    """
    if configuration.get("type", "task") != "task":
        raise TaskInvalid(f"type {configuration['type']!r} cannot be run here: only `task` can")
    if configuration.get("nodes") not in (None, 1):
        raise TaskInvalid(
            f"nodes: {configuration['nodes']!r} cannot be run here: this machine is one node; "
            f"use --provider {registry.task_language().name}"
        )
    where, env = configuration.get("working_dir"), resolve_env(configuration.get("env"), {}, "the task")
    if not isinstance(env, dict):
        raise TaskInvalid("env must be a mapping or a list of NAME=value")
    registry_auth = configuration.get("registry_auth")
    hidden = {
        "env": dict.fromkeys(env),
        "registry_auth": dict.fromkeys(registry_auth) if isinstance(registry_auth, dict) else None,
    }
    task = LocalTask(
        argv=_argv(configuration),
        environment=_environment(env, inherited),
        folder=str(base / where if isinstance(where, str) else base),
        max_duration=seconds("max_duration", configuration.get("max_duration"), unset=None),
        grace=seconds("stop_duration", configuration.get("stop_duration"), unset=DEFAULT_GRACE),
        ignored=tuple(
            sorted(
                key
                for key, value in configuration.items()
                if key not in _MEANT
                and value not in (None, False, [], {})
                and not (labelled and key == "resources" and isinstance(value, dict) and set(value) <= {"gpu"})
            )
        ),
        configuration={key: hidden.get(key, value) for key, value in configuration.items()},
    )
    if any(len(text.encode("utf-8", "surrogatepass")) >= MAX_ARGUMENT for text in task.argv):
        raise TaskInvalid("the commands are longer than the 128 kB a shell can be given; put them into a script")
    if any("\0" in text for text in (*task.argv, task.folder)):
        raise TaskInvalid("a command, or the working_dir, holds a zero byte")
    try:
        msgspec.json.encode((task.argv, task.folder, task.configuration))
    except UnicodeEncodeError:
        raise TaskInvalid("a command, the working_dir or another field is not valid UTF-8 text") from None
    return task


def _argv(configuration: Mapping[str, object]) -> tuple[str, ...]:
    commands = configuration.get("commands") or []
    if not isinstance(commands, list) or not all(isinstance(line, str) for line in commands):
        raise TaskInvalid("commands must be a list of lines for the shell")
    entrypoint = configuration.get("entrypoint")
    if isinstance(entrypoint, str) and entrypoint.strip():
        try:
            return (*shlex.split(entrypoint), *commands)
        except ValueError as error:
            raise TaskInvalid(f"entrypoint: {entrypoint!r} cannot be split into words: {error}") from None
    if not commands:
        raise TaskInvalid("commands is empty: there is nothing to run on this machine")
    # the first failing command ends the run; a background one is bracketed
    lines = (f"{{ {line} }}" if line.endswith("&") else line for line in map(str.strip, commands))
    # the task's own shell, else bash without an image, else sh; never interactive
    shell = configuration.get("shell")
    if not isinstance(shell, str):
        shell = "bash" if configuration.get("image") is None and Path("/bin/bash").exists() else "sh"
    return (shell if shell.startswith("/") else f"/bin/{shell}", "-c", " && ".join(lines))


def _environment(env: Mapping[str, object], inherited: Mapping[str, str]) -> dict[str, str]:
    variables = {name: inherited[name] for name in INHERITED if name in inherited}
    variables.setdefault("PATH", "/usr/local/bin:/usr/bin:/bin")
    variables["PYTHONUNBUFFERED"] = "1"  # so that Python's output can be followed
    for name, value in env.items():
        if not isinstance(value, str | int | float):
            raise TaskInvalid(
                f"env {name!r} has no value: set it in the task file or in the environment of `steno submit`"
            )
        variables[name] = str(value)
        if "\0" in variables[name]:
            raise TaskInvalid(f"env {name!r} holds a zero byte")
    return variables


def seconds(field: str, value: object, *, unset: int | None) -> int | None:
    """A duration in seconds: a number, `90m`, or `off` (-1), which is None: no limit. Raises TaskInvalid."""
    if value is None:
        return unset
    if value in ("off", -1):
        return None
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    if isinstance(value, str) and value.isdecimal():
        return int(value)
    if isinstance(value, str) and (match := _DURATION.fullmatch(value)):
        return int(match[1]) * UNITS[match[2]]
    raise TaskInvalid(f"{field}: {value!r} is not a duration; write seconds, or 30s, 90m, 2h, 1d, or off")
