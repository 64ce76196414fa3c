"""What a projections file only adds to: anomalies and gaps that are over."""

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any, Final

_ALL_ODD: Final = (
    "SELECT position, ordinal, object, archive FROM anomalies UNION ALL "
    "SELECT json_extract(odd, '$.position'), ordinal + (1 << 40), odd, archive FROM runs WHERE odd IS NOT NULL"
)
"""Those a fold tells, and those that the figures of a run's cost are."""


class NoteTable:
    """The notes in one open projections file."""

    _database: sqlite3.Connection
    note_ordinal = "NULL"
    """What a new note's place is; NULL: behind all others."""

    def add_anomalies(self, rows: Iterable[tuple[str, int, str | None, bytes]], changed: int = 0) -> None:
        """More anomalies, each (subject, position, archive, JSON object)."""
        place = self.note_ordinal.format("anomalies")
        self._database.executemany(
            f"INSERT INTO main.anomalies VALUES ({place}, ?, ?, ?, ?, ?)",  # noqa: S608 - names of ours
            ((changed, *row) for row in rows),
        )

    def anomalies(self, subject: str | None = None) -> tuple[bytes, ...]:
        """All anomalies in order, or those of one subject; at the end those of cost."""
        if subject is None:
            cursor = self._database.execute("SELECT object FROM anomalies ORDER BY ordinal")
            odd = self._database.execute("SELECT odd FROM runs WHERE odd IS NOT NULL ORDER BY ordinal")
        else:
            query = "SELECT object FROM anomalies WHERE subject = ? ORDER BY ordinal"
            cursor = self._database.execute(query, (subject,))
            run_id = subject.removeprefix("run/") if subject.startswith("run/") else ""
            odd = self._database.execute("SELECT odd FROM runs WHERE run_id = ? AND odd IS NOT NULL", (run_id,))
        return tuple(row[0] for row in (*cursor, *odd))

    def newest_anomalies(
        self, limit: int, behind: tuple[int, int] | None = None, *, but: Sequence[str] | None = None
    ) -> tuple[tuple[tuple[int, int], bytes], ...]:
        """Anomalies newest first, each with its place; `behind` is the place of the last one seen.

        Archives are left out; with `but`, only those named there are.
        """
        condition, given = _shown(but)
        if behind is not None:
            condition, given = f"{condition} AND (position, ordinal) < (?, ?)", (*given, *behind)
        query = f"SELECT * FROM ({_ALL_ODD}) WHERE {condition} ORDER BY position DESC, ordinal DESC LIMIT ?"  # noqa: S608
        return tuple(((row[0], row[1]), row[2]) for row in self._database.execute(query, (*given, limit)))

    def count_anomalies(self) -> int:
        """How many anomalies there are; those of archives do not count."""
        query = f"SELECT count(*) FROM ({_ALL_ODD}) WHERE archive IS NULL"  # noqa: S608
        count: int = self._database.execute(query).fetchone()[0]
        return count

    def add_blind(self, rows: Iterable[tuple[str, str | None, bytes]], changed: int = 0) -> None:
        """More gaps that are over, each (source, archive, JSON object)."""
        place = self.note_ordinal.format("blind")
        self._database.executemany(
            f"INSERT INTO main.blind VALUES ({place}, ?, ?, ?, ?)",  # noqa: S608 - names of ours
            ((changed, *row) for row in rows),
        )

    def blind(self, sources: Sequence[str] | None = None) -> tuple[bytes, ...]:
        """All gaps that are over, in order, or those of some sources."""
        if sources is None:
            cursor = self._database.execute("SELECT object FROM blind ORDER BY ordinal")
            return tuple(row[0] for row in cursor)
        query = "SELECT ordinal, object FROM blind WHERE source = ? ORDER BY ordinal"
        rows = [row for source in sources for row in self._database.execute(query, (source,))]
        return tuple(row[1] for row in sorted(rows))

    def newest_blind(self, limit: int, *, but: Sequence[str] = ()) -> tuple[bytes, ...]:
        """Gaps that are over, those that ended last first; of archives, those not named in `but`."""
        condition, given = _shown(but)
        query = f"SELECT object FROM blind WHERE {condition} ORDER BY ordinal DESC LIMIT ?"  # noqa: S608
        return tuple(row[0] for row in self._database.execute(query, (*given, limit)))


def _shown(but: Sequence[str] | None) -> tuple[str, tuple[Any, ...]]:
    """A condition for what is live, or, with `but`, for all that is not of these archives."""
    if but is None:
        return "archive IS NULL", ()
    return f"(archive IS NULL OR archive NOT IN ({', '.join('?' * len(but))}))", tuple(but)
