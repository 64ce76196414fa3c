"""The runs of a projections file, found by any word a person has for one."""

import sqlite3
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from events.clock import foreign_run_id
from projections.store.schema import RUN_COLUMNS

_GIVEN: Final = (
    "run_id, provider, provider_id, name, ended, sort_at, object, folded, state, cost, odd, user, against, "
    "archive, hidden, changed"
)
_SELECT: Final = f"SELECT {_GIVEN} FROM runs "  # noqa: S608 - names of ours
_EXACTLY: Final = tuple(
    _SELECT + condition + " ORDER BY archive IS NOT NULL, ordinal DESC LIMIT 1"
    for condition in ("WHERE run_id = ?", "WHERE provider_id = ?", "WHERE name = ?")
)
_GOING_ON: Final = _SELECT + "WHERE name = ? AND ended = 0 AND archive IS NULL ORDER BY ordinal DESC"
_BEGINNING: Final = _SELECT + "WHERE run_id BETWEEN ?1 AND ?2 OR provider_id BETWEEN ?1 AND ?2 LIMIT 6"
AFTER_ANY: Final = "\U0010ffff"
_REPLACED: Final = ", ".join(f"{name} = excluded.{name}" for name in _GIVEN.split(", ")[1:])


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
    """The engine's own run, as `projections.store.world_table` writes it."""
    state: str = ""
    cost: int | None = None
    """Micro-dollars; None: unknown."""
    odd: bytes | None = None
    """The anomaly that its cost is, as JSON."""
    user: str | None = None
    """Who submitted it."""
    against: bytes | None = None
    """Its cost beside the provider's figure, encoded by `bill_sums`; None: neither side charges it."""
    archive: str | None = None
    """The archive that alone shows it; None: it is live."""
    hidden: bool = False
    """Lists leave it out."""

    @property
    def foreign(self) -> bool:
        """Whether somebody else submitted it."""
        return self.provider_id is not None and self.run_id == foreign_run_id(self.provider, self.provider_id)


