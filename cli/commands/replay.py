"""`steno replay`: fold a record or a trace again, under any rule set."""

from __future__ import annotations

import shutil
import sys
import tempfile
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from cli.wiring.app import App, StenoCommand
from cli.wiring.errors import NOT_SUCCEEDED, say
from cli.wiring.options import pool_options
from cli.wiring.output import emit, emit_json, progress, show
from cli.wiring.terminal import columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from engine.fold.tick import Until
    from engine.replay.result import Replay, Step
    from engine.rules.sets import RuleSet
    from events.pool import WorkPool

    Fold = Callable[[str, Until | None, Callable[[int, int], None]], Replay]
    History = tuple[Fold, Callable[[str, Until | None], Iterator[Step]]]
    """(fold everything, fold poll by poll), each up to a limit."""

_SQLITE = b"SQLite format 3\0"


class RuleSetName(click.ParamType[str]):
    """A rule set of any provider; the list is loaded only if a name is given or completed."""

    name = "rules"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value != "current":
            from engine.providers.readings import UnknownRules, rules_named

            try:
                rules_named(value)
            except UnknownRules as error:
                self.fail(str(error), param, ctx)
        return value

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        del ctx, param
        return [CompletionItem(one.name, help=one.summary) for one in _rule_sets() if one.name.startswith(incomplete)]


class ReplayCommand(StenoCommand):
    """Its help lists the rule sets."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Rule sets"):
            formatter.write_dl([(one.name, one.summary) for one in _rule_sets()])
        super().format_epilog(ctx, formatter)


def _rule_sets() -> Iterable[RuleSet]:
    from engine.providers.readings import every_rule_set

    return every_rule_set().values()


@click.command("replay", cls=ReplayCommand)
@click.argument("history", metavar="[RECORD|TRACE]", required=False)
@click.option("--rules", metavar="NAME", type=RuleSetName(), default="current", show_default=True, help="The rule set.")
@click.option(
    "--diff", "other", metavar="NAME", type=RuleSetName(), help="Show the runs that this rule set judges differently."
)
@click.option("--until", metavar="TIME|POSITION", help="Stop here.")
@click.option("--step", is_flag=True, help="Show the transitions one by one.")
@click.option("--lenient", is_flag=True, help="Skip broken lines of a trace.")
@pool_options
def replay_command(
    app: App,
    history: str | None,
    rules: str,
    other: str | None,
    until: str | None,
    step: bool,
    lenient: bool,
    jobs: int | None,
    dask: str | None,
) -> None:
    """Fold a record or a trace again, under any rule set; nothing is written.

    Without an argument, the record is replayed. TRACE is a .jsonl or .jsonl.zst file, or - for standard input; its
    positions are line numbers. With --diff the exit code is 1 if the rule sets disagree about a run.

    Sources of a record that do not depend on each other are folded at the same time, by processes of this machine or
    (--dask) of a cluster; the result is the same. A record of one source, and a trace, are folded in one piece.

    With --json: {"rules", "events", "runs", "vms", "anomalies", "blind"}; with --diff {"rules", "events", "runs",
    "differences"}; with --step JSON Lines {"position", "at", "run_id", "name", "from", "to", "rule"}.

    \b
    Examples:
      steno replay
      steno replay incident.jsonl.zst --rules 2025-12-sdk
      steno replay incident.jsonl.zst --diff 2025-12-sdk
      steno replay --dask tcp://10.0.0.5:8786 --rules 2025-12-sdk
      steno replay --until 2026-11-20T15:00:00Z --json | jq '.runs[].state'
    """
    from cli.render.replay import comparison, summary
    from cli.wiring.pools import pool
    from engine.fold.tick import parse_until
    from engine.replay.result import diff, diff_object

    if step and other is not None:
        raise click.UsageError("--step and --diff cannot be combined")
    limit = None if until is None else parse_until(until)
    chosen = jobs is not None or dask is not None
    with (
        pool(jobs, dask) as workers,
        _history(app, history, lenient=lenient, workers=workers, chosen=chosen) as (replay, steps),
    ):
        left = _folded(replay, rules, limit)
        if step:
            _walk(app, left, steps(rules, limit))
        elif other is None:
            show(app, left.to_json, lambda: summary(left, columns()))
        else:
            right = _folded(replay, other, limit)
            differences = diff(left, right)
            if differences:
                app.exit_code = NOT_SUCCEEDED
            show(app, lambda: diff_object(left, right), lambda: comparison(left, right, differences))


def _folded(replay: Fold, rules: str, limit: Until | None) -> Replay:
    with progress(f"replaying under {rules}") as advance:
        return replay(rules, limit, advance)


def _walk(app: App, whole: Replay, steps: Iterator[Step]) -> None:
    """Print each transition with the provider's words; on a terminal, one per key press."""
    from cli.render.replay import step_lines, step_objects

    runs = {run.run_id: run for run in whole.runs}
    wait = sys.stdin.isatty() and sys.stdout.isatty() and not app.json
    for step in steps:
        if app.json:
            for value in step_objects(step, runs):
                emit_json(value, lines=True)
            continue
        for line in step_lines(step, runs):
            emit(line)
            if wait:
                click.echo(click.style("  any key: next, q: stop", dim=True), nl=False)
                key = click.getchar()
                click.echo("\r\x1b[K", nl=False)
                if key in {"q", "Q", "\x1b"}:
                    return


@contextmanager
def _history(app: App, what: str | None, *, lenient: bool, workers: WorkPool | None, chosen: bool) -> Iterator[History]:
    """The history an argument names: a trace file, `-`, a record's path or URL; None: the record of the settings."""
    if chosen and what is not None and not _names_a_record(what):
        raise click.UsageError("a trace is folded in one piece: --jobs and --dask are for records")
    if what == "-":
        with tempfile.NamedTemporaryFile(prefix="steno-", suffix=".jsonl") as file:  # it may be folded twice
            shutil.copyfileobj(sys.stdin.buffer, file)
            file.flush()
            yield from _trace(file.name, lenient=lenient)
    elif what is not None and not _names_a_record(what):
        from cli.wiring.trace_files import existing

        yield from _trace(existing(what), lenient=lenient)
    else:
        from engine.replay.record import replay_record, step_record

        if what is not None:
            app.set_flag("record", what)
        with app.reading() as record:
            yield (partial(replay_record, record, pool=workers), partial(step_record, record))


def _trace(path: str, *, lenient: bool) -> Iterator[History]:
    """The polls of a trace, with line numbers as positions; prints which lines were skipped."""
    from cli.render.words import count
    from engine.replay.trace import replay_trace, step_trace

    broken: set[int] = set()
    yield (partial(replay_trace, path, lenient=lenient, broken=broken.add), partial(step_trace, path, lenient=lenient))
    if broken:
        first = f"line {min(broken)}" if len(broken) == 1 else f"the first is line {min(broken)}"
        say(f"{count(len(broken), 'broken line')} skipped: {first}")


def _names_a_record(what: str) -> bool:
    if "://" in what:
        return True
    path = Path(what)
    if not path.is_file():
        return path.suffix not in {".jsonl", ".zst", ".json"}
    with path.open("rb") as file:
        return file.read(len(_SQLITE)) == _SQLITE or path.suffix in {".db", ".sqlite"}
