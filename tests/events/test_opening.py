"""Opening refuses other files and damaged records in one line, and writes nothing."""

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from stenotest.records import StandingClock, temporary_record

from steno.events import types
from steno.events.errors import (
    NotARecord,
    RecordDamaged,
    RecordLocked,
    RecordNotFound,
    RecordNotWritable,
    RecordTooNew,
    StenoError,
)
from steno.events.store.record import Batch, Record
from steno.events.store.store import REVISION

EVENT = types.StopSucceeded(run_id="1", provider="local")


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A record with some events, closed, alone in its folder."""
    with temporary_record(tmp_path) as record:
        for _ in range(50):
            record.append_many([Batch("run/1", [EVENT] * 20)])
    return tmp_path / "record.db"


def everything(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def refused(where: Path | str, error: type[StenoError], *, write: bool, folder: Path) -> str:
    before = everything(folder)
    with pytest.raises(error) as caught:
        Record.open(where, clock=StandingClock(), write=write, create=write)
    assert caught.type is error
    assert everything(folder) == before
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_a_reader_makes_no_record(tmp_path: Path) -> None:
    """A missing record is not found, and still missing afterwards."""
    refused(tmp_path / "none.db", RecordNotFound, write=False, folder=tmp_path)
    refused(tmp_path / "folder" / "none.db", RecordNotFound, write=False, folder=tmp_path)
    with pytest.raises(RecordNotFound):
        Record.open(tmp_path / "none.db", clock=StandingClock(), write=True)
    assert list(tmp_path.iterdir()) == []


def test_a_writer_makes_record_and_folder(tmp_path: Path) -> None:
    """A path and a URL name the same file; `~` is the home folder."""
    where = tmp_path / "a folder" / "re#cord?.db"
    with Record.open(where, clock=StandingClock(), write=True, create=True) as record:
        record.append_many([Batch("run/1", [EVENT])])
    with Record.open(f"sqlite:///{tmp_path}/other.db", clock=StandingClock(), write=True, create=True) as record:
        assert record.store.path == tmp_path / "other.db"
    with Record.open(where, clock=StandingClock()) as record:
        assert record.head().position == 1


@pytest.mark.parametrize("write", [False, True])
def test_another_file_is_no_record(tmp_path: Path, write: bool) -> None:
    """Text, a folder, somebody else's SQLite file."""
    (tmp_path / "text").write_text("hello, this is not a database at all, but long enough to look like one " * 10)
    refused(tmp_path / "text", NotARecord, write=write, folder=tmp_path)
    (tmp_path / "folder").mkdir()
    refused(tmp_path / "folder", NotARecord, write=write, folder=tmp_path)
    with closing(sqlite3.connect(tmp_path / "other.db")) as other, other:
        other.execute("CREATE TABLE notes (a)")
    refused(tmp_path / "other.db", NotARecord, write=write, folder=tmp_path)


@pytest.mark.parametrize("url", ["mysql://localhost/steno", "sqlite://", "sqlite:///:memory:", "://"])
def test_an_address_we_cannot_keep_a_record_at_is_refused(url: str, tmp_path: Path) -> None:
    """Only files, for now."""
    refused(url, NotARecord, write=True, folder=tmp_path)


@pytest.mark.parametrize("write", [False, True])
@pytest.mark.parametrize("left", [1, 50, 99, 4096, 10_000, -4096, -1])
def test_a_cut_record_is_refused(made: Path, left: int, write: bool) -> None:
    """Whatever is left of the file, if it is not all of it."""
    content = made.read_bytes()
    made.write_bytes(content[:left])
    refused(made, RecordDamaged, write=write, folder=made.parent)


def test_a_record_emptied_beside_its_vault_is_refused(made: Path) -> None:
    """An empty file may become a record, but not where one was."""
    with temporary_record(made.parent) as record:
        record.vault.commitment(b"x")
    made.write_bytes(b"")
    refused(made, RecordDamaged, write=True, folder=made.parent)
    refused(made, RecordDamaged, write=False, folder=made.parent)