class RunTable:
    """The runs in one open projections file."""

    _database: sqlite3.Connection
    ordinal = "NULL"
    """What a new row's place is; NULL: behind all others."""
    newest_moment: int | None = None
    """The newest moment that is kept: rows that it shows are put by before they are written again."""

    def put_runs(self, rows: Iterable[RunRow], changed: int = 0) -> None:
        """Insert or replace runs at a position; a new one comes after all others."""
        given = [(*msgspec.structs.astuple(row), changed) for row in rows]
        self._put_by("runs", "run_id", [row[0] for row in given], changed)
        self._database.executemany(
            f"INSERT INTO main.runs (ordinal, {_GIVEN}) "  # noqa: S608 - names of ours
            f"VALUES ({self.ordinal.format('runs', 'run_id')}, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
            f"ON CONFLICT DO UPDATE SET {_REPLACED}",
            ((row[0], *row) for row in given) if self.ordinal != "NULL" else given,
        )

    def drop_runs(self, run_ids: Iterable[str], changed: int = 0) -> None:
        """Take away runs that turned out to be others."""
        found = list(run_ids)
        self._put_by("runs", "run_id", found, changed)
        self._database.executemany("DELETE FROM main.runs WHERE run_id = ?", ((one,) for one in found))
        self._database.executemany("INSERT OR IGNORE INTO main.gone VALUES (?)", ((one,) for one in found))

    def _put_by(self, table: str, key: str, ids: Iterable[str], changed: int) -> None:
        """Keep the rows that the newest moment shows, as they are, under their name of before."""
        if self.newest_moment is None:
            return
        columns = RUN_COLUMNS if table == "runs" else self.vm_columns
        self._database.executemany(
            f"INSERT INTO main.{table}_was ({columns}, until) SELECT {columns}, ? FROM main.{table} "  # noqa: S608
            f"WHERE {key} = ? AND changed <= ?",
            ((changed, one, self.newest_moment) for one in ids),
        )

    vm_columns = ""

    def run(self, run_id: str) -> RunRow | None:
        """The run of that id."""
        row = self._database.execute(_EXACTLY[0], (run_id,)).fetchone()
        return None if row is None else _row(row)

    def money_of(self, run_id: str) -> tuple[int | None, bytes | None]:
        """What is stored as a run's cost (micro-dollars) and as `against`; None where unknown."""
        row = self._database.execute("SELECT cost, against FROM runs WHERE run_id = ?", (run_id,)).fetchone()
        return (None, None) if row is None else row

    def against(self) -> list[tuple[str, str | None, str | None, bytes | None]]:
        """(run id, name, user, cost against the provider's figure) of every run that is not hidden, in any order."""
        return self._database.execute("SELECT run_id, name, user, against FROM runs WHERE hidden = 0").fetchall()

    def run_of(self, provider: str, provider_id: str) -> str | None:
        """The id of the run that the provider knows under that id."""
        query = "SELECT run_id FROM runs WHERE provider_id = ? AND provider = ?"
        row = self._database.execute(query, (provider_id, provider)).fetchone()
        return None if row is None else row[0]

    def matching(self, word: str) -> tuple[RunRow, ...]:
        """The run a person means by a word: its id, its provider's id, its name, or a prefix of an id.

        Of several runs of a name it is the newest of ours that has not ended, else the newest.

        More than one where a prefix is not unique, none where nothing matches.
        """
        for query in _EXACTLY:
            if query is _EXACTLY[-1]:
                # A stranger may use the name of a run that waits with us: who says the name means ours.
                going_on = (_row(row) for row in self._database.execute(_GOING_ON, (word,)))
                ours = next((row for row in going_on if not row.foreign), None)
                if ours is not None:
                    return (ours,)
            row = self._database.execute(query, (word,)).fetchone()
            if row is not None:
                return (_row(row),)
        if not word:
            return ()
        return tuple(_row(row) for row in self._database.execute(_BEGINNING, (word, word + AFTER_ANY)))

    def runs(
        self, *, open_or_since: int | None = None, newest_first: bool = False, hidden: bool = True
    ) -> Iterator[RunRow]:
        """Runs in order of first sight, or by submission; all, or only those open or submitted since a moment.

        Without `hidden`, those that lists leave out are left out.
        """
        shown = "" if hidden else "hidden = 0 AND "
        order = "ORDER BY sort_at DESC, ordinal DESC" if newest_first else "ORDER BY ordinal"
        if open_or_since is None:
            cursor = self._database.execute(f"{_SELECT}WHERE {shown}1 {order}")
        else:
            since = f"WHERE {shown}((ended = 0 AND archive IS NULL) OR sort_at >= ?) {order}"
            cursor = self._database.execute(_SELECT + since, (open_or_since,))
        return (_row(row) for row in cursor)

    def page_of_runs(
        self,
        *,
        behind: tuple[int, int] | None = None,
        limit: int = 50,
        state: str | None = None,
        name: str | None = None,
        active: bool = False,
        hidden: bool = False,
        newest_first: bool = True,
    ) -> tuple[tuple[tuple[int, int], bytes], ...]:
        """Run objects in order of submission, each with its place; `behind` is the place of the last one seen.

        With `active`, only those that go on now: a run of an archive does not. With `hidden`, also those that lists
        leave out.
        """
        conditions, given = ["1" if hidden else "hidden = 0"], list[Any]()
        if active:
            conditions.append("ended = 0 AND archive IS NULL")
        if behind is not None:
            conditions.append(f"(sort_at, ordinal) {'<' if newest_first else '>'} (?, ?)")
            given += behind
        for column, value in (("state", state), ("name", name)):
            if value is not None:
                conditions.append(f"{column} = ?")
                given.append(value)
        way = "DESC" if newest_first else "ASC"
        query = (
            f"SELECT sort_at, ordinal, object FROM runs WHERE {' AND '.join(conditions)} "  # noqa: S608 - ours
            f"ORDER BY sort_at {way}, ordinal {way} LIMIT ?"
        )
        return tuple(((row[0], row[1]), row[2]) for row in self._database.execute(query, (*given, limit)))

    def newest_runs(self, count: int) -> tuple[RunRow, ...]:
        """The runs first seen last, in order of first sight."""
        cursor = self._database.execute(_SELECT + "ORDER BY ordinal DESC LIMIT ?", (count,))
        return tuple(reversed([_row(row) for row in cursor]))

    def runs_changed_since(self, position: int) -> tuple[RunRow, ...]:
        """Runs whose row was written at a position or later, in order of first sight."""
        cursor = self._database.execute(_SELECT + "WHERE changed >= ? ORDER BY ordinal", (position,))
        return tuple(_row(row) for row in cursor)

    def last_ended(self, count: int) -> tuple[bytes, ...]:
        """The objects of the runs whose verdict came last, the newest first."""
        query = (
            "SELECT subject FROM marks WHERE kind LIKE 'run~_%' ESCAPE '~' ORDER BY position DESC, ordinal DESC LIMIT ?"
        )
        subjects = dict.fromkeys(row[0] for row in self._database.execute(query, (2 * count,)).fetchall())
        one = "SELECT object FROM runs WHERE run_id = ? AND ended = 1 AND archive IS NULL"
        found = (self._database.execute(one, (subject[4:],)).fetchone() for subject in subjects)
        return tuple(row[0] for row in found if row is not None)[:count]

    def ended_since(self, moment: int) -> dict[str, int]:
        """state → how many runs reached their end since a moment."""
        query = (
            "SELECT subject, kind FROM marks WHERE at >= ? AND kind IN ('run_succeeded', 'run_failed', 'run_stopped') "
            "ORDER BY position"
        )
        last = dict(self._database.execute(query, (moment,)).fetchall())
        counts: dict[str, int] = {}
        query = "SELECT state, ended FROM runs WHERE run_id = ? AND archive IS NULL"
        for subject in last:
            row = self._database.execute(query, (subject[4:],)).fetchone()
            if row is not None and row[1]:
                counts[row[0]] = counts.get(row[0], 0) + 1
        return counts

    def count(self) -> int:
        """How many runs there are that are not hidden."""
        query = "SELECT (SELECT count(*) FROM runs) - (SELECT count(*) FROM runs WHERE hidden = 1)"
        count: int = self._database.execute(query).fetchone()[0]
        return count

    def names(self, prefix: str = "", limit: int = 1000) -> tuple[str, ...]:
        """Names of runs that begin so, the newest first."""
        query = "SELECT name FROM runs WHERE name BETWEEN ? AND ? GROUP BY name ORDER BY max(ordinal) DESC LIMIT ?"
        return tuple(row[0] for row in self._database.execute(query, (prefix, prefix + AFTER_ANY, limit)))


def _row(row: tuple[Any, ...]) -> RunRow:
    return RunRow(
        run_id=row[0],
        provider=row[1],
        provider_id=row[2],
        name=row[3],
        ended=bool(row[4]),
        sort_at=row[5],
        object=row[6],
        folded=row[7],
        state=row[8],
        cost=row[9],
        odd=row[10],
        user=row[11],
        against=row[12],
        archive=row[13],
        hidden=bool(row[14]),
    )
