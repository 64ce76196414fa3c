"""A service's projections follow the record, whatever happens to them; readers never get an older answer."""

import contextlib
import os
import sqlite3
import stat
import threading
from contextlib import closing

import pytest
from stenotest.growing_record import CLOCK, Growing, looked, same_as_replay
from stenotest.records import read_models_file
from stenotest.waiting import wait

from steno.engine.providers.registry import READINGS
from steno.events.clock import SECOND
from steno.events.errors import PositionNotFound
from steno.events.store.record import Record
from steno.projections.read_models import projection_writer as keeper
from steno.projections.read_models.projector import Projector, caught_up, rebuilt
from steno.projections.read_models.reader_pool import PATIENCE, Behind, Pool
from steno.projections.read_models.store import Checkpoint, ProjectionStore

pytestmark = pytest.mark.slow


def test_what_is_appended_is_soon_shown(growing: Growing, live: tuple[Projector, Pool]) -> None:
    """Without anybody waking it, and with `min_position` in the very next read."""
    projector, pool = live
    wait(looked(pool, growing.record.head().position))
    for _ in range(5):
        head = growing.grow(7)
        with pool.now(min_position=head) as look:
            assert look.position >= head
    wait(lambda: projector.lag.positions == 0)
    assert projector.position == growing.record.head().position
    assert projector.lag.seconds == 0
    with pool.now() as look:
        same_as_replay(look)


