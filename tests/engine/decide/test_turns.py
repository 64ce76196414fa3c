"""Whose turn it is while a run waits for capacity: no later run takes a place that it could use."""

import json
from typing import Any

import msgspec
import pytest
from stenotest.dstack_history import nodes, read_run
from stenotest.row_simulation import RowSimulation, holds, places
from stenotest.simulation import SOURCE, Simulation, run_row

from steno.engine.decide.queue import queue
from steno.engine.state.facts import RunFacts
from steno.engine.state.policy import Policy
from steno.events import types


def backing_off(policy: Policy, *, name: str = "a", **task: object) -> Simulation:
    """A run the provider had no capacity for, which is asked for again in 15 s."""
    made = Simulation(policy)
    made.ensured("shared")
    made.request(name, **task)
    made.settle()
    made.taken(name, "p1")
    made.wait(1)
    reason = "failed_to_start_due_to_no_capacity"
    made.runs(run_row(name, "failed", reason=reason, submitted=made.now, finished=made.now, provider_id="p1"))
    made.settle()
    assert made.run(name).held is not None
    return made


def test_a_later_request_for_the_same_waits_behind_a_run_that_waits_for_its_time() -> None:
    """It would be given the very machine the earlier one waits for. Once that is asked for again, both go, in order."""
    made = backing_off(Policy(budget_total=None), resources={"gpu": "MI300X"})
    made.request("b", resources={"gpu": "MI300X"})
    assert holds(made.settle()) == [("run-b", "capacity")]
    assert made.settle() == ()
    first, second = queue(made.world.state, SOURCE, made.policy, made.now)
    held = made.run("a").held
    assert held is not None
    assert first.estimated_start == second.estimated_start == held.not_before
    made.wait(20)
    assert [place.run_id for place in places(made.settle())] == ["run-a", "run-b"]


NO_CAPACITY = "failed_to_start_due_to_no_capacity"


@pytest.mark.parametrize(
    ("polls", "again"),
    [
        ([(("terminating", NO_CAPACITY, None), ("submitted", None, None))], True),
        ([(("terminating", NO_CAPACITY, None), ("pulling", None, None))], True),
        ([(("terminating", NO_CAPACITY, None), ("running", None, None))], False),
        ([(("terminating", NO_CAPACITY, None), ("terminating", "terminated_by_server", 143))], False),
        ([], True),
    ],
)
def test_a_run_of_several_nodes_is_submitted_again_unless_a_job_of_it_ran(polls: list[Any], again: bool) -> None:
    """A node ended without capacity while the other was only submitted: nothing ran. An exit status says that it did,
    between two polls.
    """
    made = Simulation(Policy(budget_total=None))
    made.ensured("shared")
    made.request("a", nodes=2)
    made.settle()
    made.taken("a", "p1")
    last = polls[-1][1][2] if polls else None
    over = (("failed", NO_CAPACITY, None), ("terminated", "terminated_by_server", last))
    for number, jobs in enumerate([*polls, over]):
        made.wait(1)
        made.runs(two_nodes("failed" if number == len(polls) else "submitted", *jobs))
    assert (made.run("a").state, made.run("a").reason) == ("failed", "no_capacity")
    made.settle()
    assert (made.run("a").held is not None) is again


def two_nodes(status: str, *jobs: tuple[str, str | None, int | None]) -> RunFacts:
    """The run `a` of two nodes with these (status, reason, exit status)."""
    item = nodes(status, *jobs, reason="job_failed" if status == "failed" else None)
    return msgspec.structs.replace(read_run(json.dumps(item).encode()), provider_id="p1", name="a")


NARROW: dict[str, Any] = {
    "resources": {"gpu": "amd:MI300X:192GB:1", "memory": "64GB..", "disk": "200GB.."},
    "max_price": 2,
    "regions": ["us"],
    "backends": ["amddevcloud"],
    "instance_types": ["gpu-mi300x1-192gb"],
    "fleets": ["amd"],
    "spot_policy": "on-demand",
    "nodes": 2,
}


@pytest.mark.parametrize(
    "other",
    [
        {"resources": {"gpu": "MI210", "memory": "64GB..", "disk": "200GB.."}},
        {"resources": {"gpu": "MI300X:192GB:1..2", "memory": "64GB..", "disk": "200GB.."}},
        {"resources": {"gpu": "MI300X:1", "memory": "64GB..", "disk": "200GB.."}},
        {"resources": {"gpu": "MI300X:192GB:1", "memory": "32GB..", "disk": "200GB.."}},
        {"resources": {"gpu": "MI300X:192GB:1", "memory": "64GB.."}},
        {"resources": {}},
        {"max_price": 3},
        {"max_price": None},
        {"regions": ["eu", "us"]},
        {"backends": None},
        {"instance_types": ["gpu-mi300x8-1536gb"]},
        {"fleets": ["other"]},
        {"spot_policy": "auto"},
        {"nodes": 1},
    ],
)
def test_a_later_request_that_takes_a_machine_the_earlier_one_does_not_goes_ahead(other: dict[str, Any]) -> None:
    """An impossible request holds up nobody who can be served."""
    made = backing_off(Policy(budget_total=None), **NARROW)
    made.request("b", **{key: value for key, value in (NARROW | other).items() if value is not None})
    assert [place.run_id for place in places(made.settle())] == ["run-b"]


