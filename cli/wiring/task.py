"""The task of a command line: a file, or `-- command…`, with the flags applied."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from steno.cli.wiring.files import existing
from steno.cli.wiring.output import hint
from steno.engine.errors import UnknownProfile
from steno.engine.providers import registry
from steno.engine.providers.kind import Option, ProviderKind
from steno.engine.providers.task import Completed, Draft, check_name, overlaid, read_task_file
from steno.engine.settings.settings import Settings
from steno.engine.submit.completion import completed
from steno.engine.submit.completion import repeated as repeated_draft
from steno.events.types import RunRequested

COMMON = {"name", "image", "env", "gpu", "cpu", "memory", "disk", "creation_policy", "idle_duration", "max_duration"}
"""Task fields for which every provider has an option."""
_MODEL = re.compile("[A-Za-z][A-Za-z0-9_-]*")


def described(
    *,
    file: Path | None,
    command: Sequence[str],
    flags: Mapping[str, object],
    settings: Settings,
    run_id: str,
    provider: str | None = None,
) -> Completed:
    """The complete task; `provider` None: the one of the settings. Raises `UnreadableInput`, `TaskInvalid`, or
    `click.UsageError` without a file or command.
    """
    if command and not "".join(command).strip():
        raise click.UsageError("the command is blank: write one behind --, or leave -- out")
    kind = registry.kind(provider or settings.provider)
    fallback = _models(flags.get("fallback"))
    language = kind if kind.task_files else registry.task_language()
    fields = _fields(kind.name, flags, (*kind.options, *language.options))
    path = _file(file, command, language.task_files)
    stem = command[0].rsplit("/", 1)[-1].split()[0] if command and command[0].split() else None
    draft = Draft(
        configuration=overlaid(
            None if path is None else read_task_file(path),
            command=command,
            **fields,  # type: ignore[arg-type]
        ),
        where="the flags" if path is None else str(path),
        environ=os.environ,
        fallback=fallback,
        bare=path is None,
        notify=hint,
        folder=(path.parent if path is not None else Path()).resolve(),
        given=fields,
        profile=_profile(flags),
        stem=stem,
    )
    return _completed(kind, draft, settings, run_id)


def repeated(before: RunRequested, *, flags: Mapping[str, object], settings: Settings, run_id: str) -> Completed:
    """The recorded task with the flags over it. It keeps its name, unless Steno generated it. Raises as `described`,
    and `TaskInvalid` where a secret cannot be read again.
    """
    kind = registry.kind(before.provider)
    language = kind if kind.task_files else registry.task_language()
    draft = repeated_draft(
        before,
        changes=_fields(kind.name, flags, (*kind.options, *language.options)),
        environ=os.environ,
        fallback=_models(flags.get("fallback")),
        profile=_profile(flags),
    )
    return _completed(kind, draft, settings, run_id)


def _completed(kind: ProviderKind, draft: Draft, settings: Settings, run_id: str) -> Completed:
    try:
        return completed(kind, draft, settings, run_id=run_id)
    except UnknownProfile as error:
        raise click.UsageError(str(error)) from None


def _profile(flags: Mapping[str, object]) -> str | None:
    wanted = flags.get("profile")
    return None if wanted is None else str(wanted)


def _fields(provider: str, flags: Mapping[str, object], own: Sequence[Option]) -> dict[str, object]:
    """The flags that are fields of a task; refuses options of other providers."""
    fields = {name: value for name, value in flags.items() if name not in {"fallback", "profile"}}
    if fields.get("name") == "":
        check_name("")
    known = {*COMMON, *(option.field for option in own)}
    for name, value in fields.items():
        if name not in known and value not in (None, ()):
            raise click.UsageError(f"the provider {provider} has no option --{name.replace('_', '-')}")
    return fields


def _models(text: object) -> tuple[str, ...]:
    if not isinstance(text, str):
        return ()
    models = [part.strip() for part in text.split(",")]
    for name in models:
        if not _MODEL.fullmatch(name):
            raise click.UsageError(f"--fallback: {name!r} is not a GPU model; write models with commas: MI300X,MI210")
        if [other.lower() for other in models].count(name.lower()) > 1:
            raise click.UsageError(f"--fallback has {name} twice")
    return tuple(models)


def _file(file: Path | None, command: Sequence[str], task_files: Sequence[str]) -> Path | None:
    if file is not None:
        return Path(existing(str(file)))
    if command:
        return None
    path = next((Path.cwd() / name for name in task_files if Path(name).is_file()), None)
    if path is None:
        raise click.UsageError(
            f"there is nothing to submit: write `-- command…`, name a task file with -f, or add ./{task_files[0]}"
        )
    return path
