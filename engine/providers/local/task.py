"""What of a task means something on this machine: the command, its environment, its folder and its limits.

The rest (machine, image, backend, …) is ignored, and named: a local run is a process and gets the machine as it is.
"""

import re
import shlex
from collections.abc import Mapping
from pathlib import Path

import msgspec

from engine.errors import TaskInvalid
from engine.providers import registry
from events.clock import UNITS

DEFAULT_GRACE = 10
"""Seconds between SIGTERM and SIGKILL where the task sets no `stop_duration`."""

INHERITED = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "TMPDIR",
    "LD_LIBRARY_PATH",
)
"""Variables a run has from the submitter; everything else, tokens above all, it gets only if the task says so."""

_MEANT = frozenset(
    {
        "type",
        "name",
        "commands",
        "entrypoint",
        "shell",
        "env",
        "working_dir",
        "max_duration",
        "stop_duration",
        "nodes",
        "idle_duration",
        "creation_policy",
    }
)
_HIDDEN = ("env", "registry_auth")
_DURATION = re.compile(r"(\d+) *([smhdw])")


class LocalTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task made ready for this machine. `environment` holds secrets in clear: never written down."""

    argv: tuple[str, ...]
    environment: dict[str, str]
    folder: str
    max_duration: int | None
    """Seconds; None: no limit."""
    grace: int | None
    """Seconds between SIGTERM and SIGKILL; None: SIGKILL only on abort."""
    ignored: tuple[str, ...]
    """Fields the task sets and this machine does not follow."""
    shown: dict[str, object]
    """The configuration with every secret value replaced by null."""


LONGEST = 128 * 1024
"""Bytes of one argument, its end included, that Linux passes to a program (MAX_ARG_STRLEN)."""


def local_task(
    configuration: Mapping[str, object], *, base: Path, inherited: Mapping[str, str], labelled: bool = False
) -> LocalTask:
    """The task that this configuration describes, on this machine.

    Args:
        base: the folder that a relative `working_dir` starts from, and the working folder where none is set.
        inherited: the submitter's environment, of which only `INHERITED` is taken.
        labelled: this host is said to have a GPU, so that what a task asks of one is followed.

    Raises:
        TaskInvalid: it is no task, has nothing to run, or needs more than this machine.
    """
    if configuration.get("type", "task") != "task":
        raise TaskInvalid(f"type {configuration['type']!r} cannot be run here: only `task` can")
    if configuration.get("nodes") not in (None, 1):
        raise TaskInvalid(
            f"nodes: {configuration['nodes']!r} cannot be run here: this machine is one node; "
            f"use --provider {registry.task_language().name}"
        )
    where = configuration.get("working_dir")
    task = LocalTask(
        argv=_argv(configuration),
        environment=_environment(configuration.get("env"), inherited),
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
        shown={key: _hidden(value) if key in _HIDDEN else value for key, value in configuration.items()},
    )
    if any(len(text.encode("utf-8", "surrogatepass")) >= LONGEST for text in task.argv):
        raise TaskInvalid("the commands are longer than the 128 kB a shell can be given; put them into a script")
    if any("\0" in text for text in (*task.argv, task.folder)):
        raise TaskInvalid("a command, or the working_dir, holds a zero byte")
    try:
        msgspec.json.encode((task.argv, task.folder, task.shown))
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
    return (_shell(configuration), "-c", _joined(commands))


def _joined(commands: list[str]) -> str:
    """One line: the first command that fails ends the run; a background one is bracketed."""
    lines = (line.strip() for line in commands)
    return " && ".join(f"{{ {line} }}" if line.endswith("&") else line for line in lines)


def _shell(configuration: Mapping[str, object]) -> str:
    """The task's own shell, else bash where the task names no image, else sh; never interactive."""
    shell = configuration.get("shell")
    if isinstance(shell, str):
        return shell if shell.startswith("/") else f"/bin/{shell}"
    return "/bin/bash" if configuration.get("image") is None and Path("/bin/bash").exists() else "/bin/sh"


def _environment(env: object, inherited: Mapping[str, str]) -> dict[str, str]:
    found = {name: inherited[name] for name in INHERITED if name in inherited}
    found.setdefault("PATH", "/usr/local/bin:/usr/bin:/bin")
    found["PYTHONUNBUFFERED"] = "1"  # so that the output of Python programs can be followed
    for name, value in _pairs(env):
        if not name or "=" in name or "\0" in name + value:
            raise TaskInvalid(f"env {name!r} is not a variable name, or its value holds a zero byte")
        found[name] = value
    return found


def _pairs(env: object) -> list[tuple[str, str]]:
    if isinstance(env, dict):
        pairs = list(env.items())
    elif isinstance(env, list):
        pairs = [(name, value if mark else None) for name, mark, value in (str(line).partition("=") for line in env)]
    elif env is None:
        pairs = []
    else:
        raise TaskInvalid("env must be a mapping or a list of NAME=value")
    for name, value in pairs:
        if not isinstance(value, str | int | float):
            raise TaskInvalid(
                f"env {name!r} has no value: set it in the task file or in the environment of `steno submit`"
            )
    return [(str(name), str(value)) for name, value in pairs]


def seconds(field: str, value: object, *, unset: int | None) -> int | None:
    """A duration: seconds, `90m`, or `off` (-1), which is None: no limit.

    Raises:
        TaskInvalid: the value is no duration.
    """
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


def _hidden(value: object) -> object:
    match value:
        case dict():
            return dict.fromkeys(value)
        case list():
            return dict.fromkeys(str(line).partition("=")[0] for line in value)
        case _:
            return None
