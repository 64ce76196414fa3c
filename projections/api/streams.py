"""`/api/stream` and `/api/runs/{id}/stream`: the record as server-sent events, from any position."""

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType
from starlette.requests import Request
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from steno.engine.objects import RunObject, VmObject
from steno.projections.api.feed.feed import SOON, Feed
from steno.projections.api.feed.framer import event_id
from steno.projections.api.feed.listener import Listener
from steno.projections.api.openapi import EVENTS, Operation, Reply, routed
from steno.projections.api.parameters import Parameter, asked_of
from steno.projections.api.problems import MEDIA_TYPE, Problem, ProblemObject
from steno.projections.api.service import Service

LAST_EVENT_ID: Final = "Last-Event-ID"
RETRY: Final = b"retry: 1000\n\n"  # browsers reconnect after 1000 ms
_HEADERS: Final = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
)
_TIMEOUT: Final = 30.0  # seconds until the feed must know where the record stands

Seen = tuple[int, str]  # a position, and the start of the chain's hash there; empty: not given


_SEEN: Final = "[0-9]{1,18}(-[0-9a-f]{8})?"


def _read_seen(text: str) -> Seen | None:
    position, _, digest = text.partition("-")
    return (int(position), digest) if re.fullmatch(_SEEN, text) else None


_AFTER = Parameter(
    name="after",
    help=f"Start after this position or message id (0: at the start). {LAST_EVENT_ID} takes precedence. Without "
    "either: from now on.",
    schema={"type": "string", "pattern": f"^{_SEEN}$"},
    expected="a position, or the id of a message",
    read=_read_seen,
)
GONE: Final = Reply(
    "The record has no such event, or another one there (type `stream-epoch`): it was restored. `last_common_position` "
    "is the newest position up to which both can be the same.",
    ProblemObject,
    MEDIA_TYPE,
)


async def send_stream(
    scope: Scope,
    receive: Receive,
    send: Send,
    listener: Listener,
    pieces: AsyncGenerator[bytes],
    *headers: tuple[bytes, bytes],
) -> bool:
    """Send pieces until they end or the client left, which closes the listener; returns whether it left."""
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
    while (await receive())["type"] != "http.disconnect":
        pass


# -- what a request says --------------------------------------------------------------------------------------------


async def known_position(request: Request, feed: Feed, seen: Seen | None = None) -> int | None:
    """The client's last position, from its header or `seen`; waits until the feed is there. Raises `Problem`: 503 the
    feed is not ready; 400 not an id; 410 the record has no such event.
    """
    field, last = "after", [text.strip() for text in request.headers.getlist(LAST_EVENT_ID) if text.strip()]
    if len(last) > 1:
        raise Problem(400, f"{LAST_EVENT_ID} is given more than once", field=LAST_EVENT_ID)
    if last:
        field, seen = LAST_EVENT_ID, _read_seen(last[0])
        if seen is None:
            raise Problem(400, f"{last[0][:60]!r} is not the id of a message, nor a position", field=LAST_EVENT_ID)
    if not await feed.ready(_TIMEOUT):
        raise Problem(503, feed.trouble or "the server is stopping", headers=SOON)
    if seen is None:
        return None
    after, digest = seen
    if after > feed.position or (digest and not feed.knows(after, event_id(after, digest))):
        common = await asyncio.to_thread(feed.last_common, after, digest)
        if common != after:
            sent = f"{after}-{digest}" if digest else str(after)
            detail = (
                f"the record has no event {sent}: it was restored. Read it again; up to {common} it can be as it was"
            )
            raise Problem(410, detail, type="stream-epoch", field=field, last_common_position=common)
        await feed.beyond(after, _TIMEOUT)
    return after


def run_named(service: Service, word: str) -> str:
    """The id of the named run, found as in every other route; waits for a run that was just requested. A whole run id
    needs no read models. Raises `RunNotFound` (none or several match) or `Problem` 503 (the record is still being
    read).
    """
    with service.feed.state() as state:
        if word in state.runs:
            return word
    with service.pool.latest() as look:
        return look.view.row(word).run_id


def routes(service: Service) -> list[BaseRoute]:
    feed = service.feed

    async def stream(request: Request) -> ASGIApp:
        after = await known_position(request, feed, asked_of(request, (_AFTER,))["after"])
        word = request.path_params.get("id")
        subject = None if word is None else f"run/{await asyncio.to_thread(run_named, service, word)}"

        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            with feed.listening(after, scope["steno.abort"], subject) as listener:
                await send_stream(scope, receive, send, listener, feed.pieces(listener))

        return answer

    return routed(OPERATIONS, stream, stream)


class StreamMessage(msgspec.Struct, frozen=True, kw_only=True):
    """The `data` of one message; its `id` is the position and the start of the chain's hash there: `13-0c5e81aa`."""

    position: int
    event: str  # the type of the event there
    stream: str
    at: str  # when it was observed
    run: RunObject | UnsetType = UNSET  # where the stream is a run's: the run after the event
    vm: VmObject | UnsetType = UNSET  # where the stream is a machine's: the machine after it
    runs: tuple[RunObject, ...] | UnsetType = UNSET  # other runs that the event moved
    vms: tuple[VmObject, ...] | UnsetType = UNSET  # other machines that the event moved


def last_event_header(what: str) -> dict[str, Any]:
    help_ = f"The id of the last {what} received, or its position; the stream resumes after it."
    return {"name": LAST_EVENT_ID, "in": "header", "description": help_, "schema": dict(_AFTER.schema)}


_PARAMETERS: Final = (_AFTER.described(), last_event_header("message"))
_SENT: Final = Reply("Server-sent events, until the client or the server closes the stream.", StreamMessage, EVENTS)
OPERATIONS: Final = (
    Operation(
        "GET /api/stream",
        "All changes as server-sent events; polls without a change are left out",
        "streams",
        {200: _SENT, 410: GONE},
        parameters=_PARAMETERS,
    ),
    Operation(
        "GET /api/runs/{id}/stream",
        "As /api/stream, for one run and its machine only",
        "streams",
        {200: _SENT, 410: GONE},
        name="getRunsStream",
        parameters=_PARAMETERS,
    ),
)
