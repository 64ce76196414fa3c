"""`steno costs`: what everything cost, from the bills of the machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import click

from cli.wiring.app import App
from cli.wiring.options import at_option, common, pass_app
from cli.wiring.output import emit, emit_json, hint
from cli.wiring.terminal import columns

if TYPE_CHECKING:
    from cli.money import Books

By = Literal["vm", "run", "day", "user", "gpu"]
_VIEWS = ("performance", "reconcile", "project")


@click.command("costs")
@click.option(
    "--by", type=click.Choice(["vm", "run", "day", "user", "gpu"]), help="What a row stands for; else a machine."
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "csv", "json"]),
    help="csv: every charge as a line, in FOCUS's column names.",
)
@click.option("--performance", is_flag=True, help="Start times, idle shutdown and cost per task beside their targets.")
@click.option("--reconcile", is_flag=True, help="Our cost of each run beside the provider's, and why they differ.")
@click.option("--project", is_flag=True, help="What starts, idling, reuse and a month cost, calculated.")
@at_option
@common
@pass_app
def command(
    app: App, by: By | None, form: str | None, performance: bool, reconcile: bool, project: bool, at: str | None
) -> None:
    """Show costs: machine time at the price in force at that time, up to the newest poll.

    A run pays for its own time and for the provisioning of the machine that was made for it. Idle time and tear-down
    are lines of their own, so the rows sum to the machines' bills exactly.

    With --json: {"by", "rows": [{"key", "label", "total_usd", "on_demand_usd", "spot_usd", "machine_seconds",
    "lines"}], "total", "low_usd", "high_usd", "position"}; with --performance {"measures", "position"}, with
    --reconcile {"runs", "total", "position"}, with --project {"inputs", "claims"}.

    \b
    Examples:
      steno costs
      steno costs --by user
      steno costs --by day --at 2026-11-20T15:00:00Z --json
      steno costs --format csv > focus.csv
      steno costs --performance
      steno costs --project
    """
    chosen = [name for name, wanted in zip(_VIEWS, (performance, reconcile, project), strict=True) if wanted]
    if len(chosen) > 1:
        raise click.UsageError(f"--{chosen[0]} and --{chosen[1]} are two different pages: ask for one")
    if chosen and (by is not None or form == "csv"):
        raise click.UsageError(f"--{chosen[0]} is a page of its own: leave --by and --format csv out")
    if form == "csv" and by is not None:
        raise click.UsageError("csv lists every charge, with machine, run, day, user and GPU: leave --by out")
    app.json = app.json or form == "json"
    if project:
        from cli.costs_pages import projected

        if at is not None:
            raise click.UsageError("--project reckons from assumptions, not from the record: leave --at out")
        projected(app)
        return
    from cli.money import books

    with books(app, at) as found:
        if performance:
            from cli.costs_pages import measured

            measured(app, found)
        elif reconcile:
            from cli.costs_pages import reconciled

            reconciled(app, found)
        elif form == "csv":
            from cli.costs_pages import focus

            focus(found)
        else:
            _report(app, found, by or "vm")


def _report(app: App, found: Books, by: By) -> None:
    from engine.money.report import cost_report

    report = cost_report(found.costs, by)
    from cli.render.money import costs_table
    from projections.models.money_objects import report_object

    if app.json:
        emit_json(report_object(report) | {"position": found.position})
        return
    if not report.rows:
        hint("nothing has cost anything yet; `steno vms` lists machines")
        return
    emit(costs_table(report, columns()))
