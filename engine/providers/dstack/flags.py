"""A task configuration from command-line flags, alone or over a task file's."""

import shlex
from collections.abc import Mapping, Sequence

from engine.errors import TaskInvalid


def configuration_from_flags(
    base: Mapping[str, object] | None,
    *,
    command: Sequence[str] = (),
    name: str | None = None,
    gpu: str | None = None,
    cpu: str | None = None,
    memory: str | None = None,
    disk: str | None = None,
    image: str | None = None,
    env: Sequence[str] = (),
    backends: Sequence[str] = (),
    spot_policy: str | None = None,
    creation_policy: str | None = None,
    idle_duration: str | None = None,
    max_duration: str | None = None,
) -> dict[str, object]:
    """The configuration the flags describe; what a flag says replaces what the file says. Not yet validated.

    Args:
        base: the task file's values; None: there is no file, and `command` is what runs.
        command: one word is a shell line as it stands, several are quoted into one.
        gpu: `NAME`, `NAME:COUNT`, `NAME:MEMORY:COUNT` …; cpu, memory, disk: `N`, `MIN..`, `MIN..MAX`.
        env: `NAME=value`, or `NAME` for the value it has here.
    """
    found: dict[str, object] = dict(base) if base is not None else {"type": "task"}
    if command:
        found["commands"] = [command[0] if len(command) == 1 else shlex.join(command)]
    wanted = {"gpu": gpu, "cpu": cpu, "memory": memory, "disk": disk}
    if any(value is not None for value in wanted.values()):
        resources = found.get("resources") or {}
        if not isinstance(resources, dict):
            raise TaskInvalid("`resources`: must be a mapping (`gpu:`, `cpu:`, `memory:`, `disk:`)")
        found["resources"] = {**resources, **{key: value for key, value in wanted.items() if value is not None}}
    plain = {
        "name": name,
        "image": image,
        "spot_policy": spot_policy,
        "creation_policy": creation_policy,
        "idle_duration": idle_duration,
        "max_duration": max_duration,
        "backends": list(backends) or None,
    }
    found.update({key: value for key, value in plain.items() if value is not None})
    if env:
        found["env"] = _merged(found.get("env"), env)
    return found


def with_defaults(configuration: Mapping[str, object], *, gpu: str | None, backend: str | None) -> dict[str, object]:
    """The configuration with the settings' GPU and backend where it says nothing of its own.

    Args:
        gpu: for a task without `resources.gpu` (the setting `dstack.gpu`).
        backend: one or several with commas, for a task without `backends` (the setting `dstack.backend`).
    """
    found = dict(configuration)
    resources = found.get("resources") or {}
    if gpu and isinstance(resources, dict) and resources.get("gpu") is None and not found.get("groups"):
        found["resources"] = {**resources, "gpu": gpu}
    if backend and not found.get("backends"):
        found["backends"] = [name.strip() for name in backend.split(",") if name.strip()]
    return found


def _merged(before: object, env: Sequence[str]) -> object:
    """The file's `env` with the flags' entries over it, as the list form: a bare NAME keeps its meaning there."""
    if before is None:
        before = []
    if isinstance(before, dict):
        before = [f"{name}={value}" for name, value in before.items()]
    if not isinstance(before, list):
        return before
    names = {entry.partition("=")[0] for entry in env}
    kept = [entry for entry in before if not (isinstance(entry, str) and entry.partition("=")[0] in names)]
    latest = {entry.partition("=")[0]: entry for entry in env}
    return [*kept, *latest.values()]
