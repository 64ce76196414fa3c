"""The port of a store: one record and all that is kept beside it (its company), known by a URL.

Vault, tokens, the engine's snapshot, leases and read models ask the store for their place, so that nothing else knows
whether that is a file, a row or a lock of a database.
"""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, cast

import msgspec

from events.clock import Clock
from events.errors import NotARecord

if TYPE_CHECKING:
    from sqlalchemy import Executable


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """What a record says of itself."""

    format: int
    record_id: str
    key: bytes
    created_at: int

    def genesis(self) -> bytes:
        """The hash before position 1, which covers all of this."""
        own = f"steno record {self.format} {self.record_id} {self.created_at}\n".encode()
        return hashlib.sha256(own + hashlib.sha256(self.key).digest()).digest()


class Blob(Protocol):
    """A small piece of data beside a record, private and replaced whole. RecordNotWritable: it is inaccessible."""

    def __str__(self) -> str:
        """Where it is, for messages."""

    def exists(self) -> bool: ...

    def stamp(self) -> object:
        """A value that changes whenever the content does; None: no content."""

    def read(self) -> bytes | None:
        """The content, or None."""

    def replace(self, content: bytes, *, durable: bool = True) -> None:
        """Readers see the old content or the new one; `durable` waits for the disk."""

    def locked(self) -> AbstractContextManager[None]:
        """Excludes every other `locked` block of any process, and waits for it."""


class Lease(ExitStack):
    """The right to act, held by at most one process; freed when it is closed or the process ends."""

    release = ExitStack.close


class Session(Protocol):
    """One open connection to a record."""

    @property
    def identity(self) -> Identity: ...

    def guard(self) -> AbstractContextManager[None]:
        """Turns errors of the database and the system into those of `events.errors`."""

    def run(self, statement: "Executable", *given: object) -> Any:
        """The driver's cursor after a constant statement, compiled once, its parameters in the order of its text.

        Rows go past SQLAlchemy, which takes ten times as long and refuses a value of another type in a column.
        """

    def insert(self, statement: "Executable", *given: object) -> int | None:
        """The id of the row that a constant statement adds; None: no row added."""

    def run_many(self, statement: "Executable", given: Sequence[tuple[object, ...]]) -> None:
        """Run a constant statement once for each row of parameters."""

    def begin(self, *, durable: bool) -> None:
        """Begin a transaction that excludes other writers; with `durable` its commit waits for the disk."""

    def commit(self) -> None: ...

    def rollback(self) -> None:
        """Take the transaction back; a connection that fails at it is dropped, which does the same."""

    def snapshot(self) -> AbstractContextManager[None]:
        """A read transaction: appends of others are not seen."""

    def shrink(self) -> None:
        """Free the memory that caches what was read."""

    def damage(self) -> Iterator[tuple[int | None, str, str]]:
        """(position, kind, detail) of what the database itself finds wrong with its pages and its schema."""

    def close(self) -> None: ...


class Store(Protocol):
    """Where one record and its company are kept."""

    @property
    def url(self) -> str:
        """The record's identity for users and settings."""

    def __str__(self) -> str:
        """Where the record is, for messages."""

    def open(self, *, write: bool, create: bool, check: bool, clock: Clock) -> Session:
        """A connection to the record; arguments and errors as in `Record.open`."""

    def upgrade(self) -> None:
        """Bring the schema to this version, in one transaction.

        RecordNotFound, NotARecord, RecordDamaged, RecordTooNew, RecordNotWritable and RecordLocked mean that nothing
        was written.
        """

    def stamp(self) -> object:
        """A value that changes when another record replaces this one; None: no record."""

    def is_writable(self) -> bool:
        """Whether this process may write beside the record."""

    def blob(self, name: str) -> Blob: ...

    def lease(self, name: str) -> Lease | None:
        """The lease of that name; None if another process holds it. Raises RecordNotWritable if it cannot be made."""

    def lease_holder(self, name: str) -> int | None:
        """The process id of the last holder, for a message; None if there never was one."""

    def folder(self, name: str) -> Path:
        """A folder on this machine for the record's files; it may not exist."""

    def place(self, name: str) -> str:
        """The URL of a disposable database of the record."""


Where: TypeAlias = str | Path | Store  # a store, its URL, or a path, which means SQLite

_KINDS: Final = frozenset({"sqlite"})  # folders of stores here; `STORE` of `store.py` opens a URL's place


def store_at(where: Where) -> Store:
    """The store at a URL. Raises NotARecord if it cannot hold a record."""
    if not isinstance(where, str | Path):
        return where
    kind, place = "sqlite", str(where)
    if "://" in place:
        from sqlalchemy.engine import make_url
        from sqlalchemy.exc import ArgumentError

        try:
            url = make_url(place)
        except ArgumentError:
            raise NotARecord(f"{place} is not a database URL: give a path or sqlite:///PATH.") from None
        kind, place = url.get_backend_name(), url.database or ""
        if kind not in _KINDS or place in ("", ":memory:"):
            raise NotARecord(f"A record is kept in a SQLite file: give a path or sqlite:///PATH, not {url!r}.")
    return cast(Store, import_module(f"events.store.{kind}.store").STORE(place))
