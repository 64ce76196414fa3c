"""Levers: nothing that one holds back is placed, what it stops ends, and a machine that is kept ends in time."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stenotest.decided_record import DecidedRecord
from stenotest.simulation import SOURCE, Simulation, vm_row

from steno.engine.decide.situation import Situation
from steno.engine.decide.why import why_up
from steno.engine.fold.fold import Fold
from steno.engine.live.live_world import LiveWorld
from steno.engine.providers.registry import READINGS
from steno.engine.state.levers import matches
from steno.engine.state.policy import MINUTE, Policy
from steno.engine.state.world import dump
from steno.events import types
from steno.events.clock import SECOND
from steno.events.errors import VersionConflict
from steno.events.levers import LeverPulled, LeverReleased

WIDE = Policy(budget_total=None, max_vms=9, mode="pool", idle_timeout=10 * MINUTE)


def lever(action: str = "pause", name: str = "l1", by: str = "ada", **fields: Any) -> LeverPulled:
    return LeverPulled(lever_id=name, action=action, why="the bill", by=by, **fields)


def placed(decisions: Any) -> list[types.RunPlaced]:
    return [each for each in decisions if isinstance(each, types.RunPlaced)]


@pytest.mark.parametrize(
    ("scope", "starts"),
    [
        ({}, []),
        ({"user": "ada"}, ["run-b"]),
        ({"gpu": "mi210"}, ["run-a"]),
        ({"gpu": "amd:MI210"}, ["run-a"]),
        ({"gpu": "AMD Instinct MI210"}, ["run-a"]),
        ({"source": "dstack/main"}, []),
        ({"source": "dstack"}, []),
        ({"source": "slurm"}, ["run-a", "run-b"]),
        ({"user": "ada", "gpu": "MI210"}, ["run-a", "run-b"]),
    ],
)
def test_a_pause_holds_back_what_it_is_about(scope: dict[str, str], starts: list[str]) -> None:
    """The others pass; those held back say who, why and what releases them, once."""
    stage = Simulation(WIDE)
    stage.request("a", submitter="ada", resources={"gpu": "MI300X"})
    stage.request("b", submitter="bob", resources={"gpu": "MI210"})
    stage.tell(lever(**scope))
    made = stage.settle()
    assert [each.run_id for each in placed(made)] == starts
    held = [each for each in made if isinstance(each, types.RunHeld)]
    assert {each.run_id for each in held} == {"run-a", "run-b"} - set(starts)
    assert all(each.why == "lever" and "ada" in each.detail and "the bill" in each.detail for each in held)
    stage.tell(LeverReleased(lever_id="l1", by="bob"))
    assert {each.run_id for each in placed(stage.settle())} == {"run-a", "run-b"} - set(starts)


def test_what_has_its_place_goes_on() -> None:
    """A pause takes no place back."""
    stage = Simulation(WIDE)
    stage.request("a")
    stage.settle()
    stage.tell(lever())
    assert stage.settle() == ()
    assert stage.run("a").placed is not None


def test_a_stop_ends_what_it_matched_at_its_position_and_holds_what_comes_later() -> None:
    """All in a single event, so that nothing slips between the pause and the stops."""
    stage = Simulation(WIDE)
    stage.request("a")
    stage.settle()  # it has its place, and was not handed over
    stage.request("b", submitter="bob")
    stage.tell(lever("stop"))
    assert stage.run("a").halted
    stage.request("c")
    made = stage.settle()
    stops = {each.run_id: each for each in made if isinstance(each, types.StopRequested)}
    assert set(stops) == {"run-a", "run-b"}
    assert {(each.by, each.submitter, each.lever) for each in stops.values()} == {("user", "ada", "l1")}
    assert [each.run_id for each in made if isinstance(each, types.RunHeld)] == ["run-c"]
    assert placed(made) == []
    stage.tell(LeverReleased(lever_id="l1", by="ada"))
    assert [each.run_id for each in placed(stage.settle())] == ["run-c"]


def test_a_stop_by_state_stops_only_what_was_in_it() -> None:
    """It holds nothing back later."""
    stage = Simulation(WIDE)
    stage.request("a")
    stage.tell(lever("stop", state="running"))
    assert [each.run_id for each in placed(stage.settle())] == ["run-a"]
    assert stage.world.state.levers == {}


def idle_machine(policy: Policy = WIDE) -> Simulation:
    """A machine of ours that has been idle for a minute."""
    stage = Simulation(policy)
    stage.ensured("steno-slot-1")
    stage.request("a")
    for _ in range(3):
        stage.machines(vm_row(fleet="steno-slot-1"))
        stage.wait(30)
    stage.machines(vm_row(fleet="steno-slot-1"))
    return stage


def look(stage: Simulation, seconds: float) -> list[Any]:
    """The decisions of polls every 30 s."""
    made: list[Any] = []
    for _ in range(round(seconds / 30)):
        stage.wait(30)
        stage.machines(vm_row(fleet="steno-slot-1"))
        made += stage.settle()
    return made


def drained(made: Any) -> list[types.VmDrainStarted]:
    return [each for each in made if isinstance(each, types.VmDrainStarted)]


@pytest.mark.parametrize("by_policy", [False, True])
def test_a_drain_ends_idle_machines_at_once_and_places_nothing(by_policy: bool) -> None:
    """`vms.max = 0` means the same."""
    stage = idle_machine()
    if by_policy:
        stage.adopt(Policy(budget_total=None, max_vms=0, mode="pool", idle_timeout=10 * MINUTE))
    else:
        stage.tell(lever("drain"))
    made = stage.settle()
    assert [each.by for each in drained(made)] == ["lever"]
    assert placed(made) == []
    ends = look(stage, 30)
    assert [type(each).__name__ for each in ends] == ["VmStopIntended"]


def test_a_drain_that_is_released_in_time_keeps_its_machine() -> None:
    """The provider was not told yet."""
    stage = idle_machine()
    stage.tell(lever("drain"))
    stage.settle()
    stage.tell(LeverReleased(lever_id="l1", by="ada"))
    assert [type(each).__name__ for each in stage.settle()][:1] == ["VmDrainCancelled"]


def keep(stage: Simulation, minutes: int, by: str = "ada") -> LeverPulled:
    until = stage.now + minutes * MINUTE
    pulled = lever("keep", name=f"keep-{stage.now}", by=by, vm_id=stage.vm_id("m1"), until=until)
    stage.tell(pulled)
    return pulled


def test_a_kept_machine_outlives_its_timeout_and_ends_at_its_time() -> None:
    """Only the runs of who keeps it may go there."""
    stage = idle_machine()
    keep(stage, 30, by="bob")
    assert placed(stage.settle())[0].vm_id is None  # ada's
    assert look(stage, 29 * 60) == []
    assert "bob keeps it until" in " ".join(why_up(stage.world.state, stage.vm("m1"), WIDE, stage.now))
    made = look(stage, 90)
    assert [each.by for each in drained(made)] == ["lever"]
    assert "VmStopIntended" in {type(each).__name__ for each in made}


def test_the_answer_why_it_is_up_names_who_keeps_it_or_kept_it() -> None:
    """While a run is on it too; once the time is over, and nobody polled since, that this ends it."""
    stage = idle_machine()
    stage.machines(vm_row(status="busy", fleet="steno-slot-1"))
    keep(stage, 30, by="bob")

    def why() -> str:
        return " ".join(why_up(stage.world.state, stage.vm("m1"), WIDE, stage.now))

    assert "busy" in why()
    assert "bob keeps it until" in why()
    stage = idle_machine()
    keep(stage, 30, by="bob")
    stage.settle()
    stage.wait(31 * 60)
    assert "It ends once a poll shows it idle: bob kept it until" in why()
    assert [each.by for each in drained(look(stage, 90))] == ["lever"]


def test_a_kept_machine_survives_a_drain_and_ends_after_its_release() -> None:
    """The drain of everything waits for who keeps it."""
    stage = idle_machine()
    pulled = keep(stage, 30)
    stage.tell(lever("drain", name="l2"))
    assert drained(stage.settle()) == []
    stage.tell(LeverReleased(lever_id=pulled.lever_id, by="ada"))
    assert [each.by for each in drained(stage.settle())] == ["lever"]
    assert stage.vm("m1").keeps[-1].released


def test_a_stop_of_the_machine_ends_it_though_it_is_kept() -> None:
    """A person's word about this machine is newer."""
    stage = idle_machine()
    keep(stage, 30, by="bob")
    stage.settle()
    stage.wish("m1")
    assert [each.by for each in drained(stage.settle())] == ["user"]


