"""The task of a command line: a file, or `-- command…`, with the flags applied."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import click
import msgspec

from cli.wiring.output import hint
from cli.wiring.trace_files import existing
from engine.commands import rerun
from engine.errors import TaskInvalid
from engine.providers import registry
from engine.providers.kind import Option, ProviderKind, with_profile
from engine.providers.task import Completed, Draft, check_name, choose_name, overlaid, read_task_file
from engine.settings.settings import Settings
from engine.settings.table import PROFILES
from events.types import RunRequested

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
    """The complete task: valid, named, with every environment value. A profile of the provider's own tool fills in
    what flags and file leave open, then Steno's setting `profile`; Steno's own by --profile overrides the file, but not
    --idle-duration and --creation-policy. `provider` None:
    the one of the settings. Raises `UnreadableInput`, `TaskInvalid`, or `click.UsageError` without a file or command.
    """
    if command and not "".join(command).strip():
        raise click.UsageError("the command is blank: write one behind --, or leave -- out")
    kind = registry.kind(provider or settings.provider)
    fallback = _models(flags.get("fallback"))
    language = kind if kind.task_files else registry.task_language()
    fields = _fields(kind.name, flags, (*kind.options, *language.options))
    found = _file(file, command, language.task_files)
    draft = Draft(
        configuration=overlaid(
            None if found is None else read_task_file(found),
            command=command,
            **fields,  # type: ignore[arg-type]
        ),
        where="the flags" if found is None else str(found),
        environ=os.environ,
        fallback=fallback,
        bare=found is None,
        notify=hint,
        folder=(found.parent if found is not None else Path()).resolve(),
    )
    stem = command[0].rsplit("/", 1)[-1].split()[0] if command and command[0].split() else None
    return completed(kind, draft, settings, run_id=run_id, stem=stem, flags=flags)


def repeated(before: RunRequested, *, flags: Mapping[str, object], settings: Settings, run_id: str) -> Completed:
    """The recorded task with the flags over it. It keeps its name, unless Steno generated it. Raises as `described`,
    and `TaskInvalid` where a secret cannot be read again.
    """
    kind = registry.kind(before.provider)
    language = kind if kind.task_files else registry.task_language()
    draft, stem = rerun.repeated(
        before,
        changes=_fields(kind.name, flags, (*kind.options, *language.options)),
        environ=os.environ,
        fallback=_models(flags.get("fallback")),
    )
    return completed(kind, draft, settings, run_id=run_id, stem=stem, flags=flags)


def completed(
    kind: ProviderKind,
    draft: Draft,
    settings: Settings,
    *,
    run_id: str,
    stem: str | None = None,
    flags: Mapping[str, object] | None = None,
) -> Completed:
    """The valid, named task with the profile applied; `stem` begins a generated name. Raises `TaskInvalid`."""
    flags = flags or {}
    draft, named = _with_own_profile(kind, draft, flags.get("profile"))
    task = kind.complete(draft, settings)
    chosen = named or settings.value("profile")
    if chosen is not None:
        for key in ("idle_duration", "creation_policy"):
            wanted = getattr(PROFILES[chosen], key)
            is_open = named is not None or task.get(key) is None
            if wanted is not None and flags.get(key) is None and is_open:
                task[key] = wanted
    _expect_to_fit(kind, task, flags)
    given = task.get("name")
    name = check_name(str(given)) if given else choose_name(run_id, stem)
    task["name"] = name
    base = None if draft.folder is None else str(draft.folder)
    return Completed(name=name, configuration=task, base=base, fallback=draft.fallback)


def _with_own_profile(kind: ProviderKind, draft: Draft, wanted: object) -> tuple[Draft, str | None]:
    """The draft with the fields of a profile of the provider's own tool, and the profile of Steno's that is wanted.

    A profile of the tool comes before one of Steno's with that name. The tool's default one is for tasks of this
    machine only, and was applied to a recorded task before.
    """
    own, named = None, None
    if wanted is not None:
        own = kind.profile(str(wanted), draft.environ)
        named = str(wanted) if own is None else None
        if named is not None and named not in PROFILES:
            raise click.UsageError(
                f"the provider {kind.name} has no profile {named!r} here; Steno's own are {', '.join(PROFILES)}"
            )
    if own is None and draft.folder is not None and not draft.recorded:
        own = kind.profile(None, draft.environ)
    if own is None:
        return draft, named
    task, line = with_profile(draft.configuration, own)
    draft.notify(line)
    return msgspec.structs.replace(draft, configuration=task), named


def _expect_to_fit(kind: ProviderKind, task: Mapping[str, object], flags: Mapping[str, object]) -> None:
    """Refuse a size asked for by name that the provider's only machine does not have. Raises `TaskInvalid`."""
    sizes = {name: most for name, most in kind.machine_size().items() if flags.get(name) is not None}
    if not sizes:
        return
    from engine.providers.readings import READINGS

    terms = READINGS.terms(kind.name, msgspec.json.encode(task), "")
    wanted = {"cpu": terms.cpus.least, "memory": terms.memory.least, "disk": terms.disk.least}
    for name, most in sizes.items():
        if (wanted[name] or 0) > most:
            unit = "" if name == "cpu" else " GB"
            said = f"the provider {kind.name} has one machine, of {most:.0f}{unit}; ask for less"
            raise TaskInvalid(f"--{name} {flags[name]}: {said}")


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
    found = [part.strip() for part in text.split(",")]
    for name in found:
        if not _MODEL.fullmatch(name):
            raise click.UsageError(f"--fallback: {name!r} is not a GPU model; write models with commas: MI300X,MI210")
        if [other.lower() for other in found].count(name.lower()) > 1:
            raise click.UsageError(f"--fallback has {name} twice")
    return tuple(found)


def _file(file: Path | None, command: Sequence[str], task_files: Sequence[str]) -> Path | None:
    if file is not None:
        return Path(existing(str(file)))
    if command:
        return None
    found = next((Path.cwd() / name for name in task_files if Path(name).is_file()), None)
    if found is None:
        raise click.UsageError(
            f"there is nothing to submit: write `-- command…`, name a task file with -f, or add ./{task_files[0]}"
        )
    return found
