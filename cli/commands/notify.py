"""`steno notify`: what was told to the webhook, and a test of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cli.groups import DefaultGroup
from cli.wiring.app import App
from cli.wiring.errors import UNREACHABLE, say
from cli.wiring.options import common, pass_app
from cli.wiring.output import emit, emit_json, hint
from cli.wiring.terminal import columns

if TYPE_CHECKING:
    from cli.notice_rows import NoticeRow

_SHOWN = 20


@click.group("notify", cls=DefaultGroup, subcommand_metavar="[COMMAND] [ARGS]…")
def command() -> None:
    """List the notices of the record, or send a test notice to the webhook.

    The settings alerts.webhook, alerts.secret and alerts.on say where notices are
    posted, what they are signed with, and what they are about: ends of runs,
    anomalies, thresholds of the budget, machines nobody needs. `steno up`,
    `steno record` and `steno submit --wait` send them.

    \b
    Examples:
      steno notify test
      steno notify list --state failed
      steno notify list --json | jq -r '.notices[] | [.at, .kind, .state] | @tsv'
    """


@command.command("list")
@click.option(
    "--state", type=click.Choice(["pending", "delivered", "failed", "unanswered"]), help="Only notices in that state."
)
@click.option("-n", "--last", type=click.IntRange(min=1), default=_SHOWN, metavar="N", help="Only the newest N: 20.")
@common
@pass_app
def listed(app: App, state: str | None, last: int) -> None:
    """List notices, newest first: pending, delivered, failed.

    A notice that failed was tried five times within three minutes. One that is
    `unanswered` is a test whose sender was killed.

    With --json: {"notices": [{"notice_id", "kind", "state", "at", "position",
    "attempts", "status", "error", "facts", "text"}], "position"}.

    \b
    Examples:
      steno notify list
      steno notify list --state pending --json
    """
    from cli.notice_rows import notice_rows
    from cli.stores import reading

    with reading(app) as record:
        position = record.head().position
        found = [row for row in notice_rows(record) if state in (None, row.state)]
    if app.json:
        emit_json({"notices": [row.as_json() for row in found[:last]], "position": position})
        return
    for row in found[:last]:
        emit(_line(row))
    if not found:
        hint("no notices; the setting alerts.webhook says where they go, `steno notify test` sends one")
    elif len(found) > last:
        hint(f"{len(found) - last} older not shown; --last shows more")


@command.command("test", short_help="Send a test notice now, once.")
@common
@pass_app
def test(app: App) -> None:
    """Send a test notice to the webhook now, once, and print what came back.

    It is signed like any other and stands in the record. With --json:
    {"notice_id", "delivered", "status", "error", "signed"}.

    Exits 0 if the webhook took it, 3 if it did not or was not reached, 2 if the
    setting alerts.webhook is not set.

    \b
    Examples:
      steno notify test
      STENO_WEBHOOK=https://hooks.example.org/x steno notify test --json
    """
    from cli.stores import writing
    from cli.watching import webhook_of
    from engine.act.journal import Journal
    from engine.errors import NotConfigured
    from engine.notify.notices import send_test_notice

    webhook = webhook_of(app.settings)
    if webhook is None:
        raise NotConfigured("there is no webhook: set alerts.webhook (STENO_WEBHOOK) to its address")
    with writing(app) as record:
        answer = send_test_notice(Journal(record), webhook, app.clock, app.ids)
    if app.json:
        emit_json(
            {
                "notice_id": answer.notice_id,
                "delivered": answer.error is None,
                "status": answer.status,
                "error": answer.error,
                "signed": webhook.secret is not None,
            }
        )
    elif answer.error is None:
        signed = "signed" if webhook.secret is not None else "not signed (alerts.secret is not set)"
        emit(f"the webhook answered {answer.status}: notice {answer.notice_id}, {signed}")
    if answer.error is not None:
        say(f"the webhook did not accept the test notice: {answer.error}")
        app.exit_code = UNREACHABLE


def _line(row: NoticeRow) -> str:
    """`2026-11-21 20:00:03Z  delivered  run_end  matmul-1 succeeded …`, cut to the terminal."""
    from cli.render import paint
    from cli.render.words import moment

    colour = {"delivered": "succeeded", "failed": "failed"}.get(row.state, "queued")
    text = row.error if row.state == "failed" and row.error else str(row.body.get("text", "")).removeprefix("Steno: ")
    room = columns() - 44
    said = text if len(text) <= room else text[: max(1, room - 1)] + "…"
    return f"{moment(row.at)}  {paint.pad(paint.state(colour, row.state), 10)}  {row.intent.kind:<8} {said}"
