"""Errors as RFC 9457 problems over HTTP: one table maps error classes to statuses."""

from dataclasses import KW_ONLY, dataclass
from http import HTTPStatus

import msgspec
from starlette.exceptions import HTTPException
from starlette.routing import Match, Route, Router
from starlette.types import Receive, Scope, Send

from steno.engine import errors as engine
from steno.events import errors as events
from steno.projections.api.token_store import without_secrets
from steno.projections.read_models.projector import Building
from steno.projections.read_models.reader_pool import Behind, BeingBuilt

MEDIA_TYPE = "application/problem+json"
OTHER = "other"  # the name of a path without a route


@dataclass(eq=False)
class Problem(Exception):
    """A request that is answered with a problem."""

    status: int
    detail: str  # what is wrong and what to do
    _: KW_ONLY
    type: str | None = None  # what a program tells it by, where the status does not say enough
    field: str | None = None  # the wrong part of the request: `limit`, `problem_def.tests[0].sizes`
    headers: tuple[tuple[str, str], ...] = ()  # further headers of the answer, as `Retry-After`
    progress: Building | None = None  # how far the read models are built
    last_common_position: int | None = None  # of the record and of what a stream's client has

    def __str__(self) -> str:
        return self.detail


class ProblemObject(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A problem as it is sent (RFC 9457). Where `type` is left out, the status says all: `about:blank`."""

    type: str | None = None
    title: str
    status: int
    detail: str
    field: str | None = None  # the part of the request that is wrong
    progress: Building | None = None  # of the read models, if the request must wait for them
    last_common_position: int | None = None  # the newest position up to which client and record can have the same


_ERRORS: dict[int, tuple[type[BaseException], ...]] = {
    400: (events.StenoError,),
    403: (engine.RefusedByPolicy,),
    404: (
        *(events.PositionNotFound, engine.ProjectNotFound, engine.RunNotFound),
        *(engine.CaseNotFound, engine.VmNotFound, engine.TokenNotFound, engine.LeverNotFound),
        *(engine.SourceNotFound, engine.NothingRecorded),
    ),
    409: (
        *(events.VersionConflict, events.IdConflict, events.SecretGone),
        *(engine.VmInUse, engine.NameInUse, engine.Conflict),
    ),
    422: (events.UnreadableInput, engine.TaskInvalid),
    502: (engine.ProviderUnreachable, engine.ProviderRefused, engine.ProviderError),
    503: (
        *(events.RecordLocked, events.RecordNotFound, events.RecordNotWritable, events.NotARecord),
        *(events.RecordUnreachable, events.RecordDamaged, events.RecordTooNew, events.RecordTooOld),
        *(engine.NotConfigured, Behind),
    ),
}
STATUSES = {error: status for status, errors in _ERRORS.items() for error in errors}
"""Error class → status; a subclass has that of its nearest listed ancestor."""


def problem_of(error: BaseException) -> Problem:
    """An error as a problem; the text of an unexpected one, a bug in Steno, is not sent."""
    if isinstance(error, Problem):
        return error
    for ancestor in type(error).__mro__:
        if ancestor in STATUSES:
            status = STATUSES[ancestor]
            again = (("Retry-After", "1"),) if status == 503 else ()
            progress = error.progress if isinstance(error, BeingBuilt) else None
            detail, field = str(error) or (error.__doc__ or "").strip(), getattr(error, "filter", None)
            return Problem(status, detail, field=field, headers=again, progress=progress)
    return Problem(500, "bug in Steno; the details are in its log")


def problem_body(problem: Problem) -> bytes:
    return msgspec.json.encode(
        ProblemObject(
            type=problem.type,
            title=HTTPStatus(problem.status).phrase,
            status=problem.status,
            detail=without_secrets(" ".join(problem.detail.split())),
            field=None if problem.field is None else without_secrets(problem.field),
            progress=problem.progress,
            last_common_position=problem.last_common_position,
        )
    )


class Routes(Router):
    """A router that raises a problem if no route fits."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["app"] = self  # a route then raises, instead of an answer in plain text
        try:
            await super().__call__(scope, receive, send)
        except HTTPException as error:
            detail, headers = str(error.detail), dict(error.headers or {})
            if error.status_code == 404:
                detail = "there is nothing at this path; /openapi.json lists all paths"
            if error.status_code == 405:
                fitting = [route for route in self.routes if route.matches(dict(scope))[0] is not Match.NONE]
                methods = {method for route in fitting for method in getattr(route, "methods", None) or ()}
                detail = "this path does not support this method; Allow lists those it supports"
                headers["Allow"] = ", ".join(sorted(methods))
            raise Problem(error.status_code, detail, headers=tuple(headers.items())) from None

    def name_of(self, path: str) -> str:
        """The name of a path's route, which metrics have: clients cannot create labels."""
        names = (route.name for route in self.routes if isinstance(route, Route) and route.path_regex.fullmatch(path))
        return next(names, OTHER)
