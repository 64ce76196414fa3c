"""The port of a store: one record and all that is kept beside it (its company), known by a URL.

Vault, tokens, the engine's snapshot, leases and read models ask the store for their place, so that nothing else knows
whether that is a file, a row or a lock of a database.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, cast

import msgspec

from events.clock import Clock
from events.errors import NotARecord, RecordLocked, StenoError
from events.installation import installing
from events.store.holder import Holder

if TYPE_CHECKING:
    from sqlalchemy import Executable


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """What a record says of itself."""

    format: int
    record_id: str
    key: bytes
    created_at: int
    schema: str = ""  # as it was read; empty: the newest

    def genesis(self) -> bytes:
        """The hash before position 1, which covers all of this."""
        own = f"steno record {self.format} {self.record_id} {self.created_at}\n".encode()
        return hashlib.sha256(own + hashlib.sha256(self.key).digest()).digest()


class StoreStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What a database says of itself."""

    database: str  # name and version
    schema: str  # the Alembic revision
    bytes: int
    partitions: int
    oldest_transaction_seconds: int  # a long one keeps the server from cleaning up


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

    def locked(self) -> AbstractContextManager["Blob"]:
        """Excludes every other `locked` block of any process, and waits for it. Gives the blob to use in the block:
        replacing it fails if the lock was lost meanwhile, since the process stood still or was cut off.
        """

    def try_locked(self) -> AbstractContextManager["Blob | None"]:
        """As `locked`, but None at once while another block has it."""


class HeadMoved(RecordLocked):
    """Another process appended meanwhile, or the database restarted: nothing was appended, and it is worth a retry."""

    def __init__(self) -> None:
        super().__init__("Other processes append to the record all the time: try again.")


class Lease(ExitStack):
    """The right to act, held by at most one process; freed when it is closed or the process ends.

    `token` grows with each holder: an append of a session that is bound to the lease checks it.
    """

    name = ""
    token = 0

    @property
    def valid(self) -> bool:
        """Whether it is certainly still ours now."""
        return True

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

    def stream(self, statement: "Executable") -> Iterable[Any]:
        """The rows of a constant statement, which may be more than fit into memory; inside `snapshot`."""

    def expect_in_place(self) -> None:
        """Raises RecordReplaced if another file is where this connection's record was."""

    def begin(self, *, durable: bool, locked: bool) -> tuple[int, bytes]:
        """Begin an append; position and hash of the head that it follows. With `durable` its commit waits for the disk.

        Without `locked` it need not exclude other writers: it may end in HeadMoved, also where it only reads.
        """

    def bind(self, leases: Sequence[Lease]) -> None:
        """Appends from now on raise LeaseLost where another process holds one of these leases."""

    def find_stream(self, name: str) -> tuple[Any, ...] | None:
        """The row of a stream."""

    def add_stream(self, name: str) -> int:
        """The id of a new stream of version 0."""

    def add_part(self, commitment: bytes, base: int | None, encoding: int, crc: int, data: bytes) -> tuple[int, bool]:
        """The id of the part with this commitment, and whether it is new."""

    def add_events(self, rows: Sequence[tuple[object, ...]]) -> None:
        """Rows of `events`, in order."""

    def commit(self, end: tuple[int, bytes], streams: Sequence[tuple[int | None, ...]]) -> None:
        """Commit an append: the new head, and (version, item, since, id) of every stream that it moved."""

    def rollback(self) -> None:
        """Take the append back; a connection that fails at it is dropped, which does the same."""

    def snapshot(self) -> AbstractContextManager[None]:
        """A read transaction: appends of others are not seen."""

    def shrink(self) -> None:
        """Free the memory that caches what was read."""

    def damage(self, *, pages: bool = True) -> Iterator[tuple[int | None, str, str]]:
        """(position, kind, detail) of what the database itself finds wrong with its schema and, with `pages`, with all
        of its pages if it can look at them.
        """

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

    def create(self, identity: Identity) -> None:
        """Make an empty record of that identity, whole or not at all; one that is there stays."""

    def upgrade(self) -> None:
        """Bring the schema to this version, each revision in one transaction. RecordLocked also while a lease is held.

        RecordNotFound, NotARecord, RecordDamaged, RecordTooNew, RecordNotWritable and RecordLocked mean that nothing
        was written.
        """

    def replace(self, fill: "Callable[[Store], object]") -> str | None:
        """Put a record that `fill` makes in an empty place in the place of this one, whole or not at all; where the
        replaced one is kept, None: there was none. RecordLocked: a process has it open.
        """

    def status(self) -> "StoreStatus":
        """What the database says of itself. Raises as `open`."""

    def admit(self, role: str, *, appends: bool, keeps_tokens: bool = False) -> None:
        """Let a role of the database read, also append, also keep the tokens. StenoError where there are no roles."""

    def is_writable(self) -> bool:
        """Whether this process may write beside the record."""

    def blob(self, name: str) -> Blob: ...

    def lease(self, name: str) -> Lease | None:
        """The lease of that name; None if another process holds it. Raises RecordNotWritable if it cannot be made."""

    def lease_holder(self, name: str) -> int | None:
        """The process id of the last holder, for a message; None if there never was one."""

    def leases(self) -> list[Holder]:
        """The holder of every lease, or its last one, by name. Raises as `open`."""

    def clock(self, own: Clock) -> Clock:
        """The clock that all writers of the record share, on whatever machine: `own` if that tells the same time."""

    def folder(self, name: str) -> Path:
        """A folder on this machine for the record's files; it may not exist."""

    def place(self, name: str) -> str:
        """The URL of a disposable database of the record."""


Where: TypeAlias = str | Path | Store  # a store, its URL, or a path, which means SQLite

_KINDS: Final = {"sqlite": "sqlite", "postgresql": "postgres", "postgres": "postgres"}
"""By the name in a URL: the folders of stores here; `STORE` of `store.py` opens a place."""


def store_at(where: Where) -> Store:
    """The store at a URL. Raises NotARecord if it cannot hold a record."""
    if not isinstance(where, str | Path):
        return where
    kind, place = "sqlite", str(where)
    if "://" in place:
        scheme, _ = place.split("://", 1)
        kind = _KINDS.get(scheme.partition("+")[0], "")
        if not kind:
            raise NotARecord(f"{scheme}:// is not a record's URL: give a path, sqlite:///PATH or postgresql://…")
        if kind == "sqlite":
            place = _file(place)
    try:
        module = import_module(f"events.store.{kind}.store")
    except ImportError as error:
        needs = f"PostgreSQL needs psycopg: `{installing('postgres')}`."
        raise StenoError(needs if kind == "postgres" else str(error)) from error
    return cast(Store, module.STORE(place))


def _file(url: str) -> str:
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        place = make_url(url).database or ""
    except ArgumentError:
        place = ""
    if place in ("", ":memory:"):
        raise NotARecord(f"{url} is not a record's URL: give a path or sqlite:///PATH.")
    return place
