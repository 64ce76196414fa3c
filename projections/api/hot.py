"""The read that is asked most, one run by its id, answered before the router: stored bytes, found by one look-up."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from contextlib import suppress
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import msgspec

from projections.api.etag import etag_of, matches
from projections.store import Checkpoint, beside

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from projections.api.service import Service

_PREFIX: Final = "/api/runs/"
_METHODS: Final = frozenset({"GET", "HEAD"})
_ONE: Final = "SELECT object, (SELECT value FROM meta WHERE key = 'checkpoint') FROM runs WHERE run_id = ?"
_AGAIN: Final = 1.0
"""Seconds before a file that could not be opened is tried again."""
_checkpoint = msgspec.json.Decoder(Checkpoint)


def in_front(service: Service, app: ASGIApp) -> ASGIApp:
    """The hot reads of a service in front of its router."""
    return HotReads(service, app)


class HotReads:
    """Answers GET of a run by its id, without parameters, in the loop's own thread; everything else is the router's.

    It keeps one open file. Where that is no longer the newest, or cannot be read, the router answers until a thread has
    opened another.
    """

    def __init__(self, service: Service, app: ASGIApp) -> None:
        self._service = service
        self._app = app
        self._path = str(beside(service.record_path))
        self._database: sqlite3.Connection | None = None
        self._file = (0, 0)
        self._opening: asyncio.Task[None] | None = None
        self._checkpoint = b""
        self._position = b"0"
        service.closing.callback(self._drop)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not scope["query_string"] and scope["method"] in _METHODS:
            path: str = scope["path"]
            if path.startswith(_PREFIX):
                word = path[len(_PREFIX) :]
                body = None if "/" in word else self._found(word)
                if body is not None:
                    await self._answer(body, scope, send)
                    return
        await self._app(scope, receive, send)

    def _found(self, run_id: str) -> bytes | None:
        """The run object's JSON; None where the router has to look."""
        database = self._database
        try:
            found = os.stat(self._path)  # noqa: PTH116 - half the time of a Path's
            if database is None or (found.st_dev, found.st_ino) != self._file:
                self._open()
                return None
            row = database.execute(_ONE, (run_id,)).fetchone()
            if row is None:
                return None
            if row[1] != self._checkpoint:
                self._position = b"%d" % _checkpoint.decode(row[1]).position
                self._checkpoint = row[1]
        except (OSError, sqlite3.Error, msgspec.MsgspecError):
            self._drop()
            return None
        body: bytes = row[0]
        return body

    async def _answer(self, body: bytes, scope: Scope, send: Send) -> None:
        tag = etag_of(body)
        headers = [(b"cache-control", b"no-cache"), (b"etag", tag.encode()), (b"steno-position", self._position)]
        for name, value in scope["headers"]:
            if name == b"if-none-match" and matches(value.decode("latin-1"), tag):
                await send({"type": "http.response.start", "status": 304, "headers": headers})
                await send({"type": "http.response.body", "body": b""})
                return
        headers += [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})

    def _open(self) -> None:
        """Open the newest file in a thread: that may have to wait."""
        if self._opening is None or self._opening.done():
            self._opening = asyncio.get_running_loop().create_task(self._opened())

    async def _opened(self) -> None:
        self._drop()
        found = await asyncio.to_thread(self._newest)
        if found is None:
            await asyncio.sleep(_AGAIN)
            return
        self._file, self._database = found

    def _newest(self) -> tuple[tuple[int, int], sqlite3.Connection] | None:
        """The file that the pool reads, opened for the loop; None while there is none."""
        try:
            with self._service.pool.now() as look:
                file = look.view.store.file
            path = beside(self._service.record_path).resolve(strict=True)
            found = path.stat()
            if file != (found.st_dev, found.st_ino):
                return None
            database = sqlite3.connect(
                f"file:{quote(str(path))}?mode=rw", uri=True, timeout=0, isolation_level=None, check_same_thread=False
            )
            database.execute("PRAGMA query_only = ON")
        except Exception:  # noqa: BLE001 - whatever it is, the router meets it too and tells it
            return None
        return file, database

    def _drop(self) -> None:
        database, self._database = self._database, None
        if database is not None:
            with suppress(sqlite3.Error):
                database.close()
