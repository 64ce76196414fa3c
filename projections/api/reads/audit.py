"""Reads of who did what, and of what the webhook was told."""

from typing import Annotated, Any
from urllib.parse import urlsplit

from msgspec import Meta

from engine.settings.values import alerts
from engine.wire import Position, Shape
from projections.api.parameters import CURSOR, LIMIT, Asked, cursor_of, text
from projections.api.reads.read import Cursor, Read, page_shape
from projections.api.service import Service
from projections.models.audit import ActionObject, NoticeObject, actions, notices
from projections.models.reader_pool import Look


class NoticePage(Shape, frozen=True, kw_only=True):
    """Some notices, and where they go by this service's settings."""

    notices: tuple[NoticeObject, ...]
    webhook: Annotated[str | None, Meta(description="The host of the webhook now; null: notices go nowhere.")]
    signed: bool
    reports: Annotated[tuple[str, ...], Meta(description="The kinds of news that are reported now.")]
    next: Cursor | None
    position: Position


def _notices(service: Service, look: Look, asked: Asked) -> dict[str, Any]:
    page = notices(look, behind=asked["cursor"], limit=asked["limit"])
    url = service.settings.value("alerts.webhook")
    return {
        "notices": page.rows,
        "webhook": urlsplit(url).hostname if url else None,  # the rest of the address may be a secret
        "signed": bool(url and service.settings.value("alerts.secret")),
        "reports": sorted(alerts(service.settings.value("alerts.on") or "off")) if url else [],
        "next": cursor_of(page.next),
    }


def _actions(_: Service, look: Look, asked: Asked) -> dict[str, Any]:
    page = actions(look, behind=asked["cursor"], limit=asked["limit"], who=asked["who"])
    return {"actions": page.rows, "next": cursor_of(page.next)}


READS = (
    Read(
        "/api/notices",
        "Notices to the webhook, newest first: what was told, and whether it was accepted",
        _notices,
        NoticePage,
        "access",
        (CURSOR, LIMIT),
    ),
    Read(
        "/api/audit",
        "Who did what, newest first: submissions, stops, tokens, hidden archives",
        _actions,
        page_shape("actions", ActionObject),
        "access",
        (CURSOR, LIMIT, text("who", "Only what this one asked for: a token's name, a user, `loopback`, `policy`.")),
    ),
)
