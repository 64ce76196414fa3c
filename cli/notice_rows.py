"""Notices as rows: what was told, when, and what came of it, from the record."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from events import types
from events.clock import format_time

if TYPE_CHECKING:
    from events.store.record import Record

STATES = ("pending", "delivered", "failed", "unanswered")
_KINDS = frozenset({"NoticeIntended", "NoticeDelivered", "NoticeFailed"})


@dataclass(slots=True, kw_only=True)
class NoticeRow:
    """One notice."""

    intent: types.NoticeIntended
    position: int
    at: int
    state: str
    """`pending`: it is tried again; `unanswered`: a test whose sender was killed."""
    attempts: int = 0
    status: int | None = None
    """What the webhook answered, where it took it."""
    error: str | None = None
    """Of the newest try that failed."""
    body: dict[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """The public form."""
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


def notice_rows(record: Record) -> list[NoticeRow]:
    """Every notice there ever was, newest first."""
    import msgspec

    rows: dict[str, NoticeRow] = {}
    for stored in record.read(types=_KINDS):
        match stored.data:
            case types.NoticeIntended() as intent:
                state = "unanswered" if intent.kind == "test" else "pending"
                body = msgspec.json.decode(intent.body, type=dict[str, Any])
                rows[intent.notice_id] = NoticeRow(
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
