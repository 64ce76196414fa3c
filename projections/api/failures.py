"""Whatever goes wrong becomes a problem; of a mistake of ours the log has the place, the answer does not."""

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from events.errors import StenoError
from projections.api.answers import problem_answer
from projections.api.problems import Problem, problem_of

_log = logging.getLogger(__name__)
_SAID = {
    404: "there is nothing at this path; /openapi.json lists what there is",
    405: "this path has no such method; Allow lists those it has",
}
"""What Starlette's own refusals mean here."""


class Failures:
    """In front of the router: an error nobody expected is one line in the log and a 500 that says nothing of it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = False

        async def sending(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, receive, sending)
        except Exception as error:  # noqa: BLE001 - the last resort of every request
            problem = problem_of(error)
            if problem.status >= 500:
                _log.error("%s %s: %s: %s", scope["method"], scope["path"], type(error).__name__, error)
            if not begun:
                await problem_answer(problem)(scope, receive, send)


def handlers() -> dict[Any, Callable[[Request, Any], Awaitable[Response]]]:
    """What a router does with the errors its routes raise on purpose."""
    return {
        Problem: _told,
        StenoError: _told,
        HTTPException: _refused,
        RequestValidationError: _invalid,
    }


async def _told(_: Request, error: Exception) -> Response:
    return problem_answer(problem_of(error))


async def _refused(_: Request, error: HTTPException) -> Response:
    said = _SAID.get(error.status_code, str(error.detail))
    return problem_answer(Problem(error.status_code, said, headers=tuple((error.headers or {}).items())))


async def _invalid(_: Request, error: RequestValidationError) -> Response:
    first = error.errors()[0]
    where = [str(step) for step in first["loc"] if step != "body"]
    return problem_answer(Problem(422, str(first["msg"]), field=".".join(where) or "body"))
