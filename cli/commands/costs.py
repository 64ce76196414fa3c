"""Commands about money: `costs`, `waste`, `estimate`, `metrics`."""

from __future__ import annotations

import csv
import sys
from typing import TYPE_CHECKING, Any, Literal, get_args

import click
import msgspec

from steno.cli.render import paint
from steno.cli.wiring.app import App, steno_command
from steno.cli.wiring.options import both_times_option, setting_option, user_option
from steno.cli.wiring.output import emit_csv, hint, show
from steno.cli.wiring.terminal import columns
from steno.cli.wiring.time_arguments import length, moment
from steno.cli.wiring.view import every_cost, policy_for, viewing
from steno.engine.state.policy import MINUTE, Policy
from steno.engine.wire import wire
from steno.events.errors import RecordNotFound

if TYPE_CHECKING:
    from steno.engine.money.daily import Stack, Strip
    from steno.engine.money.report import Measure
    from steno.projections.answers.costs import ChartRange
    from steno.projections.read_models.view import View

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
@user_option("Only what this user pays: runs, and machines kept.")
@click.option("--reconcile", is_flag=True, help="Our cost of each run beside the provider's, and why they differ.")
@both_times_option
def costs_command(
    app: App,
    by: By | None,
    form: str | None,
    as_csv: bool,
    chart: str | None,
    since: str | None,
    until: str | None,
    user: str | None,
    reconcile: bool,
    at: str | None,
) -> None:
    """A machine costs its time at the price in force at that time, up to the newest poll. A run pays for its own time
    and for the provisioning of the machine that was made for it. Idle time and tear-down are lines of their own, so the
    rows sum to the machines' bills exactly.

    Samples of the GPUs split busy time into working, idle inside (all GPUs below 5 % for 60 s or more) and unknown.

    With --json: {"by", "rows": [{"key", "label", "total_usd", "on_demand_usd", "spot_usd", "machine_seconds", "lines",
    "busy"}], "total", "low_usd", "high_usd", "position"}; with --reconcile {"runs", "total", "position"}; with --chart
    {"spend", "utilisation", "starts", "position"}, those that were asked for. With --chart, --by is gpu or user, and vm
    for a strip for each machine. `steno estimate` says what a workload would cost.

    \b
    Examples:
      steno costs
      steno costs --by user --since 7d
      steno costs --by run --mine
      steno costs --by day --at 2026-11-20T15:00:00Z --json
      steno costs --format csv > focus.csv
      steno costs --reconcile
      steno costs --chart --by user --since 7d
      steno costs --chart utilisation --csv > use.csv
    """
    if chart is None and (since is not None or until is not None) and (reconcile or form == "csv"):
        raise click.UsageError("--reconcile and --format csv are of everything: leave --since and --until out")
    if user is not None and (chart is not None or reconcile or form == "csv"):
        raise click.UsageError("--user and --mine go with the table of --by: leave --chart, --reconcile and csv out")
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

    if form == "csv":
        from steno.engine.money.focus import focus_rows

        with every_cost(app, at) as (ledger, _):
            csv.writer(sys.stdout, lineterminator="\n").writerows(focus_rows(ledger))
        return
    with viewing(app, at) as (_, view, now):
        of = _range(app, (since, until), now)
        if reconcile:
            _reconciliation(app, view)
        elif as_csv:
            from steno.projections.answers.costs import costs

            emit_csv(costs(view.store, by or "vm", of, user).report)
        else:
            _report(app, view, by or "vm", of, user)


def _range(app: App, between: tuple[str | None, str | None], now: int) -> ChartRange | None:
    """The days asked for; None: all."""
    from steno.projections.answers.costs import ChartRange

    since, until = (None if text is None else moment(text, app.clock.now()) for text in between)
    if since is not None and since > min(now, now if until is None else until):
        raise click.BadParameter("--since is later than the end of the range")
    return None if since is None and until is None else ChartRange(since=since, until=until, now=now)


