"""The schema that the migrations make is the one the code declares."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import NullPool, create_engine
from stenotest.records import StandingClock, temporary_record

from events.errors import NotARecord, RecordNotFound, RecordTooNew
from events.store.record import Record
from events.store.schema import REVISION, alembic_config, expected_schema, metadata, plain_sql
from events.store.store import store_at

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def made(tmp_path: Path) -> Path:
    temporary_record(tmp_path).close()
    return tmp_path / "record.db"


def test_alembic_sees_no_difference(made: Path) -> None:
    """Nothing was declared without a migration, or migrated without a declaration."""
    with create_engine(f"sqlite:///{made}", poolclass=NullPool).connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []


def test_triggers_and_partial_indexes_are_equal_too(made: Path) -> None:
    """What Alembic does not compare is compared as text."""
    with closing(sqlite3.connect(made)) as connection:
        found = {
            name: (kind, table, plain_sql(sql))
            for name, kind, table, sql in connection.execute("SELECT name, type, tbl_name, sql FROM sqlite_schema")
        }
    assert found == expected_schema()


def test_there_is_one_line_of_revisions_and_the_code_is_at_its_end() -> None:
    """A branch would leave the schema to chance."""
    assert ScriptDirectory.from_config(alembic_config()).get_heads() == [REVISION]


def test_an_upgrade_of_a_record_that_is_up_to_date_changes_nothing(made: Path) -> None:
    """`steno db upgrade` can be run at any time, by path or URL."""
    before = made.read_bytes()
    store_at(made).upgrade()
    store_at(f"sqlite:///{made}").upgrade()
    assert made.read_bytes() == before
    with Record.open(made, clock=StandingClock()) as record:
        assert record.verify().ok


def test_an_upgrade_refuses_what_it_does_not_know(made: Path, tmp_path: Path) -> None:
    """A file that is missing, is something else, or is newer stays as it is."""
    with pytest.raises(RecordNotFound):
        store_at(tmp_path / "none.db").upgrade()
    (tmp_path / "text").write_text("no record " * 50)
    with pytest.raises(NotARecord):
        store_at(tmp_path / "text").upgrade()
    with closing(sqlite3.connect(made)) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '0099'")
    with pytest.raises(RecordTooNew):
        store_at(made).upgrade()
