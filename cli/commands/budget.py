"""`steno budget`: what is spent, what is promised, what is left, and until when."""

import click

from cli.wiring.app import App
from cli.wiring.options import at_option, common, pass_app
from cli.wiring.output import emit, emit_json
from cli.wiring.terminal import columns


@click.command("budget")
@at_option
@common
@pass_app
def command(app: App, at: str | None) -> None:
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
    from cli.wiring.books import books
    from projections.models.money_objects import budget_object
    from projections.models.wire import wire

    with books(app, at, every_run=False) as found:
        account = found.account
        if app.json:
            emit_json(wire(budget_object(account, found.state, found.policy)) | {"position": found.position})
        else:
            emit(budget_page(account, found.state, found.policy, found.now, columns()))