@pytest.mark.parametrize(
    "other",
    [
        {},
        {"resources": {"gpu": "mi300x:192GB:1", "memory": "128GB..", "disk": "300GB"}},
        {"max_price": 1.5},
        {"creation_policy": "create"},
    ],
)
def test_a_later_request_that_takes_only_what_the_earlier_one_takes_too_waits(other: dict[str, Any]) -> None:
    made = backing_off(Policy(budget_total=None), **NARROW)
    made.request("b", **(NARROW | other))
    assert holds(made.settle()) == [("run-b", "capacity")]


@pytest.mark.parametrize("mode", ["provider", "pool"])
def test_a_machine_that_comes_free_goes_to_the_earliest_run_that_fits_it(mode: Any) -> None:
    """Also while that run waits for its time, which is for asking the cloud; but only once for each time it is free."""
    town = RowSimulation(Policy(mode=mode, max_vms=3, budget_total=None))
    town.stage.request("old")
    fleet = "steno-slot-1" if mode == "pool" else "shared"
    town.stage.settle()
    town.starts("old", "m", fleet=fleet)
    town.stage.request("a")
    town.stage.settle()
    town.stage.taken("a", "p1")
    town.shown["a"] = {
        "status": "failed",
        "reason": "failed_to_start_due_to_no_capacity",
        "submitted": town.stage.now,
        "finished": town.stage.now,
        "provider_id": "p1",
    }
    town.look()
    town.stage.settle()
    town.stage.request("b")
    assert holds(town.stage.settle()) == [("run-b", "capacity")]
    town.ends("old")
    place, *_ = places(town.stage.settle())
    assert (place.run_id, place.vm_id, place.creation) == ("run-a", town.stage.vm_id("m"), "reuse")
    town.stage.taken("a", "p2")
    town.shown["a"] |= {"provider_id": "p2"}
    town.stage.wait(5)
    town.look()
    assert places(town.stage.settle()) == []
    held = town.stage.run("a").held
    assert held is not None
    assert held.not_before is not None
    assert held.not_before > town.stage.now


@pytest.mark.parametrize("mode", ["provider", "pool"])
def test_a_run_that_an_idle_machine_refused_goes_elsewhere_if_there_is_room(mode: Any) -> None:
    """Its provider sees a difference that we do not: it would be sent there again and again, and all behind it wait."""
    town = RowSimulation(Policy(mode=mode, max_vms=2, budget_total=None))
    town.warm("old", "m", fleet="steno-slot-1" if mode == "pool" else "shared")
    for name in ("a", "b"):
        town.stage.request(name)
    first, second = places(town.stage.settle())
    assert (first.run_id, first.creation, first.vm_id) == ("run-a", "reuse", town.stage.vm_id("m"))
    row = {"reason": "failed_to_start_due_to_no_capacity", "submitted": town.stage.now, "finished": town.stage.now}
    for place in (first, second):
        name = place.run_id.removeprefix("run-")
        town.stage.taken(name, f"p-{name}")
        town.shown[name] = {"status": "failed", "provider_id": f"p-{name}", **row}
    town.stage.wait(1)
    town.look()
    assert places(town.stage.settle()) == []
    town.stage.wait(16)
    town.look()
    again = places(town.stage.decide())
    assert (again[0].run_id, again[0].creation, again[0].vm_id) == ("run-a", "reuse-or-create", None)


def test_a_run_whose_warm_machine_was_taken_by_another_is_asked_for_again_at_once() -> None:
    """No cloud was asked, so there is no reason to wait."""
    town = RowSimulation(Policy(max_vms=1, budget_total=None))
    town.warm("old", "m")
    town.stage.request("a")
    (place,) = places(town.stage.settle())
    assert place.creation == "reuse"
    town.stage.taken("a", "p1")
    town.rows["m"]["status"] = "busy"
    town.shown["theirs"] = {"status": "running", "on": "m", "submitted": town.stage.now}
    row = {"reason": "failed_to_start_due_to_no_capacity", "submitted": town.stage.now, "finished": town.stage.now}
    town.shown["a"] = {"status": "failed", "provider_id": "p1", **row}
    town.stage.wait(1)
    town.look()
    (again,) = [decision for decision in town.stage.decide() if isinstance(decision, types.RunRequeued)]
    assert again.not_before == town.stage.now
