"""What a store of read models only adds to: anomalies and gaps that are over."""

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Select,
    Table,
    bindparam,
    func,
    literal_column,
    select,
    text,
    true,
    tuple_,
    union_all,
)

from projections.store.database import Database, insertion
from projections.store.schema import anomalies, blind, runs

_ANOMALIES: Final = select(anomalies.c.object).order_by(anomalies.c.ordinal)
_ANOMALIES_OF: Final = _ANOMALIES.where(anomalies.c.subject == bindparam("subject"))
_COST: Final = select(runs.c.odd).where(text("odd IS NOT NULL"))
_COSTS: Final = _COST.order_by(runs.c.ordinal)
_COST_OF: Final = _COST.where(runs.c.run_id == bindparam("id"))
_ALL: Final = union_all(
    select(anomalies.c.position, anomalies.c.ordinal, anomalies.c.object, anomalies.c.archive),
    select(
        func.json_extract(runs.c.odd, text("'$.position'")),
        runs.c.ordinal + literal_column(str(1 << 40)),
        runs.c.odd,
        runs.c.archive,
    ).where(text("odd IS NOT NULL")),
).subquery("notes")
"""Those a fold finds, and those that the figures of a run's cost are."""
_COUNT: Final = select(func.count()).select_from(_ALL).where(text("archive IS NULL"))
_BLIND: Final = select(blind.c.ordinal, blind.c.object).order_by(blind.c.ordinal)
_BLIND_OF: Final = _BLIND.where(blind.c.source == bindparam("source"))


class NoteTable(Database):
    """The notes in one open store."""

    def add_anomalies(self, rows: Iterable[tuple[str, int, str | None, bytes]], changed: int = 0) -> None:
        """More anomalies, each (subject, position, archive, JSON object)."""
        self._add(anomalies, rows, changed)

    def anomalies(self, subject: str | None = None) -> tuple[bytes, ...]:
        """All anomalies in order, or those of one subject; at the end those of cost."""
        if subject is None:
            found = (*self.execute(_ANOMALIES), *self.execute(_COSTS))
        else:
            kind, _, run_id = subject.partition("/")
            odd = self.execute(_COST_OF, id=run_id) if kind == "run" else ()
            found = (*self.execute(_ANOMALIES_OF, subject=subject), *odd)
        return tuple(row[0] for row in found)

    def newest_anomalies(
        self, limit: int, behind: tuple[int, int] | None = None, *, but: Sequence[str] | None = None
    ) -> tuple[tuple[tuple[int, int], bytes], ...]:
        """Anomalies newest first, each with its place; `behind` is the place of the last one seen.

        Archives are left out; with `but`, only those named there are.
        """
        given = {} if behind is None else {"position": behind[0], "ordinal": behind[1]}
        statement = _newest_anomalies(None if but is None else len(but), behind=behind is not None)
        found = self.execute(statement, limit=limit, **given, **_named(but or ()))
        return tuple(((row[0], row[1]), row[2]) for row in found)

    def count_anomalies(self) -> int:
        """How many anomalies there are; those of archives do not count."""
        count: int = self.first(_COUNT)[0]
        return count

    def add_blind(self, rows: Iterable[tuple[str, str | None, bytes]], changed: int = 0) -> None:
        """More gaps that are over, each (source, archive, JSON object)."""
        self._add(blind, rows, changed)

    def blind(self, sources: Sequence[str] | None = None) -> tuple[bytes, ...]:
        """All gaps that are over, in order, or those of some sources."""
        if sources is None:
            return tuple(row[1] for row in self.execute(_BLIND))
        return tuple(row[1] for row in sorted(row for one in sources for row in self.execute(_BLIND_OF, source=one)))

    def newest_blind(self, limit: int, *, but: Sequence[str] = ()) -> tuple[bytes, ...]:
        """Gaps that are over, those that ended last first; of archives, those not named in `but`."""
        found = self.execute(_newest_blind(len(but)), limit=limit, **_named(but))
        return tuple(row[0] for row in found)

    def _add(self, table: Table, rows: Iterable[tuple[Any, ...]], changed: int) -> None:
        for row in rows:
            given = zip(table.c.keys(), (self.next_place(), changed, *row), strict=True)
            self.execute(insertion(table), **dict(given))


def _named(archives: Sequence[str]) -> dict[str, str]:
    return {f"but_{index}": name for index, name in enumerate(archives)}


def _shown(archive: ColumnElement[Any], but: int | None) -> ColumnElement[bool]:
    """What is live; or, but for so many archives, all."""
    if but == 0:
        return true()
    live = archive.is_(None)
    return live if but is None else live | archive.not_in([bindparam(f"but_{index}") for index in range(but)])


@cache
def _newest_anomalies(but: int | None, *, behind: bool) -> Select[Any]:
    position, ordinal, _, archive = columns = tuple(_ALL.c)
    found = select(*columns).where(_shown(archive, but))
    if behind:
        found = found.where(tuple_(position, ordinal) < tuple_(bindparam("position"), bindparam("ordinal")))
    return found.order_by(position.desc(), ordinal.desc()).limit(bindparam("limit"))


@cache
def _newest_blind(but: int) -> Select[Any]:
    shown = select(blind.c.object).where(_shown(blind.c.archive, but))
    return shown.order_by(blind.c.ordinal.desc()).limit(bindparam("limit"))
