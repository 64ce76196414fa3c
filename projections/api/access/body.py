"""The body of a request: read whole before anybody looks at it, bounded in size, depth and time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from events.shape.depth import MAX_DEPTH, too_deep
from projections.api.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.types import Receive

MAX_BODY: Final = 1024 * 1024
"""Bytes."""
MAX_UNKNOWN: Final = 4096
"""Bytes of whoever is not known yet: a login."""
BODY_SECONDS: Final = 30
"""How long a body may take to come."""


async def read_body(headers: Mapping[bytes, bytes], receive: Receive, most: int = MAX_BODY) -> bytes | None:
    """All of it, at most so many bytes; None: the client has gone.

    Raises:
        Problem: it is too large, too slow, nested too deeply, or no text.
    """
    if headers.get(b"transfer-encoding", b"chunked").lower() != b"chunked":
        raise Problem(501, "send the body as it is, or chunked", field="Transfer-Encoding", headers=_CLOSE)
    length = headers.get(b"content-length", b"0")
    if not length.isdigit():
        raise Problem(400, "the header Content-Length is not a number", field="Content-Length")
    if len(length) > 10 or int(length) > most:
        raise _too_large(most)
    try:
        async with asyncio.timeout(BODY_SECONDS):
            body = await _all(receive, most)
    except TimeoutError:
        raise Problem(408, f"the body may take {BODY_SECONDS} seconds to come", field="body", headers=_CLOSE) from None
    if body:
        _check(body)
    return body


async def _all(receive: Receive, most: int) -> bytes | None:
    pieces: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        piece = message.get("body", b"")
        size += len(piece)
        if size > most:
            raise _too_large(most)
        pieces.append(piece)
        if not message.get("more_body", False):
            return b"".join(pieces)


def _check(body: bytes) -> None:
    try:
        body.decode()
    except UnicodeDecodeError as error:
        raise Problem(400, f"the body is not valid UTF-8 at byte {error.start}", field="body") from None
    if too_deep(body):
        raise Problem(400, f"the body nests deeper than {MAX_DEPTH}", field="body")


_CLOSE = (("Connection", "close"),)
"""What is left of the body is not waited for."""


def _too_large(most: int) -> Problem:
    return Problem(413, f"the body may have {most} bytes", field="body", headers=_CLOSE)