def _draw_charts(
    app: App, chart: str, by: str | None, between: tuple[str | None, str | None], at: str | None, *, as_csv: bool
) -> None:
    """Draw charts, or give them as JSON or CSV (of `days`: the spend). `by`: gpu, user or vm; `between`: its range."""
    from steno.cli.render import pictures as draw
    from steno.projections.answers import costs as charts

    stack: Stack = "gpu" if by == "gpu" else "user" if by == "user" else "line"
    strip: Strip = "vm" if by == "vm" else "gpu"
    drawn: dict[str, tuple[Any, Any]] = {}
    with viewing(app, at) as (_, view, now):
        span = _range(app, between, now) or charts.ChartRange(now=now)
        if chart in ("days", "spend"):
            drawn["spend"] = charts.spend(view.store, stack, span), draw.spend_chart
        if chart in ("days", "utilisation"):
            drawn["utilisation"] = charts.utilisation(view.store, strip, span), draw.utilisation_chart
        if chart == "starts":
            drawn["starts"] = charts.starts(view.store, span), draw.starts_chart
        position = view.position
    if as_csv:
        emit_csv(next(iter(drawn.values()))[0])
        return
    value = {name: wire(report) for name, (report, _) in drawn.items()} | {"position": position}
    texts = [text for report, made in drawn.values() if (text := made(report, columns()))]
    none = None if texts else "nothing to draw in this range; --since 2026-01-01 shows more days"
    show(app, value, "\n\n".join(texts), nothing=none)


def _report(app: App, view: View, by: By, of: ChartRange | None, user: str | None) -> None:
    from steno.cli.render.money import costs_table
    from steno.projections.answers.costs import costs

    report, lacking = costs(view.store, by, of, user).report, _without_price(view)
    if report.rows or app.json:
        show(app, wire(report) | {"position": view.position}, lambda: costs_table(report, columns()))
        if lacking:
            hint(lacking)
    else:
        empty = "nothing has cost anything yet; `steno vms` lists machines" if of is None else "nothing in this range"
        empty = empty if user is None else f"{empty}, of {user}"
        hint(lacking or _unpriced(app) or empty)


def _reconciliation(app: App, view: View) -> None:
    from steno.cli.render.money import reconciliation_page
    from steno.projections.answers.costs import costs, run_reconciliations

    runs, everything = run_reconciliations(view.store), costs(view.store, "vm").reconciliation
    value = {"runs": [wire(run) for run in runs], "total": wire(everything), "position": view.position}
    none = None if runs or everything.ours else _unpriced(app) or "nothing has cost anything yet, by either side"
    show(app, value, lambda: reconciliation_page(runs, everything, columns()), nothing=none)


def _without_price(view: View) -> str | None:
    """The machines that the total leaves out, because their provider gave them no price."""
    from steno.engine.fold.machines import UNPRICED

    odd = (anomaly.detail for name in view.state.sources for anomaly in view.anomalies_of(f"source/{name}"))
    models = [detail.removeprefix(UNPRICED).removeprefix("price: ") for detail in odd if detail.startswith(UNPRICED)]
    return f"not in the total, because machines had no price: {', '.join(models)}" if models else None


def _unpriced(app: App) -> str | None:
    missing = app.settings.unpriced(app.settings.provider)
    if missing is None:
        return None
    return f"no rate set: {missing} says what a machine of {app.settings.provider} costs; without it nothing is billed"


@steno_command("waste")
@click.option("--by", type=click.Choice(["user", "run", "gpu"]), default="user", help="What a row is; default: a user.")
@click.option("--since", metavar="TIME", help="Begin with this day (UTC); default: 30 days.")
@both_times_option
def waste_command(app: App, by: Literal["user", "run", "gpu"], since: str | None, at: str | None) -> None:
    """Idle inside is busy time of runs in which all their GPUs were below 5 %, idle between that of machines without a
    run. Unused GPUs are the share of GPUs that never reached 5 % in the working time. Runs without samples are unknown.
    Below is what to ask for next time.

    With --json: {"by", "days", "rows": [{"key", "label", "wasted_usd", "usd", "seconds", "runs", "unknown_runs"}],
    "total", "advice": [{"name", "user", "resource", "asked", "runs", "used", "ask", "busy_usd"}], "position"}.

    \b
    Examples:
      steno waste --since 7d
      steno waste --by run --json | jq '.advice[] | {name, resource, ask}'
    """
    from steno.cli.render.money import waste_page
    from steno.projections.answers.costs import ChartRange
    from steno.projections.answers.waste import waste

    with viewing(app, at) as (_, view, now):
        report = waste(view, by, _range(app, (since, None), now) or ChartRange(now=now))
        value = wire(report) | {"position": view.position}
        none = None if report.rows else "nothing was paid for in this range; --since 2026-01-01 begins earlier"
        show(app, value, lambda: waste_page(report, columns()), nothing=none)


