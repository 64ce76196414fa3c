"""The projections' own SQLite file: runs and machines as objects, anomalies, gaps, and the folded world to go on from.

Disposable: whatever is wrong with it, it is built anew from the record. Writers are serialised by a lock file beside
it, so that a rebuilt file can take the old one's place while others read.
"""

import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from projections.schema import DDL, VERSION
from projections.vm_table import VmTable

_BUSY = 5.0

_SELECT = "SELECT run_id, provider, provider_id, name, ended, sort_at, object, folded FROM runs "
_EXACTLY = tuple(
    _SELECT + condition + " ORDER BY ordinal DESC LIMIT 1"
    for condition in ("WHERE run_id = ?", "WHERE provider_id = ?", "WHERE name = ?")
)
_BEGINNING = _SELECT + "WHERE run_id BETWEEN ?1 AND ?2 OR provider_id BETWEEN ?1 AND ?2 LIMIT 6"
_AFTER_ANY = "\U0010ffff"


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """What the projections are made of, and how far."""

    version: int = VERSION
    rules: str
    """Everything that decides, by name and version: another one, and they are built anew."""
    record: str = ""
    """The record's own id: these projections belong to it and no other."""
    position: int = 0


class RunRow(msgspec.Struct, frozen=True, kw_only=True):
    """One run as it is stored."""

    run_id: str
    provider: str
    provider_id: str | None
    name: str | None
    ended: bool
    sort_at: int
    object: bytes
    """The run object as JSON."""
    folded: bytes
    """The engine's own run, as `projections.folded` writes it."""


