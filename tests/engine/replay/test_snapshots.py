"""The engine's own snapshot: believed only with proof; without it the record is folded from its start."""

import gc
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stenotest.big import big_record
from stenotest.big import polls as big_polls
from stenotest.dstack_history import START
from stenotest.snapshots import save

from steno.engine.errors import SnapshotLost
from steno.engine.fold import snapshot
from steno.engine.fold import snapshot_store as snapshots
from steno.engine.fold.fold import Fold
from steno.engine.fold.record_fold import RecordFold
from steno.engine.fold.snapshot_store import EVERY, SnapshotStore
from steno.engine.live import live_world
from steno.engine.live.live_world import LiveWorld
from steno.engine.providers.registry import READINGS
from steno.engine.replay.replay import world_of
from steno.engine.state import segments
from steno.engine.state.segments import Entry
from steno.events.clock import SECOND, SystemClock
from steno.events.store.record import Record
from steno.events.store.sqlite.files import FileBlob

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
    assert save(store, world_of(record).state, every=ONE)
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
    deadline=None, suppress_health_check=[*settings.default.suppress_health_check, HealthCheck.function_scoped_fixture]
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
    file = msgspec.msgpack.decode(path.read_bytes(), type=snapshots._File)
    state = world_of(record).state
    state.vms.open_ids.clear()
    SnapshotStore(record).retire(state)
    empty = memoryview(snapshot.dump_in_memory(state))
    seal = "steno:secret:" + "0" * 64
    path.write_bytes(msgspec.msgpack.encode(msgspec.structs.replace(file, world=empty, seal=seal)))
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
    assert not save(store, state, every=state.position + 1)
    assert save(store, state, every=state.position)
    assert not save(store, state, every=1)
    assert EVERY > 1


@pytest.fixture
def much_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ended runs go into segments of two at once."""
    for where, name, value in ((snapshots, "SETTLED", 0), (snapshot, "NEWEST", 1), (segments, "SIZE", 2)):
        monkeypatch.setattr(where, name, value)
    monkeypatch.setattr(snapshots, "SIZE", 2)
    monkeypatch.setattr(live_world, "AT_START", ONE)
    monkeypatch.setattr(live_world, "EVERY", ONE)


def more(record: Record) -> None:
    """Forty looks at other runs."""
    head = record.head().position
    record.append_polls(list(islice(big_polls(START + head * SECOND, first=500 + head), 40)))


@pytest.mark.usefixtures("much_is_over")
def test_what_is_over_is_read_when_it_is_looked_at(record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    """A start reads no full segment; the whole world is still there."""
    assert saved(record)
    names = [path.name for path in record.store.blob("snapshot").path.parent.glob("record.db.snapshot-*")]
    assert len(names) == 2
    read: set[str] = set()
    content = FileBlob.read
    monkeypatch.setattr(FileBlob, "read", lambda self: (read.add(self.path.name), content(self))[1])
    state = SnapshotStore(record).load()
    assert read - {"record.db.vault"} == {"record.db.snapshot"}
    assert state == world_of(record).state
    assert read >= set(names)


@pytest.mark.usefixtures("much_is_over")
@pytest.mark.parametrize("harm", ["gone", "edited", "empty"])
def test_a_segment_that_is_gone_or_edited_costs_a_fold(record: Record, harm: str) -> None:
    """Whoever needs it gets an error that is tried again; the next look folds the record, so nothing false is known."""
    saved(record)
    live = LiveWorld(READINGS, record, keep=True)
    live.catch_up()
    for path in record.store.blob("snapshot").path.parent.glob("record.db.snapshot-*"):
        match harm:
            case "gone":
                path.unlink()
            case "edited":
                path.write_bytes(path.read_bytes()[:-1] + b"x")
            case _:
                path.write_bytes(b"")
    with pytest.raises(SnapshotLost, match="the record is read again"):
        list(live.state.runs.all())
    live.catch_up()
    assert live.state == world_of(record).state
    again = LiveWorld(READINGS, record, keep=True)
    again.catch_up()
    assert again.state == world_of(record).state


@pytest.mark.usefixtures("much_is_over")
def test_segments_that_newer_ones_replace_are_not_kept_decoded(record: Record) -> None:
    """They took 11 MB of a recorder."""

    def decoded() -> set[int]:
        return {id(entry) for entry in gc.get_objects() if isinstance(entry, Entry)}

    store, world, others = SnapshotStore(record), Fold(READINGS), decoded()
    for _ in range(4):
        more(record)
        RecordFold(record, world).run()
        assert save(store, world.state, every=ONE)
        world = Fold(READINGS, state=world.state)
    gc.collect()
    assert decoded() <= others


@pytest.mark.usefixtures("much_is_over")
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_one_of_several_processes_writes_it(
    store: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others keep what they need, whatever it replaces, and go on when it stays behind."""
    monkeypatch.setattr(snapshots, "ABANDONED", 60)
    where = tmp_path / "record.db" if store == "sqlite" else request.getfixturevalue("postgres_url")
    with Record.open(where, write=True, create=True, shapes=READINGS.shape, clock=SystemClock()) as record:
        _one_writes(record)


def _one_writes(record: Record) -> None:
    for _ in range(6):
        more(record)
    whole = SnapshotStore(record)
    with record.store.blob("snapshot").locked():
        assert not save(SnapshotStore(record), world_of(record).state, every=ONE)
    assert save(whole, world_of(record).state, every=ONE)
    first, second = SnapshotStore(record), SnapshotStore(record)
    ours, theirs = first.load(), second.load()
    assert ours is not None
    assert theirs is not None
    for _ in range(3):
        more(record)
        for state in (ours, theirs):
            RecordFold(record, Fold(READINGS, state=state)).run()
        assert save(first, ours, every=30)
        assert not save(second, theirs, every=30)
        assert theirs == world_of(record).state
        assert SnapshotStore(record).load() == ours
    more(record)
    RecordFold(record, Fold(READINGS, state=theirs)).run()
    assert not save(second, theirs, every=30)
    more(record)
    RecordFold(record, Fold(READINGS, state=theirs)).run()
    assert save(second, theirs, every=30)
    assert SnapshotStore(record).load() == theirs == world_of(record).state


@pytest.mark.usefixtures("much_is_over")
def test_who_waited_for_another_does_not_take_its_next_one_for_its_own(record: Record) -> None:
    """The other wrote exactly where this one would have tried again: its segments were removed under it."""
    assert saved(record)
    first, second = SnapshotStore(record), SnapshotStore(record)
    ours, theirs = first.load(), second.load()
    assert ours is not None
    assert theirs is not None
    more(record)
    RecordFold(record, Fold(READINGS, state=theirs)).run()
    assert save(second, theirs, every=ONE)
    written = theirs.position
    more(record)
    for state in (ours, theirs):
        RecordFold(record, Fold(READINGS, state=state)).run()
    assert not save(first, ours, every=ours.position - written)
    assert save(second, theirs, every=ONE)
    more(record)
    RecordFold(record, Fold(READINGS, state=ours)).run()
    assert not save(first, ours, every=ONE)
    assert set(SnapshotStore(record).load().runs.ids()) == set(theirs.runs.ids())


def test_a_folder_that_cannot_be_written_costs_only_time(record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk must not stop the recorder for something disposable."""

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("steno.events.store.sqlite.files.tempfile.mkstemp", full)
    assert not save(SnapshotStore(record), world_of(record).state, every=ONE)
