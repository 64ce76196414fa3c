"""JSON bodies of requests: checked, decoded, and converted to the Struct of their route."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from events.shape.depth import MAX_DEPTH, too_deep
from projections.api.problems import Problem

if TYPE_CHECKING:
    from starlette.requests import Request

T = TypeVar("T")
_TYPE = "Content-Type"
_SHOWN = 60
"""Characters of a field's name that a problem repeats."""
_AT = re.compile(r"(?P<what>.*) - at `\$\.?(?P<path>.+?)`$", re.DOTALL)
_FIELD = re.compile(r"field `(?P<name>[^`]*)`")


async def json_body(request: Request, shape: type[T], default: T | None = None) -> T:
    """The body as `shape`; `default`, where there is one, stands for an empty body and for null.

    Raises:
        Problem: 415, the content type is not JSON; 400, the body is not valid JSON; 422, it does not have the shape.
    """
    value = _decoded(request, await request.body())
    if value is None and default is not None:
        return default
    try:
        return msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        said = str(error)
        what, path = (at["what"], at["path"]) if (at := _AT.match(said)) is not None else (said, "")
        if not path and (named := _FIELD.search(said)) is not None:
            path = named["name"]
        raise Problem(422, f"{what[:1].lower()}{what[1:]}"[:300], field=path[:_SHOWN] or "body") from None


def expect_json(request: Request) -> str:
    """The parameters of the content type.

    Raises:
        Problem: 415, it is not JSON.
    """
    given = request.headers.get("content-type", "")
    kind, _, rest = given.partition(";")
    if kind.strip().lower() != "application/json":
        said = f"the Content-Type is {given[:60]!r}" if given else "there is no Content-Type"
        raise Problem(415, f"{said}; send application/json", field=_TYPE, headers=(("Accept", "application/json"),))
    return rest


def _decoded(request: Request, body: bytes) -> Any:
    if not body:
        return None
    rest = expect_json(request)
    if "charset" in rest.lower() and "utf-8" not in rest.lower():
        raise Problem(415, "JSON is UTF-8: leave the charset out", field=_TYPE)
    if too_deep(body):
        raise Problem(400, f"the body nests deeper than {MAX_DEPTH}", field="body")
    try:
        return msgspec.json.decode(body)
    except UnicodeDecodeError:
        raise Problem(400, "the body is not valid UTF-8", field="body") from None
    except (msgspec.MsgspecError, RecursionError) as error:
        raise Problem(400, f"the body is not valid JSON: {str(error)[:120]}", field="body") from None
