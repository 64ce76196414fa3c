"""The two clients. Every method may raise `Refused` (the service refuses, and says why) or `Unreachable` (it did not
answer for `patience` seconds; until then a request is sent again, a submission with its key).
"""

import time
from collections.abc import AsyncIterator, Iterator, Mapping
from datetime import datetime
from typing import Any, Self, TypeVar

import anyio
import httpx
import msgspec
from httpx_sse import ServerSentEvent, SSEError, aconnect_sse, connect_sse

from projections.api.client import BASE_URL, PATIENCE, Unreachable, refused
from projections.client.objects import ChangeInfo, RunInfo
from projections.client.requests import Ask, run

T = TypeVar("T")
_SILENCE = 45.0  # seconds; a stream sends something every 15
_PAUSES = (0.2, 0.5, 1.0, 2.0, 5.0)
_LATER = frozenset({502, 503, 504})  # a service that restarts, or its proxy
_PAGE = 200
_ERRORS = (httpx.TransportError, SSEError)


class _Tries:
    """When to try again, until the service has been silent for too long."""

    def __init__(self, patience: float, after: int | None = None) -> None:
        self._patience, self._failures, self._heard = patience, 0, time.monotonic()
        self.after = after  # the last position a stream told
        self.id = None if after is None else str(after)  # the id of its message
        self.why: object = "the service ended the stream"

    def pause(self) -> float:
        """Seconds before the next try; raises `Unreachable`."""
        pause = _PAUSES[min(self._failures, len(_PAUSES) - 1)]
        if time.monotonic() + pause - self._heard > self._patience:
            raise Unreachable(f"the service does not answer: {self.why}", None, self.after)
        self._failures += 1
        return pause

    def later(self, answer: httpx.Response) -> bool:
        self.why = f"status {answer.status_code}"
        return answer.status_code in _LATER

    def asked(self) -> dict[str, str]:
        return {} if self.id is None else {"Last-Event-ID": self.id}

    def change(self, event: ServerSentEvent) -> ChangeInfo | None:
        """What the event tells, unless it was told before."""
        self._failures, self._heard = 0, time.monotonic()
        if not event.data:
            return None
        change = msgspec.json.decode(event.data, type=ChangeInfo)
        if self.after is not None and change.position <= self.after:
            return None
        self.after, self.id = change.position, event.id
        return change


class _Client:
    def __init__(self, base_url: str = BASE_URL, token: str | None = None, *, patience: float = PATIENCE) -> None:
        """`token`: of `steno token create`; none is needed on the service's own machine. `patience`: seconds."""
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._settings: dict[str, Any] = {
            "base_url": base_url,
            "headers": headers,
            "timeout": httpx.Timeout(_SILENCE, connect=10.0),
        }
        self._patience = patience


