"""What the schema of a record must be, to the word: what verify and the test of the migrations hold a file to."""

import re
from collections.abc import Iterable, Sequence
from typing import Final

from sqlalchemy import create_engine

from events.store.schema import TRIGGERS, metadata

DESCRIBE: Final = "SELECT name, type, tbl_name, sql FROM sqlite_schema"
_ALEMBIC: Final = (
    "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL, "
    "CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num))"
)
_QUOTED: Final = re.compile(r'"(\w+)"')
_LAYOUT: Final = re.compile(r" ?([(),]) ?")


def expected_schema() -> dict[str, tuple[str, ...]]:
    """Kind, table and plain SQL of everything a record's schema has, by name."""
    with create_engine("sqlite://").begin() as connection:
        metadata.create_all(connection)
        for sql in (*TRIGGERS.values(), _ALEMBIC):
            connection.exec_driver_sql(sql)
        return described(connection.exec_driver_sql(DESCRIBE).all())


def described(rows: Iterable[Sequence[object]]) -> dict[str, tuple[str, ...]]:
    """Kind, table and plain SQL by name, of the rows that `DESCRIBE` gives."""
    return {str(name): (str(kind), str(table), plain_sql(sql)) for name, kind, table, sql in rows}


def plain_sql(sql: object) -> str:
    """SQL without the layout and the quotes around names that differ between writers of it."""
    return _LAYOUT.sub(r"\1", _QUOTED.sub(r"\1", " ".join(str(sql).split())))
