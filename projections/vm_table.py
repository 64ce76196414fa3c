"""The machines of a projections file, found by any word a person has for one."""

import sqlite3
from collections.abc import Iterable, Iterator

import msgspec

_SELECT = "SELECT vm_id, provider_id, name, billed, ended_at, object FROM vms "
_EXACTLY = tuple(
    _SELECT + condition + " ORDER BY ordinal DESC LIMIT 1"
    for condition in ("WHERE vm_id = ?", "WHERE provider_id = ?", "WHERE name = ? AND billed = 1", "WHERE name = ?")
)
_BEGINNING = _SELECT + "WHERE vm_id BETWEEN ?1 AND ?2 OR provider_id BETWEEN ?1 AND ?2 LIMIT 6"
_AFTER_ANY = "\U0010ffff"


class VmRow(msgspec.Struct, frozen=True, kw_only=True):
    """One machine as it is stored."""

    vm_id: str
    provider_id: str
    name: str | None
    billed: bool
    ended_at: int | None
    object: bytes
    """The machine object as JSON."""


class VmTable:
    """The machines in one open projections file."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database

    def put(self, rows: Iterable[VmRow]) -> None:
        """Insert or replace machines; a new one comes after all others."""
        self._database.executemany(
            "INSERT INTO vms (vm_id, provider_id, name, billed, ended_at, object) VALUES (?, ?, ?, ?, ?, ?) "
            "ON CONFLICT (vm_id) DO UPDATE SET provider_id = excluded.provider_id, name = excluded.name, "
            "billed = excluded.billed, ended_at = excluded.ended_at, object = excluded.object",
            (msgspec.structs.astuple(row) for row in rows),
        )

    def matching(self, word: str) -> tuple[VmRow, ...]:
        """The machine a person means: its id, the provider's, the newest of that name (one that may be billed before
        one that is gone), or a prefix of an id.

        More than one where a prefix is not unique, none where nothing matches.
        """
        for query in _EXACTLY:
            row = self._database.execute(query, (word,)).fetchone()
            if row is not None:
                return (_row(row),)
        if not word:
            return ()
        return tuple(_row(row) for row in self._database.execute(_BEGINNING, (word, word + _AFTER_ANY)))

    def all(self, *, billed_or_since: int | None = None) -> Iterator[VmRow]:
        """Machines in order of first sight; all, or only those that may be billed or ended since a moment."""
        if billed_or_since is None:
            cursor = self._database.execute(_SELECT + "ORDER BY ordinal")
        else:
            condition = "WHERE billed = 1 OR ended_at IS NULL OR ended_at >= ? ORDER BY ordinal"
            cursor = self._database.execute(_SELECT + condition, (billed_or_since,))
        return (_row(row) for row in cursor)

    def count(self) -> int:
        """How many machines there are."""
        count: int = self._database.execute("SELECT count(*) FROM vms").fetchone()[0]
        return count

    def names(self, prefix: str = "", limit: int = 1000) -> tuple[str, ...]:
        """Names of machines that begin so, the newest first."""
        query = "SELECT name FROM vms WHERE name BETWEEN ? AND ? GROUP BY name ORDER BY max(ordinal) DESC LIMIT ?"
        return tuple(row[0] for row in self._database.execute(query, (prefix, prefix + _AFTER_ANY, limit)))

    def ids(self, prefix: str, limit: int = 100) -> tuple[str, ...]:
        """Ids of machines that begin so; none where nothing is given of one."""
        query = "SELECT vm_id FROM vms WHERE ?1 <> '' AND vm_id BETWEEN ?1 AND ?2 ORDER BY ordinal DESC LIMIT ?3"
        return tuple(row[0] for row in self._database.execute(query, (prefix, prefix + _AFTER_ANY, limit)))


def _row(row: tuple[str, str, str | None, int, int | None, bytes]) -> VmRow:
    vm_id, provider_id, name, billed, ended_at, value = row
    return VmRow(vm_id=vm_id, provider_id=provider_id, name=name, billed=bool(billed), ended_at=ended_at, object=value)
