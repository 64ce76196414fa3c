"""The port of a store: one record and all that is kept beside it (its company), known by a URL; and a record's
identity: made once, read and checked by every store; and the holder of a lease, as every store describes it.

Vault, tokens, the engine's snapshot, leases and read models ask the store for their place, so that nothing else knows
whether that is a file, a row or a lock of a database.
"""

import hashlib
import os
import secrets
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, cast

import msgspec

from steno.events.clock import Clock, SystemClock
from steno.events.errors import NotARecord, RecordDamaged, RecordLocked, RecordTooNew, RecordTooOld, StenoError
from steno.events.installation import installing

if TYPE_CHECKING:
    from sqlalchemy import Executable

SEATS: Final = "sharing "
"""How the names of leases begin that say only that a process lives, to those it shares sources with."""

_RANDOM_BITS: Final = 62  # of a UUID of version 7, behind its variant
_own: tuple[int, int] = (0, 0)  # (process id, its random number)


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """The holder of a lease, or its last one."""

    name: str  # of the lease
    process: int
    host: str
    worker: str  # random for each start of a process; equal for all leases of one process
    token: int  # grows with each holder
    since: int | None  # microseconds, UTC, by the holder's clock; None: an older version took it
    seconds_left: float | None
    """Until it ends unless its holder renews it; 0 or less: it has ended. None: it ends with its process."""

    @property
    def held(self) -> bool:
        return self.seconds_left is None or self.seconds_left > 0


def expect_nobody_acts(where: object, holders: Iterable[Holder]) -> None:
    """RecordLocked if a lease is held: its holder would stay, and could not append to what is there afterwards."""
    for holder in holders:
        if holder.held:
            whose = f"process {holder.process}" + (f" on {holder.host}" if holder.host else "")
            raise RecordLocked(f"The record {where} is in use by {whose}: stop that first (`steno workers`).")


def new_owner() -> uuid.UUID:
    """A UUID of version 7: when a lease is taken, and by whom. Its last 62 bits are random for each process start: a
    name or a number would be another's after a restart.
    """
    global _own  # noqa: PLW0603 - one process, one number; a fork is another process
    if _own[0] != os.getpid():
        _own = os.getpid(), secrets.randbits(_RANDOM_BITS)
    moment = SystemClock().now() // 1000
    return uuid.UUID(int=moment << 80 | 7 << 76 | secrets.randbits(12) << 64 | 2 << _RANDOM_BITS | _own[1])


def worker_of(owner: uuid.UUID) -> str:
    """The part of an owner that is the process's: 16 digits."""
    return f"{owner.int & ((1 << _RANDOM_BITS) - 1):016x}"


def since_of(owner: uuid.UUID) -> int | None:
    """When the lease was taken, microseconds UTC, to the millisecond; None: by an owner of an older version."""
    return (owner.int >> 80) * 1000 if owner.version == 7 else None


def this_worker() -> str:
    """The worker of this process."""
    return worker_of(new_owner())


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """A record's description of itself."""

    format: int
    record_id: str
    key: bytes
    created_at: int
    schema: str = ""  # as it was read; empty: the newest

    @property
    def keeps_output(self) -> bool:
        """False: its schema is from before the table of outputs."""
        return self.schema in ("", REVISION)

    def genesis(self) -> bytes:
        """The hash before position 1, which covers all of this."""
        own = f"steno record {self.format} {self.record_id} {self.created_at}\n".encode()
        return hashlib.sha256(own + hashlib.sha256(self.key).digest()).digest()


class StoreStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A database's description of itself."""

    database: str  # name and version
    schema: str  # the Alembic revision
    bytes: int
    partitions: int
    oldest_transaction_seconds: int  # a long one keeps the server from cleaning up


class Blob(Protocol):
    """A small piece of data beside a record, private and replaced whole. RecordNotWritable: it is inaccessible."""

    def __str__(self) -> str:
        """Where it is, for messages."""

    def stamp(self) -> object:
        """A value that changes whenever the content does; None: no content."""

    def read(self) -> bytes | None:
        """The content, or None."""

    def replace(self, content: bytes, *, durable: bool = True) -> None:
        """Readers see the old content or the new; `durable` waits for the disk."""

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
        """True if it is certainly still ours."""
        return True

    release = ExitStack.close


class Session(Protocol):
    """An open connection to a record."""

    @property
    def identity(self) -> Identity: ...

    def guard(self) -> AbstractContextManager[None]:
        """Turns errors of the database and the system into those of `steno.events.errors`."""

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
        """Make an empty record of that identity, whole or not at all; an existing record stays."""

    def upgrade(self) -> None:
        """Bring the schema to this version, each revision in one transaction. RecordLocked also while a lease is held.

        RecordNotFound, NotARecord, RecordDamaged, RecordTooNew, RecordNotWritable and RecordLocked mean that nothing
        was written.
        """

    def replace(self, fill: "Callable[[Store], object]") -> str | None:
        """Put a record that `fill` makes elsewhere in the place of this record, whole or not at all; where the
        replaced one is kept, None: there was none. RecordLocked: a process has it open.
        """

    def status(self) -> "StoreStatus":
        """The database's description of itself. Raises as `open`."""

    def admit(self, role: str, *, appends: bool, keeps_tokens: bool = False) -> None:
        """Let a role of the database read, also append, also keep the tokens. StenoError where there are no roles."""

    def is_writable(self) -> bool:
        """True if this process may write beside the record."""

    def blob(self, name: str) -> Blob: ...

    def lease(self, name: str) -> Lease | None:
        """The lease of that name; None if another process holds it. Raises RecordNotWritable if it cannot be made."""

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


