"""Complete a task: profile, provider's rules, name."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from steno.engine.errors import Conflict, TaskInvalid, UnknownProfile
from steno.engine.providers.kind import ProviderKind, with_profile
from steno.engine.providers.registry import READINGS
from steno.engine.providers.task import Completed, Draft, check_name, choose_name, overlaid
from steno.engine.settings.settings import Settings
from steno.engine.settings.table import PROFILES
from steno.events.shape.secrets import PREFIX
from steno.events.types import RunRequested


def completed(kind: ProviderKind, draft: Draft, settings: Settings, *, run_id: str) -> Completed:
    """The valid, named task, with every environment value. A profile of the provider's own tool fills in what the draft
    leaves open, then the setting `profile`; a profile of Steno's that the draft names overrides its configuration, but
    not what `given` has.

    Raises:
        TaskInvalid: the provider would refuse it.
        UnknownProfile: nobody has the profile that the draft names.
    """
    draft, named = _with_own_profile(kind, draft)
    task = kind.complete(draft, settings)
    chosen = named or settings.value("profile")
    if chosen is not None:
        for key in ("idle_duration", "creation_policy"):
            wanted = getattr(PROFILES[chosen], key)
            is_open = named is not None or task.get(key) is None
            if wanted is not None and draft.given.get(key) is None and is_open:
                task[key] = wanted
    _expect_to_fit(kind, task, draft.given)
    given = task.get("name")
    name = check_name(str(given)) if given else choose_name(run_id, draft.stem)
    task["name"] = name
    base = None if draft.folder is None else str(draft.folder)
    return Completed(name=name, configuration=task, base=base, fallback=draft.fallback, kernel=draft.kernel)


def _with_own_profile(kind: ProviderKind, draft: Draft) -> tuple[Draft, str | None]:
    """The draft with the fields of a profile of the provider's own tool, and the profile of Steno's that is wanted.

    A profile of the tool comes before one of Steno's with that name. The tool's default one is for tasks of this
    machine only, and was applied to a recorded task before.
    """
    own, named = None, None
    if draft.profile is not None:
        own = kind.profile(draft.profile, draft.environ)
        named = draft.profile if own is None else None
        if named is not None and named not in PROFILES:
            raise UnknownProfile(
                f"the provider {kind.name} has no profile {named!r} here; Steno's own are {', '.join(PROFILES)}"
            )
    if own is None and draft.folder is not None and not draft.recorded:
        own = kind.profile(None, draft.environ)
    if own is None:
        return draft, named
    task, line = with_profile(draft.configuration, own)
    draft.notify(line)
    return msgspec.structs.replace(draft, configuration=task), named


def _expect_to_fit(kind: ProviderKind, task: Mapping[str, object], given: Mapping[str, object]) -> None:
    """Refuse a size asked for by name that the provider's only machine does not have. Raises `TaskInvalid`."""
    sizes = {name: most for name, most in kind.machine_size().items() if given.get(name) is not None}
    if not sizes:
        return
    terms = READINGS.terms(kind.name, msgspec.json.encode(task), "")
    wanted = {"cpu": terms.cpus.least, "memory": terms.memory.least, "disk": terms.disk.least}
    for name, most in sizes.items():
        if (wanted[name] or 0) > most:
            unit = "" if name == "cpu" else " GB"
            has = f"the provider {kind.name} has one machine, of {most:.0f}{unit}"
            raise TaskInvalid(f"--{name} {given[name]}: {has}; ask for less")


def repeatable(before: RunRequested | None, name: str) -> RunRequested:
    """The request of the run `name`; Conflict if it cannot be submitted again."""
    if before is None or before.kernel is not None:
        why = "Steno did not submit it" if before is None else "it is a kernel, see `steno kernel submit`"
        raise Conflict(f"{name} cannot be submitted again: {why}")
    return before


def repeated(
    before: RunRequested,
    *,
    changes: Mapping[str, object],
    environ: Mapping[str, str],
    fallback: tuple[str, ...] = (),
    folder: bool = True,
    profile: str | None = None,
) -> Draft:
    """The recorded task with the changes over it. It keeps a name that was chosen; a generated one is generated again.
    Of `env` only the names are recorded: the values come from `changes` and `environ`.

    Args:
        changes: by field, as `overlaid` takes them.
        folder: whether files beside the task may be read again.

    Raises:
        TaskInvalid: another part of the task is a secret, which is not recorded.
    """
    task: dict[str, Any] = msgspec.json.decode(before.configuration)
    chosen = before.name.removesuffix(choose_name(before.run_id).removeprefix("steno"))
    generated = chosen != before.name
    if generated:
        task.pop("name", None)
    env = task.get("env")
    if isinstance(env, dict):
        task["env"] = [name if str(value).startswith(PREFIX) else f"{name}={value}" for name, value in env.items()]
    where = f"the recorded task of {before.name}"
    if PREFIX in msgspec.json.encode(task).decode():
        raise TaskInvalid(f"{where} has a secret that is not recorded: submit its file again")
    return Draft(
        configuration=overlaid(task, **changes),  # type: ignore[arg-type]
        where=where,
        recorded=True,
        environ=environ,
        fallback=fallback or before.fallback,
        folder=None if before.base is None or not folder else Path(before.base),
        given=changes,
        profile=profile,
        stem=chosen if generated else None,
    )


def missing_values(configuration: Mapping[str, object]) -> tuple[str, ...]:
    """The variables of a task that have a name only."""
    env = configuration.get("env")
    return tuple(entry for entry in env if "=" not in entry) if isinstance(env, list) else ()
