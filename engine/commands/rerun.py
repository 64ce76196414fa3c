"""Submit a run again: the task that is in the record, with changes over it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from engine.errors import Conflict, TaskInvalid
from engine.providers.task import Draft, choose_name, overlaid
from events.shape.secrets import PREFIX
from events.types import RunRequested


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
) -> tuple[Draft, str | None]:
    """The recorded task with the changes over it, as a draft, and how its generated name begins: None if its name was
    chosen, which it keeps. Of `env` only the names are recorded: the values come from `changes` and `environ`.

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
    draft = Draft(
        configuration=overlaid(task, **changes),  # type: ignore[arg-type]
        where=where,
        recorded=True,
        environ=environ,
        fallback=fallback or before.fallback,
        folder=None if before.base is None or not folder else Path(before.base),
    )
    return draft, chosen if generated else None


def missing_values(configuration: Mapping[str, object]) -> tuple[str, ...]:
    """The variables of a task that have a name only."""
    env = configuration.get("env")
    return tuple(one for one in env if "=" not in one) if isinstance(env, list) else ()
