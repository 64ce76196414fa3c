"""What a command shows: the read models, how fresh they are, and one poll of this machine's runs before."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from cli.wiring.providers import named
from cli.wiring.recorder import watching
from cli.wiring.stores import reading, writing
from events.errors import RecordLocked, RecordNotWritable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from cli.wiring.app import App
    from events.store.record import Record
    from projections.models.view import SourceView, View

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
    provider = named(app, "local", record.store)
    try:
        lease = record.store.lease(provider.source)
        if lease is None:
            return
        with lease, writing(app, create=False) as ours, watching(app, ours, provider) as recorder:
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


@contextmanager
def viewing(app: App, at: str | None = None) -> Iterator[tuple[Record, View]]:
    """The record and its read models, caught up, or as they were `--at` a time or position.

    Open runs of this machine are polled first if no process records them: that needs no network, and the list would
    show ended runs as running.

    Raises:
        RecordNotFound, NotARecord, RecordDamaged, RecordTooNew: as they say.
    """
    from cli.wiring.output import progress
    from cli.wiring.time_arguments import at_moment
    from projections.models.projector import as_it_was, caught_up
    from projections.models.view import View

    with reading(app) as record, progress("reading the record") as advance:
        if at is None:
            look_here(app, record)
            store = caught_up(record, progress=advance)
        else:
            store = as_it_was(record, *at_moment(app, record, at), progress=advance)
        with store:
            yield record, View(store)
