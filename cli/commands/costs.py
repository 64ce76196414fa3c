"""`steno costs`, `steno budget` and `steno metrics`: what everything cost, what is left, a front end's figures."""

from __future__ import annotations

import csv
import sys
from typing import TYPE_CHECKING, Any, Literal, get_args

import click

from cli.wiring.app import App, steno_command
from cli.wiring.options import at_option
from cli.wiring.output import emit_csv, hint, show
from cli.wiring.terminal import columns

if TYPE_CHECKING:
    from engine.money.daily import Stack, Strip
    from projections.models.charts import ChartRange
    from projections.models.view import View

By = Literal["vm", "run", "day", "user", "gpu"]
CHARTS = ("days", "spend", "utilisation", "starts")


@steno_command("costs")
@click.option("--by", type=click.Choice(get_args(By)), help="What each row is; default: a machine.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "csv", "json"]),
    help="csv: every charge as a line, in FOCUS's column names.",
)
@click.option("--csv", "as_csv", is_flag=True, help="The table, or the table of the chart, as CSV.")
@click.option(
    "--chart",
    type=click.Choice(CHARTS),
    is_flag=False,
    flag_value="days",
    help="Draw a chart: spend by day, use of machines, or start-up times; `days` (the first two) if none is named.",
)
@click.option("--since", metavar="TIME", help="Begin with this day (UTC); default: all, of a chart 30 days.")
@click.option("--until", metavar="TIME", help="End with this day (UTC).")
@click.option("--reconcile", is_flag=True, help="Our cost of each run beside the provider's, and why they differ.")
@at_option
def costs_command(
    app: App,
    by: By | None,
    form: str | None,
    as_csv: bool,
    chart: str | None,
    since: str | None,
    until: str | None,
    reconcile: bool,
    at: str | None,
) -> None:
    """Show costs: machine time at the price in force at that time, up to the newest poll.

    A run pays for its own time and for the provisioning of the machine that was made for it. Idle time and tear-down
    are lines of their own, so the rows sum to the machines' bills exactly.

    With --json: {"by", "rows": [{"key", "label", "total_usd", "on_demand_usd", "spot_usd", "machine_seconds",
    "lines"}], "total", "low_usd", "high_usd", "position"}; with --reconcile {"runs", "total", "position"}; with --chart
    {"spend", "utilisation", "starts", "position"}, those that were asked for. With --chart, --by is gpu or user, and vm
    for a strip for each machine. `steno estimate` says what a workload would cost.

    \b
    Examples:
      steno costs
      steno costs --by user --since 7d
      steno costs --by day --at 2026-11-20T15:00:00Z --json
      steno costs --format csv > focus.csv
      steno costs --reconcile
      steno costs --chart --by user --since 7d
      steno costs --chart utilisation --csv > use.csv
    """
    if chart is None and (since is not None or until is not None) and (reconcile or form == "csv"):
        raise click.UsageError("--reconcile and --format csv are of everything: leave --since and --until out")
    if chart is not None:
        if reconcile or form == "csv" or by in ("run", "day"):
            raise click.UsageError("--chart goes with --by gpu, user or vm, --since, --until, --csv and --json only")
        app.json = app.json or form == "json"
        _draw_charts(app, chart, by, (since, until), at, as_csv=as_csv)
        return
    if as_csv and (reconcile or form is not None):
        raise click.UsageError("--csv is the table of --by: leave --reconcile and --format out")
    if reconcile and (by is not None or form == "csv"):
        raise click.UsageError("--reconcile is a page of its own: leave --by and --format csv out")
    if form == "csv" and by is not None:
        raise click.UsageError("csv lists every charge, with machine, run, day, user and GPU: leave --by out")
    app.json = app.json or form == "json"
    from cli.wiring.view import every_cost, viewing

    if form == "csv":
        from engine.money.focus import focus_rows

        with every_cost(app, at) as (found, _):
            csv.writer(sys.stdout, lineterminator="\n").writerows(focus_rows(found))
        return
    with viewing(app, at) as (_, view, now):
        of = _range(app, (since, until), now)
        if reconcile:
            _reconciliation(app, view)
        elif as_csv:
            from projections.models.costs import costs

            emit_csv(costs(view.store, by or "vm", of).report)
        else:
            _report(app, view, by or "vm", of)


def _range(app: App, between: tuple[str | None, str | None], now: int) -> ChartRange | None:
    """The days asked for; None: all."""
    from cli.wiring.time_arguments import moment
    from projections.models.charts import ChartRange

    since, until = (None if text is None else moment(text, app.clock.now()) for text in between)
    if since is not None and since > min(now, now if until is None else until):
        raise click.BadParameter("--since is later than the end of the range")
    return None if since is None and until is None else ChartRange(since=since, until=until, now=now)


