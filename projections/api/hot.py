"""The most frequent read, one run by its id, answered before the router: stored bytes, found by one look-up."""

import asyncio
from contextlib import suppress
from typing import Final

from projections.api.bodies import etag_of, matches
from projections.api.service import Service
from projections.store.database import StoreError
from projections.store.read_models import ReadModels
from projections.store.store import ProjectionStore

_PREFIX: Final = "/api/runs/"
_AGAIN: Final = 1.0  # seconds before a file that could not be opened is tried again
_HELD: Final = 0.02  # seconds that one snapshot is read; a new one costs ten look-ups
_KEPT: Final = 4096  # answers kept ready while nothing changes


class Ready:
    """One stored answer, to be sent in one piece; its body shows `position`."""

    __slots__ = ("_body", "_head", "_tag", "_unchanged")

    def __init__(self, body: bytes, position: int) -> None:
        self._body = body
        self._tag = etag_of(body)
        head = b"cache-control: no-cache\r\netag: %b\r\nsteno-position: %d\r\n" % (self._tag.encode(), position)
        self._unchanged = head + b"\r\n"
        self._head = head + b"content-length: %d\r\ncontent-type: application/json\r\n\r\n" % len(body)

    def answer(self, named: bytes | None) -> tuple[int, bytes, bytes]:
        """(status, headers with the final empty line, body) for a client that sends this `If-None-Match`."""
        if named is not None and matches(named.decode("latin-1"), self._tag):
            return 304, self._unchanged, b""
        return 200, self._head, self._body


class HotReads:
    """Answers GET of a run by its id, without parameters, in the loop's thread, from one open file. If that is stale or
    unreadable, the router answers until a thread has opened another. Snapshots include all that this service has
    written.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._models = ReadModels(service.store)
        self._store: ProjectionStore | None = None
        self._opening: asyncio.Task[None] | None = None
        self._shown = -1  # the position of the snapshot that is being read; -1: none is
        self._answers: dict[str, Ready] = {}  # by path, of the position last read
        self._of = -1
        service.closing.callback(self._drop)

    def ready(self, path: str) -> Ready | None:
        """The answer for a run's path with its id; None: leave it to the router. Call in the loop's thread."""
        if not path.startswith(_PREFIX) or path.find("/", len(_PREFIX)) >= 0:
            return None
        try:
            if self._shown < 0 or self._service.projector.position > self._shown:
                self._renew()
            ready = self._answers.get(path)
            if ready is not None or self._store is None or self._shown < 0:
                return ready
            found = self._store.runs.answer_of(path[len(_PREFIX) :])
        except (OSError, StoreError):
            self._drop()
            return None
        if found is None:
            return None
        if len(self._answers) >= _KEPT:
            self._answers.clear()
        ready = self._answers[path] = Ready(found, self._shown)
        return ready

    def _renew(self) -> None:
        """Start a new short snapshot; if no current file is open, open it in a thread."""
        store = self._store
        if store is None or not self._models.is_current(store):
            self._answers.clear()
            if self._opening is None or self._opening.done():
                self._opening = asyncio.get_running_loop().create_task(self._open())
            return
        if self._shown >= 0:
            self._shown = -1
            store.end()
        else:
            asyncio.get_running_loop().call_later(_HELD, self._end_snapshot)
        store.begin()
        self._shown = store.read_checkpoint().position
        if self._shown != self._of:
            self._answers.clear()
            self._of = self._shown

    def _end_snapshot(self) -> None:
        """End the snapshot: a longer one would block WAL checkpoints."""
        if self._store is not None and self._shown >= 0:
            self._shown = -1
            with suppress(StoreError):
                self._store.end()

    async def _open(self) -> None:
        self._drop()
        self._store = await asyncio.to_thread(self._newest)
        if self._store is None:
            await asyncio.sleep(_AGAIN)

    def _newest(self) -> ProjectionStore | None:
        """The pool's current file, opened for the loop; None: there is none."""
        try:
            with self._service.pool.now() as look:
                stamp = look.view.store.stamp
            return self._models.reopen(stamp)
        except Exception:  # noqa: BLE001 - the router meets it too, and answers
            return None

    def _drop(self) -> None:
        store, self._store, self._shown = self._store, None, -1
        self._answers.clear()
        if store is not None:
            with suppress(StoreError):
                store.close()