def test_a_position_that_never_comes_is_refused_after_a_while(
    live: tuple[Projector, Pool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for ever; two seconds, and here one."""
    _, pool = live
    assert PATIENCE == 2 * SECOND
    monkeypatch.setattr("steno.projections.read_models.reader_pool.PATIENCE", SECOND)
    with pytest.raises(Behind), pool.now(min_position=10_000_000):
        pass
    with pytest.raises(PositionNotFound), pool.at(10_000_000):
        pass


def test_one_look_is_of_one_position(growing: Growing, live: tuple[Projector, Pool]) -> None:
    """Whatever is appended and written meanwhile."""
    projector, pool = live
    wait(looked(pool, growing.record.head().position))
    with pool.now() as look:
        before = [row.object for row in look.view.store.runs.all()]
        head = growing.grow(80)
        wait(lambda: projector.position >= head)
        assert [row.object for row in look.view.store.runs.all()] == before
        assert look.view.position == look.position < head
    with pool.now() as look:
        assert look.position >= head


def test_lag_is_told_in_positions_and_seconds(growing: Growing) -> None:
    """The projector does not run."""
    projector = Projector(growing.path, clock=CLOCK)
    lag = projector.lag
    assert lag.positions == growing.record.head().position
    assert lag.seconds >= 0
    projector.catch_up()
    assert projector.lag.positions == 0
    growing.grow(1)
    assert 0 < projector.lag.positions < 10
    projector.stop()


def test_a_rebuild_appends_nothing(growing: Growing) -> None:
    """Projections have no effects, so none is replayed: the record is the same byte for byte."""
    caught_up(growing.record).close()
    before = growing.record.head()
    for _ in range(3):
        rebuilt(growing.record)
        caught_up(growing.record).close()
    assert growing.record.head() == before
    assert growing.record.verify(expect=before).ok


@pytest.mark.slow
def test_readers_never_stop_nor_go_back_while_files_are_swapped(growing: Growing, live: tuple[Projector, Pool]) -> None:
    """With a writer that appends all the time, rebuilds one after the other, and readers in several threads."""
    _, pool = live
    wait(looked(pool, growing.record.head().position))
    over = threading.Event()
    trouble: list[BaseException] = []
    seen = [0, 0, 0]

    def read(number: int) -> None:
        last = 0
        try:
            while not over.is_set():
                with pool.now() as look:
                    assert look.position >= last, "it went back"
                    last = look.position
                    assert look.view.store.runs.count() == len(list(look.view.store.runs.all()))
                    assert look.view.position == look.position
                    seen[number] += 1
        except BaseException as error:  # noqa: BLE001 - whatever it is, the test fails by it
            trouble.append(error)

    def rebuild() -> None:
        try:
            while not over.is_set():
                with Record.open(growing.path, clock=CLOCK, shapes=READINGS.shape) as record:
                    rebuilt(record)
        except BaseException as error:  # noqa: BLE001 - whatever it is, the test fails by it
            trouble.append(error)

    threads = [threading.Thread(target=read, args=(number,)) for number in range(3)]
    threads.append(threading.Thread(target=rebuild))
    for thread in threads:
        thread.start()
    files = set()

    def enough() -> bool:
        growing.grow(3)
        files.add(read_models_file(growing.path).readlink())
        return bool(trouble) or (len(files) >= 4 and min(seen) >= 20)

    try:
        wait(enough, "four files and sixty looks")
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert not trouble, trouble[0]
    head = growing.record.head().position
    with pool.now(min_position=head) as look:
        same_as_replay(look)
    left = [name for path in growing.path.parent.iterdir() if (name := path.name).startswith("record.db.projections.")]
    assert len([name for name in left if not name.endswith(("-wal", "-shm", ".lock", ".building"))]) <= 2


def test_other_rules_build_a_new_file_while_the_old_is_read(
    growing: Growing, live: tuple[Projector, Pool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a newer version begins to serve: what the old rules said is shown until the new have said it."""
    projector, pool = live
    wait(looked(pool, growing.record.head().position))
    before = read_models_file(growing.path).readlink()
    newer = "newer@9 " + keeper.RULES.rpartition(" ")[2]
    monkeypatch.setattr(keeper, "RULES", newer)
    monkeypatch.setattr("steno.projections.read_models.projector.RULES", newer)
    head = growing.grow(5)
    with pool.now() as look:
        assert look.position > 0
    wait(lambda: read_models_file(growing.path).readlink() != before)
    wait(lambda: projector.position >= head)
    with pool.now(min_position=head) as look:
        checkpoint = look.view.store.checkpoint()
        assert checkpoint is not None
        assert checkpoint.rules == newer


@pytest.mark.parametrize("harm", ["link", "everything", "zeros", "garbage", "middle", "plain file", "foreign"])
def test_a_lost_or_damaged_file_is_rebuilt_under_the_service(
    growing: Growing, live: tuple[Projector, Pool], harm: str
) -> None:
    """Readers get an answer or are told to ask again, never anything else; soon all is well again."""
    _, pool = live
    wait(looked(pool, growing.record.head().position))
    path = read_models_file(growing.path)
    file = path.resolve()
    if harm == "link":
        path.unlink()
    elif harm == "everything":
        for name in path.parent.glob("record.db.projections*"):
            name.unlink(missing_ok=True)  # SQLite removes some of them itself
    elif harm == "zeros":
        os.truncate(file, 0)
    elif harm == "garbage":
        file.write_bytes(b"no database at all" * 1000)
    elif harm == "middle":
        with file.open("r+b") as opened:
            opened.seek(8192)
            opened.write(b"\xff" * (file.stat().st_size - 8192))
    elif harm == "plain file":
        path.unlink()
        path.write_bytes(b"SQLite format 3\0")
    else:
        path.unlink()
        with ProjectionStore.create(path) as other, other.writing():
            other.set_checkpoint(Checkpoint(rules=keeper.RULES, record="another", position=5))
    head = growing.grow(30)

    def is_well() -> bool:
        with contextlib.suppress(Behind), pool.now() as look:
            return look.position >= head and len(list(look.view.store.runs.all())) > 0
        return False

    wait(is_well)
    with pool.now(min_position=head) as look:
        same_as_replay(look)


def test_a_damaged_page_met_in_the_middle_of_a_look_says_to_ask_again(growing: Growing) -> None:
    """No error of the database's own reaches anybody, and the file is given up."""
    caught_up(growing.record).close()

    def broken(pool: Pool) -> None:
        with pool.now():
            raise sqlite3.DatabaseError("database disk image is malformed")

    with closing(Pool(growing.path, clock=CLOCK, wake=lambda: None)) as pool:
        with pytest.raises(Behind):
            broken(pool)
        assert not read_models_file(growing.path).exists()


def test_a_pool_without_a_projector_catches_up_by_itself(growing: Growing) -> None:
    """For tests and for tools that serve nobody."""
    with closing(Pool(growing.path, clock=CLOCK)) as pool:
        with pool.now() as look:
            assert look.position == growing.record.head().position
        head = growing.grow(10)
        with pool.now() as look:
            assert look.position == head


@pytest.mark.usefixtures("held_by_permissions")
def test_a_folder_nobody_can_write_is_read_from_memory(growing: Growing) -> None:
    """As on a read-only disk: slower to begin, and right."""
    head = growing.record.head().position
    growing.record.close()
    folder = growing.path.parent
    folder.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        with closing(Pool(growing.path, clock=CLOCK, wake=lambda: None)) as pool:
            for _ in range(2):
                with pool.now() as look:
                    assert look.position == head
                    same_as_replay(look)
        projector = Projector(growing.path, clock=CLOCK)
        with pytest.raises(OSError, match="denied"):
            projector.catch_up()
    finally:
        folder.chmod(stat.S_IRWXU)
