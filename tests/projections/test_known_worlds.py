"""A moment by what was known of it then, and by what was learnt of it later."""

import tempfile
from collections.abc import Callable, Sequence
from copy import deepcopy
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stenotest.dstack_history import START
from stenotest.simulation import Simulation, run_row, vm_row

from steno.engine.money.costs import Costs
from steno.engine.state.as_known import run_as_known, vm_as_known
from steno.engine.state.inventory import Inventory
from steno.engine.state.states import State, VmState
from steno.events.clock import SECOND
from steno.events.poll import Poll
from steno.events.store.record import Record
from steno.projections.read_models.known_worlds import Knowledge, NotKnown, known_by, learnt
from steno.projections.read_models.past_worlds import as_it_was, opened
from steno.projections.read_models.projection_writer import NO_MOMENTS, ProjectionWriter
from steno.projections.read_models.projector import caught_up
from steno.projections.read_models.store import ProjectionStore
from steno.projections.read_models.view import View
from steno.projections.read_models.world_table import encode

MINUTE = 60 * SECOND
NOON = START + 60 * MINUTE
TEN_PAST, SEEN_AT = NOON + 10 * MINUTE, NOON + 20 * MINUTE
NAMES = [
    "dstack-0.22.5/warm_reuse",
    "dstack-0.22.5/retry_success",
    "dstack-0.22.5/several",
    "dstack-0.22.5/unreachable",
    "slurm-22.05/fanout_one_winner",
]
places = st.floats(0, 1)
few = settings(
    max_examples=6,
    deadline=None,
    suppress_health_check=[*settings.default.suppress_health_check, HealthCheck.function_scoped_fixture],
)
Polls = Callable[[str], tuple[Poll, ...]]
Recorded = Callable[[Path, Sequence[Poll]], Record]


# -- one run, one machine ----------------------------------------------------------------------------------------------


@pytest.fixture
def unwatched() -> tuple[Simulation, Simulation]:
    """(what was known at ten past twelve, what was known at twenty past): nobody looked between noon and then. The run
    ended at noon, by its provider's word.
    """
    stage = Simulation(now=START + 10 * SECOND)
    stage.machines(vm_row("m1", "busy"))
    stage.runs(run_row("late", on="m1"))
    stage.now = NOON - MINUTE
    stage.machines(vm_row("m1", "busy"))
    stage.runs(run_row("late", on="m1"))
    then = deepcopy(stage)
    stage.now = SEEN_AT
    stage.runs(run_row("late", "done", on="m1", finished=NOON, exit_status=0))
    ended = vm_row("m1", "terminated", finished_at=NOON + 5 * MINUTE)
    stage.machines(ended, vm_row("m2", "busy", created=NOON + 8 * MINUTE))
    return then, stage


def test_a_run_that_ended_before_it_was_seen_to_has_ended(unwatched: tuple[Simulation, Simulation]) -> None:
    """Known then: running. Known now: ended at noon."""
    then, now = (stage.world.state.runs for stage in unwatched)
    (run_id,) = now.ids()
    at_ten_past = run_as_known(then[run_id], now[run_id], TEN_PAST)
    assert (then[run_id].state, at_ten_past) == (State.RUNNING, now[run_id])
    assert now[run_id].state is State.SUCCEEDED
    before = run_as_known(then[run_id], now[run_id], NOON - MINUTE)
    assert before is not None
    assert (before.state, before.finished_at) == (State.RUNNING, None)


def test_a_machine_that_nobody_saw_begin_was_there(unwatched: tuple[Simulation, Simulation]) -> None:
    """It is made at eight past by its provider's word, which a poll at twenty past shows first."""
    then, now = unwatched
    vm = now.vm("m2")
    assert now.vm_id("m2") not in then.world.state.vms
    assert vm_as_known(None, vm, NOON + 7 * MINUTE) is None
    there = vm_as_known(None, vm, TEN_PAST)
    assert there is not None
    assert (there.state, there.finished_at, there.steps[-1].at) == (VmState.PROVISIONING, None, vm.created)


def test_a_machine_costs_up_to_its_end_and_not_to_the_moment(unwatched: tuple[Simulation, Simulation]) -> None:
    then, now = unwatched
    vm = vm_as_known(then.vm("m1"), now.vm("m1"), TEN_PAST)
    assert vm is not None
    world = then.world.state
    world.last_at, world.vms = TEN_PAST, Inventory({vm.vm_id: vm})
    assert Costs(world).bill(vm.vm_id).until == NOON + 5 * MINUTE


def test_a_run_that_was_lost_and_came_back_was_not_lost() -> None:
    """Its source left it out for a quarter of an hour, and then shows it running."""
    stage = Simulation()
    stage.runs(run_row("away"))
    for _ in range(20):
        stage.wait(45)
        stage.runs()
    (run,) = deepcopy(stage.world.state.runs).all()
    lost_at = stage.now
    stage.wait(30)
    stage.runs(run_row("away"))
    (known,) = stage.world.state.runs.all()
    at = run_as_known(run, known, lost_at)
    assert at is not None
    assert (run.state, known.state, at.state) == (State.LOST, State.RUNNING, State.RUNNING)


