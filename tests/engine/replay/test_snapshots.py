"""The engine's own snapshot: believed only with proof; without it the record is folded from its start."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stenotest.big import big_record

from engine.fold import snapshot_store as snapshots
from engine.fold.snapshot_store import EVERY, SnapshotStore
from engine.providers.readings import READINGS
from engine.replay.record import world_of
from events.clock import SystemClock
from events.store.record import Record

ONE = 1
"""Saves whatever little was folded."""


@pytest.fixture
def record(tmp_path: Path) -> Iterator[Record]:
    """A record of some hundred events, opened as a recorder opens it."""
    big_record(tmp_path / "record.db", events=300)
    with Record.open(tmp_path / "record.db", write=True, shapes=READINGS.shape, clock=SystemClock()) as opened:
        yield opened


def saved(record: Record) -> Path:
    """The file of a snapshot at the record's head."""
    store = SnapshotStore(record)
    assert store.save(world_of(record).state, every=ONE)
    return record.store.blob("snapshot").path


def test_a_snapshot_is_the_world_that_was_saved(record: Record) -> None:
    """To the last field; and it is nobody else's business."""
    path = saved(record)
    assert SnapshotStore(record).load() == world_of(record).state
    assert path.stat().st_mode & 0o077 == 0


def test_without_a_snapshot_there_is_none(record: Record) -> None:
    """The caller folds from the start."""
    assert SnapshotStore(record).load() is None


@settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[*settings.default.suppress_health_check, HealthCheck.function_scoped_fixture],
)
@given(place=st.floats(0, 1, exclude_max=True), change=st.integers(1, 255), cut=st.booleans())
def test_an_edited_snapshot_is_not_believed(record: Record, place: float, change: int, cut: bool) -> None:
    """Law: one changed byte anywhere, or a file cut anywhere, and it is as if it were not there."""
    path = saved(record)
    content = bytearray(path.read_bytes())
    at = int(place * len(content))
    if cut:
        del content[at:]
    else:
        content[at] ^= change
    path.write_bytes(content)
    assert SnapshotStore(record).load() is None


def test_a_false_world_with_a_seal_of_its_own_is_not_believed(record: Record) -> None:
    """Whoever can write the file and not read the vault cannot make one."""
    path = saved(record)
    found = msgspec.msgpack.decode(path.read_bytes(), type=snapshots._File)
    empty = memoryview(snapshots.dump_lazy(msgspec.structs.replace(world_of(record).state, open_vms={})))
    seal = "steno:secret:" + "0" * 64
    path.write_bytes(msgspec.msgpack.encode(msgspec.structs.replace(found, world=empty, seal=seal)))
    assert SnapshotStore(record).load() is None


def test_a_snapshot_of_another_record_is_not_believed(record: Record, tmp_path: Path) -> None:
    """Not even of one with the same polls and the same key."""
    content = saved(record).read_bytes()
    other = tmp_path / "other.db"
    big_record(other, events=300)
    record.store.blob("vault").path.replace(other.with_name("other.db.vault"))
    with Record.open(other, write=True, shapes=READINGS.shape, clock=SystemClock()) as opened:
        opened.store.blob("snapshot").path.write_bytes(content)
        assert SnapshotStore(opened).load() is None


def test_a_snapshot_beyond_the_record_is_not_believed(record: Record, tmp_path: Path) -> None:
    """A record that was put back to an older copy."""
    older = {path: path.read_bytes() for path in tmp_path.glob("record.db*")}
    record.close()
    big_record(tmp_path / "longer.db", events=400)
    with Record.open(tmp_path / "record.db", write=True, shapes=READINGS.shape, clock=SystemClock()) as opened:
        with Record.open(tmp_path / "longer.db", shapes=READINGS.shape, clock=SystemClock()) as longer:
            opened.append_polls([longer.poll(1)])
        content = saved(opened).read_bytes()
    for path, was in older.items():
        path.write_bytes(was)
    with Record.open(tmp_path / "record.db", write=True, shapes=READINGS.shape, clock=SystemClock()) as opened:
        opened.store.blob("snapshot").path.write_bytes(content)
        assert SnapshotStore(opened).load() is None


def test_a_snapshot_of_other_code_is_not_believed(record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules that were mended since would never judge what it holds."""
    saved(record)
    monkeypatch.setattr(snapshots, "code", lambda: "another")
    assert SnapshotStore(record).load() is None


def test_a_snapshot_is_saved_once_enough_was_folded(record: Record) -> None:
    """Writing it costs more than folding a few events."""
    store, state = SnapshotStore(record), world_of(record).state
    assert not store.save(state, every=state.position + 1)
    assert store.save(state, every=state.position)
    assert not store.save(state, every=1)
    assert EVERY > 1


def test_a_folder_that_cannot_be_written_costs_only_time(record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk must not stop the recorder for something disposable."""

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("events.store.sqlite.files.tempfile.mkstemp", full)
    assert not SnapshotStore(record).save(world_of(record).state, every=ONE)
