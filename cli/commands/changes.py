"""`steno changes`: what changed since a time."""

import click

from steno.cli.render.words import moment
from steno.cli.wiring.app import App, steno_command
from steno.cli.wiring.options import both_times_option, user_option
from steno.cli.wiring.output import hint, show
from steno.cli.wiring.terminal import columns
from steno.cli.wiring.time_arguments import begin
from steno.cli.wiring.view import look_of, say_unseen, viewing
from steno.engine.wire import wire


@steno_command("changes")
@click.option("--since", metavar="TIME", default="1d", show_default=True, help="Begin then: yesterday, 14:05, 3d.")
@user_option("Only runs of this user, their machines, anomalies and costs.")
@click.option("--limit", "-n", type=click.IntRange(min=1), default=20, metavar="N", help="At most N anomalies.")
@both_times_option
def changes_command(app: App, since: str, user: str | None, limit: int, at: str | None) -> None:
    """Runs that ended, those without success first and each with its cause; machines that came, ended or vanished;
    anomalies, gaps, money by user, and settings. Runs of one name that ended alike share a line, and so do all runs of
    a user that succeeded. A machine vanished if its provider did not reach it, no longer listed it, or took it away.
    Gaps and settings are shown with --user too: they are everybody's. With --at the range ends then.

    With --json: {"from", "to", "user", "runs_submitted", "total_usd", "changes": [{"kind": run, machine, anomaly, gap,
    money or setting, "name", "state", "user", "at", "cost_usd", "what", "subjects"}], "more", "position"}.

    \b
    Examples:
      steno changes --since yesterday
      steno changes --since 18:00 --mine
      steno changes --since 7d --json | jq '.changes[] | {name, state, what}'
    """
    from steno.cli.render.changes import page
    from steno.projections.answers.changes import changes

    with viewing(app, at) as (record, view, now):
        start = begin(since, now)
        answer = changes(look_of(record, view, now, at), start, user, limit)
        first, sources = next(iter(record.read(limit=1)), None), view.sources(now)
        none = None if answer.changes or answer.runs_submitted else f"nothing changed since {moment(start)}"
        value = wire(answer) | {"position": view.position}
        show(app, value, lambda: page(answer, columns()), nothing=none)
    if first is None or first.observed_at > start:
        hint("the record is empty" if first is None else f"the record begins at {moment(first.observed_at)}")
    if answer.more:
        hint(f"more anomalies than these {limit}; -n N shows N")
    if at is None:
        say_unseen(sources, now)
