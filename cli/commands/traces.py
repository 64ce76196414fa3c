"""`steno export` and `steno import`: any part of the record as a trace or as tables, and a trace as an archive."""

from __future__ import annotations

import errno
import os
import re
import sys
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from cli.render.words import count
from cli.wiring.app import App, steno_command
from cli.wiring.options import at_option, from_option, to_option
from cli.wiring.output import hint, progress, show

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from events.store.record import Record
    from projections.store.schema import RunRow

_POLLS = frozenset({"PollRecorded", "PollFailed"})
_LEFT_OUT = {
    "RunRequested": ("request", "requests"),
    "StopRequested": ("stop of a run", "stops of runs"),
    "VmStopIntended": ("stop of a machine", "stops of machines"),
    "VmGoneConfirmed": ("machine confirmed as gone", "machines confirmed as gone"),
    "TaskReported": ("report of a task", "reports of tasks"),
}
"""What Steno itself recorded and a trace of polls does not have, though runs, reasons and times rest on it."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@steno_command("export")
@click.argument("words", metavar="[RUN|TABLE...]", nargs=-1)
@click.option("--trace", "target", metavar="FILE", help="The trace to write: .jsonl, .jsonl.zst, or -.")
@from_option
@to_option
@click.option("--format", "form", type=click.Choice(["parquet", "csv"]), help="Write tables, one file each.")
@click.option("-o", "--output", "folder", metavar="DIR", help="The folder of the tables; made if it is missing.")
@at_option
def export_command(
    app: App,
    words: tuple[str, ...],
    target: str | None,
    start: str | None,
    end: str | None,
    form: str | None,
    folder: str | None,
    at: str | None,
) -> None:
    """Write polls of the record to a trace file, or the tables of `steno sql` to files.

    With --trace: a file that `replay` and `import` read on any machine. With RUN: the polls of its sources, from the
    first that shows it to the last that changed it. Without RUN: the whole record, or the part between --from and --to.
    Lists are exported as they were received, so they contain the other runs of the project too. Secrets are never in a
    trace. A trace has what providers said, not what Steno did: its last line counts the requests, stops and reports of
    tasks that it leaves out. With --json: {"trace", "polls", "first_position", "last_position", "left_out": {TYPE: N}}.

    With --format: each TABLE (`steno sql --tables`), or all, as DIR/TABLE.parquet or DIR/TABLE.csv, as it is now or was
    --at. A file that is there is replaced when the new one is complete. With --json: {"folder", "tables": [{"table",
    "file", "rows"}]}.

    \b
    Examples:
      steno export matmul --trace matmul.jsonl.zst
      steno export --from 2h --trace - | steno replay - --rules 2025-12-sdk
      steno export --format parquet runs costs -o figures
    """
    if (target is None) == (form is None):
        raise click.UsageError("give --trace FILE, or --format with -o DIR")
    if form is not None:
        if start is not None or end is not None:
            raise click.UsageError("--from and --to are of a trace; tables have --at")
        _export_tables(app, words, form, folder, at)
        return
    assert target is not None  # noqa: S101 - the other was not given
    if folder is not None or at is not None:
        raise click.UsageError("-o and --at are of tables: a trace has --from and --to")
    if len(words) > 1:
        raise click.UsageError("a trace is of one run, or of all: give one RUN")
    _export_trace(app, words[0] if words else None, target, start, end)


def _export_tables(app: App, words: tuple[str, ...], form: str, folder: str | None, at: str | None) -> None:
    from cli.catalogue import near
    from cli.commands.sql import looking
    from projections.frames.catalogue import TABLES
    from projections.frames.files import FORMATS

    if folder is None:
        raise click.UsageError("say where the tables go: -o DIR")
    for word in words:
        if word not in TABLES:
            raise click.BadParameter(f"there is no table {word}{near(word, list(TABLES))}", param_hint="TABLE")
    written = []
    with looking(app, at, "exporting") as source:
        Path(folder).mkdir(parents=True, exist_ok=True)
        for table in (TABLES[word] for word in dict.fromkeys(words or TABLES)):
            path = Path(folder) / f"{table.name}.{form}"
            written.append({"table": table.name, "file": str(path), "rows": FORMATS[form](table, source, path)})
    lines = [f"{count(int(str(one['rows'])), 'row')} written to {one['file']}" for one in written]
    show(app, {"folder": folder, "tables": written}, "\n".join(lines))


def _export_trace(app: App, run: str | None, target: str, start: str | None, end: str | None) -> None:
    from cli.wiring.time_arguments import between
    from cli.wiring.view import viewing
    from events.traces.trace import write_left_out, write_trace_line

    polls, left_out = 0, Counter[str]()
    first = last = None
    with viewing(app) as (record, view, _):
        after, until = between(app, record, start, end)
        sources: frozenset[str] | None = None
        if run is not None:
            begun, ended, sources = _part_of_run(record, view.row(run))
            after, until = max(after, begun - 1), min(until, ended)
        last_position = min(until, record.head().position)
        with _opened(target) as file, progress("exporting") as advance:
            for stored in record.read(after=after, until=until, types=_POLLS | _LEFT_OUT.keys()):
                advance(stored.position - after, last_position - after)
                if stored.type in _LEFT_OUT:
                    left_out[stored.type] += 1
                elif sources is None or stored.stream.removeprefix("source/") in sources:
                    file.write(write_trace_line(record.poll(stored.position)))
                    polls += 1
                    first, last = first or stored.position, stored.position
            if left_out:
                file.write(write_left_out(dict(left_out)))
    if target == "-":
        hint("\n".join([f"{polls} polls written", *_unknown(left_out)]))
        return
    value = {"trace": target, "polls": polls, "first_position": first, "last_position": last, "left_out": left_out}
    written = f"{count(polls, 'poll')} written to {target}; `steno replay {target}` shows them"
    show(app, value, "\n".join([written, *_unknown(left_out)]))


def _unknown(left_out: Mapping[str, int]) -> list[str]:
    """What an import cannot know, as a line; none if nothing was left out."""
    parts = [count(left_out[kind], *words) for kind, words in _LEFT_OUT.items() if left_out.get(kind)]
    return [f"left out: {', '.join(parts)}: an import knows only what the providers said"] if parts else []


def _part_of_run(record: Record, row: RunRow) -> tuple[int, int, frozenset[str]]:
    """(first position, last position, sources) of the polls about a run."""
    from engine.fold.chains import foreign_ids
    from events.types import RunObserved
    from projections.store.world_table import decode_run

    run = decode_run(row.folded)
    last = max([run.first_position, *run.evidence, *(step.position for step in run.transitions)])
    streams = {f"run/{run.run_id}"}
    if run.provider_id is not None:
        streams.update(f"run/{one}" for one in foreign_ids(run.provider, run.provider_id, run.submitted_at))
    for stream in streams:
        for stored in record.read(stream=stream, types={"RunObserved"}, backwards=True, limit=1):
            if isinstance(stored.data, RunObserved):
                last = max(last, stored.data.poll)
    if not row.ended:
        last = max(last, run.last_position)
    return run.first_position, last, frozenset(run.started)


@contextmanager
def _opened(target: str) -> Iterator[BinaryIO]:
    """A file that appears under its name when it is complete, or standard output; `.zst` is compressed."""
    if target == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    path = Path(target)
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), target)
    part = path.with_name(path.name + ".part")
    try:
        with part.open("wb") as file:
            if path.suffix == ".zst":
                import zstandard

                with zstandard.ZstdCompressor(level=10).stream_writer(file, closefd=False) as packed:
                    yield packed
            else:
                yield file
        part.replace(path)
    except OSError as error:
        error.filename = target
        raise
    finally:
        part.unlink(missing_ok=True)


@steno_command("import")
@click.argument("trace", metavar="TRACE")
@click.option("--lenient", is_flag=True, help="Skip broken lines and print how many.")
@click.option("--as", "name", metavar="NAME", help="Import as the source PROVIDER/NAME.")
def import_command(app: App, trace: str, lenient: bool, name: str | None) -> None:
    """Append a trace's polls to the record, in order, as an archive; importing it again adds nothing.

    TRACE is a .jsonl or .jsonl.zst file, or - for standard input. If a line is broken, nothing is imported and the
    error names the line; --lenient skips broken lines. A run has the id of the Steno that requested it, if the
    provider's answers show it; what else the trace leaves out is printed. With --json: {"polls", "skipped",
    "first_position", "last_position", "left_out": {TYPE: N}}.

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
    from cli.wiring.trace_files import existing, trace_reading
    from events.traces.trace import import_trace

    existing(trace)
    if name is not None and _NAME.fullmatch(name) is None:
        raise click.BadParameter(f"{name!r}: use 1–64 letters, digits, '.', '_' and '-'", param_hint="--as")
    with app.writing() as record, progress("importing") as advance:
        found = import_trace(record, trace, trace_reading(), lenient=lenient, name=name, progress=advance)
    parts = [count(found.polls, "poll") + " imported"]
    if found.first_position is not None:
        parts[0] += f", positions {found.first_position:,} to {found.last_position:,}"
    if found.known:
        parts.append(f"{count(found.known, 'poll')} already in the record")
    if found.skipped:
        parts.append(f"{count(found.skipped, 'broken line')} skipped")
    value = {
        "polls": found.polls,
        "skipped": found.skipped,
        "first_position": found.first_position,
        "last_position": found.last_position,
        "left_out": found.left_out,
    }
    show(app, value, "\n".join(["; ".join(parts), *_unknown(found.left_out)]))
