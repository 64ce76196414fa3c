"""The form a request must have before anybody asks who sent it: method, path, query, headers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, unquote_to_bytes

from projections.api.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Iterable

    from starlette.types import Scope

MAX_URL: Final = 8 * 1024
"""Bytes of path and query together."""
MAX_HEADERS: Final = 100
METHODS: Final = frozenset({"GET", "HEAD", "POST", "DELETE", "OPTIONS", "PUT", "PATCH"})
"""Methods a path may or may not have; no path has any other."""

_VERSIONS: Final = frozenset({"1.1", "1.0"})
_PLAIN: Final = re.compile(rb"(?:/[A-Za-z0-9_~-][A-Za-z0-9._~:@-]*)*/?")
_SECRETS: Final = frozenset({"token", "access_token", "api_key"})
_ONCE: Final = (b"host", b"authorization", b"content-length", b"content-type", b"origin", b"idempotency-key")


def check_head(scope: Scope) -> dict[bytes, bytes]:
    """The headers by name; of one that was sent several times, all values with commas between (cookies: semicolons).

    Raises:
        Problem: the head is no request of ours; the field names what of it.
    """
    if scope["http_version"] not in _VERSIONS:
        raise Problem(400, f"this is HTTP/{scope['http_version']}; send HTTP/1.1")
    path: bytes = scope["raw_path"]
    if scope["query_string"] or len(path) > MAX_URL or not _PLAIN.fullmatch(path):
        _check_target(path, scope["query_string"])
    headers = scope["headers"]
    found: dict[bytes, bytes] = dict(headers)
    if len(found) != len(headers):
        found = _joined(headers)
    if len(headers) > MAX_HEADERS:
        raise Problem(431, f"a request may have {MAX_HEADERS} headers")
    return found


def check_method(method: str) -> None:
    """Look that some path may have it.

    Raises:
        Problem: none has.
    """
    if method not in METHODS:
        raise Problem(405, "no path here has this method", headers=(("Allow", "GET, HEAD, POST, DELETE"),))


def _check_target(path: bytes, query: bytes) -> None:
    if len(path) + len(query) > MAX_URL:
        raise Problem(414, f"path and query may have {MAX_URL} bytes together", field="path")
    if not _PLAIN.fullmatch(path):
        _check_path(path)
    if query:
        _check_query(query)


def _joined(headers: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    for name, value in headers:
        if name not in found:
            found[name] = value
        elif name in _ONCE:
            said = name.decode().title()
            raise Problem(400, f"the header {said} may be sent once", field=said)
        else:
            found[name] += (b"; " if name == b"cookie" else b", ") + value
    return found


def _check_path(path: bytes) -> None:
    """A path that is written in another way than the one it stands for is not looked up at all."""
    try:
        text = unquote_to_bytes(path).decode()
    except UnicodeDecodeError:
        raise Problem(400, "the path is not valid UTF-8 once its % signs are read", field="path") from None
    parts = text.split("/")
    if (
        not text.startswith("/")
        or text.count("/") != path.count(b"/")
        or "\\" in text
        or not text.isprintable()
        or any(part in {".", ".."} for part in parts)
        or "" in parts[1:-1]
    ):
        raise Problem(400, "the path has empty or relative parts, or characters that no path here has", field="path")


def _check_query(query: bytes) -> None:
    lowered = query.lower()
    if b"%" in query or not query.isascii():
        try:
            unquote_to_bytes(query).decode()
        except UnicodeDecodeError:
            raise Problem(400, "the query is not valid UTF-8 once its % signs are read", field="query") from None
    elif b"token" not in lowered and b"api_key" not in lowered:
        return
    for name, _ in parse_qsl(query.decode("latin-1"), keep_blank_values=True):
        if name.lower() in _SECRETS:
            raise Problem(
                400,
                "a token in an address ends in logs and histories: send it as `Authorization: Bearer …`, "
                "and revoke this one",
                field=name,
            )