class StenoClient(_Client):
    """Sync. Close it, or use `with`."""

    def __init__(self, base_url: str = BASE_URL, token: str | None = None, *, patience: float = PATIENCE) -> None:
        super().__init__(base_url, token, patience=patience)
        self._http = httpx.Client(**self._settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def ask(self, ask: Ask[T]) -> T:
        return _read(self._send(ask), ask.kind)

    def each(self, ask: Ask[T]) -> Iterator[T]:
        """The items of a list, page by page."""
        cursor: str | None = ""
        while cursor is not None:
            found, cursor = _page(self._send(ask, cursor), ask)
            yield from found

    def changes(self, word: str | None = None, *, after: int | None = None) -> Iterator[ChangeInfo]:
        """Every change after a position (None: from now on), of one run or of all; resumes by itself, without end.
        `Refused` with status 410: the record was restored meanwhile, so read it again.
        """
        tries = _Tries(self._patience, after)
        while True:
            try:
                with connect_sse(self._http, "GET", _stream(word), headers=tries.asked()) as source:
                    if not source.response.is_success and not tries.later(source.response):
                        source.response.read()
                        raise refused(source.response)
                    for event in source.iter_sse() if source.response.is_success else ():
                        if (change := tries.change(event)) is not None:
                            yield change
            except _ERRORS as error:
                tries.why = error
            time.sleep(tries.pause())

    def wait(self, word: str) -> RunInfo:
        """The run, once it has ended."""
        answer = self._send(run(word))
        found = _read(answer, RunInfo)
        if found.ended:
            return found
        changes = self.changes(found.run_id, after=_position(answer))
        ended = next(change for change in changes if change.run is not None and change.run.ended)
        return self.ask(run(found.run_id, min_position=ended.position))

    def logs(self, word: str, *, follow: bool = False) -> Iterator[str]:
        """Its output in pieces; with `follow` until it ends."""
        with self._http.stream("GET", f"/api/runs/{word}/logs", params=_params({"follow": follow})) as answer:
            if not answer.is_success:
                answer.read()
                raise refused(answer)
            yield from answer.iter_text()

    def _send(self, ask: Ask[Any], cursor: str | None = None) -> httpx.Response:
        tries = _Tries(self._patience)
        while True:
            try:
                answer = self._http.request(**_request(ask, cursor))
                if not tries.later(answer):
                    return answer
            except _ERRORS as error:
                tries.why = error
            time.sleep(tries.pause())


class AsyncStenoClient(_Client):
    """Async, on asyncio or trio. Close it, or use `async with`."""

    def __init__(self, base_url: str = BASE_URL, token: str | None = None, *, patience: float = PATIENCE) -> None:
        super().__init__(base_url, token, patience=patience)
        self._http = httpx.AsyncClient(**self._settings)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    async def ask(self, ask: Ask[T]) -> T:
        return _read(await self._send(ask), ask.kind)

    async def each(self, ask: Ask[T]) -> AsyncIterator[T]:
        cursor: str | None = ""
        while cursor is not None:
            found, cursor = _page(await self._send(ask, cursor), ask)
            for one in found:
                yield one

    async def changes(self, word: str | None = None, *, after: int | None = None) -> AsyncIterator[ChangeInfo]:
        tries = _Tries(self._patience, after)
        while True:
            try:
                async with aconnect_sse(self._http, "GET", _stream(word), headers=tries.asked()) as source:
                    if not source.response.is_success and not tries.later(source.response):
                        await source.response.aread()
                        raise refused(source.response)
                    if source.response.is_success:
                        async for event in source.aiter_sse():
                            if (change := tries.change(event)) is not None:
                                yield change
            except _ERRORS as error:
                tries.why = error
            await anyio.sleep(tries.pause())

    async def wait(self, word: str) -> RunInfo:
        answer = await self._send(run(word))
        found = _read(answer, RunInfo)
        if not found.ended:
            async for change in self.changes(found.run_id, after=_position(answer)):
                if change.run is not None and change.run.ended:
                    return await self.ask(run(found.run_id, min_position=change.position))
        return found

    async def logs(self, word: str, *, follow: bool = False) -> AsyncIterator[str]:
        async with self._http.stream("GET", f"/api/runs/{word}/logs", params=_params({"follow": follow})) as answer:
            if not answer.is_success:
                await answer.aread()
                raise refused(answer)
            async for piece in answer.aiter_text():
                yield piece

    async def _send(self, ask: Ask[Any], cursor: str | None = None) -> httpx.Response:
        tries = _Tries(self._patience)
        while True:
            try:
                answer = await self._http.request(**_request(ask, cursor))
                if not tries.later(answer):
                    return answer
            except _ERRORS as error:
                tries.why = error
            await anyio.sleep(tries.pause())


def _stream(word: str | None) -> str:
    return "/api/stream" if word is None else f"/api/runs/{word}/stream"


def _params(given: Mapping[str, Any]) -> dict[str, str]:
    def text(value: object) -> str:
        if isinstance(value, bool):
            return str(value).lower()
        return value.isoformat() if isinstance(value, datetime) else str(value)

    return {name: text(value) for name, value in given.items() if value is not None}


def _request(ask: Ask[Any], cursor: str | None) -> dict[str, Any]:
    """`cursor`: of a page, empty for the first; None: not a list."""
    if ask.body is not None:
        return {"method": "POST", "url": ask.path, "json": ask.body, "headers": ask.headers}
    paged = {} if cursor is None else {"limit": _PAGE, "cursor": cursor or None}
    return {"method": "GET", "url": ask.path, "params": _params({**ask.params, **paged})}


def _read(answer: httpx.Response, kind: type[T]) -> T:
    if not answer.is_success:
        raise refused(answer)
    return msgspec.json.decode(answer.content, type=kind)


def _page(answer: httpx.Response, ask: Ask[T]) -> tuple[list[T], str | None]:
    found = _read(answer, dict[str, msgspec.Raw])
    rows: list[T] = msgspec.json.decode(found[ask.items], type=list[ask.kind])  # type: ignore[name-defined]
    return rows, msgspec.json.decode(found["next"])


def _position(answer: httpx.Response) -> int:
    return int(answer.headers["Steno-Position"])
