"""The port of a store: one record and everything kept beside it, known by a URL.

A record has company: the vault, tokens, the engine's snapshot, leases, read models. Each asks the record's store for
its place, so that nothing else knows whether that is a file, a row or a lock of a database.
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
    """A small piece of data beside a record, readable only by its owner and always replaced whole.

    Every method raises `RecordNotWritable` where the place cannot be read or written.
    """

    def __str__(self) -> str:
        """Where it is, for messages."""

    def exists(self) -> bool: ...

    def stamp(self) -> object:
        """A value that changes whenever the content does; None: there is none."""

    def read(self) -> bytes | None:
        """The content; None: there is none."""

    def replace(self, content: bytes, *, durable: bool = True) -> None:
        """Readers see the old content or the new one; `durable` waits until the disk has it."""

    def locked(self) -> AbstractContextManager[None]:
        """Excludes every other `locked` block of any process, and waits for it."""


class Lease(ExitStack):
    """The right to act that at most one process holds; free again when it is closed, or when the process ends."""

    release = ExitStack.close


class Session(Protocol):
    """One open connection to a record."""

    @property
    def identity(self) -> Identity: ...

    def guard(self) -> AbstractContextManager[None]:
        """Turns errors of the database and the system into those of `events.errors`."""

    def run(self, statement: "Executable", *given: object) -> Any:
        """The cursor of the driver after a statement, its parameters given in the order of its text.

        The statement is compiled once and kept: it must be a constant. Its rows go past SQLAlchemy, which takes ten
        times as long, and refuses what a hand may have put into a column.
        """

    def insert(self, statement: "Executable", *given: object) -> int | None:
        """The id of the row that a constant statement adds; None: it adds none."""

    def run_many(self, statement: "Executable", given: Sequence[tuple[object, ...]]) -> None:
        """Run a constant statement once for each row of parameters."""

    def begin(self, *, durable: bool) -> None:
        """Begin a transaction that excludes other writers; `durable`: its commit waits until the disk has it."""

    def commit(self) -> None: ...

    def rollback(self) -> None:
        """Take the transaction back; a connection that cannot do it is dropped, which takes it back too."""

    def snapshot(self) -> AbstractContextManager[None]:
        """A read transaction: what others append meanwhile is not seen."""

    def shrink(self) -> None:
        """Give back the memory that keeps what was read."""

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
        """A connection to the record; `Record.open` says what the arguments mean and what it raises."""

    def upgrade(self) -> None:
        """Bring the schema to this version, in one transaction.

        Raises:
            RecordNotFound, NotARecord, RecordDamaged, RecordTooNew, RecordNotWritable, RecordLocked: nothing was
            written.
        """

    def stamp(self) -> object:
        """A value that changes when another record takes this one's place; None: there is none."""

    def is_writable(self) -> bool:
        """Whether this process may write beside the record."""

    def blob(self, name: str) -> Blob: ...

    def lease(self, name: str) -> Lease | None:
        """The lease of that name; None while another process holds it.

        Raises:
            RecordNotWritable: it cannot be made or opened.
        """

    def lease_holder(self, name: str) -> int | None:
        """The process id that the last holder left, for a message; None where there never was one."""

    def folder(self, name: str) -> Path:
        """A folder on this machine for what belongs to the record; it need not be there."""

    def place(self, name: str) -> str:
        """The URL of a disposable database that belongs to the record."""


Where: TypeAlias = str | Path | Store  # a store, its URL, or a path, which means SQLite

_KINDS: Final = frozenset({"sqlite"})
"""The folders here that hold a store: `STORE` of `store.py` makes it of the place that a URL names."""


def store_at(where: Where) -> Store:
    """The store at a URL.

    Raises:
        NotARecord: no record can be kept there.
    """
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
