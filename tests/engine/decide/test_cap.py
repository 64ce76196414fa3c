"""No more machines than allowed, and room for the next run of the queue."""

from typing import Any

import pytest
from stenotest.row_simulation import RowSimulation, holds, places
from stenotest.simulation import Simulation, run_row, vm_row

from steno.engine.state.policy import Policy
from steno.events import types
from steno.events.clock import SECOND

PLAIN = Policy(budget_total=None)
POOL = Policy(mode="pool", budget_total=None)


def stage(policy: Policy, fleet: str = "shared") -> Simulation:
    made = Simulation(policy)
    made.ensured(fleet)
    return made


def hand_over(made: Simulation, name: str) -> None:
    made.request(name)
    made.settle()
    made.taken(name)


@pytest.mark.parametrize("mode", ["provider", "pool"])
def test_ten_at_once_are_never_more_than_three_machines(mode: Any) -> None:
    """In order of request; the reservation counts before any machine is there."""
    made = Simulation(Policy(mode=mode, budget_total=None))
    for number in range(10):
        made.request(f"r{number}")
    decisions = made.settle()
    assert [place.run_id for place in places(decisions)] == ["run-r0", "run-r1", "run-r2"]
    assert holds(decisions) == [(f"run-r{number}", "cap") for number in range(3, 10)]
    assert made.settle() == ()


def test_a_new_machine_is_not_counted_twice_while_its_address_is_missing() -> None:
    """Two runs, two machines still being made: there is room for a third."""
    town = RowSimulation(PLAIN)
    for name in ("a", "b"):
        town.stage.request(name)
    town.stage.settle()
    for name in ("a", "b"):
        town.stage.taken(name)
    town.stage.wait(5)
    rows = [vm_row(name, "provisioning", hostname=None, created=town.stage.now) for name in ("m1", "m2")]
    town.stage.machines(*rows)
    town.stage.request("c")
    assert len(places(town.stage.settle())) == 1
    town.stage.request("d")
    assert holds(town.stage.settle()) == [("run-d", "cap")]


def test_a_run_that_was_over_before_has_no_part_in_a_new_machine() -> None:
    """However long the provider goes on listing it: the new machine is the new run's, so there is room for another."""
    made = stage(Policy(max_vms=2, budget_total=None))
    hand_over(made, "old")
    made.wait(5)
    ended = run_row("old", "terminated", submitted=made.now, finished=made.now)
    made.runs(ended)
    made.machines()
    made.wait(600)
    hand_over(made, "a")
    made.wait(5)
    made.machines(vm_row("m1", "provisioning", hostname=None, created=made.now))
    made.wait(5)
    made.runs(ended, run_row("a", "provisioning", submitted=made.now - 5 * SECOND))
    made.request("b")
    assert [place.run_id for place in places(made.settle())] == ["run-b"]


def test_a_machine_that_nobody_can_be_linked_to_keeps_its_own_place() -> None:
    """A run ended before its machine had an address: that machine is nobody else's, and there is no room for two."""
    made = stage(Policy(max_vms=2, budget_total=None))
    hand_over(made, "a")
    made.wait(5)
    made.machines(vm_row("m1", "provisioning", hostname=None, created=made.now))
    made.runs(run_row("a", "terminated", submitted=made.now, finished=made.now))
    made.wait(5)
    made.machines(vm_row("m1", "provisioning", hostname=None, created=made.now - 5 * SECOND))
    made.request("b")
    made.request("c")
    assert [place.run_id for place in places(made.settle())] == ["run-b"]
    made.taken("b")
    assert holds(made.settle()) == []
    assert made.run("c").held is not None


def test_a_run_that_ended_before_its_machine_was_ever_listed_keeps_its_place_until_a_list_could_show_it() -> None:
    """Its end is known and its machine is not: the machine may be there, and billed."""
    made = stage(Policy(max_vms=1, budget_total=None))
    hand_over(made, "a")
    made.machines(started=made.now - SECOND)
    made.wait(5)
    made.runs(run_row("a", "done", submitted=made.now, finished=made.now, exit_status=0))
    made.request("b")
    assert holds(made.settle()) == [("run-b", "cap")]
    made.machines(started=made.now - SECOND)
    assert places(made.settle()) == []
    made.wait(1)
    made.machines()
    assert len(places(made.settle())) == 1


def test_a_terminating_and_an_unconfirmed_machine_still_take_their_places() -> None:
    """They may be billed."""
    town = RowSimulation(Policy(max_vms=1, budget_total=None))
    town.warm("a", "m")
    town.rows["m"]["status"] = "terminating"
    town.look()
    town.stage.request("b")
    assert holds(town.stage.settle()) == [("run-b", "cap")]
    for _ in range(20):
        town.stage.wait(50)
        town.look()
    assert town.stage.vm("m").state.value == "unconfirmed"
    assert places(town.stage.settle()) == []
    town.rows["m"]["status"] = "terminated"
    town.look()
    assert len(places(town.stage.settle())) == 1


def test_a_slot_whose_machine_is_going_may_get_another_one() -> None:
    """Only machines that are not going count to a fleet's most, so that both may be billed at once."""
    made = stage(Policy(mode="pool", max_vms=2, budget_total=None), "steno-slot-1")
    hand_over(made, "a")
    made.wait(5)
    made.machines(vm_row("m1", "provisioning", hostname=None, fleet="steno-slot-1", created=made.now))
    made.wait(5)
    made.machines(vm_row("m1", "terminating", hostname=None, fleet="steno-slot-1", created=made.now - 5 * SECOND))
    made.request("b")
    assert holds(made.settle()) == [("run-b", "cap")]