@pytest.mark.parametrize("write", [False, True])
@pytest.mark.parametrize("revision", [f"{int(REVISION[:4]) + 1:04}", "9999", "ffffffffffff"])
def test_a_newer_schema_is_refused(made: Path, revision: str, write: bool) -> None:
    """A newer Steno may have written what this one cannot read."""
    edit(made, f"UPDATE alembic_version SET version_num = '{revision}'")
    assert "newer" in refused(made, RecordTooNew, write=write, folder=made.parent)


def test_a_newer_schema_is_not_verified(made: Path) -> None:
    """This version does not call damaged what it cannot read."""
    edit(made, "UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(RecordTooNew, match="newer"):
        Record.open(made, clock=StandingClock(), check=False)


@pytest.mark.parametrize("write", [False, True])
@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE head SET position = position + 1",
        "UPDATE head SET hash = x'00'",
        "DROP TABLE meta",
        "DROP TABLE alembic_version",
        "DELETE FROM alembic_version",
    ],
)
def test_a_record_that_contradicts_itself_is_refused(made: Path, sql: str, write: bool) -> None:
    """Head, description and schema are looked at whenever a record is opened."""
    edit(made, sql)
    refused(made, RecordDamaged, write=write, folder=made.parent)


def edit(path: Path, sql: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute(sql)
        connection.commit()
        connection.execute("PRAGMA journal_mode = WAL")


def test_a_record_that_is_held_is_locked(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer waits its time and then says so; nothing is appended, and later it works."""
    monkeypatch.setattr("steno.events.store.sqlite.connection.BUSY_TIMEOUT", 0.05)
    with (
        closing(sqlite3.connect(made, isolation_level=None)) as holder,
        Record.open(made, clock=StandingClock(), write=True) as record,
    ):
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(RecordLocked):
            record.append_many([Batch("run/1", [EVENT])])
        assert record.head().position == 1000
        holder.execute("ROLLBACK")
        assert record.append_many([Batch("run/1", [EVENT])]) == (1001,)


def test_a_full_disk_loses_nothing(made: Path) -> None:
    """Recorded events stay, others are not there, and after room is made the writer continues."""
    with Record.open(made, clock=StandingClock(), write=True) as record:
        database = record._session.connection  # a limit stands in for the end of the disk
        pages = database.exec_driver_sql("PRAGMA page_count").scalar()
        database.exec_driver_sql(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(RecordNotWritable, match="full"):
            record.append_many([Batch(f"run/{n}", [EVENT] * 10) for n in range(2000)])
        assert record.head().position == 1000
        database.exec_driver_sql("PRAGMA max_page_count = 1000000")
        assert record.append_many([Batch("run/1", [EVENT])]) == (1001,)
        assert record.verify().ok


@pytest.mark.usefixtures("held_by_permissions")
def test_a_read_only_record_can_be_read_but_not_written(made: Path) -> None:
    """A reader makes no file beside it; a writer is refused before it tries."""
    made.chmod(0o400)
    made.parent.chmod(0o500)
    try:
        refused(made, RecordNotWritable, write=True, folder=made.parent)
        before = everything(made.parent)
        with Record.open(made, clock=StandingClock()) as record:
            assert record.head().position == 1000
        assert everything(made.parent) == before
    finally:
        made.parent.chmod(0o700)


def test_what_may_not_be_written_is_refused_to_a_writer(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also for root, to whom the system says that everything may be written, with the system's answer replaced."""
    real = os.access
    for what in (made, made.parent):
        monkeypatch.setattr(os, "access", lambda path, mode, w=what, **how: Path(path) != w and real(path, mode, **how))
        refused(made, RecordNotWritable, write=True, folder=made.parent)
    with Record.open(made, clock=StandingClock()) as record:
        assert record.head().position == 1000


def test_a_copy_of_a_closed_record_is_a_record(made: Path, tmp_path: Path) -> None:
    """A single file holds it all; the vault is only needed for new secrets."""
    copy = tmp_path / "copied"
    copy.mkdir()
    shutil.copy(made, copy / "r.db")
    with Record.open(copy / "r.db", clock=StandingClock()) as record:
        assert record.verify().ok
