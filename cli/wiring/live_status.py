"""How fresh the sources are; one round of polls of this machine's own runs if no process records them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli.providers import named
from cli.watching import watching
from events.errors import RecordLocked, RecordNotWritable

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from cli.wiring.app import App
    from events.store.record import Record
    from projections.models.view import SourceView

_NEVER = 1 << 62
"""Microseconds: later than any run was submitted."""


def say_unseen(sources: Iterable[SourceView], now: int) -> None:
    """Warn on stderr about sources that do not answer."""
    from cli.render.words import ago
    from cli.wiring.output import hint

    for source in sources:
        if source.observability != "fresh":
            last = "never" if source.last_answered is None else ago(source.last_answered, now)
            said = f"{source.name} is {source.observability.value}: last answer {last}, so this data may be old"
            hint(f"{said}; `steno up` or `steno record` polls it")


def source_object(source: SourceView) -> dict[str, object]:
    """A source and whether it answers, as JSON values."""
    from events.clock import format_time

    last = source.last_answered
    return {
        "source": source.name,
        "observability": source.observability.value,
        "last_answered_at": None if last is None else format_time(last),
    }


def look_here(app: App, record: Record) -> None:
    """Poll the local provider once, if it may have an open run or machine, no other process polls it, and the record is
    writable.

    Acts on nothing: queued requests are left to `record` and `submit`.
    """
    from engine.providers.local.kind import runs_folder

    if not runs_folder(record.store).is_dir() or not _goes_on(record, runs_folder(record.store)):
        return
    from cli.stores import writing  # which imports this module

    provider = named(app, "local", record.store)
    try:
        lease = record.store.lease(provider.source)
        if lease is None:
            return
        with lease, writing(app, create=False) as ours, watching(app, ours, provider) as (_, recorder):
            recorder.round(act=False)
    except (OSError, RecordNotWritable, RecordLocked):
        return


def _goes_on(record: Record, folder: Path) -> bool:
    from engine.providers.local.machines import was_kept
    from projections.models.projector import caught_up

    with caught_up(record) as store:
        if any(row.provider == "local" for row in store.runs(open_or_since=_NEVER)):
            return True
        # a machine that outlived its run goes by itself, and nobody may have seen that
        return any(was_kept(folder, row.provider_id) for row in store.vms.all(billed_or_since=_NEVER))
