"""The port of a store: one record and everything kept beside it, known by a URL.

A record has company: the vault, tokens, the engine's snapshot, leases, read models. Each asks the record's store for
its place, so that nothing else knows whether that is a file, a row or a lock of a database.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Self, TypeAlias

import msgspec

from events.clock import Clock
from events.errors import NotARecord
from events.store.chain import genesis

if TYPE_CHECKING:
    from sqlalchemy import Connection


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """What a record says of itself."""

    format: int
    record_id: str
    key: bytes
    created_at: int

    def genesis(self) -> bytes:
        """The hash before position 1, which holds all of this."""
        return genesis(self.format, self.record_id, self.created_at, self.key)


class Blob(Protocol):
    """A small piece of data beside a record, readable only by its owner and always replaced whole."""

    def __str__(self) -> str:
        """Where it is, for messages."""
        ...

    def exists(self) -> bool: ...

    def stamp(self) -> object:
        """A value that changes whenever the content does; None: there is none."""
        ...

    def read(self) -> bytes | None:
        """The content; None: there is none.

        Raises:
            RecordNotWritable: it cannot be read.
        """
        ...

    def replace(self, content: bytes, *, durable: bool = True) -> None:
        """Readers see the old content or the new one; `durable` waits until the disk has it.

        Raises:
            RecordNotWritable: it cannot be written.
        """
        ...

    def locked(self) -> AbstractContextManager[None]:
        """Excludes every other `locked` block of any process, and waits for it.

        Raises:
            RecordNotWritable: the lock cannot be made.
        """
        ...


class Lease(Protocol):
    """The right to act that at most one process holds; it falls with the process."""

    def release(self) -> None:
        """Free it; a second call does nothing."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class Session(Protocol):
    """One open connection to a record."""

    @property
    def connection(self) -> "Connection": ...

    @property
    def identity(self) -> Identity: ...

    def guard(self) -> AbstractContextManager[None]:
        """Turns errors of the database and the system into those of `events.errors`."""
        ...

    def begin(self, *, durable: bool) -> None:
        """Begin a transaction that excludes other writers; `durable`: its commit waits until the disk has it."""
        ...

    def damage(self) -> Iterator[tuple[int | None, str, str]]:
        """(position, kind, detail) of what the database itself finds wrong with its pages and its schema."""
        ...

    def close(self) -> None: ...


class Store(Protocol):
    """Where one record and its company are kept."""

    @property
    def url(self) -> str:
        """The record's identity for users and settings."""
        ...

    def __str__(self) -> str:
        """Where the record is, for messages."""
        ...

    def open(self, *, write: bool, create: bool, check: bool, clock: Clock) -> Session:
        """A connection to the record; `Record.open` says what the arguments mean and what it raises."""
        ...

    def upgrade(self) -> None:
        """Bring the schema to this version, in one transaction.

        Raises:
            RecordNotFound, NotARecord, RecordDamaged, RecordTooNew, RecordNotWritable, RecordLocked: nothing was
            written.
        """
        ...

    def stamp(self) -> object:
        """A value that changes when another record takes this one's place; None: there is none."""
        ...

    def is_writable(self) -> bool:
        """Whether this process may write beside the record."""
        ...

    def blob(self, name: str) -> Blob:
        """The blob of that name beside the record."""
        ...

    def lease(self, name: str) -> Lease | None:
        """The lease of that name; None while another process holds it.

        Raises:
            RecordNotWritable: it cannot be made or opened.
        """
        ...

    def lease_holder(self, name: str) -> int | None:
        """The process id that the last holder left, for a message; None where there never was one."""
        ...

    def folder(self, name: str) -> Path:
        """A folder on this machine for what belongs to the record; it need not be there."""
        ...

    def place(self, name: str) -> str:
        """The URL of a disposable database that belongs to the record."""
        ...


Where: TypeAlias = str | Path | Store
"""A store, its URL, or the path of a SQLite file."""


def store_at(where: Where) -> Store:
    """The store at a URL; a bare path means SQLite.

    Raises:
        NotARecord: no record can be kept there.
    """
    if not isinstance(where, str | Path):
        return where
    from events.store.sqlite.store import SqliteStore

    text = str(where)
    if "://" not in text:
        return SqliteStore(Path(text).expanduser())
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        url = make_url(text)
    except ArgumentError:
        raise NotARecord(f"{text} is not a database URL: give a path or sqlite:///PATH.") from None
    if url.get_backend_name() != "sqlite" or not url.database or url.database == ":memory:":
        raise NotARecord(f"A record is kept in a SQLite file: give a path or sqlite:///PATH, not {url!r}.")
    return SqliteStore(Path(url.database).expanduser())
