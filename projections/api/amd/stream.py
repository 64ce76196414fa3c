"""The statuses of a kernel as server-sent events: the answer to its submission, and from wherever a client was."""

from __future__ import annotations

import asyncio
import logging
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from anyio import to_thread
from starlette.requests import Request

from events.errors import StenoError
from projections.api.amd.story import Story
from projections.api.amd.submitting import submit
from projections.api.bodies import expect_json
from projections.api.commands import stop_run
from projections.api.parameters import asked_of, idempotency_key
from projections.api.problems import Problem
from projections.api.streams import LAST_EVENT_ID, RETRY, left, run_named

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from projections.api.access.roles import Caller
    from projections.api.service import Service, Writer

HEARTBEAT: Final = 15.0
"""Seconds."""
_BEAT: Final = b": \n\n"
_PATIENCE: Final = 30.0
"""Seconds until the feed must know where the record stands, or what was just appended."""
_SEND_WITHIN: Final = 30.0
"""Seconds a client may take over one piece."""
_POSITION: Final = re.compile("[0-9]{1,18}")
_log = logging.getLogger(__name__)


class Submit:
    """POST /api/amd/submit."""

    def __init__(self, service: Service, writer: Writer) -> None:
        self._service = service
        self._writer = writer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        asked_of(request, ())
        key = idempotency_key(request)
        expect_json(request)
        submitter = _submitter(self._service, scope["steno.caller"])
        body = await request.body()
        accepted = await submit(self._service, self._writer, body, submitter=submitter, key=key)
        await self._service.feed.beyond(accepted.position, _PATIENCE)
        headers = [(b"steno-position", b"%d" % accepted.position), (b"steno-run-id", accepted.run_id.encode())]
        if not isolated(self._service):
            headers.append((b"steno-isolation", b"none"))
        left = await _tell(self._service, Story(self._service, accepted.run_id), receive, send, headers)
        if left and self._service.settings.value("kernel.cancel_on_close") == "true":
            await asyncio.shield(self._stop(accepted.run_id, submitter))

    async def _stop(self, run_id: str, submitter: str) -> None:
        """Whoever submitted it has gone, and wanted it stopped then."""
        try:
            await stop_run(self._service, self._writer, run_id, abort=False, submitter=submitter)
        except StenoError as error:
            _log.warning("kernel %s was left and could not be stopped: %s", run_id, error)


class Resume:
    """GET /api/amd/runs/{id}/stream."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request, feed = Request(scope), self._service.feed
        asked_of(request, ())
        after = _last(request)
        if not await feed.ready(_PATIENCE):
            raise Problem(503, feed.trouble or "the server is stopping", headers=(("Retry-After", "1"),))
        head = await to_thread.run_sync(feed.head)
        if after > head:
            said = f"the record ends at position {head}; {after} is beyond it"
            raise Problem(400, said, field=LAST_EVENT_ID)
        await feed.beyond(head, 2.0)
        run_id = await to_thread.run_sync(run_named, self._service, request.path_params["id"])
        story = Story(self._service, run_id, after)
        await _tell(self._service, story, receive, send, [], body=scope["method"] != "HEAD")


def isolated(service: Service) -> bool:
    """Whether a kernel runs apart from this service: not on `local`, where it is a process of the same user."""
    return service.outside.provider != "local"


def _submitter(service: Service, who: Caller) -> str:
    """The name of whoever may submit kernels.

    Raises:
        Problem: 403, this one may not: here a kernel could read the record, and whatever else the service's user may.
    """
    unsafe = service.settings.value("kernel.unsafe_local") == "true"
    if not (isolated(service) or unsafe or who.via == "loopback"):
        raise Problem(
            403,
            "the provider is local: a kernel would run as the service's user, not isolated. Only who is on its machine "
            "may submit one, without a token. Use another provider, or set kernel.unsafe_local = true",
        )
    return who.name


async def _tell(
    service: Service,
    story: Story,
    receive: Receive,
    send: Send,
    headers: list[tuple[bytes, bytes]],
    *,
    body: bool = True,
) -> bool:
    """Send the story to its end; whether the client went before that.

    Raises:
        RunNotFound: nothing was sent.
    """
    news = await to_thread.run_sync(story.news)
    start = [
        (b"content-type", b"text/event-stream; charset=utf-8"),
        (b"cache-control", b"no-store"),
        (b"x-accel-buffering", b"no"),
        *headers,
    ]
    await send({"type": "http.response.start", "status": 200, "headers": start})
    if not body:
        await send({"type": "http.response.body", "body": b""})
        return False
    leaving = asyncio.ensure_future(left(receive))
    try:
        with suppress(OSError, TimeoutError):  # whoever does not take it has gone
            await _send(send, RETRY)
            while not leaving.done():
                for position, data in news:
                    await _send(send, b"id: %d\ndata: %b\n\n" % (position, data))
                if story.over:
                    break
                if not await _wait(service, story.position, leaving, send):
                    break
                news = await to_thread.run_sync(story.news)
            if not leaving.done():
                await send({"type": "http.response.body", "body": b""})
                return False
    finally:
        leaving.cancel()
    return not story.over and service.feed.alive


async def _wait(service: Service, position: int, leaving: asyncio.Future[None], send: Send) -> bool:
    """Until the record goes on, with a heartbeat every 15 s; whether it can."""
    loop = asyncio.get_running_loop()
    while True:
        began = loop.time()
        further = asyncio.ensure_future(service.feed.beyond(position + 1, HEARTBEAT))
        try:
            both: set[asyncio.Future[Any]] = {further, leaving}
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if leaving.done() or further.result():
                return True
        finally:
            further.cancel()
        if loop.time() - began < HEARTBEAT / 2:
            return False  # the server stops: the client comes back to where it was
        await _send(send, _BEAT)


async def _send(send: Send, data: bytes) -> None:
    async with asyncio.timeout(_SEND_WITHIN):
        await send({"type": "http.response.body", "body": data, "more_body": True})


def _last(request: Request) -> int:
    """The position of the last status the client has; 0: none."""
    given = [one.strip() for one in request.headers.getlist(LAST_EVENT_ID) if one.strip()]
    if len(given) > 1:
        raise Problem(400, f"{LAST_EVENT_ID} is given more than once", field=LAST_EVENT_ID)
    if not given:
        return 0
    if _POSITION.fullmatch(given[0]) is None:
        raise Problem(400, f"{given[0][:60]!r} is not a position of a record: a whole number", field=LAST_EVENT_ID)
    return int(given[0])
