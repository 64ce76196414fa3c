"""`steno export` and `steno import`: any part of the record as a trace or as tables, and a trace as an archive."""

import errno
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

import click

from steno.cli.catalogue import near
from steno.cli.render.words import count
from steno.cli.wiring.app import App, steno_command
from steno.cli.wiring.options import both_times_option, from_option, to_option
from steno.cli.wiring.output import hint, progress, show
from steno.cli.wiring.time_arguments import between, time_of
from steno.cli.wiring.view import viewing
from steno.events.store.store import BUNDLE

_POLLS = frozenset({"PollRecorded", "PollFailed"})
_LEFT_OUT = {
    "RunRequested": ("request", "requests"),
    "StopRequested": ("stop of a run", "stops of runs"),
    "VmStopIntended": ("stop of a machine", "stops of machines"),
    "VmGoneConfirmed": ("machine confirmed as gone", "machines confirmed as gone"),
    "TaskReported": ("report of a task", "reports of tasks"),
    "SamplesRecorded": ("answer with samples", "answers with samples"),
}
"""Events of Steno itself that a trace of polls does not have, though runs, reasons and times rest on them."""
_FORMS = ("parquet", "csv", "perfetto")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def _kinds(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    from steno.engine.replay.redaction import KINDS

    before, comma, begun = incomplete.rpartition(",")
    return [f"{before}{comma}{kind}" for kind in KINDS if kind.startswith(begun)]


@steno_command("export")
@click.argument("words", metavar="[RUN|TABLE...]", nargs=-1)
@click.option("--trace", "target", metavar="FILE", help="The trace to write: .jsonl, .jsonl.zst, or -.")
@from_option
@to_option
@click.option("--format", "form", type=click.Choice(_FORMS), help="Write tables, one file each; or a timeline.")
@click.option("-o", "--output", "folder", metavar="DIR|FILE", help="The tables' DIR, a bundle's or a timeline's FILE.")
@click.option(
    "--redact",
    metavar="KINDS",
    shell_complete=_kinds,
    help="Hide names, commands, hosts in a bundle: any of these, with commas.",
)
@both_times_option
def export_command(
    app: App,
    words: tuple[str, ...],
    target: str | None,
    start: str | None,
    end: str | None,
    form: str | None,
    folder: str | None,
    redact: str | None,
    at: str | None,
) -> None:
    """With -o FILE.steno: an incident bundle of the RUNs, one file that `replay`, `show`, `explain`, `timeline` and
    `verify` open on any machine, without a record or a network. It has the events about these runs and their machines,
    the answers of their sources in that time, the recorded output of the runs, and the proof that they are the
    record's. Lists are as they were received. --redact replaces each value of these kinds by a pseudonym, equal values
    by equal pseudonyms, and leaves the output out. The bundle is written only if it folds to the same runs. With
    --json: {"bundle", "runs", "events", "head", "digest",
    "redacted": {KIND: N}}.

    With --trace: a file that `replay` and `import` read on any machine. With RUN: the polls of its sources, from the
    first that shows it to the last that changed it. Without RUN: the whole record, or the part between --from and --to.
    Lists are exported as they were received, so they contain the other runs of the project too. Secrets are never in a
    trace. A trace has what providers said, not what Steno did: its last line counts the requests, stops and reports of
    tasks that it leaves out. With --json: {"trace", "polls", "first_position", "last_position", "left_out": {TYPE: N}}.

    With --format: each TABLE (`steno sql --tables`), or all, as DIR/TABLE.parquet or DIR/TABLE.csv, as it is now or was
    --at. A file that is there is replaced when the new one is complete. With --json: {"folder", "tables": [{"table",
    "file", "rows"}]}.

    With --format perfetto: a timeline that ui.perfetto.dev opens: machines with their phases, runs, cost and GPU use,
    and sources with their polls. With RUNs: of them, while they were there. --from and --to cut it; --at shows what was
    known then. With --json: {"trace", "events"}.

    \b
    Examples:
      steno export matmul -o incident.steno --redact names,commands,hosts
      steno export matmul --trace matmul.jsonl.zst
      steno export --from 2h --trace - | steno replay - --rules 2025-12-sdk
      steno export --format parquet runs costs -o figures
      steno export --format perfetto -o timeline.json.gz --from 2h
    """
    if folder is not None and folder.endswith(BUNDLE) and form is None and target is None:
        if (start, end, at) != (None, None, None):
            raise click.UsageError("a bundle has all about its runs: leave --from, --to and --at out")
        _export_bundle(app, words, folder, redact)
        return
    if redact is not None:
        raise click.UsageError("--redact is for a bundle: give -o FILE.steno")
    if (target is None) == (form is None):
        raise click.UsageError("give -o FILE.steno, --trace FILE, or --format with -o DIR")
    if form == "perfetto":
        _export_perfetto(app, words, folder or "", start, end, at)
        return
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
    from steno.cli.commands.sql import looking
    from steno.projections.frames.catalogue import TABLES
    from steno.projections.frames.files import FORMATS

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
    lines = [f"{count(int(str(table['rows'])), 'row')} written to {table['file']}" for table in written]
    show(app, {"folder": folder, "tables": written}, "\n".join(lines))


def _export_perfetto(
    app: App, words: tuple[str, ...], target: str, start: str | None, end: str | None, at: str | None
) -> None:
    from steno.cli.commands.sql import looking
    from steno.projections.frames.perfetto import END, PerfettoTrace

    if not target.endswith((".json", ".json.gz")):
        raise click.UsageError("say where the timeline goes: -o FILE.json or -o FILE.json.gz")
    with looking(app, at, "exporting") as source, _opened(target) as file:
        runs = {source.view.row(word).run_id for word in words}
        since = 0 if start is None else time_of(app, source.record, start)
        until = END if end is None else time_of(app, source.record, end)
        events = PerfettoTrace(source, runs, since, until).write(file)
    text = f"{count(events, 'event')} written to {target}; https://ui.perfetto.dev opens it"
    show(app, {"trace": target, "events": events}, text)


def _export_bundle(app: App, words: tuple[str, ...], target: str, redact: str | None) -> None:
    from steno.engine.replay.bundle import export
    from steno.engine.replay.redaction import KINDS

    kinds = tuple(dict.fromkeys((redact or "").replace(",", " ").split()))
    for kind in kinds:
        if kind not in KINDS:
            raise click.BadParameter(
                f"{kind!r} is none of {', '.join(KINDS)}{near(kind, list(KINDS))}", param_hint="--redact"
            )
    if redact is not None and not kinds:
        raise click.BadParameter(f"give any of {', '.join(KINDS)}", param_hint="--redact")
    if not words:
        raise click.UsageError("a bundle is of runs: name them")
    with viewing(app) as (record, view, _), _opened(target) as file, progress("exporting") as advance:
        runs = [view.row(word).decoded for word in words]
        machines = [
            view.machine(vm_id) for vm_id in dict.fromkeys(vm_id for run in runs for vm_id in run.links.values())
        ]
        objects = {run.run_id: view.run(run.run_id) for run in runs}
        made, events = export(
            record, objects, [*runs, *machines], file, kinds=kinds, bundle_id=app.ids.new(), progress=advance
        )
    redacted = {kind: sum(name.startswith(kind) for name in made.pseudonyms) for kind in kinds}
    value = {
        "bundle": target,
        "runs": made.runs,
        "events": events,
        "head": f"{made.head.position}:{made.head.hash}",
        "digest": made.seal,
        "redacted": redacted,
    }
    hidden = "".join(f", {number} {kind} hidden" for kind, number in redacted.items())
    text = f"{count(events, 'event')} written to {target}{hidden}; `steno explain {target}` opens it"
    text += "\nthe output of the runs is left out: names in it could not be hidden" if kinds else ""
    show(app, value, f"{text}\ndigest {made.seal}")


def _export_trace(app: App, run: str | None, target: str, start: str | None, end: str | None) -> None:
    from steno.engine.replay.bundle import last_poll
    from steno.events.traces.trace import write_left_out, write_trace_line

    polls, left_out = 0, Counter[str]()
    first = last = None
    with viewing(app) as (record, view, _):
        after, until = between(app, record, start, end)
        sources: frozenset[str] | None = None
        if run is not None:
            folded = view.row(run).decoded
            after, until = max(after, folded.first_position - 1), min(until, last_poll(record, folded))
            sources = frozenset(folded.started)
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
    """A line about the events that an import cannot know; none if nothing was left out."""
    parts = [count(left_out[kind], *words) for kind, words in _LEFT_OUT.items() if left_out.get(kind)]
    return [f"left out: {', '.join(parts)}: an import knows only what the providers said"] if parts else []


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
            if path.suffix == ".gz":
                import gzip

                with gzip.open(file, "wb") as gzipped:
                    yield cast("BinaryIO", gzipped)
            elif path.suffix == ".zst":
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
    """Its polls are appended in order; importing it again adds nothing. TRACE is a .jsonl or .jsonl.zst file, or - for
    standard input. If a line is broken, nothing is imported and the error names the line; --lenient skips broken lines.
    A run has the id of the Steno that requested it, if the provider's answers show it; what else the trace leaves out
    is printed. With --json: {"polls", "skipped", "first_position", "last_position", "left_out": {TYPE: N}}.

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
    from msgspec.structs import asdict

    from steno.cli.wiring.files import existing, trace_reading
    from steno.events.traces.trace import import_trace

    existing(trace)
    if name is not None and _NAME.fullmatch(name) is None:
        raise click.BadParameter(f"{name!r}: use 1–64 letters, digits, '.', '_' and '-'", param_hint="--as")
    with app.writing() as record, progress("importing") as advance:
        imported = import_trace(record, trace, trace_reading(), lenient=lenient, name=name, progress=advance)
    parts = [count(imported.polls, "poll") + " imported"]
    if imported.first_position is not None:
        parts[0] += f", positions {imported.first_position:,} to {imported.last_position:,}"
    value = asdict(imported)
    if known := value.pop("known"):
        parts.append(f"{count(known, 'poll')} already in the record")
    if imported.skipped:
        parts.append(f"{count(imported.skipped, 'broken line')} skipped")
    show(app, value, "\n".join(["; ".join(parts), *_unknown(imported.left_out)]))
