"""`steno import`: a trace's polls into the record."""

import re
from typing import Final

import click

from cli.wiring.app import App
from cli.wiring.options import common, pass_app
from cli.wiring.output import emit, emit_json

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@click.command("import")
@click.argument("trace", metavar="TRACE")
@click.option("--lenient", is_flag=True, help="Skip broken lines and print how many.")
@click.option("--as", "name", metavar="NAME", help="Import as the source PROVIDER/NAME.")
@common
@pass_app
def command(app: App, trace: str, lenient: bool, name: str | None) -> None:
    """Append a trace's polls to the record, in order, as an archive; importing it again adds nothing.

    TRACE is a .jsonl or .jsonl.zst file, or - for standard input. If a line is broken, nothing is imported and the
    error names the line; --lenient skips broken lines. With --json: {"polls", "skipped",
    "first_position", "last_position"}.

    An archive ends with its last poll. Its open machines are billed up to that poll. An archive is never blind, raises
    no alert, and counts towards no budget and no machine limit. Steno never acts on it.

    A source that is recorded live in this record is refused (exit 5): use --as. `steno sources` lists the archives, and
    `steno sources hide NAME` hides one.

    \b
    Examples:
      steno import incident.jsonl.zst
      steno import incident.jsonl.zst --as march-outage
      steno import - --record /tmp/incident.db < incident.jsonl
    """
    from cli.wiring.stores import writing
    from cli.wiring.trace_files import existing, trace_reading
    from events.traces.importing import import_trace

    existing(trace)
    if name is not None and _NAME.fullmatch(name) is None:
        raise click.BadParameter(f"{name!r}: use 1–64 letters, digits, '.', '_' and '-'", param_hint="--as")
    with writing(app) as record:
        found = import_trace(record, trace, trace_reading(), lenient=lenient, name=name)
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
        parts.append(f"{count(found.known, 'poll')} already in the record")
    if found.skipped:
        parts.append(f"{count(found.skipped, 'broken line')} skipped")
    emit("; ".join(parts))
