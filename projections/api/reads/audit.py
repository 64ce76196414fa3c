"""Reads of who did what, and of what the webhook was told."""

from operator import itemgetter
from typing import Annotated
from urllib.parse import urlsplit

from msgspec import Meta

from engine.settings.values import alerts
from engine.wire import Position, Shape
from projections.api.parameters import CURSOR, LIMIT, Asked, text
from projections.api.reads.read import Cursor, Read, RowPage, page_of, page_shape
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


def _notices(service: Service, look: Look, asked: Asked) -> RowPage:
    page = notices(look, behind=asked["cursor"], limit=asked["limit"])
    url = service.settings.value("alerts.webhook")
    return page_of(
        "notices",
        page,
        itemgetter("at"),
        webhook=urlsplit(url).hostname if url else None,  # the rest of the address may be a secret
        signed=bool(url and service.settings.value("alerts.secret")),
        reports=sorted(alerts(service.settings.value("alerts.on") or "off")) if url else [],
    )


def _actions(_: Service, look: Look, asked: Asked) -> RowPage:
    page = actions(look, behind=asked["cursor"], limit=asked["limit"], who=asked["who"])
    return page_of("actions", page, itemgetter("at"))


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
