"""Runs asked for together: laws of who wins and who is stopped, over any state of any of them."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from stenotest.apart import apart

from engine.decide.placement import Plan
from engine.decide.race import losers, winner
from engine.decide.source_view import Scene
from engine.fold.run import Run
from engine.fold.state_machines import TERMINAL
from engine.fold.world_codec import WorldState
from engine.policy import Policy
from engine.requirements import Requirements
from engine.states import State

RAN = frozenset({State.RUNNING, State.FINISHING, State.SUCCEEDED, State.FAILED, State.STOPPED, State.LOST})


@st.composite
def racers(draw: Any) -> list[Run]:
    """Runs of two races, in the order in which they were asked for."""
    found = []
    for number in range(draw(st.integers(1, 8))):
        state = draw(st.sampled_from(sorted(State)))
        started = draw(st.none() | st.integers(1, 3)) if state in RAN else None
        if state is State.RUNNING:
            started = started or 1
        found.append(
            Run(
                run_id=f"run-{number}",
                name=f"run-{number}",
                provider="slurm",
                provider_id=str(number),
                project="lab",
                state=state,
                exit_status=0 if state is State.SUCCEEDED else None,
                started_at=started,
                finished_at=draw(st.integers(1, 4)) if state in TERMINAL else None,
                requested_at=1,
                stop_by=draw(st.sampled_from([None, None, None, "user", "policy"])),
                terms=Requirements(submitter="me", race=draw(st.sampled_from(["one", "one", "two"]))),
                first_position=number + 1,
                first_at=1,
                last_position=number + 1,
                last_at=9,
            )
        )
    return found


def plan_of(state: WorldState) -> Plan:
    scene = Scene(state=state, source="slurm/lab", policy=Policy(), now=10)
    return Plan(scene, wanted=0, free=None, slots=set())


def stopped(runs: list[Run]) -> set[str]:
    state = WorldState(rules="current", runs={run.run_id: run for run in runs})
    state.unsettled.update({run.run_id: None for run in runs if run.state not in TERMINAL})
    return {one.run_id for one in losers(plan_of(state))}


def of(runs: list[Run], race: str) -> list[Run]:
    return [run for run in runs if run.terms is not None and run.terms.race == race]


@given(runs=racers())
def test_where_one_ran_exactly_one_is_left(runs: list[Run]) -> None:
    """The earliest start wins, then the one asked for first; every other that goes on is stopped, and once."""
    told = stopped(runs)
    for race in ("one", "two"):
        won = winner(of(runs, race))
        going = {run.run_id for run in of(runs, race) if run.state not in TERMINAL and run.stop_by is None}
        assert told & {run.run_id for run in of(runs, race)} == (set() if won is None else going - {won.run_id})
        if won is not None and won.started_at is not None:
            rivals = [run for run in of(runs, race) if run.started_at is not None and run.stop_by != "policy"]
            assert won == min(rivals, key=lambda run: (run.started_at, run.first_position))


@given(runs=racers())
def test_one_that_only_ends_has_not_won(runs: list[Run]) -> None:
    """COMPLETING is not running: without a start, an exit status or a success nobody wins, and nobody is stopped."""
    for run in runs:
        run.started_at = run.exit_status = None
        if run.state in (State.SUCCEEDED, State.RUNNING):
            run.state = State.FINISHING
    assert stopped(runs) == set()


@given(runs=racers(), data=st.data())
def test_a_crash_between_two_stops_changes_nothing(runs: list[Run], data: st.DataObject) -> None:
    """Whatever part of the decision is in the record, the next one is the rest of it."""
    told = stopped(runs)
    written = data.draw(st.sets(st.sampled_from(sorted(told)))) if told else set()
    for run in runs:
        run.stop_by = "policy" if run.run_id in written else run.stop_by
    assert stopped(runs) == told - written


@given(runs=racers())
def test_the_beaten_stay_beaten(runs: list[Run]) -> None:
    """The winner is queued again, is lost or fails: it is not stopped for one that it beat, which stays stopped."""
    won = winner(of(runs, "one"))
    told = stopped(of(runs, "one"))
    for run in runs:
        run.stop_by = "policy" if run.run_id in told else run.stop_by
    if won is not None:
        won.started_at, won.state = None, State.QUEUED
        others = [run for run in of(runs, "one") if run is won or run.run_id in told]
        assert stopped(others) == set()


@given(racers())
def test_a_race_with_runs_that_are_over_has_the_same_losers(runs: list[Run]) -> None:
    """The winner may have ended, and been written to a snapshot, before the others are stopped."""
    unsettled = {run.run_id: None for run in runs if not run.terminal}
    state = WorldState(rules="current", runs={run.run_id: run for run in runs}, unsettled=unsettled)
    whole, lazy = (list(losers(plan_of(one))) for one in (state, apart(state)))
    assert lazy == whole
