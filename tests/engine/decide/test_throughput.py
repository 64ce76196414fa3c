"""As many runs get a place as there are machines that can take them."""

import random
from statistics import mean
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stenotest.dstack_history import START
from stenotest.row_simulation import RowSimulation, holds, places
from stenotest.simulated_cloud import Machine, Rented
from stenotest.simulation import SOURCE, Simulation

from steno.engine.decide.decisions import decide
from steno.engine.decide.machine import is_left
from steno.engine.decide.situation import Situation
from steno.engine.state.policy import Policy
from steno.engine.state.states import Reason, VmState
from steno.events import types
from steno.events.clock import SECOND

MODES = ["provider", "pool"]


def town_of(mode: Any, *, cap: int, idle: int, busy: int, in_flight: int) -> RowSimulation:
    """`in_flight` runs were handed over while there was room, and have no machine yet."""
    town = RowSimulation(Policy(mode=mode, max_vms=cap, budget_total=None))
    for number in range(idle + busy):
        fleet = f"steno-slot-{number + 1}" if mode == "pool" else "shared"
        town.warm(f"old{number}", f"m{number}", fleet=fleet)
    for number in range(idle, idle + busy):
        town.rows[f"m{number}"]["status"] = "busy"
    town.stage.wait(31 if in_flight else 1)  # for a machine that its run has just left they would wait
    town.look()
    for number in range(in_flight):
        town.stage.request(f"f{number}")
    assert len(places(town.stage.settle())) == in_flight
    for number in range(in_flight):
        town.stage.taken(f"f{number}")
        town.shown[f"f{number}"] = {"status": "submitted", "submitted": town.stage.now}
    town.stage.wait(5)
    town.look()
    return town


@pytest.mark.parametrize("mode", MODES)
def test_one_run_without_a_machine_claims_one_idle_machine(mode: Any) -> None:
    """Eleven idle machines of twelve, one run in flight, 35 waiting: ten go now, and one more once that one landed."""
    town = town_of(mode, cap=12, idle=11, busy=0, in_flight=1)
    for number in range(35):
        town.stage.request(f"w{number}")
    placed = places(town.stage.settle())
    assert [place.run_id for place in placed][:10] == [f"run-w{number}" for number in range(10)]
    if mode == "provider":
        assert len(placed) == 10
        assert {place.creation for place in placed} == {"reuse"}
        assert len({place.vm_id for place in placed}) == 10


@pytest.mark.parametrize("mode", MODES)
def test_idle_machines_and_free_places_are_given_away_in_one_decision(mode: Any) -> None:
    """Six idle machines and room for six: the first six reuse, so that they are there for them, the rest may create."""
    town = town_of(mode, cap=12, idle=6, busy=0, in_flight=0)
    for number in range(14):
        town.stage.request(f"w{number}")
    decisions = town.stage.decide()
    assert [place.run_id for place in places(decisions)] == [f"run-w{number}" for number in range(12)]
    assert [place.creation for place in places(decisions)] == ["reuse"] * 6 + ["reuse-or-create"] * 6
    assert holds(decisions) == [("run-w12", "cap"), ("run-w13", "cap")]


def test_where_there_is_room_for_all_no_run_is_told_to_reuse() -> None:
    """A machine that goes in the last moment costs nobody its start."""
    town = town_of("provider", cap=12, idle=3, busy=0, in_flight=0)
    for number in range(9):
        town.stage.request(f"w{number}")
    assert [place.creation for place in places(town.stage.decide())] == ["reuse-or-create"] * 9


def test_a_run_whose_machine_is_being_made_claims_no_idle_one() -> None:
    """The provider has said which machine it gets, though the machine has no address yet."""
    town = town_of("provider", cap=3, idle=1, busy=0, in_flight=2)
    town.stage.request("w")
    assert holds(town.stage.settle()) == [("run-w", "cap")]
    for number in range(2):
        town.shown[f"f{number}"]["status"] = "provisioning"
    town.stage.wait(5)
    town.look()
    (place,) = places(town.stage.settle())
    assert (place.run_id, place.vm_id) == ("run-w", town.stage.vm_id("m0"))


def test_every_drain_that_a_waiting_run_can_use_is_taken_back_at_once() -> None:
    town = town_of("pool", cap=3, idle=3, busy=0, in_flight=0)
    for _ in range(121):
        town.stage.wait(5)
        town.look()
    town.stage.write(town.stage.decide())
    assert all(town.stage.vm(f"m{number}").state is VmState.DRAINING for number in range(3))
    for number in range(4):
        town.stage.request(f"w{number}")
    assert [type(decision) for decision in town.stage.decide()] == [types.VmDrainCancelled] * 3
    assert [place.run_id for place in places(town.stage.settle())] == ["run-w0", "run-w1", "run-w2"]


