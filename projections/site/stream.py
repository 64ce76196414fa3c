"""The changes of all records as one stream, whose ids are a position of each record."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from projections.api.feed.feed import SOON
from projections.api.feed.listener import Dropped, Listener
from projections.api.parameters import asked_of
from projections.api.problems import Problem
from projections.api.streams import LAST_EVENT_ID, send_stream
from projections.site.pages import naming
from projections.site.places import AFTER, positions_of, text_of
from projections.site.routing import passed_to
from projections.site.site import UNAVAILABLE, Member, RecordSet

_SOON: Final = 1.0  # seconds until a record that could not be followed is tried again
_FIRST: Final = 30.0  # seconds until some record must be ready
_ID, _DATA = b"id: ", b"data: "


async def stream(site: RecordSet, request: Request) -> ASGIApp:
    """The merged stream. Raises `Problem`: 400 a position that is wrong, or beyond a record's end; 503 no record is
    ready.
    """
    member = site.asked(request)
    if member is not None:
        return passed_to(member)
    after = await _places(site, request)

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        merged = _Merged(site, after, scope)
        whole = Listener(0, None, scope["steno.abort"])  # closed once the client has left
        await send_stream(scope, receive, send, whole, merged.pieces(whole))

    return answer


async def _places(site: RecordSet, request: Request) -> dict[str, int]:
    """Where the client stands in each record."""
    field, given = "after", asked_of(request, (AFTER,))["after"]
    last = [one.strip() for one in request.headers.getlist(LAST_EVENT_ID) if one.strip()]
    if len(last) > 1:
        raise Problem(400, f"{LAST_EVENT_ID} is given more than once", field=LAST_EVENT_ID)
    if last:
        field, given = LAST_EVENT_ID, last[0]
    ready = await asyncio.gather(*(one.service.feed.ready(0 if one.trouble else _FIRST) for one in site.members))
    if not any(ready):
        why = next((one.trouble for one in site.members if one.trouble), "the server is stopping")
        raise Problem(UNAVAILABLE, why, headers=SOON)
    if given is None:
        return {one.name: one.service.feed.position for one in site.members}
    if given == "0" and field == "after":
        return dict.fromkeys(site.names, 0)
    there = [one.name for one in site.members if one.trouble is None]
    now = {one.name: one.service.feed.position for one in site.members}
    places = now | positions_of(given, site.names, field, needed=there)
    for member, is_ready in zip(site.members, ready, strict=True):
        feed, place = member.service.feed, places[member.name]
        if is_ready and place > feed.position:
            head = await asyncio.to_thread(feed.head)
            if place > head:
                raise Problem(400, f"record {member.name} ends at position {head}; {place} is beyond it", field=field)
            await feed.beyond(place, _FIRST)
    return places


class _Merged:
    """One client's stream: a task for each record, and the position that the client has of each."""

    def __init__(self, site: RecordSet, after: dict[str, int], scope: Scope) -> None:
        self._site = site
        self._places = after
        self._abort = scope["steno.abort"]
        self._queue: asyncio.Queue[bytes | None] = asyncio.Queue(1)

    async def pieces(self, whole: Listener) -> AsyncGenerator[bytes]:
        """Messages of all records, each record's in order, until the client left or the server stops."""
        tasks = [asyncio.ensure_future(self._follow(one)) for one in self._site.members]
        leaving = asyncio.ensure_future(_closed(whole))
        try:
            while not leaving.done():
                getting = asyncio.ensure_future(self._queue.get())
                await asyncio.wait({getting, leaving}, return_when=asyncio.FIRST_COMPLETED)
                if not getting.done():
                    getting.cancel()
                    return
                if (piece := getting.result()) is None:
                    return
                yield piece
        finally:
            for task in (*tasks, leaving):
                task.cancel()
            await asyncio.gather(*tasks, leaving, return_exceptions=True)

    async def _follow(self, member: Member) -> None:
        """Queue what one record tells; again once it can be followed again."""
        feed = member.service.feed
        while not feed.stopping:
            if not await feed.ready(_SOON):
                await asyncio.sleep(_SOON)
                continue
            with feed.listening(self._places[member.name], self._abort) as listener:
                async with aclosing(feed.pieces(listener)) as pieces:
                    async for piece in pieces:
                        await self._queue.put(self._named(member.name, piece))
                if listener.dropped is Dropped.BEHIND:
                    break  # the client reconnects with its positions
        await self._queue.put(None)

    def _named(self, record: str, piece: bytes) -> bytes:
        """The same messages with their record, and with the positions of all as ids."""
        return b"".join(self._message(record, one) for one in piece.split(b"\n\n") if one)

    def _message(self, record: str, frame: bytes) -> bytes:
        if not frame.startswith(_ID):
            return frame + b"\n\n"  # a heartbeat
        number, _, data = frame.removeprefix(_ID).partition(b"\n")
        self._places[record] = int(number)
        body = naming(record, data.removeprefix(_DATA))
        return b"id: %b\ndata: %b\n\n" % (text_of(self._places).encode(), body)


async def _closed(listener: Listener) -> None:
    while not listener.closed:
        await listener.wait()
