"""Kernels on a machine that a listener keeps: each pays its own time, the machine is one, and its time counts once."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from stenotest.bills import a_run, at, machine, machines, on, world

from engine.fold.sources import Source
from engine.fold.vm import Vm
from engine.fold.world_codec import WorldState
from engine.kernel.listener_run import listener_machine
from engine.money.bill import Line, bill_vm
from engine.money.costs import Costs, charges
from engine.money.kernels import cut_by_kernels, stays_of
from engine.money.prices import Book
from engine.money.report import performance
from engine.states import State, VmState
from events.clock import SECOND

LISTENER = "kernels-mi300x-0123456789ab"


def kept(*kernels: tuple[str, float, float | None], last: float = 3600) -> Vm:
    """The listener's machine: (kernel, when it started, when it ended)."""
    there = [replace(on(name, 0, until), started_at=at(since)) for name, since, until in kernels]
    vm = machine(listener_machine("listener"), (0, VmState.BUSY), last=last, prices=[(0, 0.0)], occupancies=there)
    vm.provider, vm.provider_id, vm.source = "kernels", "listener", "kernels/main"
    return vm


def hour(*kernels: tuple[str, float, float | None]) -> WorldState:
    """An hour at $3.60: 100 s until the machine is there, then the listener keeps it."""
    vm = machine(
        "vm",
        (0, VmState.PROVISIONING),
        (100, VmState.BUSY),
        last=3600,
        prices=[(0, 3.6)],
        occupancies=[on("listener", 0, None)],
        made_for="listener",
    )
    listener = a_run(
        "listener", State.RUNNING, name=LISTENER, requested_at=at(0), links={"0/0/0": "vm"}, vm_id="vm", start="cold"
    )
    inside = kept(*kernels)
    runs = [a_run(name, links={"0/0/0": inside.vm_id}, start="warm") for name, _, _ in kernels]
    state = world(vm, inside, last=3600, runs=[listener, *runs])
    state.sources["kernels/main"] = Source(name="kernels/main")
    return state


def test_a_kernel_pays_from_its_start_to_its_end_and_the_rest_is_idle() -> None:
    """$0.001 a second: 100 s of provisioning, kernels of 50 s and 7 s, the second still at work."""
    costs = Costs(hour(("a", 200, 250), ("b", 3593, None)))
    assert costs.of_runs() == {"listener": 100_000, "a": 50_000, "b": 7_000}
    assert [costs.of_run(one) for one in ("listener", "a", "b")] == [100_000, 50_000, 7_000]
    lines = {one: sum(charge.cost for charge in costs.charges() if charge.line is one) for one in Line}
    assert {one: cost for one, cost in lines.items() if cost} == {
        Line.PROVISIONING: 100_000,
        Line.BUSY: 57_000,
        Line.IDLE: 3_443_000,
    }


def test_a_listeners_machine_and_its_task_are_one_machine_and_one_run() -> None:
    """Its time counts once, and its task is no run of anybody's."""
    costs = Costs(hour(("a", 200, 250)))
    assert {charge.vm_id for charge in costs.charges()} == {"vm"}
    assert sum(charge.time for charge in costs.charges()) == 3600 * SECOND
    found = {one.name: one.count for one in performance(costs)}
    assert (found["cost per task"], found["cost per task, idle included"]) == (1, 1)


def test_kernels_that_overlap_by_a_clock_follow_one_another() -> None:
    """One runs at a time."""
    costs = Costs(hour(("a", 200, 250), ("b", 240, 260)))
    assert costs.of_runs() == {"listener": 100_000, "a": 50_000, "b": 10_000}


STAYS = st.lists(st.tuples(st.integers(-100, 5_000), st.none() | st.integers(-100, 6_000)), max_size=5)


@given(machines(), STAYS, st.integers(0, 6_000))
def test_a_bill_cut_by_kernels_is_the_same_bill(vm: Vm, stays: list[tuple[int, int | None]], until: int) -> None:
    """Whatever the clocks say: cost, bounds and time sum as before, the phases follow one another, and the listener
    pays none of its busy time.
    """
    whole = bill_vm(vm, until=at(until), book=Book())
    inside = kept(*((f"kernel-{number}", *stay) for number, stay in enumerate(stays)))
    bill = cut_by_kernels(whole, "run-0", stays_of(inside))
    assert sum(one.cost for one in bill.intervals) == bill.cost == sum(one.cost for one in charges(bill))
    assert sum(one.time for one in charges(bill)) == bill.until - bill.since
    assert all(0 <= one.low <= one.cost <= one.high for one in bill.intervals)
    assert sum(one.low for one in bill.intervals) <= bill.low
    assert sum(one.high for one in bill.intervals) >= bill.high
    ends = [bill.until if one.until is None else one.until for one in bill.intervals]
    assert [one.since for one in bill.intervals] == [bill.since, *ends[:-1]]
    assert ends[-1] == bill.until
    assert all(one.run_id != "run-0" or one.line is not Line.BUSY or not one.time for one in charges(bill))
