"""`steno notify`: list notices, or send a test notice."""

from html import unescape
from typing import Any

import click

from steno.cli.render import paint
from steno.cli.render.words import moment
from steno.cli.wiring.app import App, DefaultGroup
from steno.cli.wiring.errors import UNREACHABLE, say
from steno.cli.wiring.output import emit, emit_json, hint
from steno.cli.wiring.terminal import columns
from steno.engine.errors import NotConfigured


@click.group("notify", cls=DefaultGroup, subcommand_metavar="[COMMAND] [ARGS]…")
def notify_command() -> None:
    """The settings alerts.webhook, alerts.secret and alerts.on say where notices are posted, which key signs them, and
    what they report: starts and ends of runs, runs that are stuck or wait for long, machines that vanished, anomalies,
    budget thresholds, unneeded machines. [notify.NAME] in steno.toml is a route to one person: by mail, chat or
    webhook. `steno up`, `steno record` and `steno submit --wait` send them.

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

    A failed notice was tried five times within three minutes; of a route, for a
    day. An `unanswered` one is a test whose sender was killed.

    With --json: {"notices": [{"notice_id", "kind", "state", "at", "position",
    "attempts", "status", "error", "facts", "text", "route"}], "position"}.

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
        none = "no notices; `steno doctor` says where they go, `steno notify test` sends one"
        hint(none if state is None else f"no notice is {state}")
    elif len(notices) > last:
        hint(f"{len(notices) - last} older not shown; --last shows more")


@notify_command.command("test", short_help="Send a test notice by each route now, once.")
@click.argument("route", required=False)
def test(app: App, route: str | None) -> None:
    """Send a test notice to the webhook and by each route of the settings, or by ROUTE only, now and once, and print
    the answers.

    It is signed like any other and recorded. With --json:
    {"notice_id", "delivered", "status", "error", "signed", "route", "routes"}: of the
    first route; "routes" has such an object of each. The webhook is the route "".

    Exits 0 if each receiver accepted it, 3 if one refused or did not answer, 2 if
    there is no route.

    \b
    Examples:
      steno notify test
      steno notify test alice
      STENO_WEBHOOK=https://hooks.example.org/x steno notify test --json
    """
    from steno.engine.live.journal import Journal
    from steno.engine.notify.notices import send_test_notice
    from steno.engine.runtime.controllers import routes_of

    routes = [each for each in routes_of(app.settings) if route in (None, each.name or "webhook")]
    if not routes and route is not None:
        raise NotConfigured(f"there is no route {route}: set notify.{route}.url in steno.toml to its address")
    if not routes:
        raise NotConfigured(
            "there is no webhook: set alerts.webhook (STENO_WEBHOOK) to its address, or notify.NAME.url"
        )
    rows: list[dict[str, Any]] = []
    with app.writing() as record:
        for to in routes:
            notice_id, status, error = send_test_notice(Journal(record), to, app.clock, app.ids)
            answer = {"notice_id": notice_id, "delivered": error is None, "status": status or None, "error": error}
            rows.append(answer | {"signed": to.secret is not None, "route": to.name})
    for to, row in zip(routes, rows, strict=True):
        if row["error"] is not None:
            say(f"{to.who} did not accept the test notice: {row['error']}")
            app.exit_code = UNREACHABLE
        elif not app.json:
            key = f"notify.{to.name}.secret" if to.name else "alerts.secret"
            how = "signed" if row["signed"] else f"not signed ({key} is not set)"
            answered = f"answered {row['status']}" if to.posts else "accepted the message"
            emit(f"{to.who} {answered}: notice {row['notice_id']}" + (f", {how}" if to.posts else ""))
    if app.json:
        emit_json(rows[0] | {"routes": rows})


def _line(row: dict[str, Any]) -> str:
    """`2026-11-21 20:00:03Z  delivered  run_end  matmul-1 succeeded …`, cut to the terminal."""
    state = row["state"]
    colour = {"delivered": "succeeded", "failed": "failed"}.get(state, "queued")
    text = row["error"] if state == "failed" and row["error"] else unescape(row["text"].removeprefix("Steno: "))
    kind = f"{row['kind']} to {row['route']}" if row["route"] else row["kind"]
    detail = paint.cut(paint.plain(text), max(2, columns() - 36 - max(8, len(kind))))
    return f"{moment(row['at'])}  {paint.pad(paint.state(colour, state), 10)}  {kind:<8} {detail}"
