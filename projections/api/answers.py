"""JSON answers: entity tag, position, and 304 for a client that has the bytes already."""

from collections.abc import Mapping
from hashlib import blake2b

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from projections.api.problems import MEDIA_TYPE, Problem, problem_body

JSON = "application/json"
POSITION = "Steno-Position"
"""The header that names the position an answer stands at."""
FRESH = {"Cache-Control": "no-cache"}
"""A client may keep an answer, and asks whether it still holds."""


def etag_of(body: bytes) -> str:
    """The tag of a body, quoted as a header has it."""
    return f'"{blake2b(body, digest_size=12).hexdigest()}"'


def matches(header: str | None, etag: str) -> bool:
    """Whether `If-None-Match` names this tag: the client has these bytes already (RFC 9110, weak comparison)."""
    if header is None:
        return False
    named = {one.strip().removeprefix("W/") for one in header.split(",")}
    return etag in named or "*" in named


def read_answer(request: Request, value: object, position: int) -> Response:
    """A read as 200, or as 304 where `If-None-Match` names its tag.

    Args:
        value: anything msgspec encodes, or the JSON text itself as `bytes`.
        position: what the answer stands at.
    """
    body = value if isinstance(value, bytes) else msgspec.json.encode(value)
    tag = etag_of(body)
    headers = {**FRESH, "ETag": tag, POSITION: str(position)}
    if matches(request.headers.get("if-none-match"), tag):
        return Response(status_code=304, headers=headers)
    return Response(body, media_type=JSON, headers=headers)


def made_answer(value: object, position: int, *, status: int = 202, location: str | None = None) -> Response:
    """The answer to a command; `position` is what has to be seen for it to be seen done."""
    headers = {"Cache-Control": "no-store", POSITION: str(position)}
    if location is not None:
        headers["Location"] = location
    return Response(msgspec.json.encode(value), status_code=status, media_type=JSON, headers=headers)


def problem_answer(problem: Problem) -> Response:
    """A problem as RFC 9457 has it."""
    headers: Mapping[str, str] = {"Cache-Control": "no-store", **dict(problem.headers)}
    return Response(problem_body(problem), status_code=problem.status, media_type=MEDIA_TYPE, headers=headers)
