"""One read of the API: its path, its parameters, what answers it, and what the answer looks like."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from anyio import CapacityLimiter, to_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from engine.wire import Position, Shape
from projections.api.bodies import STENO_POSITION, read_answer
from projections.api.openapi import json_answer, operation_name
from projections.api.parameters import Asked, Parameter, Place, asked_of, cursor_of, path_parameters
from projections.api.reads.moment import MOMENT, look
from projections.api.service import Service
from projections.models.reader_pool import Look

AT_ONCE = 16
"""Reads that are worked on at the same time; further ones wait."""
_HEADERS = {
    "ETag": {"description": "The entity tag of this body.", "schema": {"type": "string"}},
    STENO_POSITION: {
        "description": "The position of the record that the answer shows.",
        "schema": {"type": "integer", "minimum": 0},
    },
}
Cursor = Annotated[str, msgspec.Meta(description="The `cursor` of the next page.")]


def page_shape(key: str, row: type, *, paged: bool = True) -> type:
    """The structure of a list, or of a page of it."""
    fields = [(key, tuple[row, ...]), ("next", Cursor | None), ("position", Position)]  # type: ignore[valid-type]
    if not paged:
        del fields[1]
    return msgspec.defstruct(f"{row.__name__}Page", fields, bases=(Shape,), frozen=True, kw_only=True)


def at_position(shape: type) -> type:
    """The structure with the position that the answer shows."""
    fields = [("position", Position)]
    return msgspec.defstruct(f"{shape.__name__}Answer", fields, bases=(shape,), frozen=True, kw_only=True)


def page_object(key: str, rows: object, behind: Place | None, look: Look) -> dict[str, object]:
    """A page as JSON values; `behind` is the place of its last row where more follow."""
    return {key: rows, "next": cursor_of(behind), "position": look.position}


def stored_page(key: str, found: Sequence[tuple[Place, bytes]], limit: int, look: Look) -> dict[str, object]:
    """A page of stored JSON texts, of up to one row more than it has."""
    rows = found[:limit]
    return page_object(key, [msgspec.Raw(text) for _, text in rows], rows[-1][0] if len(found) > limit else None, look)


@dataclass(frozen=True, slots=True)
class Read:
    """One GET route."""

    path: str
    summary: str
    answer: Callable[[Service, Look, Asked], object]
    """What it answers, as JSON values or as their text; called in a worker thread."""
    shape: type
    """The structure its JSON has."""
    tag: str = "runs"
    parameters: tuple[Parameter, ...] = ()

    def route(self, service: Service, limiter: CapacityLimiter) -> BaseRoute:
        """The route that serves it."""

        def work(asked: Asked) -> tuple[bytes, int]:
            with look(service, asked) as seen:
                found = self.answer(service, seen, asked)
                return found if isinstance(found, bytes) else msgspec.json.encode(found), seen.position

        async def endpoint(request: Request) -> Response:
            asked = asked_of(request, (*self.parameters, *MOMENT))
            return read_answer(request, *await to_thread.run_sync(work, asked, limiter=limiter))

        return Route(self.path, endpoint, methods=["GET"])

    def operation(self) -> dict[str, Any]:
        """The route as OpenAPI has it."""
        return {
            "operationId": operation_name("get", self.path),
            "summary": self.summary,
            "tags": [self.tag],
            "parameters": [
                *path_parameters(self.path),
                *(one.described() for one in (*self.parameters, *MOMENT)),
            ],
            "responses": {
                "200": {**json_answer("The state at the position in the header.", self.shape), "headers": _HEADERS},
                "304": {"description": "Unchanged since the client's copy (If-None-Match)."},
            },
        }