BUNDLE: Final = ".steno"  # the end of a bundle's name
SQLITE: Final = b"SQLite format 3\0"  # the first bytes of a record in a file


def store_at(where: Where) -> Store:
    """The store at a URL. Raises NotARecord if it cannot hold a record."""
    if not isinstance(where, str | Path):
        return where
    kind, place = "bundle" if is_bundle(where) else "sqlite", str(where)
    if "://" in place:
        scheme, _ = place.split("://", 1)
        kind = _KINDS.get(scheme.partition("+")[0], "")
        if not kind:
            raise NotARecord(f"{scheme}:// is not a record's URL: give a path, sqlite:///PATH or postgresql://…")
        if kind == "sqlite":
            place = _file(place)
    try:
        module = import_module(f"steno.events.{'' if kind == 'bundle' else 'store.'}{kind}.store")
    except ImportError as error:
        needs = f"PostgreSQL needs psycopg: `{installing('postgres')}`."
        raise StenoError(needs if kind == "postgres" else str(error)) from error
    return cast(Store, module.STORE(place))


def is_bundle(where: object, *, missing: bool = False) -> bool:
    """True of the store of an incident bundle, and of a bundle's path: a record may have such a name too.
    `missing`: of a path without a file.
    """
    if not isinstance(where, str | Path):
        return getattr(where, "is_bundle", False)
    if not str(where).endswith(BUNDLE) or "://" in str(where):
        return False
    if not (path := Path(where)).is_file():
        return missing
    # Who closes a file of SQLite takes the locks from whoever in this process has it open; then it has a WAL.
    if any(path.with_name(path.name + end).exists() for end in ("-wal", "-shm")):
        return False
    with path.open("rb") as file:
        return file.read(len(SQLITE)) != SQLITE


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


FORMAT: Final = 2  # of bytes inside the rows (codec, parts, chain); kept in `meta`
REVISIONS: Final = ("0001", "0002", "0003", "0004", "0005_clock", "0006_roles", "0007_outputs")
"""The Alembic revisions that this code reads."""
CLOCKED: Final = "0005_clock"  # from this one on, events have a clock
REVISION: Final = REVISIONS[-1]  # the one it writes

DESCRIPTION: Final = frozenset({"format", "record_id", "key", "created_at"})


def new_identity(clock: Clock) -> Identity:
    return Identity(format=FORMAT, record_id=str(uuid.uuid4()), key=secrets.token_bytes(32), created_at=clock.now())


def described(identity: Identity) -> list[tuple[str, bytes]]:
    """The rows of `meta`."""
    own = ((key, getattr(identity, key)) for key in sorted(DESCRIPTION))
    return [(key, value if key == "key" else str(value).encode()) for key, value in own]


def read_identity(
    revisions: Sequence[str], description: Mapping[str, bytes], where: str, *, write: bool, check: bool, sealed: bool
) -> Identity:
    """The identity in the rows of `alembic_version` and `meta`.

    `write` requires this version's schema, else an older one will do. `check` requires it to be whole; verify reads
    what it can and names the damage. `sealed`: some events are in files, which no version since schema 0004 reads.
    Raises RecordDamaged, RecordTooNew or RecordTooOld.
    """
    schema = revisions[0] if len(revisions) == 1 else ""
    identity = Identity(
        format=_whole_number(description.get("format")),
        record_id=description.get("record_id", b"").decode("utf-8", "replace"),
        key=description.get("key", b""),
        created_at=_whole_number(description.get("created_at")),
    )
    if schema > REVISION or (check and identity.format > FORMAT):
        raise RecordTooNew(f"The record {where} was written by a newer version (schema {schema}): update steno.")
    if sealed:
        raise RecordTooOld(
            f"Old events of the record {where} are in sealed files, which this version does not read: run "
            f"`steno db copy {where} NEW` with the version that sealed them, then use NEW."
        )
    if check and (description.keys() < DESCRIPTION or min(identity.format, identity.created_at) < 0):
        raise RecordDamaged(f"The record {where} has lost its own description: restore it from a copy.")
    if check and (schema not in REVISIONS or identity.format < 1):
        raise RecordDamaged(f"The record {where} does not say its schema: restore it from a copy.")
    if write and schema != REVISION:
        raise RecordTooOld(
            f"The record {where} has schema {schema}, this version writes {REVISION}: "
            f"run `steno db upgrade --record {where}`."
        )
    return msgspec.structs.replace(identity, schema=schema)


def _whole_number(text: bytes | None) -> int:
    return int(text) if text is not None and text.isdigit() and len(text) < 20 else -1
