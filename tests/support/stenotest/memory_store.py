"""A store in memory: what a second implementation of the port looks like, and the fastest one for a test."""

import itertools
import os
import sqlite3
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec.structs import replace
from sqlalchemy import Connection, create_engine
from sqlalchemy.pool import NullPool

from steno.events.clock import Clock
from steno.events.errors import RecordNotFound
from steno.events.store.rows import expect_head
from steno.events.store.sqlite.opening import read_identity
from steno.events.store.sqlite.store import SqliteSession, fill
from steno.events.store.store import Holder, Identity, Lease, StoreStatus, new_identity, new_owner, since_of, worker_of

_numbers = itertools.count()


class MemoryBlob:
    """A blob of a `MemoryStore`."""

    def __init__(self, name: str) -> None:
        self.content: bytes | None = None
        self._name = name
        self._changes = 0
        self._lock = threading.Lock()

    def __str__(self) -> str:
        return f"memory:{self._name}"

    def stamp(self) -> object:
        return None if self.content is None else self._changes

    def read(self) -> bytes | None:
        return self.content

    def replace(self, content: bytes, *, durable: bool = True) -> None:
        self.content, self._changes = content, self._changes + 1

    @contextmanager
    def locked(self) -> "Iterator[MemoryBlob]":
        with self._lock:
            yield self

    @contextmanager
    def try_locked(self) -> "Iterator[MemoryBlob | None]":
        if not self._lock.acquire(blocking=False):
            yield None
            return
        try:
            yield self
        finally:
            self._lock.release()


class MemoryStore:
    """A record in the memory of this process."""

    def __init__(self) -> None:
        self.url = f"file:steno-{next(_numbers)}?mode=memory&cache=shared"
        self._anchor = self._connect()
        """The database lives as long as a connection to it."""
        self._folder = tempfile.TemporaryDirectory(prefix="steno-")
        self._made = False
        self._blobs: dict[str, MemoryBlob] = {}
        self._leases: dict[str, threading.Lock] = {}
        self._held: dict[str, Holder] = {}

    def __str__(self) -> str:
        return self.url

    def open(self, *, write: bool, create: bool, check: bool, clock: Clock) -> SqliteSession:
        if not self._made and not (write and create):
            raise RecordNotFound(f"There is no record at {self}.")
        if not self._made:
            self.create(new_identity(clock))
        connection = self._connect()
        session = SqliteSession(Path(self.url), connection, read_identity(connection, Path(self.url), write=write))
        if check:
            expect_head(session, Path(self.url))
        return session

    def create(self, identity: Identity) -> None:
        fill(self._anchor, identity)
        self._made = True

    def upgrade(self) -> None:
        """It is never older than this process."""

    def status(self) -> StoreStatus:
        return StoreStatus(database="memory", schema="", bytes=0, partitions=1, oldest_transaction_seconds=0)

    def admit(self, role: str, *, appends: bool, keeps_tokens: bool = False) -> None:
        """Whoever has the process may do everything."""

    def is_writable(self) -> bool:
        return True

    def blob(self, name: str) -> MemoryBlob:
        return self._blobs.setdefault(name, MemoryBlob(name))

    def lease(self, name: str) -> Lease | None:
        lock = self._leases.setdefault(name, threading.Lock())
        if not lock.acquire(blocking=False):
            return None
        before, owner = self._held.get(name), new_owner()
        lease = Lease()
        lease.token = 1 if before is None else before.token + 1
        self._held[name] = Holder(
            name=name,
            process=os.getpid(),
            host="here",
            worker=worker_of(owner),
            token=lease.token,
            since=since_of(owner),
            seconds_left=None,
        )
        lease.callback(lock.release)
        return lease

    def leases(self) -> list[Holder]:
        holders = sorted(self._held.items())
        return [holder if self._leases[name].locked() else replace(holder, seconds_left=0) for name, holder in holders]

    def clock(self, own: Clock) -> Clock:
        return own

    def folder(self, name: str) -> Path:
        return Path(self._folder.name) / name

    def place(self, name: str) -> str:
        return f"sqlite:///{self.folder(name)}"

    def close(self) -> None:
        self._anchor.close()
        self._folder.cleanup()

    def _connect(self) -> Connection:
        def make() -> sqlite3.Connection:
            return sqlite3.connect(self.url, uri=True, isolation_level=None, check_same_thread=False)

        return create_engine("sqlite+pysqlite://", creator=make, poolclass=NullPool).connect()
