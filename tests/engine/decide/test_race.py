"""Runs asked for together: laws of who wins and who is stopped, over any state of any of them."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from stenotest.segmented_world import apart

from steno.engine.decide.decisions import losers, winner
from steno.engine.decide.placement import Plan
from steno.engine.decide.situation import Situation
from steno.engine.state.inventory import Inventory
from steno.engine.state.policy import Policy
from steno.engine.state.run import Requirements, Run
from steno.engine.state.state_machines import TERMINAL
from steno.engine.state.states import State
from steno.engine.state.world import World

RAN = frozenset({State.RUNNING, State.FINISHING, State.SUCCEEDED, State.FAILED, State.STOPPED, State.LOST})


@st.composite
def racers(draw: Any) -> list[Run]:
    """Runs of two races, in the order in which they were asked for."""
    runs = []
    for number in range(draw(st.integers(1, 8))):
        state = draw(st.sampled_from(sorted(State)))
        started = draw(st.none() | st.integers(1, 3)) if state in RAN else None
        if state is State.RUNNING:
            started = started or 1
        runs.append(
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
    return runs


def plan_of(state: World) -> Plan:
    situation = Situation(state=state, source="slurm/lab", policy=Policy(), now=10)
    return Plan(situation, wanted=0, free=None, slots=set())


def stopped(runs: list[Run]) -> set[str]:
    open_ids = [run.run_id for run in runs if run.state not in TERMINAL]
    state = World(rules="current", runs=Inventory({run.run_id: run for run in runs}, open_ids))
    return {stop.run_id for stop in losers(plan_of(state))}


def of(runs: list[Run], race: str) -> list[Run]:
    return [run for run in runs if run.terms is not None and run.terms.race == race]


@given(runs=racers())
def test_where_one_ran_exactly_one_is_left(runs: list[Run]) -> None:
    """The earliest start wins, then the one asked for first; every other that goes on is stopped, and once."""
    beaten = stopped(runs)
    for race in ("one", "two"):
        won = winner(of(runs, race))
        going = {run.run_id for run in of(runs, race) if run.state not in TERMINAL and run.stop_by is None}
        assert beaten & {run.run_id for run in of(runs, race)} == (set() if won is None else going - {won.run_id})
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
    beaten = stopped(runs)
    written = data.draw(st.sets(st.sampled_from(sorted(beaten)))) if beaten else set()
    for run in runs:
        run.stop_by = "policy" if run.run_id in written else run.stop_by
    assert stopped(runs) == beaten - written


@given(runs=racers())
def test_the_beaten_stay_beaten(runs: list[Run]) -> None:
    """The winner is queued again, is lost or fails: it is not stopped for a run that it beat, which stays stopped."""
    won = winner(of(runs, "one"))
    beaten = stopped(of(runs, "one"))
    for run in runs:
        run.stop_by = "policy" if run.run_id in beaten else run.stop_by
    if won is not None:
        won.started_at, won.state = None, State.QUEUED
        others = [run for run in of(runs, "one") if run is won or run.run_id in beaten]
        assert stopped(others) == set()


@given(racers())
def test_a_race_with_runs_that_are_over_has_the_same_losers(runs: list[Run]) -> None:
    """The winner may have ended, and been written to a snapshot, before the others are stopped."""
    open_ids = [run.run_id for run in runs if not run.terminal]
    state = World(rules="current", runs=Inventory({run.run_id: run for run in runs}, open_ids))
    whole, lazy = (list(losers(plan_of(world))) for world in (state, apart(state)))
    assert lazy == whole