def test_foreign_machines_take_no_place() -> None:
    made = Simulation(Policy(max_vms=1, budget_total=None))
    made.machines(vm_row("theirs", fleet="theirs"))
    made.request("a")
    assert len(places(made.settle())) == 1


def test_a_run_of_more_nodes_than_are_allowed_is_refused() -> None:
    made = stage(PLAIN)
    made.request("a", nodes=4)
    (refuse,) = made.settle()
    assert isinstance(refuse, types.IntentAbandoned)
    assert "4 machines at once" in refuse.why
    assert made.run("a").terminal


def test_a_run_of_two_nodes_takes_two_places() -> None:
    made = stage(PLAIN)
    made.request("a", nodes=2)
    made.request("b", nodes=2)
    made.request("c")
    decisions = made.settle()
    assert [place.run_id for place in places(decisions)] == ["run-a"]
    assert holds(decisions) == [("run-b", "cap"), ("run-c", "cap")]  # nobody overtakes the head


def test_without_a_cap_every_run_is_placed_at_once() -> None:
    made = Simulation(Policy(mode="pool", max_vms=None, budget_total=None))
    for number in range(5):
        made.request(f"r{number}")
    assert [place.slot for place in places(made.settle())] == [f"steno-slot-{n}" for n in range(1, 6)]


def test_machines_that_cost_nothing_know_no_cap() -> None:
    made = Simulation(Policy(free=True, max_vms=1))
    for number in range(3):
        made.request(f"r{number}")
    placed = places(made.settle())
    assert [(place.slot, place.idle) for place in placed] == [(None, 0)] * 3


# -- room --------------------------------------------------------------------------------------------------------------


def test_an_idle_machine_that_does_not_fit_makes_room_at_the_cap() -> None:
    """The machine that has idled longest, and no more machines than needed."""
    town = RowSimulation(Policy(mode="pool", max_vms=2, budget_total=None))
    town.warm("a", "m1", fleet="steno-slot-1", gpu="MI210")
    town.warm("b", "m2", fleet="steno-slot-2", gpu="MI210")
    town.stage.request("c", resources={"gpu": "MI300X"})
    decisions = town.stage.settle()
    assert holds(decisions) == [("run-c", "cap")]
    (drain,) = [decision for decision in decisions if isinstance(decision, types.VmDrainStarted)]
    assert (drain.vm_id, drain.by) == (town.stage.vm_id("m1"), "room")
    town.rows["m1"]["status"] = "terminated"
    town.stage.wait(5)
    town.look()
    (place,) = places(town.stage.settle())
    assert (place.run_id, place.slot) == ("run-c", "steno-slot-1")


def test_room_that_nobody_needs_any_more_is_given_back() -> None:
    town = RowSimulation(Policy(mode="pool", max_vms=1, budget_total=None))
    town.warm("a", "m1", fleet="steno-slot-1", gpu="MI210")
    town.stage.request("c", resources={"gpu": "MI300X"})
    town.stage.settle()
    assert town.stage.vm("m1").drain is not None
    town.stage.tell(types.IntentAbandoned(run_id="run-c", provider="dstack", intent="submit", why="stopped"))
    (kept,) = town.stage.settle()
    assert isinstance(kept, types.VmDrainCancelled)


def test_nobody_takes_the_machine_that_makes_room_for_the_head() -> None:
    """Strict order: a run behind it that the idle machine would fit waits, or the head might wait for ever."""
    town = RowSimulation(Policy(mode="pool", max_vms=1, budget_total=None))
    town.warm("a", "m1", fleet="steno-slot-1", gpu="MI210")
    town.stage.request("c", resources={"gpu": "MI300X"})
    town.stage.request("d", resources={"gpu": "MI210"})
    decisions = town.stage.decide()
    assert holds(decisions) == [("run-c", "cap"), ("run-d", "cap")]
    assert places(decisions) == []
    town.stage.settle()
    assert town.stage.vm("m1").drain is not None


def test_below_the_cap_no_machine_makes_room() -> None:
    town = RowSimulation(POOL)
    town.warm("a", "m1", fleet="steno-slot-1", gpu="MI210")
    town.stage.request("c", resources={"gpu": "MI300X"})
    assert [type(decision) for decision in town.stage.settle()] == [types.RunPlaced]


def test_a_run_that_wants_a_machine_of_its_own_makes_room_too() -> None:
    town = RowSimulation(Policy(mode="pool", max_vms=1, budget_total=None))
    town.warm("a", "m1", fleet="steno-slot-1")
    town.stage.request("b", creation_policy="create")
    assert [type(decision) for decision in town.stage.settle()] == [types.RunHeld, types.VmDrainStarted]


def test_for_a_run_of_several_nodes_the_slots_of_the_pool_make_room() -> None:
    """It goes to a shared fleet, so that it cannot use a warm slot, though the machine would fit."""
    town = RowSimulation(Policy(mode="pool", max_vms=2, budget_total=None))
    town.warm("a", "m1", fleet="steno-slot-1")
    town.stage.request("b", nodes=2)
    drains = [decision for decision in town.stage.settle() if isinstance(decision, types.VmDrainStarted)]
    assert [(drain.vm_id, drain.by) for drain in drains] == [(town.stage.vm_id("m1"), "room")]
