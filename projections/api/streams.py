"""`/api/stream` and `/api/runs/{id}/stream`: the record as server-sent events, from wherever a client was."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType
from starlette.requests import Request
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from engine.objects import RunObject, VmObject
from projections.api.feed.feed import Feed
from projections.api.feed.listener import Listener
from projections.api.openapi import components
from projections.api.parameters import POSITION, asked_of, path_parameters, position
from projections.api.problems import Problem
from projections.api.service import Service

LAST_EVENT_ID: Final = "Last-Event-ID"
RETRY: Final = b"retry: 1000\n\n"
"""How long (milliseconds) a browser waits before it comes back: the first thing it is told."""
_HEADERS: Final = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
)
_PATIENCE: Final = 30.0
"""Seconds until the feed must know where the record stands."""


_AFTER = position(
    "after",
    f"Start after this position (0: at the start). {LAST_EVENT_ID} takes precedence. Without either: from now on.",
)


class Stream:
    """One of the two streams, as an ASGI application."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._feed = service.feed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request, feed = Request(scope), self._feed
        given = asked_of(request, (_AFTER,))["after"]
        last = last_event_id(request)
        await expect_ready(feed)
        word = request.path_params.get("id")
        subject = None if word is None else f"run/{await asyncio.to_thread(run_named, self._service, word)}"
        after, field = (given, "after") if last is None else (last, LAST_EVENT_ID)
        if after is not None:
            await expect_there(feed, after, field)
        with feed.listening(after, scope["steno.abort"], subject) as listener:
            await send_stream(scope, receive, send, listener, feed.pieces(listener))


async def send_stream(
    scope: Scope,
    receive: Receive,
    send: Send,
    listener: Listener,
    pieces: AsyncGenerator[bytes],
    *headers: tuple[bytes, bytes],
) -> bool:
    """Send pieces until they end or the client is gone, which closes the listener; whether it is gone."""
    await send({"type": "http.response.start", "status": 200, "headers": [*_HEADERS, *headers]})
    leaving = asyncio.ensure_future(left(receive))
    leaving.add_done_callback(lambda _: listener.close())
    try:
        async with aclosing(pieces):
            if scope["method"] != "HEAD":
                await send({"type": "http.response.body", "body": RETRY, "more_body": True})
                async for piece in pieces:
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
        return leaving.done() or listener.dropped is not None
    finally:
        leaving.cancel()


async def left(receive: Receive) -> None:
    """Until the client is gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


# -- what a request says --------------------------------------------------------------------------------------------


def last_event_id(request: Request) -> int | None:
    """The position that the client got last; None: it does not say.

    Raises:
        Problem: 400, what it says is not a position.
    """
    last = [one.strip() for one in request.headers.getlist(LAST_EVENT_ID) if one.strip()]
    if len(last) > 1:
        raise Problem(400, f"{LAST_EVENT_ID} is given more than once", field=LAST_EVENT_ID)
    if last and POSITION.fullmatch(last[0]) is None:
        raise Problem(400, f"{last[0][:60]!r} is not a position of a record: a whole number", field=LAST_EVENT_ID)
    return int(last[0]) if last else None


async def expect_ready(feed: Feed) -> None:
    """
    Raises:
        Problem: 503, one cannot listen now.
    """
    if not await feed.ready(_PATIENCE):
        raise Problem(503, feed.trouble or "the server is stopping", headers=(("Retry-After", "1"),))


async def expect_there(feed: Feed, after: int, field: str) -> None:
    """Wait until the feed has come as far as the client says it was.

    Raises:
        Problem: 400, the record ends before: the client was told by another record.
    """
    if after <= feed.position:
        return
    head = await asyncio.to_thread(feed.head)
    if after > head:
        raise Problem(400, f"the record ends at position {head}; {after} is beyond it", field=field)
    await feed.beyond(after, _PATIENCE)


def run_named(service: Service, word: str) -> str:
    """The id of the run that a word names, found as every other route finds it; one that was requested a moment ago is
    waited for. A whole run id needs no read models.

    Raises:
        RunNotFound: none, or more than one.
        Problem: 503, the record is still being read.
    """
    with service.feed.state() as state:
        if word in state.runs:
            return word
    with service.pool.latest() as look:
        return look.view.row(word).run_id


def routes(service: Service) -> list[BaseRoute]:
    """Both streams."""
    stream = Stream(service)
    return [Route(path, stream, methods=["GET"]) for path in OPENAPI["paths"]]


class StreamMessage(msgspec.Struct, frozen=True, kw_only=True):
    """The `data` of one message; its `id` is the position."""

    position: int
    event: str
    """The type of the event there."""
    stream: str
    at: str
    """When it was observed."""
    run: RunObject | UnsetType = UNSET
    """Where the stream is a run's: the run after the event."""
    vm: VmObject | UnsetType = UNSET
    """Where the stream is a machine's: the machine after it."""
    runs: tuple[RunObject, ...] | UnsetType = UNSET
    """Other runs that the event moved."""
    vms: tuple[VmObject, ...] | UnsetType = UNSET
    """Other machines that the event moved."""


def _described(path: str, name: str, summary: str) -> dict[str, Any]:
    problem = {"description": "A problem (RFC 9457); `field` names the part of the request."}
    last = "The position of the last message received; the stream resumes after it."
    schema = {"type": "string", "x-data": {"$ref": "#/components/schemas/StreamMessage"}}
    return {
        "operationId": name,
        "summary": summary,
        "tags": ["streams"],
        "parameters": [
            _AFTER.described(),
            {"name": LAST_EVENT_ID, "in": "header", "description": last, "schema": dict(_AFTER.schema)},
            *path_parameters(path),
        ],
        "responses": {
            "200": {
                "description": "Server-sent events, until the client or the server closes the stream.",
                "content": {"text/event-stream": {"schema": schema}},
            },
            **dict.fromkeys(("400", "503", *(("404",) if "{id}" in path else ())), problem),
        },
    }


_SUMMARIES: Final = (
    ("/api/stream", "getStream", "All changes as server-sent events; polls without a change are left out"),
    ("/api/runs/{id}/stream", "getRunsStream", "As /api/stream, for one run and its machine only"),
)
OPENAPI: Final[dict[str, Any]] = {
    "paths": {path: {"get": _described(path, name, summary)} for path, name, summary in _SUMMARIES},
    "components": components(StreamMessage),
}
