"""Reads of the record itself, and of everything at a glance."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from engine.settings.policy import policy_from
from events.types import NAMES
from projections.api.parameters import (
    CURSOR,
    LIMIT,
    SORTED_CURSOR,
    Asked,
    PagePosition,
    choice,
    cursor_of,
    flag,
    text,
    time,
)
from projections.api.problems import Problem
from projections.api.reads import record_shapes as shapes
from projections.api.reads.money import policy_at
from projections.api.reads.read import Read
from projections.models import record_pages as browse
from projections.models.incidents import incidents
from projections.models.marks import record_object
from projections.models.offers import offers
from projections.models.overview import overview
from projections.models.sources import source_object, source_rows

if TYPE_CHECKING:
    from projections.api.service import Service
    from projections.store.reader_pool import Look

_POSITION = re.compile("[0-9]{1,18}")
_BACKWARDS = flag("backwards", "Newest first.")


def _overview(service: Service, look: Look, _: Asked) -> object:
    return overview(look, policy_at(service, look.view.world().state, past=look.past))


def _record(service: Service, look: Look, asked: Asked) -> object:
    since, until = asked.time("since"), asked.time("until")
    if since is not None and until is not None and until < since:
        raise Problem(400, "until is before since", field="until")
    return record_object(look, service.projector.lag, since=since, until=until)


def _offers(service: Service, look: Look, _: Asked) -> object:
    policy = policy_from(service.settings)
    return {"gpus": [one.to_json() for one in offers(look, policy)], "position": look.position}


def _events(_: Service, look: Look, asked: Asked) -> object:
    kind, behind = asked.text("type"), asked.given["cursor"]
    page = browse.events(
        look,
        behind=behind if isinstance(behind, int) else None,
        limit=asked.number("limit"),
        stream=asked.text("stream"),
        types=None if kind is None else (kind,),
        backwards=asked.flag("backwards"),
    )
    return _page("events", page, look)


def _event(_: Service, look: Look, asked: Asked) -> object:
    return browse.event(look, position_of(asked))


def _polls(_: Service, look: Look, asked: Asked) -> object:
    behind = asked.given["cursor"]
    page = browse.polls(
        look,
        behind=behind if isinstance(behind, int) else None,
        limit=asked.number("limit"),
        source=asked.text("source"),
        failed=asked.flag("failed"),
        backwards=asked.flag("backwards"),
    )
    return _page("polls", page, look)


def _poll(_: Service, look: Look, asked: Asked) -> object:
    return browse.poll(look, position_of(asked))


def _incidents(_: Service, look: Look, asked: Asked) -> object:
    behind = asked.given["cursor"]
    found = incidents(look, behind=behind if isinstance(behind, PagePosition) else None, limit=asked.number("limit"))
    return {
        "anomalies": found.anomalies,
        "blind": found.blind,
        "next": None if found.next is None else cursor_of(PagePosition(*found.next)),
        "position": look.position,
    }


def _sources(_: Service, look: Look, __: Asked) -> object:
    rows = source_rows(look.record, look.view)
    return {"sources": [source_object(row) for row in rows], "position": look.position}


def _page(name: str, page: browse.Page, look: Look) -> object:
    return {name: page.rows, "next": None if page.next is None else cursor_of(page.next), "position": look.position}


def position_of(asked: Asked) -> int:
    """The position in a path.

    Raises:
        Problem: 400, it is no number.
    """
    word = asked.path["position"]
    if _POSITION.fullmatch(word) is None:
        raise Problem(400, f"{word[:60]!r} is not a position; use a whole number", field="position")
    return int(word)


READS = (
    Read(
        path="/api/overview",
        summary="Overview: active runs, costs of today, budget, machines over time, incidents",
        answer=_overview,
        shape=shapes.Overview,
        tag="record",
    ),
    Read(
        path="/api/record",
        summary="The head of the record, the progress of the read models, and marks of notable events",
        answer=_record,
        shape=shapes.RecordAnswer,
        parameters=(
            time("since", "Only marks from this time on; a shorter range shows marks that are close together."),
            time("until", "Only marks up to this time."),
        ),
        tag="record",
    ),
    Read(
        path="/api/offers",
        summary="Available GPUs with recorded or assumed prices",
        answer=_offers,
        shape=shapes.Offers,
        tag="machines",
    ),
    Read(
        path="/api/sources",
        summary="Sources of the record: live ones and imported archives",
        answer=_sources,
        shape=shapes.Sources,
        tag="record",
    ),
    Read(
        path="/api/events",
        summary="Events of the record, oldest or newest first",
        answer=_events,
        shape=shapes.EventPage,
        parameters=(
            CURSOR,
            LIMIT,
            text("stream", "Only this stream: `run/ID`, `vm/ID`, `source/NAME` …"),
            choice("type", "Only events of this type.", sorted(NAMES)),
            _BACKWARDS,
        ),
        tag="record",
    ),
    Read(
        path="/api/events/{position}",
        summary="One event; a poll with its answer, an observation with its item",
        answer=_event,
        shape=shapes.EventInFull,
        tag="record",
    ),
    Read(
        path="/api/polls",
        summary="Polls: request, time, and changed streams",
        answer=_polls,
        shape=shapes.PollPage,
        parameters=(
            CURSOR,
            LIMIT,
            text("source", "Only this source: `<provider>/<project>`."),
            flag("failed", "Only failed polls."),
            _BACKWARDS,
        ),
        tag="record",
    ),
    Read(
        path="/api/polls/{position}",
        summary="One poll with the provider's answer; secrets are replaced",
        answer=_poll,
        shape=shapes.PollInFull,
        tag="record",
    ),
    Read(
        path="/api/incidents",
        summary="Anomalies and blind times, newest first",
        answer=_incidents,
        shape=shapes.IncidentPage,
        parameters=(SORTED_CURSOR, LIMIT),
        tag="record",
    ),
)