# -- laws over recordings of genuine servers ---------------------------------------------------------------------------


def answers(store: ProjectionStore) -> dict[str, object]:
    """The rows of runs and machines, as readers get them."""
    runs = {row.run_id: (row.object, row.cost) for row in store.runs.all()}
    vms = {row.vm_id: (row.object, row.cost) for row in store.vms.all()}
    return {"runs": runs, "vms": vms, "marks": store.marks(999)}


def place_in(record: Record, part: float) -> int:
    return max(1, round(part * record.head().position))


def known_at(record: Record, at: int, position: int) -> Knowledge | None:
    with caught_up(record) as store:
        return known_by(record, at, None, position, View(store).state)


@few
@given(name=st.sampled_from(NAMES), part=places)
def test_what_was_known_at_the_moment_itself_is_todays_answer(
    name: str, part: float, recording: Polls, recorded: Recorded
) -> None:
    """No more is known: nothing is corrected, and each run and machine at its last moment is itself."""
    with tempfile.TemporaryDirectory() as folder, recorded(Path(folder) / "record.db", recording(name)) as record:
        at = place_in(record, part)
        assert known_at(record, at, at) is None
        with opened(record, at) as then:
            moment = View(then).state.last_at or 0
            for row in then.runs.all():
                run = row.decoded
                same = run_as_known(run, run, max(moment, run.finished_at or 0))
                assert same is not None
                assert encode(same) == row.folded
            for vm_row_ in then.vms.all():
                vm = vm_row_.decoded
                here = vm_as_known(vm, vm, max(moment, vm.finished_at or 0))
                assert here is not None
                assert encode(here) == vm_row_.folded


@few
@given(name=st.sampled_from(NAMES), part=places, until=places)
def test_an_answer_sees_nothing_behind_the_known_position(
    name: str, part: float, until: float, recording: Polls, recorded: Recorded
) -> None:
    """It is that of a record which ends there; and what it shows, a later one shows too."""
    polls = recording(name)
    with tempfile.TemporaryDirectory() as folder:
        cut = recorded(Path(folder) / "cut.db", polls[: max(1, round(until * len(polls)))])
        whole = recorded(Path(folder) / "whole.db", polls)
        with cut, whole:
            at, end = place_in(cut, part), cut.head().position
            known = known_at(cut, at, end)
            assert known == known_at(whole, at, end)
            with (
                opened(cut, at, known=known) as corrected,
                opened(whole, at, known=known) as same,
                opened(whole, at, known=known_at(whole, at, whole.head().position)) as later,
            ):
                assert answers(corrected) == answers(same)
                ended = {f"run/{row.run_id}" for row in corrected.runs.all() if row.ended}
                marks = corrected.marks(999).marks
                assert {
                    mark.subject for mark in marks if mark.kind.startswith("run_")
                } == ended  # `changes` rests on it
                assert known is None or all(mark.at <= known.time for mark in marks)
                assert {row.run_id for row in corrected.runs.all()} <= {row.run_id for row in later.runs.all()}
                assert {row.vm_id for row in corrected.vms.all()} <= {row.vm_id for row in later.vms.all()}


@few
@given(name=st.sampled_from(NAMES), part=places)
def test_what_was_learnt_is_said_with_and_without_known(
    name: str, part: float, recording: Polls, recorded: Recorded
) -> None:
    """`--at` says of the same runs that they are known otherwise as `--at --known now` shows."""
    with tempfile.TemporaryDirectory() as folder, recorded(Path(folder) / "record.db", recording(name)) as record:
        at = place_in(record, part)
        known = known_at(record, at, record.head().position)
        if known is None:
            return
        with opened(record, at) as then, opened(record, at, known=known) as corrected:
            ids = [row.run_id for row in corrected.runs.all()]
            assert learnt(record, then, known, ids) == corrected.learnt
            states = {run_id: corrected.runs.columns(run_id, "state")[0] for run_id in corrected.learnt}
            assert states == {run_id: state for run_id, (_, state) in corrected.learnt.items()}


def test_a_moment_is_not_known_before_it_was(tmp_path: Path, recording: Polls, recorded: Recorded) -> None:
    with recorded(tmp_path / "record.db", recording(NAMES[0])) as record, caught_up(record) as store:
        state = View(store).state
        with pytest.raises(NotKnown, match="position 3 is before position 5"):
            known_by(record, 5, None, 3, state)
        with pytest.raises(NotKnown, match=r"no event up to that time; it begins at 20\d\d-"):
            known_by(record, 5, None, 0, state)


def test_cases_of_a_run_that_was_another_go_with_it(tmp_path: Path, recording: Polls, recorded: Recorded) -> None:
    """No case is left that names a run without a row."""
    with recorded(tmp_path / "record.db", recording(NAMES[0])) as record, as_it_was(record, 200) as store:
        first = next(row.run_id for row in store.runs.all())
        ProjectionWriter(record, store, spacing=NO_MOMENTS).correct({first: None}, {}, None)
        assert {store.cases.run_id(place) for place, _ in store.cases.all()} == {row.run_id for row in store.runs.all()}
