"""Limits of a request: form of the head, size and time of the body, and rate per caller."""

import asyncio
import re
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import parse_qsl, unquote_to_bytes

from starlette.types import Receive, Scope

from steno.events.clock import SECOND
from steno.events.poll import MAX_DEPTH, too_deep
from steno.projections.api.problems import Problem
from steno.projections.api.tokens import Caller

MAX_URL: Final = 8 * 1024  # bytes of path and query together
MAX_HEADERS: Final = 100
METHODS: Final = frozenset({"GET", "HEAD", "POST", "DELETE", "OPTIONS", "PUT", "PATCH"})
"""Methods that some path accepts; others get 405 everywhere."""
MAX_BODY: Final = 1024 * 1024  # bytes
MAX_LOGIN: Final = 4096  # bytes of the body of a caller that is not authenticated yet: a login
BODY_SECONDS: Final = 30  # how long a body may take to arrive

_VERSIONS: Final = frozenset({"1.1", "1.0"})
_PLAIN: Final = re.compile(rb"(?:/[A-Za-z0-9_~-][A-Za-z0-9._~:@-]*)*/?")
_SECRETS: Final = frozenset({"token", "access_token", "api_key"})
_ONCE: Final = (b"host", b"authorization", b"content-length", b"content-type", b"origin", b"idempotency-key")
_CLOSE: Final = (("Connection", "close"),)  # the rest of the body is not read
_CALLERS: Final = 1_000  # buckets kept; the least recently used is evicted, and starts full again


def check_head(scope: Scope) -> dict[bytes, bytes]:
    """The headers by name; repeated headers joined by commas (cookies: semicolons). Raises `Problem` if the head is
    malformed or too large; its field names the part.
    """
    if scope["http_version"] not in _VERSIONS:
        raise Problem(400, f"HTTP/{scope['http_version']} is not supported; send HTTP/1.1")
    path: bytes = scope["raw_path"]
    query: bytes = scope["query_string"]
    if len(path) + len(query) > MAX_URL:
        raise Problem(414, f"path and query together may have at most {MAX_URL} bytes", field="path")
    if not _PLAIN.fullmatch(path):
        _check_path(path)
    if query:
        _check_query(query)
    headers = scope["headers"]
    by_name: dict[bytes, bytes] = dict(headers)
    if len(by_name) != len(headers):
        by_name = _joined(headers)
    if len(headers) > MAX_HEADERS:
        raise Problem(431, f"a request may have at most {MAX_HEADERS} headers")
    return by_name


def _joined(headers: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    by_name: dict[bytes, bytes] = {}
    for name, value in headers:
        if name not in by_name:
            by_name[name] = value
        elif name in _ONCE:
            title = name.decode().title()
            raise Problem(400, f"the header {title} may be sent only once", field=title)
        else:
            by_name[name] += (b"; " if name == b"cookie" else b", ") + value
    return by_name


def _check_path(path: bytes) -> None:
    """Refuse a path that is not in normal form, as it is never looked up under another spelling."""
    try:
        text = unquote_to_bytes(path).decode()
    except UnicodeDecodeError:
        raise Problem(400, "the percent-decoded path is not valid UTF-8", field="path") from None
    parts = text.split("/")
    if (
        not text.startswith("/")
        or text.count("/") != path.count(b"/")
        or "\\" in text
        or not text.isprintable()
        or any(part in {".", ".."} for part in parts)
        or "" in parts[1:-1]
    ):
        raise Problem(400, "the path has empty or relative parts, or characters that are not allowed", field="path")


def _check_query(query: bytes) -> None:
    try:
        unquote_to_bytes(query).decode()
    except UnicodeDecodeError:
        raise Problem(400, "the percent-decoded query is not valid UTF-8", field="query") from None
    for name, _ in parse_qsl(query.decode("latin-1"), keep_blank_values=True):
        if name.lower() in _SECRETS:
            raise Problem(
                400,
                "do not put a token in a URL: it ends up in logs and browser histories. Send it as "
                "`Authorization: Bearer …`, and revoke this token",
                field=name,
            )


async def read_body(headers: Mapping[bytes, bytes], receive: Receive, most: int = MAX_BODY) -> bytes | None:
    """The whole body; None: the client disconnected. Raises `Problem` if it is encoded, too large, slow, deeply nested,
    or not UTF-8.
    """
    if headers.get(b"transfer-encoding", b"chunked").lower() != b"chunked":
        raise Problem(
            501,
            "this transfer encoding is not supported: send the body with a Content-Length, or chunked",
            field="Transfer-Encoding",
            headers=_CLOSE,
        )
    if headers.get(b"content-encoding", b"identity").lower() != b"identity":
        raise Problem(
            415,
            "this content encoding is not supported: send the body as it is",
            field="Content-Encoding",
            headers=(*_CLOSE, ("Accept-Encoding", "identity")),
        )
    too_large = Problem(413, f"the body may have at most {most} bytes", field="body", headers=_CLOSE)
    length = headers.get(b"content-length", b"0")
    if not length.isdigit():
        raise Problem(400, "the header Content-Length is not a number", field="Content-Length")
    if len(length) > 10 or int(length) > most:
        raise too_large
    body, more = bytearray(), True
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return None
                body += message.get("body", b"")
                if len(body) > most:
                    raise too_large
                more = message.get("more_body", False)
        body.decode()
    except TimeoutError:
        raise Problem(408, f"the body took over {BODY_SECONDS} seconds", field="body", headers=_CLOSE) from None
    except UnicodeDecodeError as error:
        raise Problem(400, f"the body is not valid UTF-8 at byte {error.start}", field="body") from None
    if too_deep(bytes(body)):
        raise Problem(400, f"the body is nested deeper than {MAX_DEPTH} levels", field="body")
    return bytes(body)


class RateLimit:
    """A token bucket per caller: `most` requests, refilled every `span` microseconds. Event loop's thread only."""

    def __init__(self, most: int, span: int) -> None:
        self.most = most
        self.span = span
        self._spent: OrderedDict[str, tuple[float, int]] = OrderedDict()  # caller → (spent, as of when)

    def take(self, caller: str, now: int) -> int:
        """Take one token; returns 0, or the microseconds until the next is available."""
        spent, at = self._spent.get(caller, (0.0, now))
        spent = max(0.0, spent - max(0, now - at) * self.most / self.span)
        over = spent + 1 - self.most
        if over <= 1e-9:
            spent += 1
        self._spent[caller] = (spent, now)
        self._spent.move_to_end(caller)
        if len(self._spent) > _CALLERS:
            self._spent.popitem(last=False)
        return 0 if over <= 1e-9 else max(1, round(over * self.span / self.most))

    def expect(self, caller: Caller, now: int, limit: str) -> None:
        """Take one token for a caller; raises `Problem` 429 if none is left. `limit` states the limit in words."""
        seconds = -(-self.take(caller.token_id or caller.name, now) // SECOND)
        if seconds:
            detail = f"{caller.name} {limit}; retry in {seconds} s"
            raise Problem(429, detail, headers=(("Retry-After", str(seconds)),))
