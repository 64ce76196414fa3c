"""What goes wrong over HTTP, as RFC 9457 problems: one table from our errors to statuses, and who answers with them."""

import logging
from collections.abc import Callable, Coroutine
from http import HTTPStatus
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from engine import errors as engine
from engine.commands.tokens import without_secrets
from events import errors as events
from projections.models.projector import Building
from projections.models.reader_pool import Behind, BeingBuilt

_log = logging.getLogger(__name__)
MEDIA_TYPE = "application/problem+json"


class Problem(Exception):
    """A request that is answered with a problem; the sentence says what is wrong and what to do.

    Args:
        field: the part of the request that is wrong, as its sender wrote it: `limit`, `problem_def.tests[0].sizes`.
        headers: further headers of the answer, as `Retry-After`.
        progress: how far the read models are built.
    """

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        field: str | None = None,
        headers: tuple[tuple[str, str], ...] = (),
        progress: Building | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.field = field
        self.headers = headers
        self.progress = progress


class ProblemObject(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A problem as it is sent (RFC 9457); `type` is left out, which means `about:blank`: the status says it."""

    title: str
    status: int
    detail: str
    field: str | None = None
    """The part of the request that is wrong."""
    progress: Building | None = None
    """How far the read models are built, where the request has to wait for them."""


_ERRORS: dict[int, tuple[type[BaseException], ...]] = {
    400: (events.StenoError,),
    403: (engine.RefusedByPolicy,),
    404: (
        *(events.PositionNotFound, engine.ProjectNotFound, engine.RunNotFound),
        *(engine.VmNotFound, engine.TokenNotFound),
    ),
    409: (
        *(events.VersionConflict, events.IdConflict, events.SecretGone),
        *(engine.VmInUse, engine.NameInUse, engine.Conflict),
    ),
    422: (events.UnreadableInput, engine.TaskInvalid),
    502: (engine.ProviderUnreachable, engine.ProviderRefused, engine.ProviderError),
    503: (
        *(events.RecordLocked, events.RecordNotFound, events.RecordNotWritable, events.NotARecord),
        *(events.RecordDamaged, events.RecordTooNew, events.RecordTooOld, engine.NotConfigured, Behind),
    ),
}
STATUSES = {error: status for status, errors in _ERRORS.items() for error in errors}
"""The status of every error class; a subclass has that of its nearest listed ancestor."""


def problem_of(error: BaseException) -> Problem:
    """An error of ours as a problem; of anything else, a bug in Steno, the answer does not show the text."""
    if isinstance(error, Problem):
        return error
    for ancestor in type(error).__mro__:
        if ancestor in STATUSES:
            status = STATUSES[ancestor]
            again = (("Retry-After", "1"),) if status == 503 else ()
            progress = error.progress if isinstance(error, BeingBuilt) else None
            return Problem(status, str(error) or (error.__doc__ or "").strip(), headers=again, progress=progress)
    return Problem(500, "bug in Steno; the details are in its log")


def problem_body(problem: Problem) -> bytes:
    """The JSON that is sent."""
    return msgspec.json.encode(
        ProblemObject(
            title=HTTPStatus(problem.status).phrase,
            status=problem.status,
            detail=without_secrets(" ".join(problem.detail.split())),
            field=None if problem.field is None else without_secrets(problem.field),
            progress=problem.progress,
        )
    )


def problem_answer(problem: Problem) -> Response:
    """A problem as RFC 9457 has it."""
    headers = {"Cache-Control": "no-store", **dict(problem.headers)}
    return Response(problem_body(problem), status_code=problem.status, media_type=MEDIA_TYPE, headers=headers)


class Failures:
    """In front of the router: answers errors that the router's handlers did not, and sends no body for HEAD."""

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
            if scope["method"] == "HEAD" and message["type"] == "http.response.body":
                message = {**message, "body": b""}
            await send(message)

        try:
            await self._app(scope, receive, sending)
        except Exception as error:  # noqa: BLE001 - the router has logged it
            if not begun:
                await problem_answer(problem_of(error))(scope, receive, sending)


async def _raised(_: Request, error: Exception) -> Response:
    return problem_answer(problem_of(error))


async def _refused(request: Request, error: HTTPException) -> Response:
    """What Starlette refuses: an unknown path, or a method that it does not have."""
    said, headers = str(error.detail), dict(error.headers or {})
    if error.status_code == 404:
        said = "there is nothing at this path; /openapi.json lists all paths"
    if error.status_code == 405:
        fitting = [route for route in request.app.routes if route.matches(dict(request.scope))[0] is not Match.NONE]
        methods = {method for route in fitting for method in getattr(route, "methods", None) or ()}
        said = "this path does not support this method; Allow lists those it supports"
        headers["Allow"] = ", ".join(sorted(methods))
    return problem_answer(Problem(error.status_code, said, headers=tuple(headers.items())))


async def _logged(request: Request, error: Exception) -> Response:
    path = without_secrets(request.url.path)
    _log.error("%s %s: %s: %s", request.method, path, type(error).__name__, without_secrets(str(error)))
    return problem_answer(problem_of(error))


HANDLERS: dict[Any, Callable[[Request, Any], Coroutine[Any, Any, Response]]] = {
    Problem: _raised,
    events.StenoError: _raised,
    HTTPException: _refused,
    Exception: _logged,
}
"""What the router answers to the errors of its routes."""