@steno_command("metrics")
@both_times_option
def metrics_command(app: App, at: str | None) -> None:
    """These are cost, credits left, tasks, cold starts and warm reuses, and live machines. With --json:
    {"total_cost_usd", "remaining_credits_usd", "credits_used_pct", "tasks_completed", "cold_starts", "warm_reuses",
    "active_vms"}: all numbers, percent to one decimal; tasks_completed is cold_starts + warm_reuses, active_vms every
    machine that may be billed. Null only where there is no budget.

    \b
    Examples:
      steno metrics --json
      steno metrics --json | jq .credits_used_pct
    """
    with viewing(app, at) as (_, view, now):
        figures = view.figures(policy_for(app, view, at), now)
    rows = [
        (name, "–" if value is None else f"{value:g}" if isinstance(value, int) else f"{value:,.6g}")
        for name, value in msgspec.structs.asdict(figures).items()
    ]
    show(app, figures, paint.table(("FIGURE", "VALUE"), rows, right=(1,)))


@steno_command("estimate")
@click.option("--runs-per-day", "-n", type=click.IntRange(1, 100_000), default=30, show_default=True, metavar="N")
@click.option(
    "--minutes",
    "-m",
    type=click.FloatRange(0, 100_000),
    default=7,
    show_default=True,
    metavar="N",
    help="How long one run takes.",
)
@click.option("--gpu", metavar="NAME", default="MI300X", show_default=True, help="GPU whose machine's price is used.")
@setting_option("--idle-timeout", "vms.idle_timeout", metavar="TIME", help="As 10m; else the setting vms.idle_timeout.")
@click.option("--start", metavar="TIME", help="How long a machine takes to start; else the record's median, else 2m.")
@both_times_option
def estimate_command(app: App, runs_per_day: int, minutes: float, gpu: str, start: str | None, at: str | None) -> None:
    """It compares a cold and a warm run, and what a month costs. Below the estimate is what this record measured: start
    times, idle shutdowns and the cost of a task, beside their targets. `--at` is a moment of the record.

    With --json: {"inputs", "cold_usd", "warm_usd", "months": [{"pattern", "machine_seconds", "cost_usd", "saved_usd",
    "budget_months"}], "reuse_pays_from_runs", "measures": [{"name", "median", "target", "met", …}], "position"}.

    \b
    Examples:
      steno estimate
      steno estimate --runs-per-day 30 --minutes 7 --gpu MI300X --idle-timeout 10m
      steno estimate -n 200 -m 0.5 --json | jq '.months[] | {pattern, cost_usd}'
    """
    from steno.cli.render.money import estimate_object, estimate_page
    from steno.engine.money.estimate import Workload, estimate
    from steno.engine.settings.settings import policy_from

    (measured, position), policy = _measured(app, at), policy_from(app.settings)
    typical = next((measure.median for measure in measured if measure.name == "cold start"), None)
    given = Workload(
        hourly=_price(policy, gpu),
        idle_timeout=policy.idle_timeout,
        runs_per_day=runs_per_day,
        run=round(minutes * MINUTE),
        provisioning=length(start) if start is not None else typical or 2 * MINUTE,
        budget=policy.budget_total,
    )
    result = estimate(given)
    value = estimate_object(given, result, gpu, measured) | {"position": position}
    how = "given" if start is not None else "the median of this record" if typical else "assumed"
    show(app, value, lambda: estimate_page(given, result, gpu, how, measured, columns()))


def _measured(app: App, at: str | None) -> tuple[tuple[Measure, ...], int]:
    """The measures of the record, and its position; nothing without a record."""
    from steno.engine.money.report import performance

    try:
        with every_cost(app, at) as (costs, position):
            return tuple(measure for measure in performance(costs) if measure.count), position
    except RecordNotFound:
        if at is not None or app.known is not None:
            raise
        return (), 0


def _price(policy: Policy, gpu: str) -> int:
    """Micro-dollars an hour of a machine with this GPU."""
    rates = {
        price.gpu: price.hourly for price in (*type(policy)().assumed, *policy.assumed, *policy.rates) if price.gpu
    }
    if not gpu.strip() or set(gpu) & set(":, "):
        raise click.UsageError(f"--gpu: {gpu!r} is not a GPU model; write one model without vendor and number: MI300X")
    chosen = {name.lower(): hourly for name, hourly in rates.items()}.get(gpu.lower())
    if chosen is None:
        known = ", ".join(sorted(rates))
        raise click.UsageError(f"no price for {gpu}: set rates.{gpu} to dollars an hour, or name one of {known}")
    return chosen