def _draw_charts(
    app: App, chart: str, by: str | None, between: tuple[str | None, str | None], at: str | None, *, as_csv: bool
) -> None:
    """Draw charts, or give them as JSON or CSV (of `days`: the spend). `by`: gpu, user or vm; `between`: its range."""
    from cli.render import charts as draw
    from cli.wiring.view import viewing
    from engine.wire import wire
    from projections.models import charts

    stack: Stack = "gpu" if by == "gpu" else "user" if by == "user" else "line"
    strip: Strip = "vm" if by == "vm" else "gpu"
    drawn: dict[str, tuple[Any, Any]] = {}
    with viewing(app, at) as (_, view, now):
        shown = _range(app, between, now) or charts.ChartRange(now=now)
        if chart in ("days", "spend"):
            drawn["spend"] = charts.spend(view.store, stack, shown), draw.spend_chart
        if chart in ("days", "utilisation"):
            drawn["utilisation"] = charts.utilisation(view.store, strip, shown), draw.utilisation_chart
        if chart == "starts":
            drawn["starts"] = charts.starts(view.store, shown), draw.starts_chart
        position = view.position
    if as_csv:
        emit_csv(next(iter(drawn.values()))[0])
        return
    value = {name: wire(report) for name, (report, _) in drawn.items()} | {"position": position}
    texts = [text for report, made in drawn.values() if (text := made(report, columns()))]
    if texts or app.json:
        show(app, value, "\n\n".join(texts))
    else:
        hint("nothing to draw in this range; --since 2026-01-01 shows more days")


def _report(app: App, view: View, by: By, of: ChartRange | None) -> None:
    from cli.render.money import costs_table
    from engine.wire import wire
    from projections.models.costs import costs

    report, lacking = costs(view.store, by, of).report, _without_price(view)
    if report.rows or app.json:
        show(app, wire(report) | {"position": view.position}, lambda: costs_table(report, columns()))
        if lacking:
            hint(lacking)
    else:
        said = "nothing has cost anything yet; `steno vms` lists machines" if of is None else "nothing in this range"
        hint(lacking or _unpriced(app) or said)


def _reconciliation(app: App, view: View) -> None:
    from cli.render.money import reconciliation_page
    from engine.wire import wire
    from projections.models.costs import costs, run_reconciliations

    runs, everything = run_reconciliations(view.store), costs(view.store, "vm").reconciliation
    if app.json or runs or everything.ours:
        value = {"runs": [wire(one) for one in runs], "total": wire(everything), "position": view.position}
        show(app, value, lambda: reconciliation_page(runs, everything, columns()))
    else:
        hint(_unpriced(app) or "nothing has cost anything yet, by either side")


def _without_price(view: View) -> str | None:
    """What the total leaves out: machines whose provider gave them no price."""
    from engine.fold.machines import UNPRICED

    odd = (one.detail for name in view.state.sources for one in view.anomalies_of(f"source/{name}"))
    found = [detail.removeprefix(UNPRICED).removeprefix("price: ") for detail in odd if detail.startswith(UNPRICED)]
    return f"not in the total, because machines had no price: {', '.join(found)}" if found else None


def _unpriced(app: App) -> str | None:
    missing = app.settings.unpriced(app.settings.provider)
    if missing is None:
        return None
    return f"no rate set: {missing} says what a machine of {app.settings.provider} costs; without it nothing is billed"


@steno_command("budget")
@at_option
def budget_command(app: App, at: str | None) -> None:
    """Show where the budget stands: spent, committed, remaining, burn rate, and when it is used up.

    Spent is every machine's bill to the newest poll; committed is the worst that live runs and machines may still
    cost. A submission whose own worst case does not fit into what is left is refused (exit 6), with the arithmetic.
    The total and the alert thresholds are those that the process that acts on the record has adopted, from its settings
    budget.total and budget.alerts; a hint names those that differ in this shell. Before that, this shell's are used.

    With --json: {"total_usd", "spent_usd", "committed_usd", "remaining_usd", "available_usd", "used_pct",
    "spent_24h_usd", "rate_now_usd_per_hour", "burn_rate_usd_per_hour", "forecast" (no_budget, used_up, too_early,
    never, dated), "exhausted_at", "alerts": [{"threshold", "reached", "told_at_position"}], "position"}; null where
    there is no budget. A forecast needs 24 hours since the first machine.

    \b
    Examples:
      steno budget
      steno budget --json | jq -r .remaining_usd
      AMD_GRANT_CREDITS_TOTAL=500 steno budget
    """
    from cli.render.money import budget_page
    from cli.wiring.view import policy_for, viewing
    from engine.wire import wire

    with viewing(app, at) as (_, view, now):
        standing = view.account(policy_for(app, view, at), now)
        value = wire(standing) | {"position": view.position}
        show(app, value, lambda: budget_page(standing, now, columns()))


@steno_command("metrics")
@at_option
def metrics_command(app: App, at: str | None) -> None:
    """Print the figures a front end shows: cost, credits left, tasks, cold starts and warm reuses, live machines.

    With --json: {"total_cost_usd", "remaining_credits_usd", "credits_used_pct", "tasks_completed", "cold_starts",
    "warm_reuses", "active_vms"}: all numbers, percent to one decimal; tasks_completed is cold_starts + warm_reuses,
    active_vms every machine that may be billed. Null only where there is no budget.

    \b
    Examples:
      steno metrics --json
      steno metrics --json | jq .credits_used_pct
    """
    import msgspec

    from cli.render import paint
    from cli.wiring.view import policy_for, viewing

    with viewing(app, at) as (_, view, now):
        figures = view.figures(policy_for(app, view, at), now)
    rows = [
        (name, "–" if value is None else f"{value:g}" if isinstance(value, int) else f"{value:,.6g}")
        for name, value in msgspec.structs.asdict(figures).items()
    ]
    show(app, figures, paint.table(("FIGURE", "VALUE"), rows, right=(1,)))