def test_a_machine_that_is_kept_ends_on_time_after_everything_was_killed(tmp_path: Path) -> None:
    """Nothing but the record knows of it: each look is made by a process that knows nothing else."""
    site = DecidedRecord(tmp_path)
    site.request("train")
    site.round()
    site.start("train", "m1")
    site.wait(60)
    site.end("train", "m1")
    site.round()
    until = site.clock.now() + 60 * MINUTE
    site.write("levers", lever("keep", vm_id=site.vm_id("m1"), until=until))
    site.wait(20 * 60)
    assert drained(stored.data for stored in site.record.read()) == []
    site.live = LiveWorld(READINGS, site.record)  # all processes were killed
    site.clock.sleep(until - site.clock.now() + 600 * SECOND)
    assert [each.by for each in drained(site.round())] == ["lever"]
    site.request("later")
    site.write("levers", lever("stop", name="l2"))
    assert any(isinstance(each, types.StopRequested) for each in site.round())
    audit = site.audit()
    assert (audit.findings, audit.exact > 0) == ([], True)


# -- laws --------------------------------------------------------------------------------------------------------------

names = st.sampled_from(["a", "b", "c", "d"])
scopes = st.fixed_dictionaries(
    {}, optional={"user": st.sampled_from(["ada", "bob"]), "gpu": st.sampled_from(["MI300X", "MI210"])}
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("request"), names, st.sampled_from(["ada", "bob"]), st.sampled_from(["MI300X", "MI210"])),
        st.tuples(st.just("pull"), st.sampled_from(["pause", "drain", "stop"]), scopes, st.sampled_from([None, 60])),
        st.tuples(st.just("release"), st.integers(0, 3)),
        st.tuples(st.just("wait"), st.sampled_from([1, 30, 61])),
        st.tuples(st.just("machines"), st.sampled_from(["idle", "busy"])),
    ),
    min_size=4,
    max_size=20,
)


