"""verify looks at every column: the law edits each column of each table that a store has, a new one too."""

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import msgspec
import psycopg
import pytest
from stenotest.outputs import keep_output
from stenotest.records import START, MachineClock, StandingClock, poll_of, temporary_record

from steno.engine.providers.registry import READINGS
from steno.events import types
from steno.events.clock import SECOND
from steno.events.errors import StenoError
from steno.events.store.copying import copy
from steno.events.store.record import Batch, Record
from steno.events.store.sqlite.opening import expected_schema
from steno.events.store.store import store_at

NOT_OF_THE_RECORD = {"leases": "who acts now", **dict.fromkeys(("blobs", "tokens"), "private, and erased on purpose")}
"""Tables beside the record. They are replaced whole, so that no chain covers them."""
TRIGGERS = {name: sql for name, (kind, _, sql) in expected_schema().items() if kind == "trigger"}

READ_AT_THE_START = ("meta", "alembic_version")
"""Tables that say what the record is."""

Row = tuple[Any, ...]


def _is(new: object, _old: object) -> object:
    return new


EDITS: dict[type, tuple[Callable[[Any], object], ...]] = {
    int: (
        lambda old: old + 1,
        lambda old: old - 1,
        lambda old: -old,
        *(partial(_is, new) for new in (None, 0, 0.5, "x", b"")),
    ),
    bytes: (
        lambda old: old + b"\0",
        lambda old: old[:-1],
        lambda old: bytes(len(old)),
        lambda old: old.decode("latin-1"),
        *(partial(_is, new) for new in (None, 0, b"")),
    ),
    str: (lambda old: old + "x", lambda old: old[:-1], str.upper, str.encode, partial(_is, ""), partial(_is, 0)),
    type(None): tuple(partial(_is, new) for new in (0, 1, 0.0, "", "x", b"", b"x")),
}
"""The edits of a value, by its type; an edit that the database refuses, or that changes nothing, counts as none."""


class Edited(Protocol):
    """A store's record whose rows can be changed by hand."""

    def tables(self) -> dict[str, list[str]]:
        """Every table with its columns, as the database lists them."""

    def rows(self, table: str) -> list[tuple[Any, ...]]:
        """All rows, in an order that stays."""

    def changed(self, table: str, old: Row, new: Row) -> AbstractContextManager[bool]:
        """A block in which a row is another; False: the database refuses that."""

    def passes(self, table: str) -> bool:
        """True if verify finds nothing after a row of that table was changed."""


def fill(record: Record, numbers: range) -> None:
    """Polls that change and polls that repeat, an import, intents with and without ids, a stretch with a whole hash."""
    for number in numbers:
        moment = START + number * 5 * SECOND
        status = ("submitted", "running", "done")[number // 14]
        runs = [{"id": f"{name}-of-a-run", "status": status, "run_spec": {"run_name": name * 30}} for name in "ab"]
        imported = [f"{number + 1000:032x}"] if number == 7 else None
        record.append_polls([poll_of(msgspec.json.encode(runs), at=moment)], ids=imported)
        intent = types.SubmitIntended(run_id=str(number), provider="dstack", name=f"name-{number}")
        record.append_many([Batch(f"run/{number % 5}", [intent])])
        record.append_many([Batch("run/x", [intent], ids=[f"{number + 1:032x}"])])
    keep_output(record, "x", f"p{numbers.start}", b"one\n", b"two\n" * 9, b"three\n", drop=[1])


def opened(where: str) -> Record:
    return Record.open(where, clock=StandingClock(), check=False)


class EditedFile:
    def __init__(self, original: Path, folder: Path) -> None:
        self._original, self._copy = original, folder / "copy.db"

    def tables(self) -> dict[str, list[str]]:
        with closing(sqlite3.connect(self._original)) as made:
            names = made.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name").fetchall()
            return {name: [column[1] for column in made.execute(f"PRAGMA table_info({name})")] for (name,) in names}

    def rows(self, table: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self._original)) as made:
            return made.execute(f"SELECT * FROM {table} ORDER BY 1").fetchall()

    @contextmanager
    def changed(self, table: str, old: Row, new: Row) -> Iterator[bool]:
        shutil.copy(self._original, self._copy)
        columns = self.tables()[table]
        values, there = (
            ", ".join(f"{column} = ?" for column in columns),
            " AND ".join(f"{column} IS ?" for column in columns),
        )
        stored: list[Row] = []
        with closing(sqlite3.connect(self._copy, isolation_level=None)) as made:
            made.execute("PRAGMA synchronous = OFF")
            made.execute("BEGIN")
            for name in TRIGGERS:
                made.execute(f"DROP TRIGGER {name}")
            with suppress(sqlite3.IntegrityError):
                update = f"UPDATE {table} SET {values} WHERE {there} RETURNING *"
                stored = made.execute(update, (*new, *old)).fetchall()
            for sql in TRIGGERS.values():
                made.execute(sql)
            made.execute("COMMIT")
        yield stored not in ([], [old])

    def passes(self, table: str) -> bool:
        try:
            with opened(str(self._copy)) as record:
                return record.verify().ok
        except StenoError:
            return False


