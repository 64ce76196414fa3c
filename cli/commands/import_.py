"""`steno import`: a trace's polls into the record."""

import click

from cli.app import App
from cli.options import common, pass_app
from cli.output import emit, emit_json


@click.command("import")
@click.argument("trace", metavar="TRACE")
@click.option("--lenient", is_flag=True, help="Skip broken lines, and say how many.")
@common
@pass_app
def command(app: App, trace: str, lenient: bool) -> None:
    """Append a trace's polls to the record, in order; importing it again adds nothing.

    TRACE is a .jsonl or .jsonl.zst file, or - for standard input. A broken line is named and nothing is imported,
    unless --lenient skips it. With --json: {"polls", "skipped", "first_position", "last_position"}.

    \b
    Examples:
      steno import incident.jsonl.zst
      steno import - --record /tmp/incident.db < incident.jsonl
    """
    from cli.inputs import existing, trace_reading
    from cli.stores import writing
    from events.imports import import_trace

    existing(trace)
    with writing(app) as record:
        found = import_trace(record, trace, trace_reading(), lenient=lenient)
    if app.json:
        emit_json(
            {
                "polls": found.polls,
                "skipped": found.skipped,
                "first_position": found.first_position,
                "last_position": found.last_position,
            }
        )
        return
    from cli.render.words import count

    parts = [count(found.polls, "poll") + " imported"]
    if found.first_position is not None:
        parts[0] += f", positions {found.first_position:,} to {found.last_position:,}"
    if found.known:
        parts.append(f"{count(found.known, 'poll')} the record had already")
    if found.skipped:
        parts.append(f"{count(found.skipped, 'broken line')} skipped")
    emit("; ".join(parts))
