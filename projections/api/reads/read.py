"""A read of the API: path, parameters, function, and the shape of its answer."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from anyio import CapacityLimiter, to_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from steno.engine.wire import Position, Shape, Tabled, csv_of, wire
from steno.projections.api.bodies import CSV, JSON, STENO_POSITION, read_answer
from steno.projections.api.openapi import Operation, Reply, routed
from steno.projections.api.parameters import FORMAT, MOMENT, Asked, Moment, Parameter, asked_of
from steno.projections.api.problems import MEDIA_TYPE, Problem, ProblemObject
from steno.projections.api.service import Service
from steno.projections.read_models.known_worlds import Knowledge, NotKnown, known_by
from steno.projections.read_models.past_worlds import NOTHING, Beyond, moment_at
from steno.projections.read_models.reader_pool import Look

AT_ONCE = 16  # reads that are worked on at the same time; further reads wait
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
    lacking: str | None = None  # when it answers 404, of a path without a name in it; None: never

    @property
    def _all(self) -> tuple[Parameter, ...]:
        return (*self.parameters, *((FORMAT,) if self.tabled else ()), *MOMENT)

    def route(self, service: Service, limiter: CapacityLimiter) -> BaseRoute:
        def work(values: Asked) -> tuple[bytes, int]:
            with look(service, values) as seen:
                answer = self.answer(service, seen, values)
                if isinstance(answer, Tabled):
                    if values["format"] == "csv":
                        return csv_of(answer).encode(), seen.position
                    answer = wire(answer)
                if isinstance(answer, dict):
                    answer.setdefault("position", seen.position)
                    answer = msgspec.json.encode(answer)
                return answer, seen.position

        async def endpoint(request: Request) -> Response:
            values = asked_of(request, self._all)
            if not self.tabled:
                return read_answer(request, *await to_thread.run_sync(work, values, limiter=limiter))
            accepted = request.headers.get("accept", "")
            form = values["format"] or ("csv" if CSV in accepted and JSON not in accepted else "json")
            body = await to_thread.run_sync(work, {**values, "format": form}, limiter=limiter)
            answer = read_answer(request, *body, media=CSV if form == "csv" else JSON)
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
        if self.lacking is not None:
            answers[404] = Reply(self.lacking, ProblemObject, MEDIA_TYPE)
        parameters = [parameter.described() for parameter in self._all]
        return Operation(f"GET {self.path}", self.summary, self.tag, answers, parameters=parameters)


# -- the moment that a read shows --------------------------------------------------------------------------------------


@contextmanager
def look(service: Service, values: Asked) -> Iterator[Look]:
    """The record and its read models at that moment; blocks: call it in a worker thread. Raises `Problem` (400 in the
    future, 409 `min_position` beyond the record) or `Behind` (the position was not reached in time).
    """
    with _now(service, values["min_position"] or 0) as current:
        at, known = values["at"], values["known"]
        if at is None:
            if known is not None:
                raise Problem(400, "known says how much is known of the moment `at`: give `at` as well", field="known")
            yield current
            return
        now = service.clock.now()
        position, beyond = _place_of(at, current, now, "at")
        later = None if known is None else _known_of(known, at.time, position, current, now)
    with service.pool.at(position, beyond, later) as past:
        yield past


@contextmanager
def _now(service: Service, least: int) -> Iterator[Look]:
    with service.pool.now() as current:
        if current.position >= least:
            yield current
            return
        head = current.record.head().position
    if head < least:
        detail = f"the record ends at position {head}; position {least} does not exist yet"
        raise Problem(409, detail, field="min_position")
    with service.pool.now(min_position=least) as current:
        yield current


def _place_of(moment: Moment, current: Look, now: int, field: str) -> tuple[int, Beyond]:
    head = current.record.head().position
    if moment.time is None:
        there = head if moment.position is None else moment.position
        if there > head:
            raise Problem(400, f"the record ends at position {head}; {there} is beyond it", field=field)
        return there, NOTHING
    if moment.time > now:
        raise Problem(400, "this time is in the future", field=field)
    return moment_at(current.record, moment.time, head, current.view.state)


def _known_of(known: Moment, time: int | None, at: int, current: Look, now: int) -> Knowledge | None:
    position, beyond = _place_of(known, current, now, "known")
    position = max(position, *(last for _, last in beyond.archives), 0)
    try:
        return known_by(current.record, at, time, position, current.view.state)
    except NotKnown as error:
        raise Problem(400, str(error), field="known") from None
