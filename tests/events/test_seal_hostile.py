"""Sealed files by themselves, missing, cut or edited: one clear line with file and positions, and verify finds it."""

from __future__ import annotations

import shutil
import sqlite3
import sys
from contextlib import closing, suppress
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet
from stenotest.big import big_record
from stenotest.readings_of import everything
from stenotest.records import START, StandingClock, poll_of

from engine.providers.readings import READINGS
from events.clock import SECOND
from events.errors import RecordDamaged, RecordUnreachable, StenoError
from events.store import sealing
from events.store.record import Record
from events.store.schema import events
from events.store.sealed.place import SealedFolder
from events.store.sqlite.opening import expected_schema
from events.store.store import store_at

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CLOCK = StandingClock(START + 90 * 24 * 3600 * SECOND)
SIZE = 150
FOLDER = "record.db.sealed"


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a closed record of two sealed ranges and some 200 events in the database."""
    folder = tmp_path_factory.mktemp("original")
    big_record(folder / "record.db", events=400)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sealing, "GROUP", 40)
        sealing.seal(
            store_at(folder / "record.db"), before=CLOCK.now(), size=SIZE, place=None, clock=CLOCK,
            progress=lambda done, total: None,
        )  # fmt: skip
    return folder


@pytest.fixture
def record(original: Path, tmp_path: Path) -> Path:
    """A copy of it, in another folder: the place of its files is relative."""
    shutil.copytree(original, tmp_path / "copy")
    return tmp_path / "copy" / "record.db"


def sealed_file(record: Path) -> Path:
    return sorted((record.parent / FOLDER).rglob("*.parquet"))[0]


def opened(path: Path) -> Record:
    return Record.open(path, clock=CLOCK, shapes=READINGS.shape)


def test_duckdb_reads_a_file_by_itself(original: Path) -> None:
    """The columns are those of `events`."""
    with opened(original / "record.db") as found:
        files = list(found.sealed_files())
        polls = [one.position for one in found.read(until=2 * SIZE, types={"PollRecorded"})]
    rows = duckdb.read_parquet(files)
    assert rows.filter("kind = 1").aggregate("count(*), min(position)").fetchall() == [(len(polls), polls[0])]
    assert rows.columns == [column.name for column in events.columns]


def remove(file: Path) -> None:
    file.unlink()


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-20])


def overwrite(file: Path) -> None:
    file.write_bytes(bytes(len(file.read_bytes())))


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[200] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize(
    ("harm", "why"),
    [(remove, "is missing"), (cut, "is damaged"), (overwrite, "is damaged"), (flip, "is damaged")],
)
def test_a_lost_file_is_one_line(record: Path, harm: Callable[[Path], None], why: str) -> None:
    """Its name and its positions; what is not in it is read and appended to as before."""
    file = sealed_file(record)
    harm(file)
    with Record.open(record, clock=CLOCK, write=True, shapes=READINGS.shape) as found:
        with pytest.raises(RecordDamaged) as error:
            found.poll(1)
        assert f"{file} (positions 1 to {SIZE}) {why}" in str(error.value)
        assert "restore it from a copy" in str(error.value)
        with pytest.raises(RecordDamaged):
            list(found.read())
        end = found.head().position
        assert [one.position for one in found.read(after=2 * SIZE)] == list(range(2 * SIZE + 1, end + 1))
        (added,) = found.append_polls([poll_of(b"[]")])
        assert added.position == end + 1
        verdict = found.verify()
        assert [(one.position, one.kind) for one in verdict.damage] == [(1, "sealed")]
        assert str(file) in verdict.damage[0].detail
        assert verdict.head == found.head()


def test_every_other_file_is_checked_too(record: Path) -> None:
    """Two are lost: both are named."""
    remove(sealed_file(record))
    remove(sealed_file(record))
    with opened(record) as found:
        assert [one.position for one in found.verify().damage] == [1, SIZE + 1]


COLUMNS = ("observed_at", "version", "kind", "data", "body_id", "hash")


@pytest.mark.parametrize("column", COLUMNS)
def test_an_edited_event_is_found_at_its_position(record: Path, column: str) -> None:
    """Whoever writes the whole file again cannot write the chain again."""
    file = sealed_file(record)
    table = parquet.read_table(file)
    values = table.column(column).to_pylist()
    values[70] = (
        values[70][:-1] + b"?" if isinstance(values[70], bytes) else 5 if values[70] is None else values[70] + 1
    )
    at = table.schema.get_field_index(column)
    table = table.set_column(at, table.schema.field(column), pa.array(values, table.schema.field(column).type))
    parquet.write_table(table, file, row_group_size=40, compression="zstd", write_page_checksum=True)
    with opened(record) as found:
        damage = found.verify().damage
        assert 71 in [one.position for one in damage]
        assert "sealed" in [one.kind for one in damage]


@given(data=st.data(), mask=st.integers(1, 255))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_changed_byte_is_found(data: st.DataObject, mask: int, original: Path, tmp_path: Path) -> None:
    """By verify always; a reader gets what was sealed or one of our errors."""
    folder = tmp_path / "flipped"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(original, folder)
    file = sealed_file(folder / "record.db")
    content = bytearray(file.read_bytes())
    content[data.draw(st.integers(0, len(content) - 1))] ^= mask
    file.write_bytes(content)
    with opened(folder / "record.db") as found:
        assert not found.verify().ok
        with suppress(StenoError):
            list(found.read(until=SIZE))


INDEXES = (
    "UPDATE sealed SET hash = x'00'",
    "DELETE FROM sealed_streams WHERE first = (SELECT max(first) FROM sealed_streams)",
    "UPDATE sealed_streams SET last = last - 1 WHERE last > first",
    "INSERT INTO sealed_ids VALUES (x'0102', 9)",
)


@pytest.mark.parametrize("statement", INDEXES)
def test_what_the_database_says_of_files_is_checked(record: Path, statement: str) -> None:
    """Their hashes, and what finds ids and streams in them."""
    triggers = {name: sql for name, (kind, _, sql) in expected_schema().items() if kind == "trigger"}
    with closing(sqlite3.connect(record, isolation_level=None)) as edited:
        for name in triggers:
            edited.execute(f"DROP TRIGGER {name}")
        edited.execute(statement)
        for sql in triggers.values():
            edited.execute(sql)
    with opened(record) as found:
        assert {one.kind for one in found.verify().damage} == {"sealed"}


def test_files_that_moved_are_read_where_they_are(record: Path, tmp_path: Path) -> None:
    """After each was checked there; a reader that is open follows."""
    with opened(record) as found:
        before = everything(found, sample=13)
    reader = opened(record)
    assert list(reader.read(after=2 * SIZE))
    (record.parent / FOLDER).rename(tmp_path / "archive")
    with opened(record) as found, pytest.raises(RecordDamaged, match="missing"):
        found.poll(1)
    store, said = store_at(record), lambda done, total: None
    with pytest.raises(RecordDamaged, match="missing"):
        sealing.move(store, str(tmp_path / "elsewhere"), clock=CLOCK, progress=said)
    with pytest.raises(RecordDamaged, match="missing"):
        reader.poll(1)
    assert sealing.move(store, str(tmp_path / "archive"), clock=CLOCK, progress=said) == 2
    with reader:
        assert everything(reader, sample=13) == before
    with opened(record) as found:
        assert everything(found, sample=13) == before
        assert found.verify().ok
        assert found.sealed_files() == tuple(map(str, sorted((tmp_path / "archive").rglob("*.parquet"))))


def test_a_damaged_record_is_not_sealed(tmp_path: Path) -> None:
    """The chain is followed through what was written: nothing of that range leaves the database."""
    path = tmp_path / "record.db"
    big_record(path, events=400)
    trigger = expected_schema()["events_no_update"][2]
    with closing(sqlite3.connect(path, isolation_level=None)) as edited:
        edited.execute("DROP TRIGGER events_no_update")
        edited.execute("UPDATE events SET took = took + 1 WHERE position = 200")
        edited.execute(trigger)
    store, said = store_at(path), lambda done, total: None
    with pytest.raises(RecordDamaged, match="position 200"):
        sealing.seal(store, before=CLOCK.now(), size=SIZE, place=None, clock=CLOCK, progress=said)
    with opened(path) as found:
        assert [one.position for one in found.verify().damage] == [200]
        assert len(found.sealed_files()) == 1
    with closing(sqlite3.connect(path)) as looked:
        assert looked.execute("SELECT count(*) FROM events WHERE position > 150").fetchone()[0] > 250


def test_what_to_install_is_said(record: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without pyarrow all that is in the database is read; the rest is one line."""
    for name in [one for one in sys.modules if one.split(".")[0] == "pyarrow"]:
        monkeypatch.setitem(sys.modules, name, None)
    with opened(record) as found:
        assert list(found.read(after=2 * SIZE))
        with pytest.raises(RecordUnreachable, match=r"pip install 'steno\[questions\]'"):
            found.poll(1)
        with pytest.raises(RecordUnreachable):
            found.verify()


@pytest.mark.parametrize("url", ["nowhere://x/y", "s3:///"])
def test_a_place_that_is_none_is_said(url: str) -> None:
    """Before anything is written."""
    with pytest.raises(StenoError, match="is not a folder for sealed files"):
        SealedFolder(url)
