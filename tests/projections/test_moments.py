"""A moment of the past opened from the one before it says what a fold from the start says."""

import os
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stenotest.read_models import kept_moments
from stenotest.records import read_models_file

from steno.engine.providers.registry import READINGS
from steno.engine.state.case_log import cases_seen
from steno.events import types
from steno.events.clock import SystemClock
from steno.events.poll import Poll
from steno.events.store.record import ANY, Batch, Record
from steno.projections.read_models import projection_writer as keeper
from steno.projections.read_models.past_worlds import Moments, as_it_was, opened
from steno.projections.read_models.projector import caught_up, rebuilt
from steno.projections.read_models.store import ProjectionStore
from steno.projections.read_models.view import View

pytestmark = pytest.mark.slow

Polls = Callable[[str], tuple[Poll, ...]]
Recorded = Callable[[Path, Sequence[Poll]], Record]
NAMES = [
    "dstack-0.22.5/warm_reuse",
    "dstack-0.22.5/name_reuse",
    "dstack-0.22.5/several",
    "dstack-0.22.5/retry_success",
    "dstack-0.19.37/flap",
]


def everything(store: ProjectionStore) -> dict[str, object]:
    """All that any reader could be told."""
    view = View(store)
    world = view.whole()
    return {
        "runs": [msgspec.json.decode(row.object) for row in store.runs.all()],
        "newest first": [row.run_id for row in store.runs.all(newest_first=True)],
        "page": [value for _, value in store.runs.page(limit=3)],
        "vms": [msgspec.json.decode(row.object) for row in store.vms.all()],
        "billed": [row.vm_id for row in store.vms.all(since=1 << 62)],
        "spans": [(row.cost, row.spans) for row in store.vms.all()],
        "anomalies": store.anomalies(),
        "newest": [anomaly for _, anomaly in store.newest_anomalies(5)],
        "blind": store.blind(),
        "marks": store.marks(400),
        "cases": sorted(  # without ids: a run that was adopted since has its later id
            seen
            for _, log in store.cases.all()
            if (seen := [entry for entry in cases_seen(log) if entry.position <= view.position])
        ),
        "world": msgspec.structs.replace(world, events=0, position=0),
        "checkpoint": view.position,
    }


@pytest.fixture
def close_moments() -> Iterator[None]:
    """Moments every 32 positions, so that a short recording has many."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keeper, "SPACING", 32)
        yield


@pytest.mark.slow
@pytest.mark.usefixtures("close_moments")
@settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[*settings.default.suppress_health_check, HealthCheck.function_scoped_fixture],
)
@given(
    name=st.sampled_from(NAMES),
    cuts=st.lists(st.floats(0, 1), max_size=3),
    places=st.lists(st.floats(0, 1), min_size=1, max_size=4),
)
def test_any_moment_is_the_fold_up_to_it(
    name: str, cuts: list[float], places: list[float], recording: Polls, recorded: Recorded
) -> None:
    """However the record was caught up before, and wherever the moment lies."""
    polls = recording(name)
    ends = [*sorted(round(cut * len(polls)) for cut in cuts), len(polls)]
    with tempfile.TemporaryDirectory() as folder:
        path, done = Path(folder) / "record.db", 0
        for end in ends:
            with recorded(path, polls[done:end]) as record:
                caught_up(record).close()
                done = end
        with recorded(path, []) as record:
            head = record.head().position
            for position in {round(place * head) for place in places}:
                store = opened(record, position)
                with store, as_it_was(record, position) as folded:
                    assert store.base == position - position % 32 or store.base % 64 == 0
                    assert everything(store) == everything(folded)


@pytest.mark.usefixtures("close_moments")
def test_a_run_that_turns_out_to_be_ours_is_two_before_and_one_after(
    tmp_path: Path, recording: Polls, recorded: Recorded
) -> None:
    """The past keeps what was thought then; what comes after knows better, moments in between included."""
    polls = recording("dstack-0.22.5/name_reuse")
    with recorded(tmp_path / "record.db", polls[:300]) as record:
        ours = "11111111-0000-4000-8000-000000000001"
        request = types.RunRequested(
            run_id=ours, provider="dstack", project="name-reuse", name="same-run", configuration=b"{}", submitter="test"
        )
        record.append_many([Batch(stream=f"run/{ours}", events=[request], expected_version=ANY)])
        with caught_up(record) as store:
            theirs = next(row for row in store.runs.all() if row.run_id != ours)
        before = record.head().position
        outcome = types.SubmitSucceeded(
            run_id=ours, provider="dstack", provider_id=str(theirs.provider_id), name="same-run", found=True
        )
        record.append_many([Batch(stream=f"run/{ours}", events=[outcome], expected_version=ANY)])
        caught_up(record).close()
    with recorded(tmp_path / "record.db", polls[300:600]) as record:
        caught_up(record).close()
        for position in (before - 1, before, before + 1, record.head().position):
            store = opened(record, position)
            with store, as_it_was(record, position) as folded:
                assert store.base > 0
                assert everything(store) == everything(folded)
                assert (theirs.run_id in [row.run_id for row in store.runs.all()]) is (position <= before)


@pytest.mark.usefixtures("close_moments")
def test_moments_are_few_and_evenly_spaced(
    tmp_path: Path, recording: Polls, recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the record grows they thin out, and so do the rows kept for them."""
    monkeypatch.setattr(keeper, "MOMENTS", 4)
    polls = recording("dstack-0.22.5/warm_reuse")
    for start in range(0, len(polls), 40):
        with recorded(tmp_path / "record.db", polls[start : start + 40]) as record, caught_up(record) as store:
            moments, head = kept_moments(store), record.head().position
            assert len(moments) <= 4
            if head > 128:
                assert len(moments) >= 2
                assert len({second - first for first, second in pairwise(moments)}) <= 1
    with closing(sqlite3.connect(read_models_file(record.store))) as file:
        check_rows(file)


