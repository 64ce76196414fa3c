"""`steno rules diff`: the runs that a rule set changes; `steno bisect`: where two part about one run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from steno.cli.commands.replay import RuleSetName, folded, history_of, names_a_record
from steno.cli.wiring.app import App, steno_command
from steno.cli.wiring.errors import NOT_SUCCEEDED
from steno.cli.wiring.options import completed_runs, pool_options
from steno.cli.wiring.output import emit, progress, show
from steno.cli.wiring.view import caught_up_view
from steno.engine.wire import wire

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from steno.cli.commands.replay import History
    from steno.projections.answers.rules_diff import RulesDiff


@steno_command("diff", short_help="Show the runs that change from one rule set to another.")
@click.argument("left", metavar="A", type=RuleSetName())
@click.argument("right", metavar="B", type=RuleSetName())
@click.argument("history", metavar="[RECORD|TRACE]", required=False)
@click.option("--decisions", is_flag=True, help="Fold in full: decisions carry a change to other runs.")
@click.option("--junit", metavar="FILE", type=click.Path(dir_okay=False), help="Write a JUnit report for CI.")
@click.option("--markdown", is_flag=True, help="Print Markdown.")
@pool_options
def diff(
    app: App,
    left: str,
    right: str,
    history: str | None,
    decisions: bool,
    junit: str | None,
    markdown: bool,
    jobs: int | None,
    dask: str | None,
) -> None:
    """Show every run of which A and B make another history, with the first event at which the two part, and what it
    costs under both. The exit code is 1 if there is one.

    Two rule sets that see cases (`steno cases`) are compared case by case: a run without a case on which they differ
    has the same history under both, so only the others are folded again, and a record of ten million events takes a
    second where nothing differs. A rule set that sees more than cases, a TRACE, and --decisions are folded in full;
    the answer says so, and --jobs or --dask fold pieces of a record at once.

    If no run differs, the smallest case on which the two would is shown: one of the record's, else a generated one.

    With --json: {"rules", "how": "cases"|"full", "why", "events", "folded", "changes": [{"run_id", "name", "verdict",
    "position", "left", "right"}], "costs": [{"subject", "left", "right"}], "smallest": {"case", "words", "sees",
    "left", "right"} or null}. "verdict" is false where only the states on the way differ.

    \b
    Examples:
      steno rules diff current 2025-12-sdk
      steno rules diff current 2025-12-sdk incident.jsonl.zst
      steno rules diff current 2025-12-fix --junit rules.xml
      steno rules diff current 2025-12-fix --markdown >> "$GITHUB_STEP_SUMMARY"
      steno rules diff current 2025-12-fix --json | jq -r '.changes[] | .name'
    """
    from steno.cli.render.rules_diff import diff_markdown, diff_text, junit_of
    from steno.engine.runtime.pools import pool

    if markdown and app.json:
        raise click.UsageError("--markdown and --json cannot be combined")
    if junit is not None and not Path(junit).parent.is_dir():
        raise click.UsageError(f"--junit: {Path(junit).parent} is not a folder")
    is_trace = history is not None and (history == "-" or not names_a_record(history))
    if is_trace and decisions:
        raise click.UsageError("a trace has no decisions: --decisions is for records")
    if history is not None and not is_trace:
        app.set_flag("record", history)
    why = "a trace has no index of cases" if is_trace else "decisions depend on everything" if decisions else None
    with pool(jobs, dask) as workers:
        in_pieces = jobs is not None or dask is not None
        whole = history_of(app, history if is_trace else None, lenient=False, workers=workers, chosen=in_pieces)
        answer = _compared(app, (left, right), whole, why)
    if junit is not None:
        Path(junit).write_bytes(junit_of(answer))
    if answer.changes:
        app.exit_code = NOT_SUCCEEDED
    if markdown:
        emit(diff_markdown(answer))
    else:
        option = None if is_trace else f" --record {history}" if history is not None else ""
        show(app, lambda: wire(answer), lambda: diff_text(answer, option))


def _compared(
    app: App,
    names: tuple[str, str],
    whole: AbstractContextManager[History],
    why: str | None = None,
    only: str | None = None,
) -> RulesDiff:
    """The difference by the cases of the record; of the whole history if there is a reason `why`. Its rule sets have
    the names that the user gave: two files, or what was adopted and a file, may be of one name.
    """
    from steno.engine.providers.registry import rules_named
    from steno.engine.providers.rule_files import rule_files
    from steno.projections.answers.rules_diff import diff_by_cases, diff_in_full, why_in_full

    short = {str(path): name for name, path in rule_files(app.rules_folders).items()}
    labels = short.get(names[0], names[0]), short.get(names[1], names[1])
    if why is None:
        left, right = (rules_named(name, files=True) for name in names)
        with app.reading() as record:
            why = why_in_full(record, left, right)
            if why is None:
                with caught_up_view(record) as view, progress("folding the runs concerned") as advance:
                    return replace(diff_by_cases(record, view, left, right, advance, only=only), rules=labels)
    with whole as (replay, _):
        left_fold, right_fold = (folded(replay, name, None) for name in names)
    return replace(diff_in_full(left_fold, right_fold, why), rules=labels)


@steno_command("bisect")
@click.argument("run", metavar="RUN", shell_complete=completed_runs)
@click.argument("left", metavar="A", type=RuleSetName())
@click.argument("right", metavar="B", type=RuleSetName())
def bisect_command(app: App, run: str, left: str, right: str) -> None:
    """Show the first event at which two rule sets part about a run, and what was answered there. The exit code is 1 if
    they part.

    With --json: {"rules", "run_id", "name", "change": as in `steno rules diff`, or null, "poll": {"position", "kind",
    "at", "source", "path", "asked", "fields"} or null}.

    \b
    Examples:
      steno bisect my-run current 2025-12-sdk
      steno bisect my-run current 2025-12-sdk --json | jq .change.position
    """
    from steno.cli.render.rules_diff import parting_text
    from steno.projections.answers.evidence import quote_at

    with app.reading() as record, caught_up_view(record) as view:
        row = view.row(run)
        whole = history_of(app, None, lenient=False, workers=None, chosen=False)
        answer = _compared(app, (left, right), whole, only=row.run_id)
        change = next((each for each in answer.changes if each.run_id == row.run_id), None)
        poll = None if change is None or change.position is None else quote_at(record, change.position, row.provider_id)
    app.exit_code = NOT_SUCCEEDED if change is not None else app.exit_code
    value = {
        "rules": (left, right),
        "run_id": row.run_id,
        "name": row.name,
        "change": change and wire(change),
        "poll": poll and wire(poll),
    }
    show(app, value, lambda: parting_text(answer.rules, row.name or row.run_id, change, poll))
