"""The task a command line describes: a file, or `-- command…`, with the flags laid over it."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli.inputs import existing

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A task ready to be requested; secret values are in clear and in memory only."""

    name: str
    configuration: dict[str, object]
    base: str
    """The folder that relative `files:` and `repos:` paths start from."""
    fallback: tuple[str, ...] = ()
    """GPU models to be asked for in turn where the provider has none of the task's own."""


_MACHINE = ("gpu", "cpu", "memory", "disk", "image", "backends", "spot_policy", "creation_policy", "idle_duration")
"""Flags whose values only dstack can judge."""
_MODEL = re.compile("[A-Za-z][A-Za-z0-9_-]*")


def described(
    *,
    file: Path | None,
    command: Sequence[str],
    flags: Mapping[str, object],
    provider: str,
    run_id: str,
    gpu: str | None = None,
    backend: str | None = None,
    profile: str | None = None,
) -> Task:
    """The complete task: valid, named, with every environment value.

    `gpu` is what a command without a file and without --gpu gets on dstack, `backend` what any task gets there that
    names none (the settings `dstack.gpu`, `dstack.backend`). `profile` (the setting of that name) fills in what neither
    flags nor file say; the flag --profile stands over the file, as every flag does, and under --idle-duration and
    --creation-policy. A plain command for this machine is checked by the local provider itself, without importing
    dstack (0.9 s).

    Raises:
        UnreadableInput, TaskInvalid: the file cannot be read, dstack would refuse the task, or something that it takes
            along is not there.
        click.UsageError: there is neither a file nor a command, or the command is blank.
    """
    from engine.errors import TaskInvalid
    from engine.providers.dstack.flags import configuration_from_flags
    from engine.providers.dstack.task import complete_task, resolve_env
    from engine.providers.naming import check_name, choose_name

    if command and not "".join(command).strip():
        raise click.UsageError("the command is blank: write one behind --, or leave -- out")
    fallback = _models(flags.get("fallback"))
    chosen = flags.get("profile")
    flags = {name: value for name, value in flags.items() if name not in {"fallback", "profile"}}
    if flags.get("name") == "":
        check_name("")
    found = _file(file, command)
    base = _content(found) if found is not None else None
    defaulted = gpu if provider == "dstack" and base is None and flags.get("gpu") is None else None
    if defaulted is not None:
        flags = {**flags, "gpu": defaulted}
    configuration = configuration_from_flags(base, command=command, **flags)  # type: ignore[arg-type]
    if provider == "dstack" and backend is not None:
        configuration.setdefault("backends", [backend])
    where = str(found) if found is not None else "the flags"
    if found is None and provider == "local" and not any(flags.get(flag) for flag in _MACHINE):
        configuration["env"] = resolve_env(configuration.get("env"), os.environ, where)
    else:
        try:
            configuration = complete_task(configuration, os.environ, where, fallback)
        except TaskInvalid as error:
            if defaulted is None or flags.get("image"):
                raise
            said = (
                f"{error} (the GPU, {defaulted}, is the setting dstack.gpu: --gpu or STENO_GPU changes it, off is none)"
            )
            raise TaskInvalid(said) from None
    apply_profile(configuration, flags, chosen, profile)
    given = configuration.get("name")
    stem = command[0].rsplit("/", 1)[-1].split()[0] if command and command[0].split() else None
    name = check_name(str(given)) if given else choose_name(run_id, stem)
    configuration["name"] = name
    folder = (found.parent if found is not None else Path()).resolve()
    if provider == "dstack" and (configuration.get("files") or configuration.get("repos")):
        from engine.providers.dstack.uploads import check_local

        check_local(configuration, folder)
    return Task(name=name, configuration=configuration, base=str(folder), fallback=fallback)


def apply_profile(
    configuration: dict[str, object], flags: Mapping[str, object], chosen: object, ambient: str | None
) -> None:
    """Lay the profile of the command line over the configuration, or let the setting's fill in what it leaves open."""
    from engine.settings.profiles import PROFILES

    name = chosen if isinstance(chosen, str) else ambient
    if name is None:
        return
    for key in ("idle_duration", "creation_policy"):
        wanted = getattr(PROFILES[name], key)
        if wanted is not None and flags.get(key) is None and (chosen is not None or configuration.get(key) is None):
            configuration[key] = wanted


def _models(text: object) -> tuple[str, ...]:
    """The GPU models of --fallback, in order.

    Raises:
        click.UsageError: one of them is no model's name, or comes twice.
    """
    if not isinstance(text, str):
        return ()
    found = [part.strip() for part in text.split(",")]
    for name in found:
        if not _MODEL.fullmatch(name):
            raise click.UsageError(f"--fallback: {name!r} is not a GPU model; write models with commas: MI300X,MI210")
        if [other.lower() for other in found].count(name.lower()) > 1:
            raise click.UsageError(f"--fallback has {name} twice")
    return tuple(found)


def _file(file: Path | None, command: Sequence[str]) -> Path | None:
    if file is not None:
        return Path(existing(str(file)))
    if command:
        return None
    from engine.providers.dstack.task_file import default_task_file

    found = default_task_file(Path.cwd())
    if found is None:
        raise click.UsageError(
            "there is nothing to submit: write `-- command…`, name a task file with -f, or add ./.dstack.yml"
        )
    return found


def _content(file: Path) -> dict[str, object]:
    from engine.providers.dstack.task_file import read_task_file

    return read_task_file(file)