class Logged(Simulation):
    """It keeps what was folded."""

    def tell(self, event: types.Event) -> None:
        self.log_of_events = [*getattr(self, "log_of_events", []), (self._position + 1, self.now, event)]
        super().tell(event)


@given(steps)
def test_no_run_that_a_lever_in_force_matches_is_placed(history: list[tuple[Any, ...]]) -> None:
    """Whatever happens before; and what is released later is placed, in its turn."""
    stage, pulled = Simulation(WIDE), 0
    stage.ensured("steno-slot-1")
    for kind, *values in history:
        match kind:
            case "request" if f"run-{values[0]}" not in stage.world.state.runs:
                stage.request(values[0], submitter=values[1], resources={"gpu": values[2]})
            case "pull":
                until = None if values[2] is None or values[0] == "stop" else stage.now + values[2] * SECOND
                scope = {} if values[0] == "drain" else values[1]
                stage.tell(lever(values[0], name=f"l{pulled}", until=until, **scope))
                pulled += 1
            case "release":
                stage.tell(LeverReleased(lever_id=f"l{values[0]}", by="bob"))
            case "wait":
                stage.wait(values[0])
            case "machines":
                stage.machines(vm_row(status=values[0], fleet="steno-slot-1"))
        state = stage.world.state
        moment = Situation(state=state, source=SOURCE, policy=WIDE, now=stage.now).moment
        holding = [each.pulled for each in state.levers.values() if each.holds(moment)]
        decisions = stage.decide()
        for place in placed(decisions):
            assert not any(matches(each, state.runs[place.run_id]) for each in holding)
        stage.write(decisions)
    for number in range(pulled):
        stage.tell(LeverReleased(lever_id=f"l{number}", by="bob"))
    stage.settle()
    waiting = [run for run in stage.world.state.runs.open() if run.placed is None and run.stop_by is None]
    assert waiting == []


@given(steps)
def test_after_a_release_everything_is_placed_as_if_it_had_never_been_paused(history: list[tuple[Any, ...]]) -> None:
    """The same runs on the same machines, in the same order; and a replay gives the same world."""
    paused, free = Logged(WIDE), Simulation(WIDE)
    for stage in (paused, free):
        stage.ensured("steno-slot-1")
        stage.machines(vm_row(fleet="steno-slot-1"))
    paused.tell(lever())
    for kind, *values in history:
        if kind == "request" and f"run-{values[0]}" not in free.world.state.runs:
            for stage in (paused, free):
                stage.request(values[0], submitter=values[1], resources={"gpu": values[2]})
            assert placed(paused.settle()) == []
    paused.tell(LeverReleased(lever_id="l1", by="ada"))
    assert placed(paused.settle()) == placed(free.settle())
    worlds = []
    for _ in range(2):
        again = Fold(READINGS)
        for position, at, event in paused.log_of_events:
            again.apply_event(position, at, event)
        worlds.append(dump(again.state))
    assert worlds[0] == worlds[1]


def test_a_place_that_was_decided_before_a_lever_is_not_recorded_after_it(tmp_path: Path) -> None:
    """The store refuses it, and the process decides again."""
    from steno.engine.live.journal import Journal

    site = DecidedRecord(tmp_path)
    site.request("train")
    site.poll()
    journal, seen = Journal(site.record, site.live), site.live.position
    version, made = journal.queue_version(SOURCE), placed(site.decisions())
    assert made
    site.write("levers", lever())
    with pytest.raises(VersionConflict):
        journal.queue(SOURCE, made, version=version, seen=seen)
