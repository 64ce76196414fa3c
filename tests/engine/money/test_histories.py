"""Bills of machines as the fold makes them, from any coherent history of polls."""

from hypothesis import given
from hypothesis import strategies as st
from stenotest.bills import expect_whole
from stenotest.dstack_history import DstackHistory
from stenotest.machines import MachineHistory, machine_histories

from steno.engine.fold.fold import Fold
from steno.engine.money.bill import Bill
from steno.engine.money.costs import Costs
from steno.engine.providers.registry import READINGS
from steno.engine.replay.replay import fold_polls
from steno.engine.state.states import VmState
from steno.engine.state.world import World

STEP = 5


def folded(story: DstackHistory) -> World:
    world = Fold(READINGS)
    for _ in fold_polls(world, story.polls()):
        pass
    return world.state


def told(history: MachineHistory, times: int = 1) -> DstackHistory:
    """Every row, polled `times` times in each step."""
    story = DstackHistory()
    for item in history.items:
        for _ in range(times):
            story.machines(item).wait(STEP / times)
    return story


def the_bill(state: World) -> Bill | None:
    bills = list(Costs(state).bills().values())
    assert len(bills) <= 1
    return bills[0] if bills else None


@given(machine_histories())
def test_a_folded_machines_intervals_are_its_life_and_its_bounds_hold(history: MachineHistory) -> None:
    """Whatever it went through."""
    state = folded(told(history))
    bill = the_bill(state)
    if bill is None:
        assert not state.vms
        return
    (vm,) = state.vms.all()
    expect_whole(bill)
    assert bill.since == vm.created
    assert bill.open is (vm.state is not VmState.TERMINATED)


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
    assert [
        (interval.phase, interval.since, interval.until, interval.cost)
        for interval in after.intervals[: len(before.intervals) - 1]
    ] == [(interval.phase, interval.since, interval.until, interval.cost) for interval in before.intervals[:-1]]
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
