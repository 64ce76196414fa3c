"""Reads of the record itself, of everything at a glance, and of who did what."""

from typing import Annotated, Any
from urllib.parse import urlsplit

import msgspec
from msgspec import UNSET, Meta, UnsetType

from steno.engine.objects import BlindObject
from steno.engine.settings.settings import policy_from
from steno.engine.settings.values import alerts
from steno.engine.state.policy import DAY
from steno.engine.wire import Position, Shape, Time, wire
from steno.events.types import NAMES
from steno.projections.answers import record_pages as browse
from steno.projections.answers.actions import ActionObject, NoticeObject, actions, notices
from steno.projections.answers.changes import Changes, changes
from steno.projections.answers.dwells import Dwell
from steno.projections.answers.evidence import ShownItem
from steno.projections.answers.incidents import AnomalyKindObject, DatedAnomaly, RecordObject, incidents, record_object
from steno.projections.answers.offers import Offer, offers
from steno.projections.answers.overview import Overview, overview
from steno.projections.answers.record_pages import EventObject, PollObject, SourceRow, source_rows
from steno.projections.api.parameters import (
    CURSOR,
    LIMIT,
    SORTED_CURSOR,
    Asked,
    choice,
    cursor_of,
    flag,
    read_position,
    text,
    time,
)
from steno.projections.api.problems import Problem
from steno.projections.api.reads.money import USER, policy_at
from steno.projections.api.reads.read import Cursor, Read, at_position, page_shape
from steno.projections.api.reads.runs import EVENTS
from steno.projections.api.service import Service
from steno.projections.read_models.reader_pool import Look

_BACKWARDS = flag("backwards", "Newest first.")


def _record(service: Service, look: Look, values: Asked) -> dict[str, Any]:
    since, until = values["since"], values["until"]
    if since is not None and until is not None and until < since:
        raise Problem(400, "until is before since", field="until")
    return wire(record_object(look, service.projector.lag, since=since, until=until))


def _events(_: Service, look: Look, values: Asked) -> dict[str, Any]:
    types = None if values["type"] is None else (values["type"],)
    page = browse.events(look, **_page(values), stream=values["stream"], types=types)
    return {"events": page.rows, "next": cursor_of(page.next)}


def _polls(_: Service, look: Look, values: Asked) -> dict[str, Any]:
    page = browse.polls(look, **_page(values), source=values["source"], failed=values["failed"])
    return {"polls": page.rows, "next": cursor_of(page.next)}


def _page(values: Asked) -> dict[str, Any]:
    return {"behind": values["cursor"], "limit": values["limit"], "backwards": values["backwards"]}


def _incidents(_: Service, look: Look, values: Asked) -> dict[str, Any]:
    since = _begin(look, values)
    page = incidents(
        look, behind=values["cursor"], limit=values["limit"], since=since, user=values["user"], kind=values["kind"]
    )
    lists = {name: [wire(row) for row in getattr(page, name)] for name in ("anomalies", "dwells", "unusual", "kinds")}
    return {**lists, "next": cursor_of(page.next), "blind": page.blind}


def _begin(look: Look, values: Asked, default: int | None = None) -> int | None:
    since: int | None = default if values["since"] is None else values["since"]
    if since is not None and since > look.now:
        raise Problem(400, "since is in the future, or later than `at`", field="since")
    return since


def _changes(_: Service, look: Look, values: Asked) -> dict[str, Any]:
    begin = _begin(look, values, look.now - DAY)
    return wire(changes(look, look.now if begin is None else begin, values["user"], values["limit"]))


def _position(values: Asked) -> int:
    position = read_position(values["position"])
    if position is None:
        raise Problem(400, f"{values['position'][:60]!r} is not a position; use a whole number", field="position")
    return position


class PollLine(msgspec.Struct, frozen=True, kw_only=True):
    """A poll as a line of a trace: what was asked and answered, verbatim but for secrets; other keys are kept."""

    t: Time
    path: str | UnsetType = UNSET
    ep: str | UnsetType | None = UNSET
    req: Any = UNSET
    status: int | UnsetType | None = UNSET
    ms: float | UnsetType = UNSET
    error: str | UnsetType = UNSET
    body: Any


class PollInFull(PollLine, frozen=True, kw_only=True):
    """A poll and its answer."""

    position: Position


class EventInFull(EventObject, frozen=True, kw_only=True):
    """An event, with what it saw."""

    poll: PollLine | UnsetType = UNSET
    observed: Any = UNSET
    shows: tuple[ShownItem, ...] | UnsetType = UNSET


