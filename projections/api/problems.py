"""What goes wrong over HTTP, as RFC 9457 problems: one table from our errors to statuses."""

from http import HTTPStatus

import msgspec

from engine import errors as engine
from engine.commands.tokens import without_secrets
from events import errors as events
from projections.models.build_progress import Building
from projections.store.reader_pool import Behind, BeingBuilt

MEDIA_TYPE = "application/problem+json"


class Problem(Exception):
    """A request that is answered with a problem; the sentence says what is wrong and what to do.

    Args:
        field: the part of the request that is wrong, as its sender wrote it: `limit`, `problem_def.tests[0].sizes`.
        headers: further headers of the answer, as `Retry-After`.
        progress: how far what is waited for is.
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
    """How far the read models are that are being built; there where they are what is waited for."""


STATUSES: dict[type[BaseException], int] = {
    events.PositionNotFound: 404,
    events.VersionConflict: 409,
    events.IdConflict: 409,
    events.SecretGone: 409,
    events.UnreadableInput: 422,
    events.RecordLocked: 503,
    events.RecordNotFound: 503,
    events.RecordNotWritable: 503,
    events.NotARecord: 503,
    events.RecordDamaged: 503,
    events.RecordTooNew: 503,
    events.RecordTooOld: 503,
    engine.ProviderUnreachable: 502,
    engine.ProviderRefused: 502,
    engine.ProviderError: 502,
    engine.NotConfigured: 503,
    engine.ProjectNotFound: 404,
    engine.RunNotFound: 404,
    engine.VmNotFound: 404,
    engine.TokenNotFound: 404,
    engine.VmInUse: 409,
    engine.TaskInvalid: 422,
    engine.NameInUse: 409,
    engine.Conflict: 409,
    engine.RefusedByPolicy: 403,
    Behind: 503,
    events.StenoError: 400,
}
"""The status of every error class; a subclass has that of its nearest listed ancestor."""


def problem_of(error: BaseException) -> Problem:
    """An error of ours as a problem; anything else is a mistake of Steno's, told without its text."""
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
