"""Bills of machines as the fold makes them, from any coherent history of polls."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from stenotest.machines import MachineHistory, machine_histories
from stenotest.story import Story

from engine.fold.world import World
from engine.fold.world_codec import WorldState
from engine.money.bill import Bill
from engine.money.costs import Costs
from engine.providers.readings import READINGS
from engine.replay.trace import fold_polls
from engine.states import VmState

STEP = 5


def folded(story: Story) -> WorldState:
    world = World(READINGS)
    for _ in fold_polls(world, story.polls()):
        pass
    return world.state


def told(history: MachineHistory, times: int = 1) -> Story:
    """Every row, polled so many times in each step."""
    story = Story()
    for item in history.items:
        for _ in range(times):
            story.machines(item).wait(STEP / times)
    return story


def the_bill(state: WorldState) -> Bill | None:
    found = list(Costs(state).bills().values())
    assert len(found) <= 1
    return found[0] if found else None


@given(machine_histories())
def test_a_folded_machines_intervals_are_its_life_and_its_bounds_hold(history: MachineHistory) -> None:
    """Whatever it went through."""
    state = folded(told(history))
    bill = the_bill(state)
    if bill is None:
        assert not state.vms
        return
    (vm,) = state.vms.values()
    edges = [(one.since, one.until if one.until is not None else bill.until) for one in bill.intervals]
    assert edges[0][0] == vm.created
    assert all(before[1] == after[0] for before, after in pairwise(edges))
    assert edges[-1][1] == bill.until
    assert bill.open is (vm.state is not VmState.TERMINATED)
    assert sum(one.cost for one in bill.intervals) == bill.cost
    assert 0 <= bill.low <= bill.cost <= bill.high


@given(machine_histories(), st.integers(1, 4))
def test_polls_that_repeat_add_nothing_but_the_open_end(history: MachineHistory, more: int) -> None:
    """The newest answer again, some times: an ended machine costs what it did, an open one costs that much longer."""
    if not history.items:
        return
    short, long = told(history), told(history)
    for _ in range(more):
        long.machines(history.items[-1]).wait(STEP)
    before, after = the_bill(folded(short)), the_bill(folded(long))
    if before is None or after is None:
        assert before is after
        return
    assert [(one.phase, one.since, one.until, one.cost) for one in after.intervals[: len(before.intervals) - 1]] == [
        (one.phase, one.since, one.until, one.cost) for one in before.intervals[:-1]
    ]
    if not before.open:
        assert (after.cost, after.low, after.high) == (before.cost, before.low, before.high)
    else:
        assert after.cost >= before.cost


@given(machine_histories())
def test_looking_more_often_narrows_the_bounds_and_keeps_the_life(history: MachineHistory) -> None:
    """Twice the polls of the same history: the same life where the provider dates it, and bounds no wider."""
    once, twice = the_bill(folded(told(history))), the_bill(folded(told(history, times=2)))
    if once is None or twice is None:
        assert once is twice
        return
    if not once.open and not history.old:
        assert (once.since, once.until) == (twice.since, twice.until)
        assert twice.high - twice.low <= once.high - once.low
