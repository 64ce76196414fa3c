"""`steno export`: any part of the record as a trace."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cli.wiring.app import App
from cli.wiring.options import common, pass_app
from cli.wiring.output import emit, emit_json, hint

if TYPE_CHECKING:
    from events.store.record import Record


@click.command("export")
@click.argument("run", metavar="[RUN]", required=False)
@click.option("--trace", "target", metavar="FILE", required=True, help="The trace to write: .jsonl, .jsonl.zst, or -.")
@click.option("--from", "start", metavar="TIME|POSITION", help="Start here.")
@click.option("--to", "end", metavar="TIME|POSITION", help="End here.")
@common
@pass_app
def command(app: App, run: str | None, target: str, start: str | None, end: str | None) -> None:
    """Write polls of the record to a trace file; `replay` and `import` read it on any machine.

    With RUN: the polls of its sources, from the first that shows it to the last that changed it. Without RUN: the whole
    record, or the part between --from and --to. Lists are exported as they were received, so they contain the other
    runs of the project too. Secrets are never in a trace.

    With --json: {"trace", "polls", "first_position", "last_position"}.

    \b
    Examples:
      steno export matmul --trace matmul.jsonl.zst
      steno export --from 2h --trace - | steno replay - --rules 2025-12-sdk
    """
    from cli.wiring.trace_files import export_polls, part_of_run
    from cli.wiring.view import viewing

    with viewing(app) as (record, view):
        after, until = _bounds(app, record, start, end)
        sources: frozenset[str] | None = None
        if run is not None:
            first, last, sources = part_of_run(record, view.row(run))
            after, until = max(after, first - 1), min(until, last)
        written = export_polls(record, target, after=after, until=until, sources=sources)
    if target == "-":
        hint(f"{written.polls} polls written")
    elif app.json:
        emit_json(
            {
                "trace": target,
                "polls": written.polls,
                "first_position": written.first_position,
                "last_position": written.last_position,
            }
        )
    else:
        from cli.render.words import count

        emit(f"{count(written.polls, 'poll')} written to {target}; `steno replay {target}` shows them")


def _bounds(app: App, record: Record, start: str | None, end: str | None) -> tuple[int, int]:
    from cli.wiring.time_arguments import after_position, at_position

    until = record.head().position if end is None else at_position(app, record, end)
    return after_position(app, record, start), until
