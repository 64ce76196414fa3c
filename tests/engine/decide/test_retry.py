"""A run that its provider tries again can have another machine for a later try, and keeps its place meanwhile."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from stenotest.row_simulation import RowSimulation, holds, places
from stenotest.simulation import SOURCE, run_row, vm_row

from steno.engine.decide.situation import Situation
from steno.engine.providers.dstack.run_reading import with_run_words
from steno.engine.state.facts import JobFacts, RunFacts
from steno.engine.state.policy import Policy
from steno.engine.state.states import State, VmState

RETRY = {"on_events": ["error", "interruption"]}


def town_of(mode: Any, *, cap: int, warm: int) -> RowSimulation:
    town = RowSimulation(Policy(mode=mode, max_vms=cap, budget_total=None))
    for number in range(warm):
        town.warm(f"w{number}", f"m{number}", fleet=f"steno-slot-{number + 1}" if mode == "pool" else "shared")
    return town


def free(town: RowSimulation) -> int:
    stage = town.stage
    places_left = Situation(state=stage.world.state, source=SOURCE, policy=stage.policy, now=stage.now).free
    assert places_left is not None
    return places_left


def tried_again(town: RowSimulation, name: str) -> RunFacts:
    """Its first try was cut off, and the provider waits to begin the next."""
    row = {**town.shown[name], "status": "failed", "reason": "instance_unreachable", "finished": town.stage.now}
    first = run_row(name, **row)
    second = msgspec.structs.replace(
        run_row(name, "submitted", submitted=town.stage.now).jobs[0].attempts[0], num=first.jobs[0].attempts[0].num + 1
    )
    jobs = (JobFacts(attempts=(*first.jobs[0].attempts, second)),)
    return with_run_words(first, "pending", None, jobs)


def loses(town: RowSimulation) -> None:
    """The machine `m0` stops answering, and the provider tries the run `a` again."""
    town.stage.wait(5)
    town.rows["m0"] |= {"status": "idle", "unreachable": True}
    look(town, "a")


def look(town: RowSimulation, name: str) -> None:
    town.stage.runs(tried_again(town, name))
    town.stage.machines(*(vm_row(name, **row) for name, row in town.rows.items()))


@given(
    mode=st.sampled_from(["provider", "pool"]),
    cap=st.integers(1, 4),
    warm=st.integers(0, 3),
    runs=st.lists(
        st.tuples(st.sampled_from([None, False, True, RETRY]), st.sampled_from(["reuse", "reuse-or-create", "create"])),
        max_size=6,
    ),
)
@pytest.mark.slow
def test_no_run_with_retry_is_asked_to_reuse(mode: Any, cap: int, warm: int, runs: list[tuple[object, str]]) -> None:
    """In either mode, at and below the cap, whatever the task says of its machine."""
    town = town_of(mode, cap=cap, warm=min(cap, warm))
    retries = {}
    for number, (retry, creation) in enumerate(runs):
        run_id = town.stage.request(f"r{number}", retry=retry, creation_policy=creation)
        retries[run_id] = retry not in (None, False)
    for place in places(town.stage.settle()):
        assert place.creation != "reuse" or not retries[place.run_id]


@pytest.mark.parametrize("mode", ["provider", "pool"])
def test_at_the_cap_a_run_with_retry_goes_to_the_warm_machine_and_may_replace_it(mode: Any) -> None:
    town = town_of(mode, cap=1, warm=1)
    town.stage.request("a", retry=True)
    town.stage.request("b")
    decisions = town.stage.settle()
    (place,) = places(decisions)
    assert (place.run_id, place.vm_id, place.creation) == ("run-a", town.stage.vm_id("m0"), "reuse-or-create")
    assert holds(decisions) == [("run-b", "cap")]


@pytest.mark.parametrize("mode", ["provider", "pool"])
def test_a_task_that_says_reuse_and_retry_still_waits_for_a_machine(mode: Any) -> None:
    town = town_of(mode, cap=1, warm=0)
    town.stage.request("a", retry=True, creation_policy="reuse")
    assert holds(town.stage.settle()) == [("run-a", "machine")]


@pytest.mark.parametrize("mode", ["provider", "pool"])
def test_a_run_that_is_tried_again_keeps_its_place_once_its_machine_is_gone(mode: Any) -> None:
    """The provider may make its next machine at any moment."""
    town = town_of(mode, cap=1, warm=1)
    town.stage.request("a", retry=True)
    town.stage.settle()
    town.starts("a", "m0")
    town.stage.request("b")
    loses(town)
    assert town.stage.run("a").state is State.QUEUED
    assert places(town.stage.settle()) == []
    town.rows["m0"]["status"] = "terminated"
    town.stage.wait(5)
    look(town, "a")
    assert free(town) == 0
    assert places(town.stage.settle()) == []


@pytest.mark.parametrize("mode", ["provider", "pool"])
@pytest.mark.parametrize("warm", [0, 1])
def test_a_vanished_machine_has_a_place_beside_its_run_for_ten_minutes(mode: Any, warm: int) -> None:
    """It may be there, and billed; after that its place is the run's."""
    town = RowSimulation(Policy(mode=mode, max_vms=3, idle_timeout=None, budget_total=None))
    fleet = "steno-slot-1" if mode == "pool" else "shared"
    if warm:
        town.warm("w", "m0", fleet=fleet)
    town.stage.request("a", retry=True)
    town.stage.settle()
    town.starts("a", "m0", fleet=fleet)
    assert free(town) == 2
    loses(town)
    # a slot never gets a second machine beside its own
    before = 2 if mode == "pool" and not warm else 1
    for _ in range(119):
        assert free(town) == before
        town.stage.wait(5)
        look(town, "a")
    town.stage.wait(5)
    look(town, "a")
    assert town.stage.vm("m0").state is VmState.IDLE
    assert free(town) == 2


def test_time_in_which_nobody_looked_makes_no_machine_vanish() -> None:
    town = RowSimulation(Policy(max_vms=2, idle_timeout=None, budget_total=None))
    town.stage.request("a", retry=True)
    town.stage.settle()
    town.starts("a", "m0")
    loses(town)
    town.stage.wait(3600)
    assert free(town) == 0
