"""`steno budget` and `steno metrics`: what is spent, promised and left, and the figures of a front end."""

from cli.wiring.app import App, steno_command
from cli.wiring.options import at_option
from cli.wiring.output import show
from cli.wiring.terminal import columns


@steno_command("budget")
@at_option
def budget_command(app: App, at: str | None) -> None:
    """Show where the budget stands: spent, committed, remaining, burn rate, and when it is used up.

    Spent is every machine's bill to the newest poll; committed is the worst that live runs and machines may still
    cost. A submission whose own worst case does not fit into what is left is refused (exit 6), with the arithmetic.
    The total and the alert thresholds are the settings budget.total and budget.alerts.

    With --json: {"total_usd", "spent_usd", "committed_usd", "remaining_usd", "available_usd", "used_pct",
    "spent_24h_usd", "rate_now_usd_per_hour", "burn_rate_usd_per_hour", "exhausted_at", "alerts": [{"threshold",
    "reached", "told_at_position"}], "position"}; null where there is no budget.

    \b
    Examples:
      steno budget
      steno budget --json | jq -r .remaining_usd
      AMD_GRANT_CREDITS_TOTAL=500 steno budget
    """
    from cli.render.money import budget_page
    from cli.wiring.view import books
    from engine.decide.budget import account
    from projections.models.money_objects import budget_object
    from projections.models.wire import wire

    with books(app, at, every_run=False) as found:
        standing = account(found.state, found.policy, found.now)
        value = wire(budget_object(standing, found.state, found.policy)) | {"position": found.position}
        show(app, value, lambda: budget_page(standing, found.state, found.policy, found.now, columns()))


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
    from cli.wiring.view import books
    from engine.decide.budget import account, metrics

    with books(app, at) as found:
        figures = metrics(found.state, account(found.state, found.policy, found.now))
    rows = [(name, _shown(value)) for name, value in msgspec.structs.asdict(figures).items()]
    show(app, figures, paint.table(("FIGURE", "VALUE"), rows, right=(1,)))


def _shown(value: float | None) -> str:
    return "–" if value is None else f"{value:g}" if isinstance(value, int) else f"{value:,.6g}"
