"""`steno budget`: where the budget and the owners of runs stand, and moving budget between owners."""

import getpass

import click

from steno.cli.render import paint
from steno.cli.wiring.app import App, DefaultGroup
from steno.cli.wiring.options import both_times_option, why_option
from steno.cli.wiring.output import hint, show
from steno.cli.wiring.terminal import columns
from steno.cli.wiring.view import caught_up_view, newest, policy_for, viewing
from steno.engine.wire import dollars, usd, wire


@click.group("budget", cls=DefaultGroup, subcommand_metavar="[COMMAND] [ARGS]…")
def budget_command() -> None:
    """It also shows the burn rate, when the budget is used up, and what the month will cost. Spent is every machine's
    bill to the newest poll; committed is the worst that live runs and machines may still cost. A submission whose own
    worst case does not fit into what is left is refused (exit 6), with the arithmetic. The total and the alert
    thresholds are those that the process that acts on the record has adopted, from its settings budget.total and
    budget.alerts; a hint names those that differ in this shell. Before that, this shell's are used.

    Below are the owners that have limits in steno.toml ([limits.user.alice], also project, gpu and label): of budget,
    daily, gpu_hours, machines and runs. What an owner has spent is the high bound of bills, idle time after its runs
    included. --by shows every owner of a kind.

    With --json: {"total_usd", "spent_usd", "committed_usd", "remaining_usd", "available_usd", "used_pct",
    "spent_24h_usd", "rate_now_usd_per_hour", "burn_rate_usd_per_hour", "forecast" (no_budget, used_up, too_early,
    never, dated), "exhausted_at", "alerts": [{"threshold", "reached", "told_at_position"}], "position", "limits":
    [{"owner", "budget_usd", "moved_usd", "spent_usd", "committed_usd", "left_usd", "daily_usd", "today_usd",
    "gpu_hours", "gpu_hours_committed", "gpu_hours_limit", "machines", "machines_limit", "runs", "runs_limit",
    "waiting", "notes"}], "month": {"month", "low_usd", "best_usd", "high_usd", "level_percent", "checked", "held",
    "unknown", "used_up", …}}, with --by also "owners", as "limits"; null where there is no budget or limit. A forecast
    needs 24 hours since the first machine, that of the month seven whole days.

    \b
    Examples:
      steno budget
      steno budget --by user
      steno budget --json | jq -r .remaining_usd
      steno budget move 100 --from user/alice --to user/bob --why "deadline"
      AMD_GRANT_CREDITS_TOTAL=500 steno budget
    """


@budget_command.command("list", hidden=True)
@click.option("--by", type=click.Choice(["user", "project", "gpu", "label"]), help="Show every owner of this kind.")
@both_times_option
def listed(app: App, by: str | None, at: str | None) -> None:
    """Show the budget, and owners."""
    from steno.cli.render.money import budget_page, owners_table
    from steno.engine.decide.limits import unknown_owners
    from steno.projections.answers.owners import owner_standings
    from steno.projections.answers.report import USED_UP, forecast, month_lines

    with viewing(app, at) as (_, view, now):
        policy = policy_for(app, view, at)
        standing, limits = view.account(policy, now), owner_standings(view, policy, now)
        owners = limits if by is None else owner_standings(view, policy, now, by)
        month = forecast(view, policy, now)
        value = wire(standing) | {"position": view.position, "limits": [wire(owner) for owner in limits]}
        value["month"] = wire(month)
        if by is not None:
            value["owners"] = [wire(owner) for owner in owners]
        dated = month.used_up[0] is not None  # else the line of the standing says enough
        lines = [line for line in month_lines(month) if dated or line[0] != USED_UP]
        page = [budget_page(standing, now, columns()), "\n".join(paint.facts(lines))]
        page += [owners_table(owners, columns())] if owners else []
        show(app, value, "\n\n".join(page))
        for sentence in unknown_owners(view.state, policy):
            hint(sentence)


@budget_command.command("move", short_help="Move a part of an owner's budget to another owner.")
@click.argument("amount")
@click.option("--from", "giver", metavar="OWNER", required=True, help="Whose budget becomes smaller: user/alice.")
@click.option("--to", "receiver", metavar="OWNER", required=True, help="Whose budget becomes larger: project/vision.")
@why_option()
def move(app: App, amount: str, giver: str, receiver: str, why: str) -> None:
    """Move dollars from the budget of one owner to that of another: an event of the record, in force at once.

    Both need a budget among the limits in force. What the giver has spent and committed stays; if it is more than is
    left, nothing is stopped, and nothing of it starts. With --json: {"amount_usd", "from", "to", "why", "by",
    "position"}. Exits 6 if it is more than the giver's budget.

    \b
    Examples:
      steno budget move 100 --from user/alice --to user/bob --why "deadline on Friday"
    """
    from steno.engine.live.journal import Journal
    from steno.engine.submit.budget_moves import amount_moved, move_budget, owner_named
    from steno.events.budget_moves import BudgetMoved
    from steno.projections.answers.owners import owner_standings

    try:
        micros = amount_moved(amount)
        if (owners := (owner_named(giver), owner_named(receiver)))[0] == owners[1]:
            raise ValueError(f"--from and --to are both {giver}")
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    fact = BudgetMoved(amount=micros, from_owner=owners[0], to_owner=owners[1], why=why, by=getpass.getuser())
    with app.writing(create=False) as record:
        position = move_budget(Journal(record), fact, newest(record, lambda view: policy_for(app, view, None)))
        with caught_up_view(record) as view:
            policy = policy_for(app, view, None)
            both = [owner for owner in owner_standings(view, policy, app.clock.now()) if owner.owner in owners]
    value = {"amount_usd": dollars(micros), "from": owners[0], "to": owners[1], "why": why, "by": fact.by}
    now = "; ".join(f"{owner.owner} has {usd(owner.budget or 0)}, {usd(owner.left or 0)} left" for owner in both)
    show(app, value | {"position": position}, f"moved {usd(micros)}: {now}")
    for note in (note for owner in both for note in owner.notes):
        hint(note)
