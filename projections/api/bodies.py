"""JSON bodies: of requests, checked and converted; of answers, with entity tag and position."""

import re
from collections.abc import Mapping
from hashlib import blake2b
from typing import TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from steno.projections.api.problems import Problem

T = TypeVar("T")
JSON = "application/json"
CSV = "text/csv"
STENO_POSITION = "Steno-Position"  # the header that names the position an answer shows
_TYPE = "Content-Type"
_SHOWN = 60  # characters of a field's name that a problem repeats
_AT = re.compile(r"(?P<what>.*) - at `\$\.?(?P<path>.+?)`$", re.DOTALL)
_FIELD = re.compile(r"field `(?P<name>[^`]*)`")


async def json_body(request: Request, shape: type[T], default: T | None = None) -> T:
    """The body as `shape`; an empty body or null means `default`, if given. Raises `Problem`: 415 not JSON by type, 400
    invalid JSON, 422 of another shape.
    """
    value, body = None, await request.body()
    if body:
        rest = expect_json(request).lower()
        if "charset" in rest and "utf-8" not in rest:
            raise Problem(415, "JSON is UTF-8: leave the charset out", field=_TYPE)
        try:
            value = msgspec.json.decode(body)  # `read_body` has seen that it is UTF-8 and not too deep
        except msgspec.MsgspecError as error:
            raise Problem(400, f"the body is not valid JSON: {str(error)[:120]}", field="body") from None
    if value is None and default is not None:
        return default
    try:
        return msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        text = str(error)
        what, path = (at["what"], at["path"]) if (at := _AT.match(text)) is not None else (text, "")
        if not path and (named := _FIELD.search(text)) is not None:
            path = named["name"]
        raise Problem(422, f"{what[:1].lower()}{what[1:]}"[:300], field=path[:_SHOWN] or "body") from None


def expect_json(request: Request) -> str:
    """The parameters of the content type; raises `Problem` 415 if it is not JSON."""
    given = request.headers.get("content-type", "")
    kind, _, rest = given.partition(";")
    if kind.strip().lower() != JSON:
        what = f"the Content-Type is {given[:60]!r}" if given else "there is no Content-Type"
        raise Problem(415, f"{what}; send application/json", field=_TYPE, headers=(("Accept", JSON),))
    return rest


def matches(header: str | None, etag: str) -> bool:
    """True if `If-None-Match` names this tag (RFC 9110, weak comparison)."""
    if header is None:
        return False
    named = {tag.strip().removeprefix("W/") for tag in header.split(",")}
    return etag in named or "*" in named


def read_answer(request: Request, body: bytes, position: int | None = None, *, media: str = JSON) -> Response:
    """A read as 200, or 304 if `If-None-Match` names its tag; clients must revalidate."""
    tag = f'"{blake2b(body, digest_size=12).hexdigest()}"'
    headers = {"Cache-Control": "no-cache", "ETag": tag}
    if position is not None:
        headers[STENO_POSITION] = str(position)
    if any(matches(header, tag) for header in request.headers.getlist("if-none-match")):
        return Response(status_code=304, headers=headers)
    return Response(body, media_type=media, headers=headers)


def fresh_answer(value: object, *, status: int = 200, headers: Mapping[str, str] = {}) -> Response:
    """An answer that no cache keeps."""
    fresh = {"Cache-Control": "no-store", **headers}
    return Response(msgspec.json.encode(value), status_code=status, media_type=JSON, headers=fresh)


def made_answer(value: object, position: int, *, status: int = 202, location: str | None = None) -> Response:
    """The answer to a command; a read at `position` or later shows its effect."""
    headers = {} if location is None else {"Location": location}
    return fresh_answer(value, status=status, headers={STENO_POSITION: str(position), **headers})
