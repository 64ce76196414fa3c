"""`steno replay`: any history folded again, under any rules."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from cli.wiring.app import App
from cli.wiring.errors import NOT_SUCCEEDED
from cli.wiring.options import common, pass_app
from cli.wiring.output import emit, emit_json, emit_json_line
from cli.wiring.terminal import columns

if TYPE_CHECKING:
    from cli.wiring.replay_source import History
    from engine.replay.result import Replay
    from engine.replay.until import Until

_NAMES = ("current", "2025-12-sdk", "2025-12-sdk-enum", "2025-12-sdk-stale", "2025-12-fix")


@click.command("replay")
@click.argument("history", metavar="[RECORD|TRACE]", required=False)
@click.option(
    "--rules", type=click.Choice(_NAMES), default="current", show_default=True, help="The rules to fold with."
)
@click.option("--diff", "other", type=click.Choice(_NAMES), help="Show where these rules say something else.")
@click.option("--until", metavar="TIME|POSITION", help="Fold no further than this.")
@click.option("--step", is_flag=True, help="Walk through the transitions one by one.")
@click.option("--lenient", is_flag=True, help="Skip lines of a trace that are broken.")
@common
@pass_app
def command(
    app: App, history: str | None, rules: str, other: str | None, until: str | None, step: bool, lenient: bool
) -> None:
    """Fold a record or a trace again, under any rules; nothing is written.

    Without an argument the record is folded. TRACE is a .jsonl or .jsonl.zst file, or - for standard input; its
    positions are line numbers. With --diff the exit code is 1 where the two rule sets disagree about a run.

    With --json: {"rules", "events", "runs", "vms", "anomalies", "blind"}; with --diff {"rules", "events", "runs",
    "differences"}; with --step JSON Lines {"position", "at", "run_id", "name", "from", "to", "rule"}.

    \b
    Rule sets:
      current             ours: the newest decisive observation gives the verdict
      2025-12-sdk         the first poller: terminating or terminated is failure
      2025-12-sdk-enum    no status ever matches: all fail after ten minutes
      2025-12-sdk-stale   only the first observation of a name counts
      2025-12-fix         the first poller repaired

    \b
    Examples:
      steno replay
      steno replay incident.jsonl.zst --rules 2025-12-sdk
      steno replay incident.jsonl.zst --diff 2025-12-sdk
      steno replay --until 2026-11-20T15:00:00Z --json | jq '.runs[].state'
    """
    from cli.wiring.replay_source import opened
    from engine.replay.until import parse_until

    if step and other is not None:
        raise click.UsageError("--step walks through one rule set's history: leave --diff out, or --step")
    limit = None if until is None else parse_until(until)
    with opened(app, history, lenient=lenient) as found:
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
    """Each transition with what the provider said; a key press apart on a terminal, all at once elsewhere."""
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
