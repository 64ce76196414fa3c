"""The two clients. Every method may raise `Refused` (the service refuses, and says why) or `Unreachable` (it did not
answer for `patience` seconds; until then a request is sent again, a submission with its key).
"""

import time
from collections.abc import AsyncIterator, Iterator
from typing import Any, Self, TypeVar

import anyio
import httpx
from httpx_sse import ServerSentEvent, aconnect_sse, connect_sse

from steno.projections.client.attempts import (
    BASE_URL,
    ERRORS,
    PATIENCE,
    Attempts,
    change_in,
    page_in,
    params_of,
    read,
    refused,
    request_of,
)
from steno.projections.client.objects import ChangeInfo, RunInfo
from steno.projections.client.requests import Ask, run

T = TypeVar("T")
_SILENCE = 45.0  # seconds; a stream sends something every 15


class _Client:
    _kind: type[Any]  # of httpx, which sends the requests

    def __init__(self, base_url: str = BASE_URL, token: str | None = None, *, patience: float = PATIENCE) -> None:
        """`token`: of `steno token create`; none is needed on the service's own machine. `patience`: seconds."""
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        timeout = httpx.Timeout(_SILENCE, connect=10.0)
        self._http = self._kind(base_url=base_url, headers=headers, timeout=timeout)
        self._patience = patience


class StenoClient(_Client):
    """Sync. Close it, or use `with`."""

    _kind = httpx.Client
    _http: httpx.Client

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def ask(self, ask: Ask[T]) -> T:
        return read(self._send(ask), ask.kind)

    def each(self, ask: Ask[T]) -> Iterator[T]:
        """The items of a list, page by page."""
        cursor: str | None = ""
        while cursor is not None:
            items, cursor = page_in(self._send(ask, cursor), ask)
            yield from items

    def changes(self, word: str | None = None, *, after: int | None = None) -> Iterator[ChangeInfo]:
        """Every change after a position (None: from now on), of one run or of all; resumes by itself, without end.
        `Refused` with status 410: the record was restored meanwhile, so read it again.
        """
        attempts = Attempts.of_stream(self._patience, word, after)
        for event in self.events(attempts):
            if (change := change_in(event, attempts)) is not None:
                yield change

    def events(self, attempts: Attempts) -> Iterator[ServerSentEvent]:
        """The messages of a stream, over any number of connections."""
        while True:
            try:
                with connect_sse(self._http, **attempts.request()) as source:
                    if attempts.is_answered(source.response):
                        if not source.response.is_success:
                            source.response.read()
                            raise refused(source.response)
                        try:
                            yield from source.iter_sse()
                        finally:
                            attempts.heard()
            except ERRORS as error:
                attempts.why = error
            time.sleep(attempts.pause())

    def wait(self, word: str) -> RunInfo:
        """The run, once it has ended."""
        answer = self._send(run(word))
        now = read(answer, RunInfo)
        if now.ended:
            return now
        changes = self.changes(now.run_id, after=_position(answer))
        end = next(change for change in changes if change.run is not None and change.run.ended)
        return self.ask(run(now.run_id, min_position=end.position))

    def logs(self, word: str, *, follow: bool = False) -> Iterator[str]:
        """Its output in pieces; with `follow` until it ends."""
        with self._http.stream("GET", f"/api/runs/{word}/logs", params=params_of({"follow": follow})) as answer:
            if not answer.is_success:
                answer.read()
                raise refused(answer)
            yield from answer.iter_text()

    def _send(self, ask: Ask[Any], cursor: str | None = None) -> httpx.Response:
        attempts = Attempts(self._patience, request_of(ask, cursor))
        while True:
            try:
                answer = self._http.request(**attempts.request())
                if attempts.is_answered(answer):
                    return answer
            except ERRORS as error:
                attempts.why = error
            time.sleep(attempts.pause())


class AsyncStenoClient(_Client):
    """Async, on asyncio or trio. Close it, or use `async with`."""

    _kind = httpx.AsyncClient
    _http: httpx.AsyncClient

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    async def ask(self, ask: Ask[T]) -> T:
        return read(await self._send(ask), ask.kind)

    async def each(self, ask: Ask[T]) -> AsyncIterator[T]:
        cursor: str | None = ""
        while cursor is not None:
            items, cursor = page_in(await self._send(ask, cursor), ask)
            for item in items:
                yield item

    async def changes(self, word: str | None = None, *, after: int | None = None) -> AsyncIterator[ChangeInfo]:
        attempts = Attempts.of_stream(self._patience, word, after)
        while True:
            try:
                async with aconnect_sse(self._http, **attempts.request()) as source:
                    if attempts.is_answered(source.response):
                        if not source.response.is_success:
                            await source.response.aread()
                            raise refused(source.response)
                        try:
                            async for event in source.aiter_sse():
                                if (change := change_in(event, attempts)) is not None:
                                    yield change
                        finally:
                            attempts.heard()
            except ERRORS as error:
                attempts.why = error
            await anyio.sleep(attempts.pause())

    async def wait(self, word: str) -> RunInfo:
        answer = await self._send(run(word))
        now = read(answer, RunInfo)
        if not now.ended:
            async for change in self.changes(now.run_id, after=_position(answer)):
                if change.run is not None and change.run.ended:
                    return await self.ask(run(now.run_id, min_position=change.position))
        return now

    async def logs(self, word: str, *, follow: bool = False) -> AsyncIterator[str]:
        async with self._http.stream("GET", f"/api/runs/{word}/logs", params=params_of({"follow": follow})) as answer:
            if not answer.is_success:
                await answer.aread()
                raise refused(answer)
            async for piece in answer.aiter_text():
                yield piece

    async def _send(self, ask: Ask[Any], cursor: str | None = None) -> httpx.Response:
        attempts = Attempts(self._patience, request_of(ask, cursor))
        while True:
            try:
                answer = await self._http.request(**attempts.request())
                if attempts.is_answered(answer):
                    return answer
            except ERRORS as error:
                attempts.why = error
            await anyio.sleep(attempts.pause())


def _position(answer: httpx.Response) -> int:
    return int(answer.headers["Steno-Position"])