def check_rows(file: sqlite3.Connection) -> None:
    """Each row of the past is needed by a moment, and there are some."""
    for table in ("runs_was", "vms_was"):
        useless = f"SELECT count(*) FROM {table} w WHERE NOT EXISTS (SELECT 1 FROM moments m WHERE m.position >= w.changed AND m.position < w.until)"  # noqa: E501
        assert file.execute(useless).fetchone() == (0,)
    assert file.execute("SELECT count(*) FROM runs_was").fetchone()[0] > 0


@pytest.mark.usefixtures("close_moments")
def test_a_moment_held_survives_the_rebuild_and_the_loss_of_what_it_stands_on(
    tmp_path: Path, recording: Polls, recorded: Recorded
) -> None:
    """It is closed and opened again; readers notice nothing."""
    with recorded(tmp_path / "record.db", recording("dstack-0.22.5/several")) as record:
        caught_up(record).close()
        moments, position = Moments(), 700
        with as_it_was(record, position) as folded:
            expected = everything(folded)
        try:
            for harm in (lambda: None, lambda: rebuilt(record), _give_up(record), os.remove):
                if harm is os.remove:
                    read_models_file(record.store).unlink()
                else:
                    harm()
                with moments.at(record, position) as view:
                    assert everything(view.store) == expected
        finally:
            moments.close()


def _give_up(record: Record) -> Callable[[], object]:
    """Take all moments away, as a record does that grows beyond them."""

    def harm() -> None:
        with closing(sqlite3.connect(read_models_file(record.store))) as file, file:
            file.execute("DELETE FROM moments")

    return harm


@pytest.mark.usefixtures("close_moments")
def test_only_so_many_moments_are_held(tmp_path: Path, recording: Polls, recorded: Recorded) -> None:
    """The moments read last stay."""
    with recorded(tmp_path / "record.db", recording("dstack-0.22.5/several")) as record:
        caught_up(record).close()
        moments = Moments(held=2)
        for position in (100, 200, 300, 100, 200, 300, 300):
            with moments.at(record, position) as view:
                assert view.position == position
            assert moments.held.cache_info().currsize <= 2
        before = moments.held.cache_info().hits
        for position in (200, 300):
            with moments.at(record, position):
                pass
        assert moments.held.cache_info().hits == before + 2
        moments.close()


@pytest.mark.usefixtures("close_moments")
def test_opening_a_moment_does_not_lock_the_projections(tmp_path: Path, recording: Polls, recorded: Recorded) -> None:
    """The projector goes on writing while somebody looks at the past, and the look stays the same."""
    polls = recording("dstack-0.22.5/several")
    with recorded(tmp_path / "record.db", polls[:300]) as record:
        caught_up(record).close()
        moments, position = Moments(), record.head().position - 5
        with moments.at(record, position) as view:
            before = everything(view.store)
            record.append_polls(polls[300:])
            with caught_up(record) as store:
                checkpoint = store.checkpoint()
                assert checkpoint is not None
                assert checkpoint.position == record.head().position
            assert everything(view.store) == before
        with moments.at(record, position) as view:
            assert everything(view.store) == before
        with closing(sqlite3.connect(read_models_file(record.store), timeout=0, isolation_level=None)) as writer:
            writer.execute("BEGIN IMMEDIATE")
            opened(record, position - 40).close()
            writer.execute("ROLLBACK")
        moments.close()


@pytest.mark.usefixtures("close_moments")
def test_many_threads_look_at_moments_at_once(tmp_path: Path, recording: Polls, recorded: Recorded) -> None:
    """More moments than are held, each asked for by several."""
    with recorded(tmp_path / "record.db", recording("dstack-0.22.5/several")) as record:
        caught_up(record).close()
        path = record.store
    moments, trouble = Moments(held=2), list[BaseException]()

    def look(seed: int) -> None:
        try:
            with Record.open(path, clock=SystemClock(), shapes=READINGS.shape) as mine:
                for turn in range(12):
                    position = 100 + (seed * 7 + turn * 3) % 5 * 100
                    with moments.at(mine, position) as view:
                        assert view.position == position
                        assert view.whole().position <= position
        except BaseException as error:  # noqa: BLE001 - whatever it is, the test fails by it
            trouble.append(error)

    threads = [threading.Thread(target=look, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    moments.close()
    assert not trouble, trouble[0]
