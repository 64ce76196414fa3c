"""JSON bodies: what is no JSON is refused before anything is made of it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
from fastapi import Request, Response
from fastapi.routing import APIRoute

from events.shape.depth import MAX_DEPTH, too_deep
from projections.api.parameters import asked_of
from projections.api.problems import Problem

_TYPE = "Content-Type"


class JsonRequest(Request):
    """A request whose body has been read and decoded."""

    checked: tuple[bytes, Any] = (b"", None)

    async def body(self) -> bytes:
        """The bytes."""
        return self.checked[0]

    async def json(self) -> Any:
        """What they say."""
        return self.checked[1]


class JsonRoute(APIRoute):
    """A route that takes a JSON body and no query."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler, with the checks in front."""
        inner = super().get_route_handler()

        async def handler(request: Request) -> Response:
            asked_of(request, ())
            checked = JsonRequest(request.scope, request.receive)
            checked.checked = await _decoded(request)
            return await inner(checked)

        return handler


async def _decoded(request: Request) -> tuple[bytes, Any]:
    """The body, and what it says.

    Raises:
        Problem: 415, it is not said to be JSON; 400, it is none.
    """
    body = await request.body()
    if not body:
        return b"", None
    given = request.headers.get("content-type", "")
    kind, _, rest = given.partition(";")
    if kind.strip().lower() != "application/json":
        said = f"the body is said to be {given[:60]!r}" if given else "nothing says what the body is"
        raise Problem(415, f"{said}; send application/json", field=_TYPE, headers=(("Accept", "application/json"),))
    if "charset" in rest.lower() and "utf-8" not in rest.lower():
        raise Problem(415, "JSON is UTF-8: leave the charset out", field=_TYPE)
    if too_deep(body):
        raise Problem(400, f"the body nests deeper than {MAX_DEPTH}", field="body")
    try:
        return body, msgspec.json.decode(body)
    except UnicodeDecodeError:
        raise Problem(400, "the body is not valid UTF-8", field="body") from None
    except (msgspec.MsgspecError, RecursionError) as error:
        raise Problem(400, f"the body is not valid JSON: {str(error)[:120]}", field="body") from None
