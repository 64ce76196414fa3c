"""`steno notify`: list notices, or send a test notice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from steno.cli.render import paint
from steno.cli.wiring.app import App, DefaultGroup
from steno.cli.wiring.errors import UNREACHABLE, say
from steno.cli.wiring.output import emit, emit_json, hint, show
from steno.cli.wiring.terminal import columns
from steno.engine.errors import NotConfigured

if TYPE_CHECKING:
    pass


@click.group("notify", cls=DefaultGroup, subcommand_metavar="[COMMAND] [ARGS]…")
def notify_command() -> None:
    """The settings alerts.webhook, alerts.secret and alerts.on say where notices are posted, which key signs them, and
    what they report: ends of runs, anomalies, budget thresholds, unneeded machines. `steno up`, `steno record` and
    `steno submit --wait` send them.

    \b
    Examples:
      steno notify test
      steno notify list --state failed
      steno notify list --json | jq -r '.notices[] | [.at, .kind, .state] | @tsv'
    """


@notify_command.command("list")
@click.option(
    "--state", type=click.Choice(["pending", "delivered", "failed", "unanswered"]), help="Only notices in that state."
)
@click.option("-n", "--last", type=click.IntRange(min=1), default=20, metavar="N", help="Only the newest N: 20.")
def listed(app: App, state: str | None, last: int) -> None:
    """List notices, newest first: pending, delivered, failed.

    A failed notice was tried five times within three minutes. An `unanswered` one
    is a test whose sender was killed.

    With --json: {"notices": [{"notice_id", "kind", "state", "at", "position",
    "attempts", "status", "error", "facts", "text"}], "position"}.

    \b
    Examples:
      steno notify list
      steno notify list --state pending --json
    """
    from steno.projections.answers.actions import notice_row

    with app.reading() as record:
        position = record.head().position
        rows = (notice_row(record, intent) for intent in record.read(types={"NoticeIntended"}, backwards=True))
        notices = [row for row in rows if state in (None, row["state"])]
    if app.json:
        emit_json({"notices": notices[:last], "position": position})
        return
    for row in notices[:last]:
        emit(_line(row))
    if not notices:
        hint("no notices; the setting alerts.webhook says where they go, `steno notify test` sends one")
    elif len(notices) > last:
        hint(f"{len(notices) - last} older not shown; --last shows more")


@notify_command.command("test", short_help="Send a test notice now, once.")
def test(app: App) -> None:
    """Send a test notice to the webhook now, once, and print the answer.

    It is signed like any other and recorded. With --json:
    {"notice_id", "delivered", "status", "error", "signed"}.

    Exits 0 if the webhook accepted it, 3 if it refused or did not answer, 2 if
    alerts.webhook is not set.

    \b
    Examples:
      steno notify test
      STENO_WEBHOOK=https://hooks.example.org/x steno notify test --json
    """
    from steno.engine.live.journal import Journal
    from steno.engine.notify.notices import send_test_notice
    from steno.engine.runtime.controllers import webhook_of

    webhook = webhook_of(app.settings)
    if webhook is None:
        raise NotConfigured("there is no webhook: set alerts.webhook (STENO_WEBHOOK) to its address")
    with app.writing() as record:
        notice_id, status, error = send_test_notice(Journal(record), webhook, app.clock, app.ids)
    signed = webhook.secret is not None
    if app.json or error is None:
        value = {"notice_id": notice_id, "delivered": error is None, "status": status, "error": error, "signed": signed}
        how = "signed" if signed else "not signed (alerts.secret is not set)"
        show(app, value, f"the webhook answered {status}: notice {notice_id}, {how}")
    if error is not None:
        say(f"the webhook did not accept the test notice: {error}")
        app.exit_code = UNREACHABLE


def _line(row: dict[str, Any]) -> str:
    """`2026-11-21 20:00:03Z  delivered  run_end  matmul-1 succeeded …`, cut to the terminal."""
    from steno.cli.render.words import moment

    state = row["state"]
    colour = {"delivered": "succeeded", "failed": "failed"}.get(state, "queued")
    text = row["error"] if state == "failed" and row["error"] else row["text"].removeprefix("Steno: ")
    detail = paint.cut(text, max(2, columns() - 44))
    return f"{moment(row['at'])}  {paint.pad(paint.state(colour, state), 10)}  {row['kind']:<8} {detail}"
