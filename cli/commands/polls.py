"""`steno polls`: the polls of the record."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cli.wiring.app import App
from cli.wiring.options import common, pass_app
from cli.wiring.output import emit, emit_json_line

if TYPE_CHECKING:
    from events.store.record import Record


@click.command("polls")
@click.option("--from", "start", metavar="TIME|POSITION", help="Start here.")
@click.option("--to", "end", metavar="TIME|POSITION", help="End here.")
@click.option("--failed", is_flag=True, help="Only polls without a usable answer.")
@click.option("--source", metavar="NAME", help="Only this source (dstack/main).")
@click.option("-n", "--last", "last", type=click.IntRange(min=1), metavar="N", help="Only the newest N.")
@common
@pass_app
def command(app: App, start: str | None, end: str | None, failed: bool, source: str | None, last: int | None) -> None:
    """List the record's polls: position, time, HTTP status, milliseconds, source, path, and what changed.

    With --json, JSON Lines: {"position", "t", "source", "path", "req", "status", "ms", "changed"}; "changed" lists the
    streams of the runs and machines whose answer changed.

    \b
    Examples:
      steno polls -n 20
      steno polls --failed --from 2h
      steno polls --json | jq -r 'select(.changed != []) | .position'
    """
    from cli.wiring.stores import reading
    from projections.models.record_rows import poll_rows

    with reading(app) as record:
        after, until = _bounds(app, record, start, end)
        for row in poll_rows(record, after=after, until=until, failed=failed, source=source, last=last):
            if app.json:
                emit_json_line(row)
            else:
                emit(_line(row))


def _bounds(app: App, record: Record, start: str | None, end: str | None) -> tuple[int, int]:
    from cli.wiring.time_arguments import after_position, at_position

    until = record.head().position if end is None else at_position(app, record, end)
    return after_position(app, record, start), until


def _line(row: dict[str, object]) -> str:
    from cli.render import paint
    from cli.render.words import moment
    from events.clock import parse_time

    status = row["status"]
    answer = click.style(f"{status or 'none':>4}", fg="green" if status == 200 else "red")
    changed = row["changed"]
    assert isinstance(changed, list)  # noqa: S101 - made above
    when = moment(parse_time(str(row["t"])))
    what = paint.dim(f"  changed {', '.join(changed)}") if changed else ""
    return f"{row['position']:>8}  {when}  {answer}  {row['ms']:>7} ms  {row['source']}  {row['path']}{what}"