class Store:
    """One open projections file, or one in memory."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        self.vms = VmTable(database)

    @classmethod
    def create(cls, path: Path | None) -> "Store":
        """A new, empty store at `path`, or in memory."""
        database = sqlite3.connect(":memory:" if path is None else path, timeout=_BUSY, isolation_level=None)
        database.executescript("PRAGMA synchronous = NORMAL;" + DDL)
        return cls(database)

    @classmethod
    def open(cls, path: Path, *, write: bool) -> "Store | None":
        """The store at `path`; None where there is none, or none that this version can read."""
        uri = f"{path.absolute().as_uri()}?mode={'rw' if write else 'ro'}"
        try:
            store = cls(sqlite3.connect(uri, uri=True, timeout=_BUSY, isolation_level=None))
        except sqlite3.Error:
            return None
        if store.checkpoint() is None:
            store.close()
            return None
        return store

    def copy(self) -> "Store":
        """The same content in memory."""
        database = sqlite3.connect(":memory:", isolation_level=None)
        self._database.backup(database)
        return Store(database)

    def close(self) -> None:
        """Let go of the file."""
        self._database.close()

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """One transaction: all of it or nothing."""
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._database.execute("ROLLBACK")
            raise
        self._database.execute("COMMIT")

    # -- how far ---

    def checkpoint(self) -> Checkpoint | None:
        """How far this store is; None if it cannot be read."""
        try:
            row = self._database.execute("SELECT value FROM meta WHERE key = 'checkpoint'").fetchone()
            return None if row is None else msgspec.json.decode(row[0], type=Checkpoint)
        except (sqlite3.Error, msgspec.MsgspecError):
            return None

    def set_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Say how far this store is."""
        self.put("checkpoint", msgspec.json.encode(checkpoint))

    def get(self, key: str) -> bytes | None:
        """What is kept under a key."""
        row = self._database.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return None if row is None else row[0]

    def put(self, key: str, value: bytes) -> None:
        """Keep a value under a key."""
        self._database.execute("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", (key, value))

    def clear(self) -> None:
        """Forget everything."""
        for table in ("meta", "runs", "vms", "anomalies", "blind"):
            self._database.execute(f"DELETE FROM {table}")  # noqa: S608 - names of ours

    # -- runs ---

    def put_runs(self, rows: Iterable[RunRow]) -> None:
        """Insert or replace runs; a new one comes after all others."""
        self._database.executemany(
            "INSERT INTO runs (run_id, provider, provider_id, name, ended, sort_at, object, folded) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (run_id) DO UPDATE SET provider_id = excluded.provider_id, "
            "name = excluded.name, ended = excluded.ended, sort_at = excluded.sort_at, object = excluded.object, "
            "folded = excluded.folded",
            (msgspec.structs.astuple(row) for row in rows),
        )

    def run(self, run_id: str) -> RunRow | None:
        """The run of that id."""
        row = self._database.execute(_EXACTLY[0], (run_id,)).fetchone()
        return None if row is None else _row(row)

    def run_of(self, provider: str, provider_id: str) -> str | None:
        """The id of the run that the provider knows under that id."""
        query = "SELECT run_id FROM runs WHERE provider_id = ? AND provider = ?"
        row = self._database.execute(query, (provider_id, provider)).fetchone()
        return None if row is None else row[0]

    def matching(self, word: str) -> tuple[RunRow, ...]:
        """The run a person means by a word: its id, its provider's id, the newest of that name, or a prefix of an id.

        More than one where a prefix is not unique, none where nothing matches.
        """
        for query in _EXACTLY:
            row = self._database.execute(query, (word,)).fetchone()
            if row is not None:
                return (_row(row),)
        if not word:
            return ()
        return tuple(_row(row) for row in self._database.execute(_BEGINNING, (word, word + _AFTER_ANY)))

    def runs(self, *, open_or_since: int | None = None, newest_first: bool = False) -> Iterator[RunRow]:
        """Runs in order of first sight, or by submission; all, or only those open or submitted since a moment."""
        order = "ORDER BY sort_at DESC, ordinal DESC" if newest_first else "ORDER BY ordinal"
        if open_or_since is None:
            cursor = self._database.execute(_SELECT + order)
        else:
            cursor = self._database.execute(_SELECT + "WHERE ended = 0 OR sort_at >= ? " + order, (open_or_since,))
        return (_row(row) for row in cursor)

    def count(self) -> int:
        """How many runs there are."""
        count: int = self._database.execute("SELECT count(*) FROM runs").fetchone()[0]
        return count

    def names(self, prefix: str = "", limit: int = 1000) -> tuple[str, ...]:
        """Names of runs that begin so, the newest first."""
        query = "SELECT name FROM runs WHERE name BETWEEN ? AND ? GROUP BY name ORDER BY max(ordinal) DESC LIMIT ?"
        return tuple(row[0] for row in self._database.execute(query, (prefix, prefix + _AFTER_ANY, limit)))

    # -- anomalies and gaps ---

    def add_anomalies(self, rows: Iterable[tuple[str, bytes]]) -> None:
        """More anomalies, each (subject, JSON object)."""
        self._database.executemany("INSERT INTO anomalies (subject, object) VALUES (?, ?)", rows)

    def anomalies(self, subject: str | None = None) -> tuple[bytes, ...]:
        """All anomalies in order, or those of one subject."""
        if subject is None:
            cursor = self._database.execute("SELECT object FROM anomalies ORDER BY ordinal")
        else:
            query = "SELECT object FROM anomalies WHERE subject = ? ORDER BY ordinal"
            cursor = self._database.execute(query, (subject,))
        return tuple(row[0] for row in cursor)

    def add_blind(self, rows: Iterable[tuple[str, bytes]]) -> None:
        """More gaps that are over, each (source, JSON object)."""
        self._database.executemany("INSERT INTO blind (source, object) VALUES (?, ?)", rows)

    def blind(self, sources: Sequence[str] | None = None) -> tuple[bytes, ...]:
        """All gaps that are over, in order, or those of some sources."""
        if sources is None:
            cursor = self._database.execute("SELECT object FROM blind ORDER BY ordinal")
            return tuple(row[0] for row in cursor)
        query = "SELECT ordinal, object FROM blind WHERE source = ? ORDER BY ordinal"
        rows = [row for source in sources for row in self._database.execute(query, (source,))]
        return tuple(row[1] for row in sorted(rows))


def _row(row: tuple[str, str, str | None, str | None, int, int, bytes, bytes]) -> RunRow:
    run_id, provider, provider_id, name, ended, sort_at, value, folded = row
    return RunRow(
        run_id=run_id,
        provider=provider,
        provider_id=provider_id,
        name=name,
        ended=bool(ended),
        sort_at=sort_at,
        object=value,
        folded=folded,
    )


def beside(record: Path) -> Path:
    """Where the projections of a record in a file are."""
    return record.with_name(record.name + ".projections")


@contextmanager
def only_writer(path: Path) -> Iterator[None]:
    """Hold the lock of a projections file: one process writes or replaces it at a time; waits for the others.

    Raises:
        OSError: the folder cannot be written.
    """
    import fcntl

    descriptor = os.open(path.with_name(path.name + ".lock"), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
