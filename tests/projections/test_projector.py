"""Projections are a function of the record: however and whenever they were caught up, they say the same."""

import stat
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stenotest.growing_record import child
from stenotest.read_models import replayed, said
from stenotest.records import read_models_file

from steno.engine.providers.registry import READINGS
from steno.events import types
from steno.events.clock import SystemClock
from steno.events.poll import Poll
from steno.events.store.record import ANY, Batch, Record
from steno.projections.read_models.past_worlds import as_it_was
from steno.projections.read_models.projector import RULES, caught_up, rebuilt
from steno.projections.read_models.read_models import ReadModels
from steno.projections.read_models.store import Checkpoint

Polls = Callable[[str], tuple[Poll, ...]]
Recorded = Callable[[Path, Sequence[Poll]], Record]


@pytest.mark.slow
@settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[*settings.default.suppress_health_check, HealthCheck.function_scoped_fixture],
)
@given(
    name=st.sampled_from(
        ["dstack-0.22.5/retry_success", "dstack-0.22.5/name_reuse", "dstack-0.19.37/flap", "dstack-0.22.5/several"]
    ),
    cuts=st.lists(st.floats(0, 1), max_size=4),
)
def test_caught_up_in_any_steps_is_rebuilt_at_once(
    name: str, cuts: list[float], recording: Polls, recorded: Recorded
) -> None:
    """Wherever the record is cut, catching up piece by piece says what one fold says."""
    polls = recording(name)
    ends = [*sorted(round(cut * len(polls)) for cut in cuts), len(polls)]
    with tempfile.TemporaryDirectory() as folder:
        path, done = Path(folder) / "record.db", 0
        for end in ends:
            with recorded(path, polls[done:end]) as record, caught_up(record) as store:
                done = end
                incremental, position = said(store), record.head().position
                assert incremental["position"] == position
        with recorded(path, []) as record:
            assert incremental == replayed(record)
            rebuilt(record)
            with caught_up(record) as store:
                assert said(store) == incremental


@pytest.fixture
def two_runs(tmp_path: Path, recording: Polls, recorded: Recorded) -> Iterator[Record]:
    """A record of two runs of one name."""
    with recorded(tmp_path / "record.db", recording("dstack-0.22.5/name_reuse")) as record:
        yield record


def test_catching_up_twice_changes_nothing(two_runs: Record) -> None:
    """It is idempotent, and the second time it opens the file and nothing else."""
    with caught_up(two_runs) as store:
        first = said(store)
    written = read_models_file(two_runs.store.path).stat().st_mtime_ns
    with caught_up(two_runs) as store:
        assert said(store) == first
    assert read_models_file(two_runs.store.path).stat().st_mtime_ns == written


