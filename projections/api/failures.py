"""Whatever goes wrong becomes a problem; of a mistake of ours the log has the place, the answer does not."""

import logging
from collections.abc import Callable, Coroutine
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from engine.commands.tokens import without_secrets
from events.errors import StenoError
from projections.api.answers import problem_answer
from projections.api.problems import Problem, problem_of

_log = logging.getLogger(__name__)
_SAID = {
    404: "there is nothing at this path; /openapi.json lists all paths",
    405: "this path does not support this method; Allow lists those it supports",
}
"""What Starlette's own refusals mean here."""


class Failures:
    """In front of the router: what still escapes it ends here, and an answer to HEAD has no body."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = False
        bodiless = scope["method"] == "HEAD"

        async def sending(message: Message) -> None:
            nonlocal begun
            begun = True
            if bodiless and message["type"] == "http.response.body":
                message = {**message, "body": b""}
            await send(message)

        try:
            await self._app(scope, receive, sending)
        except Exception as error:  # noqa: BLE001 - the router has told it and logged it, or it is in the middle
            if not begun:
                await problem_answer(problem_of(error))(scope, receive, sending)


def handlers() -> dict[Any, Callable[[Request, Any], Coroutine[Any, Any, Response]]]:
    """What a router does with the errors its routes raise on purpose."""
    return {
        Problem: _told,
        StenoError: _told,
        HTTPException: _refused,
        Exception: _mistaken,
    }


async def _told(_: Request, error: Exception) -> Response:
    return problem_answer(problem_of(error))


async def _refused(request: Request, error: HTTPException) -> Response:
    said = _SAID.get(error.status_code, str(error.detail))
    headers = dict(error.headers or {})
    if error.status_code == 405:
        headers["Allow"] = ", ".join(sorted(_methods(request)))
    return problem_answer(Problem(error.status_code, said, headers=tuple(headers.items())))


def _methods(request: Request) -> set[str]:
    """What can be done at the path of a request, over all its routes."""
    scope = dict(request.scope)
    fitting = [route for route in request.app.routes if route.matches(scope)[0] is not Match.NONE]
    return {method for route in fitting for method in getattr(route, "methods", None) or ()}


async def _mistaken(request: Request, error: Exception) -> Response:
    path = without_secrets(request.url.path)
    _log.error("%s %s: %s: %s", request.method, path, type(error).__name__, without_secrets(str(error)))
    return problem_answer(problem_of(error))
