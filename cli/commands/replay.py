"""`steno replay`: fold a record or a trace again, under any rule set."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli.wiring.app import App
from cli.wiring.errors import NOT_SUCCEEDED
from cli.wiring.options import common, pass_app
from cli.wiring.output import emit, emit_json, emit_json_line
from cli.wiring.terminal import columns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine.fold.until import Until
    from engine.replay.result import Replay, Step
    from events.store.record import Record

_NAMES = ("current", "2025-12-sdk", "2025-12-sdk-enum", "2025-12-sdk-stale", "2025-12-fix")


@click.command("replay")
@click.argument("history", metavar="[RECORD|TRACE]", required=False)
@click.option("--rules", type=click.Choice(_NAMES), default="current", show_default=True, help="The rule set.")
@click.option("--diff", "other", type=click.Choice(_NAMES), help="Show the runs that this rule set judges differently.")
@click.option("--until", metavar="TIME|POSITION", help="Stop here.")
@click.option("--step", is_flag=True, help="Show the transitions one by one.")
@click.option("--lenient", is_flag=True, help="Skip broken lines of a trace.")
@common
@pass_app
def command(
    app: App, history: str | None, rules: str, other: str | None, until: str | None, step: bool, lenient: bool
) -> None:
    """Fold a record or a trace again, under any rule set; nothing is written.

    Without an argument, the record is replayed. TRACE is a .jsonl or .jsonl.zst file, or - for standard input; its
    positions are line numbers. With --diff the exit code is 1 if the rule sets disagree about a run.

    With --json: {"rules", "events", "runs", "vms", "anomalies", "blind"}; with --diff {"rules", "events", "runs",
    "differences"}; with --step JSON Lines {"position", "at", "run_id", "name", "from", "to", "rule"}.

    \b
    Rule sets:
      current             Steno's: the newest decisive observation decides
      2025-12-sdk         the first poller: terminating or terminated means failed
      2025-12-sdk-enum    no status matches: every run fails after ten minutes
      2025-12-sdk-stale   only the first observation of a name counts
      2025-12-fix         the first poller, repaired

    \b
    Examples:
      steno replay
      steno replay incident.jsonl.zst --rules 2025-12-sdk
      steno replay incident.jsonl.zst --diff 2025-12-sdk
      steno replay --until 2026-11-20T15:00:00Z --json | jq '.runs[].state'
    """
    from engine.fold.until import parse_until

    if step and other is not None:
        raise click.UsageError("--step and --diff cannot be combined")
    limit = None if until is None else parse_until(until)
    with _history(app, history, lenient=lenient) as found:
        if step:
            _walk(app, found, rules, limit)
            return
        left = found.replay(rules, limit)
        if other is None:
            _print(app, left)
        else:
            _compare(app, left, found.replay(other, limit))


def _print(app: App, replay: Replay) -> None:
    if app.json:
        emit_json(replay.to_json())
        return
    from cli.render.replay import summary

    emit(summary(replay, columns()))


def _compare(app: App, left: Replay, right: Replay) -> None:
    from engine.replay.diff import diff, diff_object

    differences = diff(left, right)
    if differences:
        app.exit_code = NOT_SUCCEEDED
    if app.json:
        emit_json(diff_object(left, right))
        return
    from cli.render.replay import comparison

    emit(comparison(left, right, differences))


def _walk(app: App, history: History, rules: str, until: Until | None) -> None:
    """Each transition with the provider's words; on a terminal one per key press."""
    from cli.render.replay import step_lines, step_objects

    runs = {run.run_id: run for run in history.replay(rules, until).runs}
    wait = sys.stdin.isatty() and sys.stdout.isatty() and not app.json
    for step in history.steps(rules, until):
        if app.json:
            for value in step_objects(step, runs):
                emit_json_line(value)
            continue
        for line in step_lines(step, runs):
            emit(line)
            if wait and _quits():
                return


def _quits() -> bool:
    click.echo(click.style("  any key: next, q: stop", dim=True), nl=False)
    key = click.getchar()
    click.echo("\r\x1b[K", nl=False)
    return key in {"q", "Q", "\x1b"}


_SQLITE = b"SQLite format 3\0"


@dataclass(frozen=True, slots=True)
class TraceHistory:
    """The polls of a trace; positions are its line numbers."""

    path: str
    lenient: bool
    broken: set[int] = field(default_factory=set)
    """Numbers of the lines that were skipped."""

    def replay(self, rules: str, until: Until | None) -> Replay:
        """Fold it all.

        Raises:
            UnreadableInput: a line is broken and `lenient` is not set.
        """
        from engine.replay.trace import replay_trace

        return replay_trace(self.path, rules, until, lenient=self.lenient, broken=self.broken.add)

    def steps(self, rules: str, until: Until | None) -> Iterator[Step]:
        """Fold it poll by poll."""
        from engine.replay.trace import step_trace

        return step_trace(self.path, rules, until, lenient=self.lenient)


@dataclass(frozen=True, slots=True)
class RecordHistory:
    """The polls and intents of a record."""

    record: Record

    def replay(self, rules: str, until: Until | None) -> Replay:
        """Fold it all."""
        from engine.replay.record import replay_record

        return replay_record(self.record, rules, until)

    def steps(self, rules: str, until: Until | None) -> Iterator[Step]:
        """Fold it poll by poll."""
        from engine.replay.record import step_record

        return step_record(self.record, rules, until)


History = TraceHistory | RecordHistory


@contextmanager
def _history(app: App, what: str | None, *, lenient: bool) -> Iterator[History]:
    """The history a person names: a trace file, `-`, a record's path or URL; None is the record of the settings.

    Raises:
        RecordNotFound, NotARecord, RecordDamaged, RecordTooNew: as they say.
    """
    from cli.wiring.stores import reading

    if what == "-":
        with _spooled() as path:
            yield (trace := TraceHistory(path, lenient))
        _warn_of_skipped(trace.broken)
        return
    if what is not None and not _names_a_record(what):
        from cli.wiring.trace_files import existing

        yield (trace := TraceHistory(existing(what), lenient))
        _warn_of_skipped(trace.broken)
        return
    if what is not None:
        app.flags["record"] = what
    with reading(app) as record:
        yield RecordHistory(record)


def _warn_of_skipped(broken: set[int]) -> None:
    """Print which lines of a trace were skipped."""
    if broken:
        from cli.render.words import count
        from cli.wiring.output import warn

        first = f"line {min(broken)}" if len(broken) == 1 else f"the first is line {min(broken)}"
        warn(f"{count(len(broken), 'broken line')} skipped: {first}")


def _names_a_record(what: str) -> bool:
    if "://" in what:
        return True
    path = Path(what)
    if not path.is_file():
        return path.suffix not in {".jsonl", ".zst", ".json"}
    with path.open("rb") as file:
        return file.read(len(_SQLITE)) == _SQLITE or path.suffix in {".db", ".sqlite"}


@contextmanager
def _spooled() -> Iterator[str]:
    """Standard input as a file, so that it can be folded more than once."""
    import shutil
    import sys
    import tempfile

    with tempfile.NamedTemporaryFile(prefix="steno-", suffix=".jsonl") as file:
        shutil.copyfileobj(sys.stdin.buffer, file)
        file.flush()
        yield file.name
