"""`steno cases`: every case that the rules ever saw, and what each rule set makes of it."""

import click

from steno.cli.commands.replay import RuleSetName
from steno.cli.wiring.app import App, steno_command
from steno.cli.wiring.options import at_option
from steno.cli.wiring.output import emit_csv, show
from steno.cli.wiring.terminal import columns
from steno.cli.wiring.view import viewing
from steno.engine.wire import wire

_STATES = ("queued", "provisioning", "pulling", "running", "finishing", "succeeded", "failed", "stopped")


@steno_command("cases")
@click.argument("case", required=False, type=click.IntRange(min=1))
@click.option(
    "--diff", "parting", nargs=2, metavar="A B", type=RuleSetName(), help="Only cases that these two judge differently."
)
@click.option(
    "--state", metavar="STATE", type=click.Choice(_STATES), help="Only cases that lead to this state: queued, failed …"
)
@click.option("--unseen", is_flag=True, help="The rules that no observation has reached yet.")
@click.option("--csv", "as_csv", is_flag=True, help="The list as CSV.")
@at_option
def cases_command(
    app: App,
    case: int | None,
    parting: tuple[str, str] | None,
    state: str | None,
    unseen: bool,
    as_csv: bool,
    at: str | None,
) -> None:
    """A case is all that a rule sees of one observation of a run: statuses, causes, ends and exit statuses, nothing
    that names a run or a time. A history has few, so a rule set is a table with a row for each. CASE is a number of the
    list: it is shown with runs that had it, and the polls that showed it.

    SEEN counts how often a run came to show the case; a poll that repeats it does not count. A state is that of the
    first rule set listed: `current`, or A of --diff.

    With --json: {"cases": [{"case", "words", "observations", "runs", "first_position", "first_at", "last_position",
    "last_at", "example", "sees", "judged": [{"rules", "rule", "state", "reason", "exit_status", "ended", "words"}]}],
    "position"}; with CASE one of these with "examples": [{"run_id", "name", "position", "at"}]; with --unseen
    {"unseen": [{"rules", "rule", "words", "sees", "judged"}], "position"}.

    \b
    Examples:
      steno cases
      steno cases 3
      steno cases --state failed
      steno cases --unseen
      steno cases --diff current current
      steno cases --csv > cases.csv
      steno cases --json | jq '.cases[] | select(.runs == 1)'
    """
    from steno.cli.render.cases import case_facts, case_table, unseen_table
    from steno.engine.providers.registry import rules_named
    from steno.engine.state.states import State
    from steno.projections.answers.cases import case_page, case_report, case_sets, unseen_rules

    lists = parting is not None or state is not None or as_csv
    if case is not None and (lists or unseen):
        raise click.UsageError("one case is shown alone: leave --diff, --state, --unseen and --csv out")
    if unseen and lists:
        raise click.UsageError("--unseen lists rules: leave --diff, --state and --csv out")
    sets = case_sets(*(rules_named(name, files=True) for name in parting or ()))
    with viewing(app, at) as (record, view, _):
        position = view.position
        if case is not None:
            page = case_page(record, view, case, sets)
            show(app, wire(page) | {"position": position}, lambda: case_facts(page))
            return
        if unseen:
            rules = unseen_rules(view.state, sets)
            value = {"unseen": [wire(rule) for rule in rules], "position": position}
            show(app, value, lambda: unseen_table(rules, columns()))
            return
        chosen = None if state is None else State(state)
        report = case_report(record, view, sets, state=chosen, parting=parting is not None)
    if as_csv:
        emit_csv(report)
        return
    none = "no such case in this record" if lists else "no case yet: no poll has shown a run"
    value = wire(report) | {"position": position}
    show(app, value, lambda: case_table(report, columns()), nothing=None if report.cases else none)