@pytest.mark.parametrize("mode", MODES)
def test_a_run_waits_for_the_machine_that_a_run_has_just_left(mode: Any) -> None:
    """Its server calls it busy for some seconds more: the next run gets it, and only the run behind it another. What
    stays busy for longer is waited for no more, and nobody waits whom no recorder would place.
    """
    town = town_of(mode, cap=3, idle=0, busy=1, in_flight=0)
    for number in range(2):
        town.stage.request(f"w{number}")
    decisions = town.stage.settle()
    assert holds(decisions) == [("run-w0", "machine")]
    assert [place.run_id for place in places(decisions)] == ["run-w1"]
    world, policy, now = town.stage.world.state, town.stage.policy, town.stage.now
    alone = decide(world, SOURCE, policy, now, watched=False)
    assert [place.run_id for place in places(alone)] == ["run-w0"]
    town.rows["m0"]["status"] = "idle"
    town.stage.wait(5)
    town.look()
    (place,) = places(town.stage.settle())
    assert place.run_id == "run-w0"
    assert mode == "provider" or place.vm_id == town.stage.vm_id("m0")


def test_a_machine_that_stays_busy_is_waited_for_half_a_minute() -> None:
    town = town_of("pool", cap=3, idle=0, busy=1, in_flight=0)
    town.stage.request("w")
    assert holds(town.stage.settle()) == [("run-w", "machine")]
    town.stage.wait(31)
    town.look()
    (place,) = places(town.stage.settle())
    assert place.vm_id is None


@given(
    mode=st.sampled_from(MODES),
    cap=st.integers(1, 8),
    idle=st.integers(0, 6),
    busy=st.integers(0, 4),
    in_flight=st.integers(0, 4),
    waiting=st.integers(0, 9),
)
@pytest.mark.slow
def test_as_many_go_as_there_is_room_for(
    mode: Any, cap: int, idle: int, busy: int, in_flight: int, waiting: int
) -> None:
    """With m fitting idle machines, f free places and k runs in flight, at least min(waiting, m + f - k), in order, but
    for those that wait for a machine which its run has just left; and never more machines than allowed can come to be:
    those there, and one for every run that may have one made.
    """
    idle, busy = min(idle, cap), min(busy, max(0, cap - idle))
    in_flight = min(in_flight, max(0, cap - idle - busy))
    town = town_of(mode, cap=cap, idle=idle, busy=busy, in_flight=in_flight)
    state, policy = town.stage.world.state, town.stage.policy
    situation = Situation(state=state, source=SOURCE, policy=policy, now=town.stage.now)
    spare = sum(vm.state is VmState.IDLE and vm.vm_id not in situation.reserved for vm in situation.ours)
    flying = sum(1 for lacking in situation.lacking if lacking.run.placed is None or lacking.run.placed.vm_id is None)
    least = min(waiting, max(0, spare + (situation.free or 0) - flying))
    for number in range(waiting):
        town.stage.request(f"w{number}")
    decisions = town.stage.decide()
    placed, held = places(decisions), {run_id for run_id, why in holds(decisions) if why == "machine"}
    assert len(held) <= sum(is_left(situation, vm) for vm in situation.ours)
    assert len(placed) + len(held) >= least
    order = [run_id for number in range(waiting) if (run_id := f"run-w{number}") not in held]
    assert [place.run_id for place in placed] == order[: len(placed)]
    making = sum(lacking.creates for lacking in situation.lacking) + sum(place.creation != "reuse" for place in placed)
    assert len(situation.ours) + making <= cap
    assert len({place.vm_id for place in placed if place.vm_id}) == sum(place.vm_id is not None for place in placed)


# -- 55 runs over 12 machines ------------------------------------------------------------------------------------------

CAP, RUNS, PACE = 12, 55, 5.0


