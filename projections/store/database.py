"""One connection of the read models. Statements are SQLAlchemy Core, compiled once, and run by the driver.

A statement costs 3 µs there and 30 µs through SQLAlchemy's own connection.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any, Final

from sqlalchemy import Executable, Insert, Table, UpdateBase, bindparam, insert

from events.store.sqlite.connection import Dialect

StoreError = sqlite3.Error  # a store cannot be read or written
StoreUnreadable = sqlite3.DatabaseError
"""A `StoreError` of what is asked or of the file; `is_damage` tells which."""
StoreRefused = sqlite3.OperationalError
"""A `StoreUnreadable` that may be over at the next try: another holds the file, or the disk is full."""


def is_damage(error: StoreUnreadable) -> bool:
    """Whether the file is to blame, and not that it is busy or that we use it wrongly."""
    if isinstance(error, sqlite3.ProgrammingError):
        return False
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)
    return code & 0xFF not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


_DIALECT: Final = Dialect(paramstyle="named")


class Database:
    """One open file of read models, or one in memory; used by one thread at a time."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._begins = "BEGIN IMMEDIATE"
        self.last_place: int | None = None
        """Of a store above another one: the last place in order of first sight that is taken in either."""

    def execute(self, statement: Executable, **given: Any) -> sqlite3.Cursor:
        """The rows of a statement, as tuples; `given` are its parameters by name."""
        return self._connection.execute(compiled(statement), given)

    def execute_many(self, statement: Executable, given: Iterable[Mapping[str, Any]]) -> None:
        """Run a statement once for each set of parameters."""
        self._connection.executemany(compiled(statement), given)

    def first(self, statement: Executable, **given: Any) -> Any:
        """The first row; None where there is none."""
        return self.execute(statement, **given).fetchone()

    def add(self, table: Table, rows: Iterable[tuple[Any, ...]], changed: int) -> None:
        """Add rows at a position, behind all others; a row has all columns but `ordinal` and `changed`."""
        for row in rows:
            given = zip(table.columns.keys(), (self.next_place(), changed, *row), strict=True)
            self.execute(insertion(table), **dict(given))

    def next_place(self) -> int | None:
        """The place of a new row; None: the database gives it, behind all others of its table."""
        if self.last_place is not None:
            self.last_place += 1
        return self.last_place

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """One transaction: all of it or nothing."""
        self._connection.execute(self._begins)
        try:
            yield
        except BaseException:
            with suppress(sqlite3.Error):
                self.end()
            raise
        self._connection.execute("COMMIT")

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Everything read inside is of one position."""
        self.begin()
        try:
            yield
        finally:
            with suppress(sqlite3.Error):
                self.end()

    def begin(self) -> None:
        """What is read from here to `end` is of one position."""
        self._connection.execute("BEGIN")

    def end(self) -> None:
        """End the transaction that `begin` began."""
        self._connection.execute("ROLLBACK")


@cache
def compiled(statement: Executable) -> str:
    """A statement as text; its constants are literals: SQLite chooses a partial index by these only.

    One that writes names the store's own tables, also where views hide them (`schema.views_below`).
    """
    writes = isinstance(statement, UpdateBase)
    schemas = {None: "main"} if writes else None
    return str(
        statement.compile(dialect=_DIALECT, schema_translate_map=schemas, render_schema_translate=writes)  # type: ignore[attr-defined]
    )


@cache
def insertion(table: Table) -> Insert:
    """Adds a row with a parameter for every column."""
    return insert(table).values({name: bindparam(name) for name in table.columns.keys()})  # noqa: SIM118