class IncidentPage(Shape, frozen=True, kw_only=True):
    """Some anomalies; with the first page the gaps, and what waits."""

    anomalies: tuple[DatedAnomaly, ...]
    blind: tuple[BlindObject, ...]
    dwells: tuple[Dwell, ...]
    unusual: tuple[DatedAnomaly, ...]
    kinds: tuple[AnomalyKindObject, ...]
    next: Cursor | None
    position: Position


class NoticePage(Shape, frozen=True, kw_only=True):
    """Some notices, and where they go by this service's settings."""

    notices: tuple[NoticeObject, ...]
    webhook: Annotated[str | None, Meta(description="The host of the webhook now; null: notices go nowhere.")]
    signed: bool
    reports: Annotated[tuple[str, ...], Meta(description="The kinds of news that are reported now.")]
    next: Cursor | None
    position: Position


def _notices(service: Service, look: Look, values: Asked) -> dict[str, Any]:
    page = notices(look, behind=values["cursor"], limit=values["limit"])
    url = service.settings.value("alerts.webhook")
    return {
        "notices": page.rows,
        "webhook": urlsplit(url).hostname if url else None,  # the rest of the address may be a secret
        "signed": bool(url and service.settings.value("alerts.secret")),
        "reports": sorted(alerts(service.settings.value("alerts.on") or "off")) if url else [],
        "next": cursor_of(page.next),
    }


def _actions(_: Service, look: Look, values: Asked) -> dict[str, Any]:
    page = actions(look, behind=values["cursor"], limit=values["limit"], who=values["who"])
    return {"actions": page.rows, "next": cursor_of(page.next)}


READS = (
    Read(
        "/api/overview",
        "Overview: active runs, costs of today, budget, machines over time, incidents",
        lambda service, look, _: wire(overview(look, policy_at(service, look.view.state))),
        Overview,
        "record",
    ),
    Read(
        "/api/record",
        "The head of the record, the progress of the read models, and marks of notable events",
        _record,
        RecordObject,
        "record",
        (
            time("since", "Only marks from this time on; a shorter range shows marks that are close together."),
            time("until", "Only marks up to this time."),
        ),
    ),
    Read(
        "/api/offers",
        "Available GPUs with recorded or assumed prices",
        lambda service, look, _: {"gpus": [wire(offer) for offer in offers(look, policy_from(service.settings))]},
        page_shape("gpus", Offer, paged=False),
        "machines",
    ),
    Read(
        "/api/sources",
        "Sources of the record: live sources and imported archives",
        lambda _, look, __: {"sources": [wire(row) for row in source_rows(look.record, look.view)]},
        page_shape("sources", SourceRow, paged=False),
        "record",
    ),
    Read(
        "/api/events",
        "Events of the record, oldest or newest first",
        _events,
        EVENTS,
        "record",
        (
            CURSOR,
            LIMIT,
            text("stream", "Only this stream: `run/ID`, `vm/ID`, `source/NAME` …"),
            choice("type", "Only events of this type.", sorted(NAMES)),
            _BACKWARDS,
        ),
    ),
    Read(
        "/api/events/{position}",
        "One event; a poll with its answer, an observation with its item",
        lambda _, look, values: browse.event(look, _position(values)),
        EventInFull,
        "record",
    ),
    Read(
        "/api/polls",
        "Polls: request, time, and changed streams",
        _polls,
        page_shape("polls", PollObject),
        "record",
        (
            CURSOR,
            LIMIT,
            text("source", "Only this source: `<provider>/<project>`."),
            flag("failed", "Only failed polls."),
            _BACKWARDS,
        ),
    ),
    Read(
        "/api/polls/{position}",
        "One poll with the provider's answer; secrets are replaced",
        lambda _, look, values: browse.poll(look, _position(values)),
        PollInFull,
        "record",
    ),
    Read(
        "/api/incidents",
        "Anomalies and blind times, newest first",
        _incidents,
        IncidentPage,
        "record",
        (
            SORTED_CURSOR,
            LIMIT,
            time("since", "Only what was noticed, or lasted, since this time."),
            USER,
            text("kind", "Only anomalies of this kind."),
        ),
    ),
    Read(
        "/api/changes",
        "What changed since a time: ends of runs, machines, anomalies, gaps, money, settings",
        _changes,
        at_position(Changes),
        "record",
        (time("since", "Begin at this time; default: a day before the end. `at` is the end."), USER, LIMIT),
    ),
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