class Burst:
    """Runs handed over as they are placed, and a look every `PACE` seconds, over the simulated provider."""

    def __init__(self, seed: int, mode: Any, crowds: float = 0.0) -> None:
        self.draw = random.Random(seed)
        self.rented = Rented(
            self.draw, crowds=crowds, most=50, limits={f"steno-slot-{n}": 1 for n in range(1, CAP + 1)}
        )
        self.rented.made.append(self._made)
        self.stage = Simulation(Policy(mode=mode, max_vms=CAP, budget_total=None))
        for fleet in ("shared", *self.rented.limits):
            self.stage.ensured(fleet)
        self.lasts = {f"r{number}": self.draw.uniform(5, 60) for number in range(RUNS)}
        self.idle_before: set[str] = set()
        self.busy: list[int] = []
        """How many machines really had a run on them, at every look while runs waited."""

    def _made(self, _: Machine) -> None:
        assert sum(machine.state != "terminated" for machine in self.rented.machines) <= CAP, (
            "more machines than allowed"
        )

    def look(self) -> None:
        """Do a round."""
        self.rented.advance(PACE)
        self.stage.now = START + round(self.rented.now * SECOND)
        self.stage.runs(*self.rented.run_rows())
        self.stage.machines(*self.rented.vm_rows())
        self.stage.write(self.stage.decide())
        self._check()
        self._hand_over()

    def _check(self) -> None:
        """A machine that two looks showed idle has a run on its way to it, or no run waits."""
        if self.rented.crowds:
            return  # runs wait for one another there
        situation = Situation(state=self.stage.world.state, source=SOURCE, policy=self.stage.policy, now=self.stage.now)
        idle = {vm.vm_id for vm in situation.ours if vm.state is VmState.IDLE}
        coming = sum(lacking.run.vm_id is None for lacking in situation.lacking)
        if any(run.held is None or run.held.why == "cap" for run in situation.queue):
            assert len(idle & self.idle_before) <= coming
            self.busy.append(sum(machine.job is not None for machine in self.rented.machines) + min(coming, len(idle)))
        self.idle_before = idle

    def _hand_over(self) -> None:
        for run in self.stage.world.state.runs.all():
            if run.placed is not None and run.provider_id is None and not run.terminal and run.name is not None:
                job = self.rented.submit(
                    run.name,
                    fleet=run.placed.slot or "shared",
                    creation=run.placed.creation,
                    lasts=self.lasts[run.name],
                    backstop=720,
                )
                self.stage.taken(run.name, job.id)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(6))
def test_55_runs_over_12_machines_leave_no_machine_idle_for_more_than_one_poll(seed: int, mode: Any) -> None:
    """In bursts, as people submit; every run succeeds, and while runs wait nearly every machine works."""
    burst = Burst(seed, mode)
    names = list(burst.lasts)
    while names:
        for name in names[: burst.draw.randint(5, 25)]:
            burst.stage.request(name)
            names.remove(name)
        for _ in range(burst.draw.randint(1, 6)):
            burst.look()
    for _ in range(200):
        burst.look()
        if all(run.terminal for run in burst.stage.world.state.runs.all()):
            break
    assert all(run.terminal for run in burst.stage.world.state.runs.all())
    assert mean(burst.busy) > CAP - 2


def test_a_run_waits_until_the_one_before_it_in_its_fleet_has_its_machine() -> None:
    """Any machine that the provider lists says so."""
    town = town_of("provider", cap=12, idle=3, busy=0, in_flight=0)
    for row in town.rows.values():
        row["one_at_a_time"] = True
    town.look()
    for number in range(3):
        town.stage.request(f"w{number}")
    decisions = town.stage.settle()
    assert [place.run_id for place in places(decisions)] == ["run-w0"]
    assert holds(decisions) == [("run-w1", "machine"), ("run-w2", "cap")]
    town.stage.taken("w0")
    town.shown["w0"] = {"status": "submitted", "submitted": town.stage.now}
    town.stage.wait(5)
    town.look()
    assert places(town.stage.settle()) == []
    town.shown["w0"]["status"] = "provisioning"
    town.stage.wait(5)
    town.look()
    assert [place.run_id for place in places(town.stage.settle())] == ["run-w1"]


def test_a_run_that_only_a_person_can_find_holds_nobody_back() -> None:
    town = town_of("provider", cap=12, idle=3, busy=0, in_flight=0)
    town.rows["m0"]["one_at_a_time"] = True
    town.look()
    town.stage.request("w0")
    town.stage.settle()
    town.stage.tell(types.RunHeld(run_id="run-w0", provider="dstack", why="ambiguous"))
    town.stage.request("w1")
    assert [place.run_id for place in places(town.stage.settle())] == ["run-w1"]


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(3))
def test_a_provider_that_puts_runs_of_one_moment_on_one_machine_gets_them_one_at_a_time(seed: int, mode: Any) -> None:
    """As 0.19.37 needs it, each run is on its machine before the next of its fleet is handed over."""
    burst = Burst(seed, mode, crowds=0.2)
    for part in range(0, RUNS, 18):
        for name in list(burst.lasts)[part : part + 18]:
            burst.stage.request(name)
        for _ in range(20):
            burst.look()
    for _ in range(400):
        burst.look()
        if all(run.terminal for run in burst.stage.world.state.runs.all()):
            break
    assert {run.reason for run in burst.stage.world.state.runs.all()} == {Reason.EXIT_ZERO}
