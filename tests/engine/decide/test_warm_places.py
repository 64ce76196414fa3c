"""Placement on warm machines: in both modes, for every creation policy, shared or not."""

import pytest
from stenotest.row_simulation import RowSimulation, holds, places
from stenotest.simulation import Simulation

from steno.engine.state.policy import Policy
from steno.events import types

PLAIN = Policy(budget_total=None)
POOL = Policy(mode="pool", budget_total=None)


def test_the_pool_takes_the_machine_that_has_idled_longest() -> None:
    town = RowSimulation(Policy(mode="pool", max_vms=5, budget_total=None))
    town.warm("a", "m1", fleet="steno-slot-1")
    town.warm("b", "m2", fleet="steno-slot-2")
    town.stage.request("c")
    (place,) = places(town.stage.settle())
    assert (place.vm_id, place.slot, place.creation) == (town.stage.vm_id("m1"), "steno-slot-1", "reuse-or-create")
    town.stage.request("d")
    (place,) = places(town.stage.settle())
    assert place.slot == "steno-slot-2"
    town.stage.request("e")
    (place,) = places(town.stage.settle())
    assert (place.vm_id, place.slot) == (None, "steno-slot-3")


def test_a_warm_place_that_may_become_a_new_machine_takes_a_place_until_it_is_taken() -> None:
    """A machine that goes in the last moment is billed on while the machine that replaces it is billed, too."""
    town = RowSimulation(Policy(mode="pool", max_vms=2, budget_total=None))
    town.warm("a", "m1", fleet="steno-slot-1")
    town.stage.request("b")
    decisions = town.stage.settle()
    assert [(place.run_id, place.creation) for place in places(decisions)] == [("run-b", "reuse-or-create")]
    town.stage.request("c")
    assert holds(town.stage.settle()) == [("run-c", "cap")]
    town.starts("b", "m1")
    assert [place.slot for place in places(town.stage.settle())] == ["steno-slot-2"]


def test_where_another_run_needs_the_place_a_warm_one_takes_none() -> None:
    """Both go at once: the first may not become a new machine, the second gets the place for one."""
    town = RowSimulation(Policy(mode="pool", max_vms=2, budget_total=None))
    town.warm("a", "m1", fleet="steno-slot-1")
    town.stage.request("b")
    town.stage.request("c")
    placed = [(place.run_id, place.slot, place.creation) for place in places(town.stage.decide())]
    assert placed == [("run-b", "steno-slot-1", "reuse"), ("run-c", "steno-slot-2", "reuse-or-create")]


def test_at_the_cap_a_warm_place_may_not_become_a_new_machine() -> None:
    """A slot can have a new machine while its old one is still terminating."""
    town = RowSimulation(Policy(mode="pool", max_vms=1, budget_total=None))
    town.warm("a", "m1", fleet="steno-slot-1")
    town.stage.request("b")
    (place,) = places(town.stage.settle())
    assert (place.vm_id, place.creation) == (town.stage.vm_id("m1"), "reuse")


def test_two_runs_back_to_back_are_one_machine_for_the_provider_too() -> None:
    """At a cap of one, dstack is told to reuse; while a run without a machine may take the idle one, the next waits."""
    town = RowSimulation(Policy(max_vms=1, budget_total=None))
    town.warm("a", "m")
    town.stage.request("b")
    town.stage.request("c")
    decisions = town.stage.settle()
    (place,) = places(decisions)
    assert (place.run_id, place.creation, place.slot) == ("run-b", "reuse", None)
    assert holds(decisions) == [("run-c", "cap")]
    town.starts("b", "m")
    town.ends("b")
    (place,) = places(town.stage.settle())
    assert place.run_id == "run-c"


