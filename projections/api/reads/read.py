"""One read of the API: its path, its parameters, what answers it, and what the answer looks like."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from anyio import CapacityLimiter, to_thread
from starlette.routing import BaseRoute, Route

from projections.api.answers import read_answer
from projections.api.at import MOMENT, look
from projections.api.parameters import Asked, PagePosition, Parameter, asked_of, cursor_of
from projections.api.problems import Problem
from projections.models.wire import Position, Shape

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from projections.api.service import Service
    from projections.store.reader_pool import Look

LONGEST = 100
"""Characters of a run's or machine's id or name in a path: no name is longer, and a guess at what was meant costs time
with every character."""
AT_ONCE = 16
"""Reads that are worked on at the same time; further ones wait."""

Answer = Callable[["Service", "Look", Asked], object]
"""What a read answers, as JSON values or as their text; called in a worker thread."""


Cursor = Annotated[str, msgspec.Meta(description="The `cursor` of the next page.")]


def page_shape(key: str, row: type) -> type:
    """The structure of a page of a list."""
    fields = [(key, tuple[row, ...]), ("next", Cursor | None), ("position", Position)]  # type: ignore[valid-type]
    return msgspec.defstruct(f"{row.__name__}Page", fields, bases=(Shape,), frozen=True, kw_only=True)


def page_object(key: str, rows: object, behind: int | PagePosition | None, look: Look) -> dict[str, object]:
    """A page as JSON values; `behind` is the place of its last row where more follow."""
    return {key: rows, "next": None if behind is None else cursor_of(behind), "position": look.position}


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """One GET route."""

    path: str
    summary: str
    answer: Answer
    shape: type
    """The structure its JSON has."""
    parameters: tuple[Parameter, ...] = ()
    tag: str = "runs"

    @property
    def takes(self) -> tuple[Parameter, ...]:
        """All its parameters."""
        return (*self.parameters, *MOMENT)

    def route(self, service: Service, limiter: Callable[[], CapacityLimiter]) -> BaseRoute:
        """The route that serves it."""

        async def endpoint(request: Request) -> Response:
            asked = asked_of(request, self.takes)
            check_path(asked)
            body, position = await to_thread.run_sync(self._work, service, asked, limiter=limiter())
            return read_answer(request, body, position)

        return Route(self.path, endpoint, methods=["GET"])

    def _work(self, service: Service, asked: Asked) -> tuple[bytes, int]:
        with look(service, asked) as seen:
            found = self.answer(service, seen, asked)
            body = found if isinstance(found, bytes) else msgspec.json.encode(found)
            return body, seen.position


def check_path(asked: Asked) -> None:
    """That the words of a path can name something.

    Raises:
        Problem: 404, one of them is longer than any name.
    """
    for name, word in asked.path.items():
        check_word(name, word)


def check_word(name: str, word: str) -> None:
    """As `check_path`, of one part of a path."""
    if len(word) > LONGEST:
        raise Problem(404, f"no name is that long ({len(word)} characters)", field=name)


def limiter() -> Callable[[], CapacityLimiter]:
    """The one limiter of all reads, made in the loop that needs it."""
    made: list[CapacityLimiter] = []

    def one() -> CapacityLimiter:
        if not made:
            made.append(CapacityLimiter(AT_ONCE))
        return made[0]

    return one


def described(reads: tuple[Read, ...]) -> dict[str, Any]:
    """The reads as a part of an OpenAPI document."""
    _, schemas = msgspec.json.schema_components(
        [read.shape for read in reads], ref_template="#/components/schemas/{name}"
    )
    return {"paths": {read.path: {"get": _operation(read)} for read in reads}, "components": {"schemas": schemas}}


def _operation(read: Read) -> dict[str, Any]:
    return {
        "operationId": _name(read.path),
        "summary": read.summary,
        "tags": [read.tag],
        "parameters": [*path_parameters(read.path), *(parameter_object(one) for one in read.takes)],
        "responses": {
            "200": {
                "description": "The state at the position in the header.",
                "headers": ANSWER_HEADERS,
                "content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{read.shape.__name__}"}}},
            },
            "304": {"description": "Unchanged since the client's copy (If-None-Match)."},
        },
    }


ANSWER_HEADERS: dict[str, Any] = {
    "ETag": {"description": "The entity tag of this body.", "schema": {"type": "string"}},
    "Steno-Position": {
        "description": "The position of the record that the answer shows.",
        "schema": {"type": "integer", "minimum": 0},
    },
}


def path_parameters(path: str) -> list[dict[str, Any]]:
    """The parts of a path in braces."""
    found = []
    for part in path.split("/"):
        if part.startswith("{"):
            name, _, _ = part.strip("{}").partition(":")
            schema: dict[str, Any] = (
                {"type": "integer", "minimum": 1, "maximum": 10**18 - 1}
                if name == "position"
                else {"type": "string", "minLength": 1, "maxLength": LONGEST}
            )
            found.append({"name": name, "in": "path", "required": True, "schema": schema, "description": _PATHS[name]})
    return found


NAMED = (
    "An id, the provider's id, a name (Steno's own active run of that name, else the newest), or a unique prefix of "
    "an id."
)
"""How a path names a run or a machine: every route finds it alike (`View.row`, `View.vm_row`)."""
_PATHS = {
    "id": NAMED,
    "position": "A position of the record.",
}


def parameter_object(one: Parameter) -> dict[str, Any]:
    """A query parameter as OpenAPI has it."""
    return {"name": one.name, "in": "query", "required": False, "description": one.help, "schema": dict(one.schema)}


def _name(path: str) -> str:
    """`getRunTimeline` of `/api/runs/{id}/timeline`."""
    words = [part for part in path.removeprefix("/api/").split("/") if not part.startswith("{")]
    if "{" in path and len(words[0]) > 1:
        words[0] = words[0].removesuffix("s")
    return "get" + "".join(word.capitalize() for word in words)
