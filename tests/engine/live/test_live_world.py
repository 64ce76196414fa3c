"""The live world: each event folded once, whole answers for every reader, and no subscriber holds it up."""

import signal
import threading
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest
from stenotest.big import polls
from stenotest.dstack_history import START, DstackHistory, single

from steno.engine.fold import snapshot
from steno.engine.fold import snapshot_store as snapshots
from steno.engine.fold.fold import Fold
from steno.engine.fold.snapshot_store import SnapshotStore
from steno.engine.live import live_world
from steno.engine.live.live_world import ChangeSet, LiveWorld
from steno.engine.providers.registry import READINGS
from steno.engine.replay.replay import world_of
from steno.engine.runtime.signals import Terminated
from steno.engine.state import segments
from steno.engine.state.segments import Cold, SegmentedInventory
from steno.events import types
from steno.events.clock import SystemClock
from steno.events.errors import RecordDamaged
from steno.events.store.record import ANY, Batch, Record

RUNS = 40
ONE = 1


class Answers:
    """A project whose list shows every run at every look, all of them moved on."""

    def __init__(self, path: Path) -> None:
        self.record = Record.open(path, write=True, create=True, shapes=READINGS.shape, clock=SystemClock())
        self.looks = 0

    def answer(self) -> None:
        """Count a look."""
        self.looks += 1
        word = ("submitted", "provisioning", "running", "running")[self.looks % 4]
        items = [single(f"run-{n}", word, word, submitted=n, num=self.looks // 4) for n in range(RUNS)]
        story = DstackHistory(now=self.looks * 5.0).listed(*items)
        self.record.append_polls([poll for _, poll in story.polls()])

    def note(self) -> None:
        """An event that is not an answer."""
        hidden = types.RecorderStopped(source="dstack/main", why="test")
        self.record.append_many([Batch(stream="source/dstack/main", events=(hidden,), expected_version=ANY)])


@pytest.fixture
def answers(tmp_path: Path):
    made = Answers(tmp_path / "record.db")
    yield made
    made.record.close()


def test_no_reader_sees_half_an_answer(answers: Answers) -> None:
    """Threads read all the time while answers come in that move every run: all runs are of one answer, always."""
    live = LiveWorld(READINGS, answers.record)
    answers.answer()
    live.catch_up()
    over, wrong, reads = threading.Event(), list[object](), Counter[int]()

    def read(number: int) -> None:
        while not over.is_set():
            with live.reading() as state:
                assert state is not None
                seen = {run.last_position for run in state.runs.all()}, {run.state for run in state.runs.all()}
            reads[number] += 1
            if any(len(values) != 1 for values in seen):
                wrong.append(seen)

    readers = [threading.Thread(target=read, args=(number,)) for number in range(4)]
    for reader in readers:
        reader.start()
    for _ in range(60):
        answers.answer()
        live.catch_up()
    over.set()
    for reader in readers:
        reader.join()
    assert not wrong
    assert all(reads[number] for number in range(4))
    assert live.state.runs == world_of(answers.record).state.runs


def test_change_sets_follow_one_another_without_a_gap(answers: Answers) -> None:
    """Whoever keeps them knows everything that changed, once."""
    live = LiveWorld(READINGS, answers.record)
    change_sets: list[ChangeSet] = []
    live.subscribe(change_sets.append)
    for _ in range(5):
        answers.answer()
        live.catch_up()
        live.catch_up()
    assert [change_set.after for change_set in change_sets] == [
        0,
        *(change_set.until for change_set in change_sets[:-1]),
    ]
    assert change_sets[-1].until == answers.record.head().position
    assert sum(len(change_set.changes) for change_set in change_sets) >= 3 * RUNS


def test_a_failing_subscriber_holds_up_nobody(answers: Answers, caplog: pytest.LogCaptureFixture) -> None:
    """The world goes on, others are told, and the log says what failed."""
    live = LiveWorld(READINGS, answers.record)
    change_sets: list[ChangeSet] = []

    def broken(_: ChangeSet) -> None:
        raise ValueError("a mistake")

    live.subscribe(broken)
    live.subscribe(change_sets.append)
    answers.answer()
    live.catch_up()
    assert change_sets[0].until == live.position == answers.record.head().position
    assert "a subscriber failed at position" in caplog.text


def test_a_signal_in_a_subscriber_is_not_its_failure(answers: Answers, caplog: pytest.LogCaptureFixture) -> None:
    """SIGTERM while a subscriber works ends the process in order; nothing is logged as a mistake."""
    live = LiveWorld(READINGS, answers.record)

    def interrupted(_: ChangeSet) -> None:
        raise Terminated

    live.subscribe(interrupted)
    answers.answer()
    with pytest.raises(Terminated):
        live.catch_up()
    assert not caplog.text


def test_a_fold_broken_half_way_is_never_gone_on_with(
    answers: Answers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one starts from the record again; what subscribers were told before is not told again."""
    live = LiveWorld(READINGS, answers.record)
    change_sets: list[ChangeSet] = []
    live.subscribe(change_sets.append)
    answers.answer()
    live.catch_up()
    position = live.position
    with monkeypatch.context() as patch:
        apply = Fold.apply

        def damaged(self: Fold, tick):  # type: ignore[no-untyped-def]
            apply(self, tick)
            raise RecordDamaged("a page is gone")

        patch.setattr(Fold, "apply", damaged)
        answers.answer()
        with pytest.raises(RecordDamaged):
            live.catch_up()
    with live.reading() as state:
        assert state is None
    # Whoever looks first gets the whole world: an effect that ends while the database is away.
    assert live.state.runs == world_of(answers.record).state.runs
    assert [change_set.after for change_set in change_sets] == [0, position]


def test_it_starts_from_its_snapshot_and_folds_only_what_is_behind(
    answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a restart of a long record is quick; open requests are in it too."""
    monkeypatch.setattr(live_world, "AT_START", 1)
    request = types.RunRequested(
        run_id="r1", provider="dstack", project="main", name="one", configuration=b"{}", submitter="ada"
    )
    answers.record.append_many([Batch(stream="run/r1", events=(request,), expected_version=ANY)])
    for _ in range(3):
        answers.answer()
    LiveWorld(READINGS, answers.record, keep=True).catch_up()
    assert SnapshotStore(answers.record).load() is not None
    answers.answer()
    applied: list[int] = []
    apply = Fold.apply
    monkeypatch.setattr(Fold, "apply", lambda self, tick: (applied.append(tick.position), apply(self, tick))[1])
    again = LiveWorld(READINGS, answers.record, keep=True)
    again.catch_up()
    assert len(applied) == 1
    assert set(again.state.outbox.submits) == {"r1"}
    assert again.state.runs == world_of(answers.record).state.runs


def test_what_is_over_leaves_it_between_two_folds(answers: Answers, monkeypatch: pytest.MonkeyPatch) -> None:
    """After every look here, after 20,000 events else: the world is the same to all, and a signal in the middle leaves
    no half world.
    """
    small = [(snapshots, "SETTLED", -1), (snapshots, "SIZE", 2), (segments, "SIZE", 2), (snapshot, "NEWEST", 0)]
    for where, name, value in (*small, (live_world, "EVERY", ONE), (live_world, "AT_START", ONE)):
        monkeypatch.setattr(where, name, value)
    live, looks = LiveWorld(READINGS, answers.record, keep=True), polls(START)
    for _ in range(12):
        answers.record.append_polls(list(islice(looks, 30)))
        live.catch_up()
        assert live.state == world_of(answers.record).state
    assert isinstance(live.state.runs, SegmentedInventory)
    assert len(live.state.runs.memory) < len(live.state.runs) == 9
    with monkeypatch.context() as patch:
        patch.setattr(Cold, "add", lambda *_: signal.raise_signal(signal.SIGINT))
        answers.record.append_polls(list(islice(looks, 30)))
        with pytest.raises(KeyboardInterrupt):
            live.catch_up()
    live.catch_up()
    assert live.state == world_of(answers.record).state


def test_a_long_first_fold_says_how_far_it_is(
    answers: Answers, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """In the log, and to whoever asks; the last thousand positions are quick."""
    caplog.set_level("INFO", logger="steno.fold")
    for name, value in (("LONG", 100), ("_FIRST", 50), ("RECENT", 10)):
        monkeypatch.setattr(live_world, name, value)
    while answers.record.head().position < 300:
        answers.answer()
    progress: list[tuple[int, int]] = []
    LiveWorld(READINGS, answers.record).catch_up(lambda *now: progress.append(now))
    assert [done for done, _ in progress] == sorted(done for done, _ in progress)
    assert {total for _, total in progress} == {answers.record.head().position}
    assert caplog.messages[0].startswith("reading the record: ")
    assert f"of {answers.record.head().position} events" in caplog.messages[0]
