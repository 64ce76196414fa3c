"""A record in a file has one name: links lead to it, and a file that is moved under its writer is written no more."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from stenotest.records import StandingClock, temporary_record

from steno.events import types
from steno.events.errors import RecordNotWritable, RecordReplaced
from steno.events.store.record import Batch, Record
from steno.events.store.store import store_at

EVENT = types.StopSucceeded(run_id="1", provider="local")
BATCH = (Batch("run/1", [EVENT]),)


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A record with one event, closed, in a folder of its own."""
    folder = tmp_path / "real"
    with temporary_record(folder) as record:
        record.append_many(BATCH)
    return folder / "record.db"


def opened(path: Path, *, write: bool) -> Record:
    return Record.open(path, clock=StandingClock(), write=write)


def _file(link: Path, made: Path) -> Path:
    link.symlink_to(made)
    return link


def _beside(_link: Path, made: Path) -> Path:
    made.with_name("other.db").symlink_to("record.db")
    return made.with_name("other.db")


def _folder(link: Path, made: Path) -> Path:
    link.symlink_to(made.parent)
    return link / made.name


def _twice(link: Path, made: Path) -> Path:
    return _file(link, _file(link.with_name("first.db"), made))


LINKED = [_file, _beside, _folder, _twice]


@pytest.mark.parametrize("linked", LINKED)
def test_a_link_leads_to_the_lease_and_the_company_of_its_record(
    tmp_path: Path, made: Path, linked: Callable[[Path, Path], Path]
) -> None:
    """Every name leads to the same lease, vault, folder of runs and file of read models."""
    store, through = store_at(made), store_at(linked(tmp_path / "link", made))
    with store.lease("local/here") or pytest.fail("it is free"):
        assert through.lease("local/here") is None
        assert [lease.held for lease in through.leases()] == [True]
    store.blob("vault").replace(b"secret")
    assert through.blob("vault").read() == b"secret"
    assert through.folder("local") == store.folder("local")
    assert (through.place("projections"), through.url) == (store.place("projections"), store.url)


def test_a_record_is_made_where_its_link_leads(tmp_path: Path) -> None:
    """The link stays a link."""
    (tmp_path / "link.db").symlink_to("record.db")
    with temporary_record(tmp_path, name="link.db") as record:
        record.append_many(BATCH)
    assert (tmp_path / "link.db").is_symlink()
    with opened(tmp_path / "record.db", write=False) as record:
        assert record.head().position == 1


@pytest.mark.parametrize("name", ["vault", "tokens", "local"])
def test_what_an_older_version_kept_beside_a_link_is_not_passed_over(tmp_path: Path, made: Path, name: str) -> None:
    """Without its tokens a service is open, without its folder a run is gone: the user moves them first."""
    link = _file(tmp_path / "link.db", made)
    beside = tmp_path / f"link.db.{name}"
    beside.write_bytes(b"")
    for write in (False, True):
        with pytest.raises(RecordNotWritable, match=f"link.*move {beside} to {made}.{name}"):
            opened(link, write=write)
    with opened(made, write=True):
        pass
    beside.rename(tmp_path / "elsewhere")
    beside.symlink_to(f"{made}.{name}")
    with opened(link, write=True):
        pass


@pytest.mark.parametrize("write", [False, True])
def test_a_record_with_two_names_is_refused(tmp_path: Path, made: Path, write: bool) -> None:
    """By either name; once the other is removed, it is opened, and all is there."""
    other = tmp_path / "other.db"
    os.link(made, other)
    before = made.read_bytes()
    for name in (made, other):
        with pytest.raises(RecordNotWritable, match=r"2 hard links.*remove the others"):
            opened(name, write=write)
    with pytest.raises(RecordNotWritable, match="2 hard links"):
        store_at(other).upgrade()
    assert made.read_bytes() == before
    assert sorted(path.name for path in made.parent.iterdir()) == ["record.db"]
    other.unlink()
    with opened(made, write=write) as record:
        assert (record.head().position, record.verify().ok) == (1, True)


def test_a_hard_link_made_under_a_writer_is_refused_and_the_writer_goes_on(tmp_path: Path, made: Path) -> None:
    """Every acknowledged event is there."""
    with opened(made, write=True) as record:
        record.append_many(BATCH)
        os.link(made, tmp_path / "other.db")
        with pytest.raises(RecordNotWritable, match="hard links"):
            opened(tmp_path / "other.db", write=True)
        record.append_many(BATCH)
        (tmp_path / "other.db").unlink()
    with opened(made, write=False) as record:
        assert (record.head().position, record.verify().ok) == (3, True)


def _renamed(made: Path) -> Path:
    return made.rename(made.with_name("new.db"))


def _in_a_renamed_folder(made: Path) -> Path:
    return made.parent.rename(made.parent.with_name("new")) / made.name


@pytest.mark.parametrize("moved", [_renamed, _in_a_renamed_folder])
def test_a_record_that_was_moved_under_its_writer_is_written_no_more(made: Path, moved: Callable[[Path], Path]) -> None:
    """The error has one line; every acknowledged event is in the file, wherever it is now, whoever else had it open."""
    with opened(made, write=True) as record, opened(made, write=False) as reader:
        record.append_many(BATCH)
        place = moved(made)
        for _ in range(2):
            with pytest.raises(
                RecordNotWritable, match=rf"{made} was moved, removed or replaced.*move it back"
            ) as refused:
                record.append_many(BATCH)
            assert "\n" not in str(refused.value)
        for refused in (record, reader):
            with pytest.raises(RecordReplaced, match="move it back"):
                refused.head()
    with opened(place, write=True) as record:
        assert (record.head().position, record.verify().ok) == (2, True)
    assert not made.exists()


def test_another_file_at_the_name_is_not_written_to(made: Path) -> None:
    """Whoever put it there finds it unchanged."""
    with opened(made, write=True) as record:
        shutil.copy(made, made.with_name("copy.db"))
        made.with_name("copy.db").rename(made)
        before = made.read_bytes()
        with pytest.raises(RecordNotWritable, match="moved, removed or replaced"):
            record.append_many(BATCH)
    assert made.read_bytes() == before


def test_a_log_without_its_record_is_not_mixed_into_a_new_one(made: Path) -> None:
    """It is left where its process was killed after the move; with its record it is whole."""
    with opened(made, write=True) as record:
        record.append_many(BATCH)
        shutil.copy(made, made.with_name("new.db"))
        log = shutil.copy(f"{made}-wal", made.with_name("log"))
    made.unlink()
    log.rename(f"{made}-wal")
    with pytest.raises(RecordNotWritable, match=r"record\.db-wal has events of a record"):
        temporary_record(made.parent)
    made.with_name("record.db-wal").rename(made.with_name("new.db-wal"))
    with opened(made.with_name("new.db"), write=False) as record:
        assert (record.head().position, record.verify().ok) == (2, True)


def test_a_record_that_was_moved_back_is_written_to(made: Path) -> None:
    with opened(made, write=True) as record:
        away = _in_a_renamed_folder(made)
        with pytest.raises(RecordNotWritable):
            record.append_many(BATCH)
        away.parent.rename(made.parent)
        assert record.append_many(BATCH) == (2,)
