"""Reads of the record itself, and of everything at a glance."""

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from engine.objects import BlindObject
from engine.settings.policy import policy_from
from engine.wire import Position, Shape, Time, wire
from events.types import NAMES
from projections.api.parameters import (
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
from projections.api.problems import Problem
from projections.api.reads.money import policy_at
from projections.api.reads.read import Cursor, Read, page_shape
from projections.api.reads.runs import EVENTS
from projections.api.service import Service
from projections.models import record_pages as browse
from projections.models.incidents import DatedAnomaly, RecordObject, incidents, record_object
from projections.models.offers import Offer, offers
from projections.models.overview import Overview, overview
from projections.models.poll_content import ShownItem
from projections.models.reader_pool import Look
from projections.models.record_pages import EventObject, PollObject
from projections.models.sources import SourceRow, source_rows

_BACKWARDS = flag("backwards", "Newest first.")


def _record(service: Service, look: Look, asked: Asked) -> dict[str, Any]:
    since, until = asked["since"], asked["until"]
    if since is not None and until is not None and until < since:
        raise Problem(400, "until is before since", field="until")
    return wire(record_object(look, service.projector.lag, since=since, until=until))


def _events(_: Service, look: Look, asked: Asked) -> dict[str, Any]:
    types = None if asked["type"] is None else (asked["type"],)
    page = browse.events(look, **_page(asked), stream=asked["stream"], types=types)
    return {"events": page.rows, "next": cursor_of(page.next)}


def _polls(_: Service, look: Look, asked: Asked) -> dict[str, Any]:
    page = browse.polls(look, **_page(asked), source=asked["source"], failed=asked["failed"])
    return {"polls": page.rows, "next": cursor_of(page.next)}


def _page(asked: Asked) -> dict[str, Any]:
    return {"behind": asked["cursor"], "limit": asked["limit"], "backwards": asked["backwards"]}


def _incidents(_: Service, look: Look, asked: Asked) -> dict[str, Any]:
    found = incidents(look, behind=asked["cursor"], limit=asked["limit"])
    return {"anomalies": [wire(one) for one in found.anomalies], "next": cursor_of(found.next), "blind": found.blind}


def _position(asked: Asked) -> int:
    found = read_position(asked["position"])
    if found is None:
        raise Problem(400, f"{asked['position'][:60]!r} is not a position; use a whole number", field="position")
    return found


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
    """One poll and its answer."""

    position: Position


class EventInFull(EventObject, frozen=True, kw_only=True):
    """One event, with what it saw."""

    poll: PollLine | UnsetType = UNSET
    observed: Any = UNSET
    shows: tuple[ShownItem, ...] | UnsetType = UNSET


class IncidentPage(Shape, frozen=True, kw_only=True):
    """Some anomalies; with the first page the gaps."""

    anomalies: tuple[DatedAnomaly, ...]
    blind: tuple[BlindObject, ...]
    next: Cursor | None
    position: Position


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
        lambda service, look, _: {"gpus": [wire(one) for one in offers(look, policy_from(service.settings))]},
        page_shape("gpus", Offer, paged=False),
        "machines",
    ),
    Read(
        "/api/sources",
        "Sources of the record: live ones and imported archives",
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
        lambda _, look, asked: browse.event(look, _position(asked)),
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
        lambda _, look, asked: browse.poll(look, _position(asked)),
        PollInFull,
        "record",
    ),
    Read(
        "/api/incidents",
        "Anomalies and blind times, newest first",
        _incidents,
        IncidentPage,
        "record",
        (SORTED_CURSOR, LIMIT),
    ),
)