def test_an_idle_machine_that_another_run_may_be_about_to_take_is_waited_for_and_not_for_ever() -> None:
    """The provider chooses: the run placed before may go to the idle machine, or have one made. After five minutes in
    which it went to none, the idle one is the next run's.
    """
    town = RowSimulation(Policy(max_vms=2, budget_total=None))
    town.warm("a", "m")
    town.stage.request("b")
    town.stage.settle()
    town.stage.taken("b")
    town.stage.request("c")
    assert holds(town.stage.settle()) == [("run-c", "cap")]
    town.shown["b"] = {"status": "submitted", "submitted": town.stage.now}
    for _ in range(61):
        assert places(town.stage.settle()) == []
        town.stage.wait(5)
        town.look()
    (place,) = places(town.stage.settle())
    assert (place.run_id, place.creation, place.vm_id) == ("run-c", "reuse", town.stage.vm_id("m"))


def test_a_machine_that_differs_is_not_taken() -> None:
    town = RowSimulation(POOL)
    town.warm("a", "m1", fleet="steno-slot-1", gpu="MI210")
    town.stage.request("b", resources={"gpu": "MI300X"})
    (place,) = places(town.stage.settle())
    assert (place.vm_id, place.slot) == (None, "steno-slot-2")


def test_create_never_takes_a_warm_machine_and_has_a_slot_of_its_own() -> None:
    for policy in (PLAIN, POOL):
        town = RowSimulation(policy)
        town.warm("a", "m1", fleet="steno-slot-1" if policy is POOL else "shared")
        town.stage.request("b", creation_policy="create")
        (place,) = places(town.stage.settle())
        assert place.vm_id is None
        assert place.slot == ("steno-slot-2" if policy is POOL else "steno-slot-1")
        assert (place.creation, place.idle) == ("reuse-or-create", 0)


def test_nobody_takes_a_machine_made_for_a_run_that_shares_with_nobody() -> None:
    town = RowSimulation(POOL)
    town.stage.request("a", creation_policy="create")
    town.stage.settle()
    town.starts("a", "m1", fleet="steno-slot-1")
    town.ends("a")
    town.stage.request("b")
    (place,) = places(town.stage.settle())
    assert (place.vm_id, place.slot) == (None, "steno-slot-2")


@pytest.mark.parametrize("policy", [PLAIN, POOL])
def test_reuse_waits_for_a_machine_and_lets_others_pass(policy: Policy) -> None:
    town = RowSimulation(policy)
    town.stage.request("a", creation_policy="reuse")
    town.stage.request("b")
    decisions = town.stage.settle()
    assert holds(decisions) == [("run-a", "machine")]
    assert [place.run_id for place in places(decisions)] == ["run-b"]
    town.starts("b", "m", fleet="steno-slot-1" if policy is POOL else "shared")
    assert places(town.stage.settle()) == []
    town.ends("b")
    (place,) = places(town.stage.settle())
    assert (place.run_id, place.creation, place.vm_id) == ("run-a", "reuse", town.stage.vm_id("m"))


def test_two_that_must_reuse_are_not_sent_to_one_machine() -> None:
    town = RowSimulation(PLAIN)
    town.warm("a", "m")
    for name in ("b", "c"):
        town.stage.request(name, creation_policy="reuse")
    decisions = town.stage.settle()
    assert [place.run_id for place in places(decisions)] == ["run-b"]
    assert holds(decisions) == [("run-c", "machine")]


def test_a_task_with_fleets_of_its_own_has_no_slot() -> None:
    made = Simulation(POOL)
    made.request("a", fleets=["theirs"])
    (place,) = places(made.settle())
    assert (place.slot, place.creation) == (None, "reuse-or-create")


def drained() -> RowSimulation:
    """A pool whose only machine has idled for ten minutes, and is told to go."""
    town = RowSimulation(POOL)
    town.warm("a", "m", fleet="steno-slot-1")
    for _ in range(120):
        town.stage.wait(5)
        town.look()
    town.stage.settle()
    assert town.stage.vm("m").drain is not None
    return town


def test_a_drain_is_taken_back_for_a_run_that_can_use_the_machine() -> None:
    """First the drain is taken back, then the run is placed: a draining machine takes none."""
    town = drained()
    town.stage.request("b")
    assert town.stage.decide() == (
        types.VmDrainCancelled(provider="dstack", vm_id=town.stage.vm_id("m"), why="run b can use it"),
    )
    town.stage.write(town.stage.decide())
    (place,) = town.stage.decide()
    assert isinstance(place, types.RunPlaced)
    assert place.vm_id == town.stage.vm_id("m")
    town.stage.settle()
    assert town.stage.vm("m").drain is None


