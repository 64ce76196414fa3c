"""The machines of a projections file, found by any word a person has for one."""

import sqlite3
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from projections.store.run_table import AFTER_ANY
from projections.store.schema import VM_COLUMNS

_GIVEN: Final = (
    "vm_id, provider_id, name, billed, ended_at, object, created, cost, last_at, kind, spans, folded, paid, "
    "archive, hidden, changed"
)
_REPLACED: Final = ", ".join(f"{name} = excluded.{name}" for name in _GIVEN.split(", ")[1:])
_SELECT: Final = f"SELECT {_GIVEN} FROM vms "  # noqa: S608 - names of ours
_EXACTLY: Final = tuple(
    _SELECT + condition + " ORDER BY archive IS NOT NULL, ordinal DESC LIMIT 1"
    for condition in ("WHERE vm_id = ?", "WHERE provider_id = ?", "WHERE name = ? AND billed = 1", "WHERE name = ?")
)
_BEGINNING: Final = _SELECT + "WHERE vm_id BETWEEN ?1 AND ?2 OR provider_id BETWEEN ?1 AND ?2 LIMIT 6"


class VmRow(msgspec.Struct, frozen=True, kw_only=True):
    """One machine as it is stored."""

    vm_id: str
    provider_id: str
    name: str | None
    billed: bool
    ended_at: int | None
    object: bytes
    """The machine object as JSON."""
    created: int = 0
    cost: int = 0
    """Micro-dollars so far."""
    last_at: int = 0
    """The newest poll that showed it."""
    kind: str = ""
    """Machines of one kind cost the same."""
    spans: bytes = b"\x90"
    """(since, until, micro-dollars) of its stretches at one price, as msgpack."""
    folded: bytes = b""
    """The engine's own machine, as `projections.store.world_table` writes it."""
    paid: bytes = b""
    """What its bill is made of, as `projections.models.bill_sums` writes it."""
    archive: str | None = None
    """The archive that alone shows it; None: it is live."""
    hidden: bool = False
    """Lists leave it out."""