def test_any_moment_of_the_past_is_the_replay_up_to_it(two_runs: Record) -> None:
    """`--at` shows what a reader would have seen then."""
    head = two_runs.head().position
    for position in range(1, head, head // 7):
        with as_it_was(two_runs, position) as store:
            assert said(store) == replayed(two_runs, position)


@pytest.mark.parametrize("content", [b"", b"no database", b"SQLite format 3\0" + b"\1" * 500])
def test_a_damaged_file_is_rebuilt(two_runs: Record, content: bytes) -> None:
    """Projections are disposable."""
    with caught_up(two_runs) as store:
        before = said(store)
    read_models_file(two_runs.store.path).write_bytes(content)
    with caught_up(two_runs) as store:
        assert said(store) == before


def test_projections_of_other_rules_or_another_record_are_rebuilt(two_runs: Record) -> None:
    """Results of other rules, or of another record, are not shown."""
    with caught_up(two_runs) as store:
        before = said(store)
    right = Checkpoint(rules=RULES, record=two_runs.id, position=3, chain=two_runs.digest(3))
    for changed in (
        msgspec.structs.replace(right, rules="older@0"),
        msgspec.structs.replace(right, record="another"),
        msgspec.structs.replace(right, position=10_000_000),
        msgspec.structs.replace(right, version=0),
        msgspec.structs.replace(right, chain=two_runs.digest(2)),  # of the record before it was restored
        msgspec.structs.replace(right, chain=""),
    ):
        other = ReadModels(two_runs.store).open(write=True)
        assert other is not None
        with other, other.writing():
            other.set_checkpoint(changed)
        with caught_up(two_runs) as store:
            assert said(store) == before


@pytest.mark.usefixtures("held_by_permissions")
def test_a_reader_of_a_read_only_folder_folds_in_memory(two_runs: Record, tmp_path: Path) -> None:
    """Nothing can be written beside the record; it is read all the same."""
    path = two_runs.store.path
    two_runs.close()
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        with Record.open(path, clock=SystemClock(), shapes=READINGS.shape) as record, caught_up(record) as store:
            assert said(store) == replayed(record)
    finally:
        tmp_path.chmod(stat.S_IRWXU)
    assert not read_models_file(path).exists()


def test_a_reader_who_may_not_lock_folds_in_memory(two_runs: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    """As above, for root: the lock file cannot be made."""

    def refused(_path: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("steno.projections.read_models.read_models.ReadModels.writing", refused)
    with caught_up(two_runs) as store:
        assert said(store) == replayed(two_runs)
    assert not read_models_file(two_runs.store.path).exists()


def test_readers_go_on_while_a_file_is_rebuilt(two_runs: Record) -> None:
    """A reader keeps the old file that it has open; later readers open the new file."""
    with caught_up(two_runs) as old:
        before = said(old)
        rebuilt(two_runs)
        assert said(old) == before
        with caught_up(two_runs) as new:
            assert said(new) == before


_READER = """
import sys
from steno.engine.providers.registry import READINGS
from steno.events.clock import SystemClock
from steno.events.store.record import ANY, Batch, Record
from steno.projections.read_models.projector import caught_up, rebuilt
for turn in range(6):
    with Record.open(sys.argv[1], clock=SystemClock(), shapes=READINGS.shape) as record:
        if turn % 3 == int(sys.argv[2]):
            rebuilt(record)
        with caught_up(record) as store:
            assert store.runs.count() == 2, store.runs.count()
"""


@pytest.mark.slow
def test_several_processes_catch_up_and_rebuild_at_once(two_runs: Record) -> None:
    """A single process writes, the others wait or read; no reader sees half."""
    with ExitStack() as stack:
        running = [stack.enter_context(child(_READER, two_runs.store.path, number)) for number in range(3)]
        for process in running:
            _, trouble = process.communicate()
            assert process.returncode == 0, trouble


def test_a_run_that_turns_out_to_be_ours_is_one_run(tmp_path: Path, recording: Polls, recorded: Recorded) -> None:
    """A poll can show a run under the provider's id before we know that id is the run we asked for."""
    polls = recording("dstack-0.22.5/name_reuse")
    with recorded(tmp_path / "record.db", polls[:300]) as record:
        request = types.RunRequested(
            run_id="11111111-0000-4000-8000-000000000001",
            provider="dstack",
            project="name-reuse",
            name="same-run",
            configuration=b"{}",
            submitter="test",
        )
        record.append_many([Batch(stream=f"run/{request.run_id}", events=[request], expected_version=ANY)])
        with caught_up(record) as store:
            ours = next(row for row in store.runs.all() if row.run_id == request.run_id)
            theirs = next(row for row in store.runs.all() if row.run_id != request.run_id)
            assert (ours.provider_id, store.runs.count()) == (None, 2)
        outcome = types.SubmitSucceeded(
            run_id=request.run_id, provider="dstack", provider_id=str(theirs.provider_id), name="same-run", found=True
        )
        record.append_many([Batch(stream=f"run/{request.run_id}", events=[outcome], expected_version=ANY)])
        with caught_up(record) as store:
            assert [row.run_id for row in store.runs.all()] == [request.run_id]
            assert said(store) == replayed(record)
