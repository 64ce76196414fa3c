"""`steno seal`: old events of the record in files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli.render.words import count
from cli.wiring.app import App, steno_command
from cli.wiring.output import progress, show
from cli.wiring.time_arguments import moment

if TYPE_CHECKING:
    from events.store.sealing import Sealing


@steno_command("seal")
@click.option("--before", metavar="TIME", help="Seal events recorded before: 90d, 2026-08-01. Default: seal.after ago.")
@click.option("--events", type=click.IntRange(1), metavar="N", help="Events of a file; fewer are not sealed.")
@click.option("--to", "folder", metavar="FOLDER", help="Folder or s3://BUCKET/FOLDER. Default: seal.folder.")
@click.option("--dry-run", is_flag=True, help="Only show what would be sealed.")
@click.option("--moved-to", metavar="FOLDER", help="The sealed files are there now: check them all, and note it.")
def seal_command(
    app: App, before: str | None, events: int | None, folder: str | None, *, dry_run: bool, moved_to: str | None
) -> None:
    """Move old events from the database to Parquet files that every command reads as before.

    A file is written, synced, read back and checked against the hash chain; then its events leave the database. No
    event is lost if this is interrupted: call it again. Recorders and readers go on meanwhile. On PostgreSQL only the
    owner of the record seals.

    Needs `pip install 'steno[questions]'`. Exits 3 if the files cannot be reached, 5 if another process seals, 7 if the
    record or a file is damaged, 8 if database or folder cannot be written. With --json: {"sealed", "old", "head",
    "first", "due": [[first, last]], "files": [{"first", "last", "file", "bytes", "sha256", "hash"}]}; with --moved-to:
    {"files", "folder"}.

    \b
    Examples:
      steno seal --dry-run
      steno seal --before 90d
      steno seal --to 's3://records/steno?region=eu-central-1'
      steno seal --moved-to /archive/steno
    """
    from events.store.sealing import due, move, seal
    from events.store.store import store_at

    store = store_at(app.settings.record)
    if moved_to is not None:
        place = _place(moved_to)
        with progress("checking") as advance:
            moved = move(store, place, clock=app.clock, progress=advance)
        show(app, {"files": moved, "folder": place}, f"{count(moved, 'sealed file')} in {place}")
        return
    now = app.clock.now()
    limit = now - app.settings.parsed("seal.after") if before is None else moment(before, now)
    size = events or app.settings.parsed("seal.events")
    target = folder or app.settings.value("seal.folder")
    if dry_run:
        state = due(store, before=limit, size=size, clock=app.clock)
    else:
        with progress("sealing") as advance:
            state = seal(
                store, before=limit, size=size, place=target and _place(target), clock=app.clock, progress=advance
            )
    show(app, state, _said(state, size, dry_run=dry_run))


def _place(given: str) -> str:
    """A URL as it is, a path from the root: whoever reads the record stands elsewhere."""
    return given if "://" in given else str(Path(given).expanduser().absolute())


def _said(state: Sealing, size: int, *, dry_run: bool) -> str:
    waiting = state.old - state.sealed
    if dry_run and state.due:
        return f"would seal {count(len(state.due), 'file')}: positions {state.due[0][0]:,} to {state.due[-1][1]:,}"
    lines = []
    if state.files:
        total = sum(one.bytes for one in state.files)
        lines.append(
            f"sealed {count(len(state.files), 'file')}, {total:,} bytes: positions {state.files[0].first:,} to "
            f"{state.files[-1].last:,}"
        )
    else:
        lines.append(f"nothing to seal: {count(waiting, 'event')} not sealed and old enough, a file has {size:,}")
    if state.first <= state.sealed:
        lines.append(f"positions {state.first:,} to {state.sealed:,} are still in the database too; they leave later")
    return "\n".join(lines)