class EditedDatabase:
    def __init__(self, url: str) -> None:
        options = "-csearch_path=steno -csession_replication_role=replica"  # no trigger refuses what this role does
        self._database = psycopg.connect(url, autocommit=True, options=options)
        self._url, self._record = url, opened(url)
        self._columns = self.tables()

    def close(self) -> None:
        self._database.close()
        self._record.close()

    def passes(self, table: str) -> bool:
        """A record's description is read when it is opened; that takes longer than all of verify here."""
        try:
            if table not in READ_AT_THE_START:
                return self._record.verify().ok
            with opened(self._url) as record:
                return record.verify().ok
        except StenoError:
            return False

    def tables(self) -> dict[str, list[str]]:
        """Partitions are reached through `events`."""
        tables: dict[str, list[str]] = {}
        for table, column in self._database.execute(
            "SELECT c.table_name, c.column_name FROM information_schema.columns c JOIN pg_class t "
            "ON t.oid = ('steno.' || c.table_name)::regclass WHERE c.table_schema = 'steno' AND NOT t.relispartition "
            "ORDER BY c.table_name, c.ordinal_position"
        ):
            tables.setdefault(table, []).append(column)
        return tables

    def rows(self, table: str) -> list[tuple[Any, ...]]:
        return self._database.execute(f"SELECT * FROM {table} ORDER BY 1".encode()).fetchall()

    @contextmanager
    def changed(self, table: str, old: Row, new: Row) -> Iterator[bool]:
        stored = self._change(table, old, new)
        yield stored not in ([], [old])
        for row in stored:
            assert self._change(table, row, old) == [old]

    def _change(self, table: str, old: Row, new: Row) -> list[Row]:
        """The row as it is stored; none: the database refuses it."""
        columns = self._columns[table]
        values = ", ".join(f"{column} = %s" for column in columns)
        there = " AND ".join(f"{column} IS NOT DISTINCT FROM %s" for column in columns)
        update = f"UPDATE {table} SET {values} WHERE {there} RETURNING *"
        try:
            return self._database.execute(update.encode(), (*new, *old)).fetchall()
        except psycopg.Error:
            return []


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("original")
    for clock, numbers in (
        (StandingClock(), range(20)),
        (MachineClock(), range(20, 40)),
    ):  # events without a clock, and with one
        with temporary_record(folder, shapes=READINGS.shape, clock=clock) as record:
            fill(record, numbers)
    return folder / "record.db"


def unseen(edited: Edited) -> list[str]:
    """The edits that verify passes."""
    passed = []
    for table, columns in edited.tables().items():
        rows = [] if table in NOT_OF_THE_RECORD else edited.rows(table)
        for place, column in enumerate(columns):
            empty = [row for row in rows if row[place] is None]
            for row in dict.fromkeys((*rows[:1], *rows[len(rows) // 3 : len(rows) // 3 + 1], *rows[-1:], *empty[-1:])):
                for edit in EDITS[type(row[place])]:
                    new = (*row[:place], edit(row[place]), *row[place + 1 :])
                    with edited.changed(table, row, new) as taken:
                        if taken and edited.passes(table):
                            passed.append(f"{table}.{column}: {row} became {new[place]!r}")
    return passed


def test_an_edit_of_a_file_is_seen_by_verify(original: Path, tmp_path: Path) -> None:
    """Triggers are back before verify looks."""
    assert unseen(EditedFile(original, tmp_path)) == []


@pytest.mark.ci
def test_an_edit_of_a_database_is_seen_by_verify(original: Path, postgres_url: str) -> None:
    copy(store_at(original), store_at(postgres_url), clock=StandingClock(), progress=lambda *_: None)
    with closing(EditedDatabase(postgres_url)) as edited:
        assert unseen(edited) == []
