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

from steno.cli.render.words import count
from steno.cli.wiring.app import App, StenoCommand
from steno.cli.wiring.errors import NOT_SUCCEEDED, say
from steno.cli.wiring.options import pool_options
from steno.cli.wiring.output import emit, emit_json, progress, show
from steno.cli.wiring.terminal import columns
from steno.events.store.store import SQLITE, is_bundle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from steno.engine.fold.poll_reader import Until
    from steno.engine.replay.result import Replay, Step
    from steno.engine.rules.sets import RuleSet
    from steno.events.store.verify_pieces import WorkPool

    FoldContext = Callable[[str, Until | None, Callable[[int, int], None]], Replay]
    History = tuple[FoldContext, Callable[[str, Until | None], Iterator[Step]]]
    """(fold everything, fold poll by poll), each up to a limit."""


class RuleSetName(click.ParamType[str]):
    """A rule set: ours, a provider's, or a rule file, by its path or by its name in a rules folder. The list is loaded
    only if a name is given or completed.
    """

    name = "rules"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value not in ("current", "adopted"):
            from steno.engine.providers.registry import UnknownRules, rules_named
            from steno.engine.providers.rule_files import rule_files

            folders = () if ctx is None else ctx.ensure_object(App).rules_folders
            value = str(rule_files(folders).get(value, value))
            try:
                rules_named(value, folders, files=True)
            except UnknownRules as error:
                self.fail(str(error), param, ctx)
        return value

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from steno.engine.providers.rule_files import rule_files

        del param
        known = {rules.name: rules.summary for rules in _rule_sets()}
        known |= {name: str(path) for name, path in rule_files(ctx.ensure_object(App).rules_folders).items()}
        items = [CompletionItem(name, help=text) for name, text in known.items() if name.startswith(incomplete)]
        return items or [CompletionItem(incomplete, type="file")]


class ReplayCommand(StenoCommand):
    """Its help lists the rule sets."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Rule sets"):
            formatter.write_dl([(rules.name, rules.summary) for rules in _rule_sets()])
        super().format_epilog(ctx, formatter)


def _rule_sets() -> Iterable[RuleSet]:
    from steno.engine.providers.registry import every_rule_set
    from steno.engine.rules.sets import ADOPTED

    return ADOPTED, *every_rule_set().values()


@click.command("replay", cls=ReplayCommand)
@click.argument("history", metavar="[RECORD|TRACE|BUNDLE]", required=False)
@click.option(
    "--rules", metavar="NAME|FILE", type=RuleSetName(), default="adopted", show_default=True, help="The rule set."
)
@click.option(
    "--diff",
    "other",
    metavar="NAME|FILE",
    type=RuleSetName(),
    help="Show the runs that this rule set judges differently.",
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
    """Nothing is written. Without an argument, the record is replayed. TRACE is a .jsonl or .jsonl.zst file, or - for
    standard input; its positions are line numbers. BUNDLE is a .steno file of `steno export`. With --diff the exit code
    is 1 if the rule sets disagree about a run. The default rules are those that the record adopted (`steno rules
    adopt`), each set from there on; until then, and for a trace, they are `current`.

    Sources of a record that do not depend on each other are folded at the same time, by processes of this machine or
    (--dask) of a cluster; the result is the same. A record of one source, and a trace, are folded in one piece.

    With --json: {"rules", "events", "runs", "vms", "anomalies", "blind"}; with --diff {"rules", "events", "runs",
    "differences"}; with --step JSON Lines {"position", "at", "run_id", "name", "from", "to", "rule"}.

    \b
    Examples:
      steno replay
      steno replay incident.jsonl.zst --rules 2025-12-sdk
      steno replay incident.jsonl.zst --diff 2025-12-sdk
      steno replay incident.steno
      steno replay --diff rules/site.toml
      steno replay --dask tcp://10.0.0.5:8786 --rules 2025-12-sdk
      steno replay --until 2026-11-20T15:00:00Z --json | jq '.runs[].state'
    """
    from steno.cli.render.replay import comparison, summary
    from steno.engine.fold.poll_reader import parse_until
    from steno.engine.replay.result import diff, diff_object
    from steno.engine.runtime.pools import pool

    if step and other is not None:
        raise click.UsageError("--step and --diff cannot be combined")
    limit = None if until is None else parse_until(until)
    chosen = jobs is not None or dask is not None
    with (
        pool(jobs, dask) as workers,
        history_of(app, history, lenient=lenient, workers=workers, chosen=chosen) as (replay, steps),
    ):
        left = folded(replay, rules, limit)
        if step:
            _walk(app, left, steps(rules, limit))
        elif other is None:
            show(app, left.to_json, lambda: summary(left, columns()))
        else:
            right = folded(replay, other, limit)
            differences = diff(left, right)
            if differences:
                app.exit_code = NOT_SUCCEEDED
            show(app, lambda: diff_object(left, right), lambda: comparison(left, right, differences))


def folded(replay: FoldContext, rules: str, limit: Until | None) -> Replay:
    named = "the rules in force" if rules == "adopted" else rules
    with progress(f"replaying under {named}") as advance:
        return replay(rules, limit, advance)


def _walk(app: App, whole: Replay, steps: Iterator[Step]) -> None:
    """Print each transition with the provider's words; on a terminal, one per key press."""
    from steno.cli.render.replay import step_lines, step_objects

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
def history_of(
    app: App, what: str | None, *, lenient: bool, workers: WorkPool | None, chosen: bool
) -> Iterator[History]:
    """The history an argument names: a trace file, `-`, a record's path or URL; None: the record of the settings."""
    if chosen and what is not None and not names_a_record(what):
        raise click.UsageError("a trace is folded in one piece: --jobs and --dask are for records")
    if what == "-":
        with tempfile.NamedTemporaryFile(prefix="steno-", suffix=".jsonl") as file:  # it may be folded twice
            shutil.copyfileobj(sys.stdin.buffer, file)
            file.flush()
            yield from _trace(file.name, lenient=lenient)
    elif what is not None and not names_a_record(what):
        from steno.cli.wiring.files import existing

        yield from _trace(existing(what), lenient=lenient)
    else:
        from steno.engine.replay.replay import replay_record, step_record

        if what is not None:
            app.set_flag("record", what)
        with app.reading() as record:
            yield (partial(replay_record, record, pool=workers), partial(step_record, record))


def _trace(path: str, *, lenient: bool) -> Iterator[History]:
    """The polls of a trace, with line numbers as positions; prints which lines were skipped."""
    from steno.engine.replay.replay import replay_trace, step_trace

    broken: set[int] = set()
    yield (partial(replay_trace, path, lenient=lenient, broken=broken.add), partial(step_trace, path, lenient=lenient))
    if broken:
        first = f"line {min(broken)}" if len(broken) == 1 else f"the first is line {min(broken)}"
        say(f"{count(len(broken), 'broken line')} skipped: {first}")


def names_a_record(what: str) -> bool:
    if "://" in what or is_bundle(what):
        return True
    path = Path(what)
    if not path.is_file():
        return path.suffix not in {".jsonl", ".zst", ".json"}
    with path.open("rb") as file:
        return file.read(len(SQLITE)) == SQLITE or path.suffix in {".db", ".sqlite"}
