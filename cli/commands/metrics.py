"""`steno metrics`: the figures that a front end shows."""

import click

from cli.wiring.app import App
from cli.wiring.options import at_option, common, pass_app
from cli.wiring.output import emit, emit_json


@click.command("metrics")
@at_option
@common
@pass_app
def command(app: App, at: str | None) -> None:
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

    from cli.wiring.books import books
    from engine.decide.budget import metrics

    with books(app, at) as found:
        figures = metrics(found.state, found.account)
    if app.json:
        emit_json(figures)
        return
    from cli.render import paint

    values = msgspec.structs.asdict(figures)
    emit(paint.table(("FIGURE", "VALUE"), [(name, _shown(value)) for name, value in values.items()], right=(1,)))


def _shown(value: float | None) -> str:
    return "–" if value is None else f"{value:g}" if isinstance(value, int) else f"{value:,.6g}"
