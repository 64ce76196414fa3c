"""`steno notify`: list notices, or send a test notice."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from cli.groups import DefaultGroup
from cli.wiring.app import App
from cli.wiring.errors import UNREACHABLE, say
from cli.wiring.options import common, pass_app
from cli.wiring.output import emit, emit_json, hint
from cli.wiring.terminal import columns

if TYPE_CHECKING:
    from events import types
    from events.store.record import Record

_SHOWN = 20
_KINDS = frozenset({"NoticeIntended", "NoticeDelivered", "NoticeFailed"})


@click.group("notify", cls=DefaultGroup, subcommand_metavar="[COMMAND] [ARGS]…")
def command() -> None:
    """List the notices of the record, or send a test notice to the webhook.

    The settings alerts.webhook, alerts.secret and alerts.on say where notices are
    posted, which key signs them, and what they report: ends of runs, anomalies,
    budget thresholds, machines that nobody needs. `steno up`, `steno record` and
    `steno submit --wait` send them.

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

    A failed notice was tried five times within three minutes. An `unanswered` one
    is a test whose sender was killed.

    With --json: {"notices": [{"notice_id", "kind", "state", "at", "position",
    "attempts", "status", "error", "facts", "text"}], "position"}.

    \b
    Examples:
      steno notify list
      steno notify list --state pending --json
    """
    from cli.wiring.stores import reading

    with reading(app) as record:
        position = record.head().position
        found = [row for row in _notices(record) if state in (None, row.state)]
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
    from cli.wiring.recorder import webhook_of
    from cli.wiring.stores import writing
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


def _line(row: _Notice) -> str:
    """`2026-11-21 20:00:03Z  delivered  run_end  matmul-1 succeeded …`, cut to the terminal."""
    from cli.render import paint
    from cli.render.words import moment

    colour = {"delivered": "succeeded", "failed": "failed"}.get(row.state, "queued")
    text = row.error if row.state == "failed" and row.error else str(row.body.get("text", "")).removeprefix("Steno: ")
    room = columns() - 44
    said = text if len(text) <= room else text[: max(1, room - 1)] + "…"
    return f"{moment(row.at)}  {paint.pad(paint.state(colour, row.state), 10)}  {row.intent.kind:<8} {said}"


@dataclass(slots=True, kw_only=True)
class _Notice:
    """One notice."""

    intent: types.NoticeIntended
    position: int
    at: int
    state: str
    """`pending`: it is retried; `unanswered`: a test whose sender was killed."""
    attempts: int = 0
    status: int | None = None
    """The webhook's answer, if it accepted."""
    error: str | None = None
    """Of the newest failed attempt."""
    body: dict[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """As `--json` prints it."""
        from events.clock import format_time

        return {
            "notice_id": self.intent.notice_id,
            "kind": self.intent.kind,
            "state": self.state,
            "at": format_time(self.at),
            "position": self.position,
            "attempts": self.attempts,
            "status": self.status,
            "error": self.error,
            "facts": len(self.intent.about) or 1,
            "text": self.body.get("text", ""),
        }


def _notices(record: Record) -> list[_Notice]:
    """Every notice of the record, newest first."""
    import msgspec

    from events import types

    rows: dict[str, _Notice] = {}
    for stored in record.read(types=_KINDS):
        match stored.data:
            case types.NoticeIntended() as intent:
                state = "unanswered" if intent.kind == "test" else "pending"
                body = msgspec.json.decode(intent.body, type=dict[str, Any])
                rows[intent.notice_id] = _Notice(
                    intent=intent, position=stored.position, at=stored.observed_at, state=state, body=body
                )
            case types.NoticeDelivered(notice_id=name, status=status, attempt=attempt) if name in rows:
                row = rows[name]
                row.state, row.status, row.attempts = "delivered", status, attempt
            case types.NoticeFailed(notice_id=name, error=error, attempt=attempt, final=final) if name in rows:
                row = rows[name]
                row.state, row.error, row.attempts = "failed" if final else "pending", error, attempt
            case _:
                pass
    return list(reversed(rows.values()))