class VmTable:
    """The machines in one open projections file."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        self.ordinal = "NULL"
        self.newest_moment: int | None = None

    def put(self, rows: Iterable[VmRow], changed: int = 0) -> None:
        """Insert or replace machines at a position; a new one comes after all others."""
        given = [(*msgspec.structs.astuple(row), changed) for row in rows]
        if self.newest_moment is not None:
            self._database.executemany(
                f"INSERT INTO main.vms_was ({VM_COLUMNS}, until) "  # noqa: S608 - names of ours
                f"SELECT {VM_COLUMNS}, ? FROM main.vms WHERE vm_id = ? AND changed <= ?",
                ((changed, row[0], self.newest_moment) for row in given),
            )
        self._database.executemany(
            f"INSERT INTO main.vms (ordinal, {_GIVEN}) "  # noqa: S608
            f"VALUES ({self.ordinal.format('vms', 'vm_id')}, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
            f"ON CONFLICT DO UPDATE SET {_REPLACED}",
            ((row[0], *row) for row in given) if self.ordinal != "NULL" else given,
        )

    def row(self, vm_id: str) -> VmRow | None:
        """The machine of that id."""
        row = self._database.execute(_EXACTLY[0], (vm_id,)).fetchone()
        return None if row is None else _row(row)

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
        return tuple(_row(row) for row in self._database.execute(_BEGINNING, (word, word + AFTER_ANY)))

    def all(self, *, billed_or_since: int | None = None, hidden: bool = True) -> Iterator[VmRow]:
        """Machines in order of first sight; all, or only those that may be billed or ended since a moment.

        Without `hidden`, those that lists leave out are left out.
        """
        shown = "" if hidden else "hidden = 0 AND "
        if billed_or_since is None:
            cursor = self._database.execute(f"{_SELECT}WHERE {shown}1 ORDER BY ordinal")
        else:
            condition = f"WHERE {shown}(billed = 1 OR ended_at IS NULL OR ended_at >= ?) ORDER BY +ordinal"
            cursor = self._database.execute(_SELECT + condition, (billed_or_since,))
        return (_row(row) for row in cursor)

    def page(
        self,
        *,
        behind: int | None = None,
        limit: int = 50,
        live: bool = False,
        hidden: bool = False,
        newest_first: bool = True,
    ) -> tuple[tuple[int, bytes], ...]:
        """Machine objects in order of first sight, each with its place; `behind` is the place of the last one seen.

        With `hidden`, also those that lists leave out.
        """
        conditions, given = ["1" if hidden else "hidden = 0"], list[Any]()
        if behind is not None:
            conditions.append(f"ordinal {'<' if newest_first else '>'} ?")
            given.append(behind)
        if live:
            conditions.append("(billed = 1 OR ended_at IS NULL)")
        query = (
            f"SELECT ordinal, object FROM vms WHERE {' AND '.join(conditions)} "  # noqa: S608 - names of ours
            f"ORDER BY ordinal {'DESC' if newest_first else 'ASC'} LIMIT ?"
        )
        return tuple(self._database.execute(query, (*given, limit)).fetchall())

    def newest(self) -> VmRow | None:
        """The machine first seen last that is not hidden; one that is live before any of an archive."""
        query = _SELECT + "WHERE hidden = 0 ORDER BY archive IS NOT NULL, ordinal DESC LIMIT 1"
        row = self._database.execute(query).fetchone()
        return None if row is None else _row(row)

    def kinds(self) -> tuple[VmRow, ...]:
        """Of each kind the machine that was seen last."""
        query = "SELECT kind, max(last_at) FROM vms GROUP BY kind"
        found = (
            self._database.execute(_SELECT + "WHERE kind = ? AND last_at = ? ORDER BY ordinal LIMIT 1", pair).fetchone()
            for pair in self._database.execute(query).fetchall()
        )
        return tuple(_row(row) for row in found)

    def spent(self) -> tuple[int, int | None]:
        """(micro-dollars of all live machines so far, when the first was created)."""
        query = "SELECT coalesce(sum(cost), 0), min(created) FROM vms WHERE archive IS NULL"
        total, first = self._database.execute(query).fetchone()
        return total, first

    def spans(self) -> Iterator[bytes]:
        """What every live machine cost when, as `VmRow.spans`."""
        return (row[0] for row in self._database.execute("SELECT spans FROM vms WHERE archive IS NULL"))

    def paid(self) -> Iterator[tuple[int, str, str | None, bytes, str | None]]:
        """(place, vm id, name, what its bill is made of, archive) of every machine that is not hidden, in order of
        first sight.
        """
        query = "SELECT ordinal, vm_id, name, paid, archive FROM vms WHERE hidden = 0"
        return iter(sorted(self._database.execute(query).fetchall(), key=lambda row: row[0]))

    def count(self) -> int:
        """How many machines there are that are not hidden."""
        query = "SELECT (SELECT count(*) FROM vms) - (SELECT count(*) FROM vms WHERE hidden = 1)"
        count: int = self._database.execute(query).fetchone()[0]
        return count

    def names(self, prefix: str = "", limit: int = 1000) -> tuple[str, ...]:
        """Names of machines that begin so, the newest first."""
        query = "SELECT name FROM vms WHERE name BETWEEN ? AND ? GROUP BY name ORDER BY max(ordinal) DESC LIMIT ?"
        return tuple(row[0] for row in self._database.execute(query, (prefix, prefix + AFTER_ANY, limit)))

    def ids(self, prefix: str, limit: int = 100) -> tuple[str, ...]:
        """Ids of machines that begin so; none where nothing is given of one."""
        query = "SELECT vm_id FROM vms WHERE ?1 <> '' AND vm_id BETWEEN ?1 AND ?2 ORDER BY ordinal DESC LIMIT ?3"
        return tuple(row[0] for row in self._database.execute(query, (prefix, prefix + AFTER_ANY, limit)))


def _row(row: tuple[Any, ...]) -> VmRow:
    return VmRow(
        vm_id=row[0],
        provider_id=row[1],
        name=row[2],
        billed=bool(row[3]),
        ended_at=row[4],
        object=row[5],
        created=row[6],
        cost=row[7],
        last_at=row[8],
        kind=row[9],
        spans=row[10],
        folded=row[11],
        paid=row[12],
        archive=row[13],
        hidden=bool(row[14]),
    )