def test_a_machine_that_does_not_answer_is_not_called_back() -> None:
    town = drained()
    town.rows["m"]["unreachable"] = True
    town.look()
    town.stage.request("b")
    (place,) = places(town.stage.decide())
    assert place.slot == "steno-slot-2"
    assert town.stage.vm("m").drain is not None


def test_a_machine_that_was_told_to_go_is_not_called_back() -> None:
    town = RowSimulation(POOL)
    town.warm("a", "m", fleet="steno-slot-1")
    for _ in range(122):
        town.stage.wait(5)
        town.look()
        town.stage.settle()
    assert town.stage.vm("m").told is not None
    town.stage.request("b")
    (place,) = town.stage.settle()
    assert isinstance(place, types.RunPlaced)
    assert place.slot == "steno-slot-2"


# -- sharing -----------------------------------------------------------------------------------------------------------

MINE = Policy(mode="pool", share="user", max_vms=2, budget_total=None)


def test_a_machine_of_other_users_is_not_taken() -> None:
    town = RowSimulation(MINE)
    town.warm("a", "m1", fleet="steno-slot-1", submitter="ada")
    town.stage.request("b", submitter="bob")
    (place,) = places(town.stage.settle())
    assert place.vm_id is None
    town.starts("b", "m2", fleet="steno-slot-2")
    town.stage.request("c", submitter="ada")
    (place,) = places(town.stage.settle())
    assert place.vm_id == town.stage.vm_id("m1")


def test_at_the_cap_a_user_waits_for_a_machine_and_others_take_theirs() -> None:
    """Held for `user`; a run that can use the idle machine passes, a run that would take the next place does not."""
    town = RowSimulation(MINE)
    town.warm("a", "m1", fleet="steno-slot-1", submitter="ada")
    town.warm("b", "m2", fleet="steno-slot-2", submitter="bob")
    town.stage.request("c", submitter="eve")
    town.stage.request("d", submitter="bob")
    town.stage.request("e", submitter="zoe")
    decisions = town.stage.decide()
    assert holds(decisions) == [("run-c", "user"), ("run-e", "user")]
    assert [(place.run_id, place.vm_id) for place in places(decisions)] == [("run-d", town.stage.vm_id("m2"))]
    (drain,) = [decision for decision in decisions if isinstance(decision, types.VmDrainStarted)]
    assert (drain.vm_id, drain.by) == (town.stage.vm_id("m1"), "room")


def test_behind_a_run_that_waits_for_its_user_nobody_takes_the_next_place() -> None:
    """It needs two places and there is one: a smaller run behind it would keep it from them for ever."""
    town = RowSimulation(MINE)
    town.warm("a", "m1", fleet="steno-slot-1", submitter="ada")
    town.stage.request("c", submitter="eve", nodes=2)
    town.stage.request("d", submitter="zoe")
    decisions = town.stage.decide()
    assert holds(decisions) == [("run-c", "user"), ("run-d", "cap")]
    assert places(decisions) == []


def test_for_a_run_that_must_reuse_no_machine_makes_room() -> None:
    """A place is of no use to it: it waits for a machine it may use."""
    town = RowSimulation(MINE)
    town.warm("a", "m1", fleet="steno-slot-1", submitter="ada")
    town.warm("b", "m2", fleet="steno-slot-2", submitter="ada")
    town.stage.request("c", submitter="bob", creation_policy="reuse")
    assert holds(town.stage.settle()) == [("run-c", "user")]
    assert town.stage.vm("m1").drain is None


def test_a_machine_that_a_foreign_run_was_on_is_nobodys() -> None:
    town = RowSimulation(MINE)
    town.warm("a", "m1", fleet="steno-slot-1", submitter="ada")
    town.stage.wait(1)
    town.shown["theirs"] = {"status": "running", "on": "m1", "submitted": town.stage.now}
    town.rows["m1"]["status"] = "busy"
    town.look()
    town.ends("theirs")
    town.stage.request("b", submitter="ada")
    (place,) = places(town.stage.settle())
    assert place.vm_id is None
