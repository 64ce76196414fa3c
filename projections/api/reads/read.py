"""One read of the API: path, parameters, function, and the shape of its answer."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from anyio import CapacityLimiter, to_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from engine.money.tables import Tabled, csv_of
from engine.wire import Position, Shape, wire
from projections.api.bodies import CSV, JSON, STENO_POSITION, read_answer
from projections.api.openapi import Operation, Reply, routed
from projections.api.parameters import FORMAT, MOMENT, Asked, Moment, Parameter, Place, asked_of, cursor_of
from projections.api.problems import Problem
from projections.api.service import Service
from projections.models.position_at import NOTHING, Beyond, moment_at
from projections.models.reader_pool import Look

AT_ONCE = 16  # reads that are worked on at the same time; further ones wait
_HEADERS = {
    "ETag": {"description": "The entity tag of this body.", "schema": {"type": "string"}},
    STENO_POSITION: {
        "description": "The position of the record that the answer shows.",
        "schema": {"type": "integer", "minimum": 0},
    },
}
Cursor = Annotated[str, msgspec.Meta(description="The `cursor` of the next page.")]


def page_shape(key: str, row: type, *, paged: bool = True) -> type:
    """The shape of a list, or of a page of it."""
    fields = [(key, tuple[row, ...]), ("next", Cursor | None), ("position", Position)]  # type: ignore[valid-type]
    if not paged:
        del fields[1]
    return msgspec.defstruct(f"{row.__name__}RowPage", fields, bases=(Shape,), frozen=True, kw_only=True)


def at_position(shape: type) -> type:
    fields = [("position", Position)]
    return msgspec.defstruct(f"{shape.__name__}Answer", fields, bases=(shape,), frozen=True, kw_only=True)


def stored_page(key: str, found: Sequence[tuple[Place, bytes]], limit: int) -> dict[str, object]:
    """A page of stored JSON texts; `found` may hold one row more, which means that more follow."""
    rows = found[:limit]
    behind = rows[-1][0] if len(found) > limit else None
    return {key: [msgspec.Raw(text) for _, text in rows], "next": cursor_of(behind)}


@dataclass(frozen=True, slots=True)
class Read:
    path: str
    summary: str
    answer: Callable[[Service, Look, Asked], dict[str, Any] | bytes | Tabled]
    """Runs in a worker thread; returns JSON values, to which `position` is added, JSON text, or a report."""
    shape: type  # the structure its JSON has
    tag: str = "runs"
    parameters: tuple[Parameter, ...] = ()
    tabled: bool = False  # it is also to be had as CSV; `answer` then gives the report for the format `csv`

    @property
    def _all(self) -> tuple[Parameter, ...]:
        return (*self.parameters, *((FORMAT,) if self.tabled else ()), *MOMENT)

    def route(self, service: Service, limiter: CapacityLimiter) -> BaseRoute:
        def work(asked: Asked) -> tuple[bytes, int]:
            with look(service, asked) as seen:
                found = self.answer(service, seen, asked)
                if isinstance(found, Tabled):
                    if asked["format"] == "csv":
                        return csv_of(found).encode(), seen.position
                    found = wire(found)
                if isinstance(found, dict):
                    found.setdefault("position", seen.position)
                    found = msgspec.json.encode(found)
                return found, seen.position

        async def endpoint(request: Request) -> Response:
            asked = asked_of(request, self._all)
            if not self.tabled:
                return read_answer(request, *await to_thread.run_sync(work, asked, limiter=limiter))
            accepted = request.headers.get("accept", "")
            form = asked["format"] or ("csv" if CSV in accepted and JSON not in accepted else "json")
            found = await to_thread.run_sync(work, {**asked, "format": form}, limiter=limiter)
            answer = read_answer(request, *found, media=CSV if form == "csv" else JSON)
            answer.headers["Vary"] = "Accept"
            if form == "csv":
                name = self.path.replace("/{id}", "").removeprefix("/api/").replace("/", "-")
                answer.headers["Content-Disposition"] = f'attachment; filename="steno-{name}.csv"'
            return answer

        return routed((self.operation,), endpoint)[0]

    @property
    def operation(self) -> Operation:
        answers = {
            200: Reply("The state at the position in the header.", self.shape, headers=_HEADERS, csv=self.tabled),
            304: Reply("Unchanged since the client's copy (If-None-Match)."),
        }
        parameters = [one.described() for one in self._all]
        return Operation(f"GET {self.path}", self.summary, self.tag, answers, parameters=parameters)


# -- the moment that a read shows --------------------------------------------------------------------------------------


@contextmanager
def look(service: Service, asked: Asked) -> Iterator[Look]:
    """The record and its read models at that moment; blocks: call it in a worker thread. Raises `Problem` (400 in the
    future, 409 `min_position` beyond the record) or `Behind` (the position was not reached in time).
    """
    with _now(service, asked["min_position"] or 0) as found:
        if asked["at"] is None:
            yield found
            return
        there = _place_of(asked["at"], found, service.clock.now())
    with service.pool.at(*there) as found:
        yield found


@contextmanager
def _now(service: Service, least: int) -> Iterator[Look]:
    with service.pool.now() as found:
        if found.position >= least:
            yield found
            return
        head = found.record.head().position
    if head < least:
        said = f"the record ends at position {head}; position {least} does not exist yet"
        raise Problem(409, said, field="min_position")
    with service.pool.now(min_position=least) as found:
        yield found


def _place_of(moment: Moment, found: Look, now: int) -> tuple[int, Beyond]:
    head = found.record.head().position
    if moment.time is None:
        there = moment.position or 0
        if there > head:
            raise Problem(400, f"the record ends at position {head}; {there} is beyond it", field="at")
        return there, NOTHING
    if moment.time > now:
        raise Problem(400, "this time is in the future", field="at")
    return moment_at(found.record, moment.time, head, found.view.state)
