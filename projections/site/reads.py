"""Reads over all records: lists merged, sums summed; with `record`, as that record alone answers."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import msgspec
from anyio import CapacityLimiter, to_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from engine.money.tables import Tabled, csv_of
from engine.wire import wire
from projections.api.bodies import CSV, JSON, read_answer
from projections.api.parameters import FORMAT, Asked, Parameter, asked_of
from projections.api.problems import Problem
from projections.api.reads.read import Read
from projections.api.reads.requests import comparison
from projections.site.finder import holder
from projections.site.looks import Looks, looks, said
from projections.site.overview import merged_overview
from projections.site.pages import merged_page
from projections.site.places import AT, CURSOR, MIN_POSITION
from projections.site.routing import passed_to
from projections.site.site import UNAVAILABLE, RecordSet
from projections.site.sums import SUMS, Sum

LISTS: Final = frozenset(
    {"/api/runs", "/api/vms", "/api/events", "/api/polls", "/api/incidents", "/api/notices", "/api/audit"}
)
_SUMS: Final[dict[str, Sum]] = {**SUMS, "/api/overview": merged_overview}
COMPARE: Final = "/api/compare"
MERGED: Final = frozenset({*LISTS, *_SUMS, COMPARE})
_POSITION: Final = "Steno-Position"


def parameters(read: Read) -> tuple[Parameter, ...]:
    """The parameters of a merged read; positions and cursors are of every record."""
    own = (CURSOR if one.name == "cursor" else one for one in read.parameters)
    return (*own, *((FORMAT,) if read.tabled else ()), AT, MIN_POSITION)


def endpoint_of(site: RecordSet, read: Read, limiter: CapacityLimiter) -> Callable[[Request], Any]:
    """The endpoint of a read that has a meaning over all records."""
    taken = parameters(read)

    def work(asked: Asked) -> tuple[bytes, str]:
        with looks(site, asked) as found:
            body = _answer(site, read, found, asked)
            if asked.get("format") == "csv" and isinstance(body, Tabled):
                if found.missing:  # a table has no place to say that it is not whole
                    raise Problem(UNAVAILABLE, said(found.missing), headers=(("Retry-After", "5"),))
                return csv_of(body).encode(), str(found.answer({}, site.names)["position"])
            values = wire(body) if isinstance(body, Tabled) else body
            answer = found.answer(values, site.names)
            return msgspec.json.encode(answer), str(answer["position"])

    async def endpoint(request: Request) -> Response | ASGIApp:
        member = site.asked(request)
        if member is not None:
            return passed_to(member)
        asked = asked_of(request, taken)
        accepted = request.headers.get("accept", "")
        form = asked.get("format") or ("csv" if read.tabled and CSV in accepted and JSON not in accepted else "json")
        body, position = await to_thread.run_sync(work, {**asked, "format": form}, limiter=limiter)
        answer = read_answer(request, body, media=CSV if form == "csv" else JSON)
        answer.headers[_POSITION] = position
        if read.tabled:
            answer.headers["Vary"] = "Accept"
        if form == "csv":
            name = read.path.removeprefix("/api/")
            answer.headers["Content-Disposition"] = f'attachment; filename="steno-{name}.csv"'
        return answer

    return endpoint


def _answer(site: RecordSet, read: Read, found: Looks, asked: Asked) -> dict[str, Any] | Tabled:
    if read.path in LISTS:
        return merged_page(read, found, asked, site.names)
    if read.path == COMPARE:
        return _compared(site, found, asked)
    return _SUMS[read.path](found, asked)


def _compared(site: RecordSet, found: Looks, asked: Asked) -> dict[str, Any]:
    """Two runs, of one record or of two."""
    names = [holder(site, "runs", asked[name]).name for name in ("a", "b")]
    of = {one.member.name: one.look for one in found.seen}
    missing = next((name for name in names if name not in of), None)
    if missing is not None:
        raise Problem(UNAVAILABLE, said({missing: found.missing[missing]}))
    answer = comparison((of[names[0]], of[names[1]]), asked)
    return {**answer, "of": names}


def as_alone(read: Read) -> Read:
    """The read with the parameters that it has over all records, for the OpenAPI document."""
    return replace(read, parameters=tuple(CURSOR if one.name == "cursor" else one for one in read.parameters))
