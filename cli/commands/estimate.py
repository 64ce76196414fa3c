"""`steno estimate`: what so many runs a day would cost, and what this record measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cli.wiring.app import App, steno_command
from cli.wiring.options import at_option, setting_option
from cli.wiring.output import show
from cli.wiring.terminal import columns
from engine.policy import MINUTE

if TYPE_CHECKING:
    from engine.money.report import Measure
    from engine.policy import Policy


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
@at_option
def estimate_command(app: App, runs_per_day: int, minutes: float, gpu: str, start: str | None, at: str | None) -> None:
    """Estimate what a workload costs: a cold and a warm run, a month with and without reuse of machines.

    Below the estimate is what this record measured: start times, idle shutdowns and the cost of a task, beside
    their targets. `--at` is a moment of the record.

    With --json: {"inputs", "cold_usd", "warm_usd", "months": [{"pattern", "machine_seconds", "cost_usd", "saved_usd",
    "budget_months"}], "reuse_pays_from_runs", "measures": [{"name", "median", "target", "met", …}], "position"}.

    \b
    Examples:
      steno estimate
      steno estimate --runs-per-day 30 --minutes 7 --gpu MI300X --idle-timeout 10m
      steno estimate -n 200 -m 0.5 --json | jq '.months[] | {pattern, cost_usd}'
    """
    from cli.render.estimate import estimate_object, estimate_page
    from cli.wiring.time_arguments import length
    from engine.money.estimate import Workload, estimate
    from engine.settings.policy import policy_from

    (measured, position), policy = _measured(app, at), policy_from(app.settings)
    typical = next((one.median for one in measured if one.name == "cold start"), None)
    given = Workload(
        hourly=_price(policy, gpu),
        idle_timeout=policy.idle_timeout,
        runs_per_day=runs_per_day,
        run=round(minutes * MINUTE),
        provisioning=length(start) if start is not None else typical or 2 * MINUTE,
        budget=policy.budget_total,
    )
    found = estimate(given)
    value = estimate_object(given, found, gpu, measured) | {"position": position}
    how = "given" if start is not None else "the median of this record" if typical else "assumed"
    show(app, value, lambda: estimate_page(given, found, gpu, how, measured, columns()))


def _measured(app: App, at: str | None) -> tuple[tuple[Measure, ...], int]:
    """What the record measured, and its position; nothing without a record."""
    from cli.wiring.view import every_cost
    from engine.money.report import performance
    from events.errors import RecordNotFound

    try:
        with every_cost(app, at) as (costs, position):
            return tuple(one for one in performance(costs) if one.count), position
    except RecordNotFound:
        if at is not None:
            raise
        return (), 0


def _price(policy: Policy, gpu: str) -> int:
    """Micro-dollars an hour of a machine with this GPU."""
    rates = {one.gpu: one.hourly for one in (*type(policy)().assumed, *policy.assumed, *policy.rates) if one.gpu}
    found = {name.lower(): hourly for name, hourly in rates.items()}.get(gpu.lower())
    if found is None:
        known = ", ".join(sorted(rates))
        raise click.UsageError(f"no price for {gpu}: set rates.{gpu} to dollars an hour, or name one of {known}")
    return found
