"""Kernels on a machine that a listener keeps: each pays its own time, the machine is one, and its time counts once."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from stenotest.bills import a_run, at, expect_whole, machine, machines, on, world

from steno.engine.money.bill import Line, bill_vm
from steno.engine.money.costs import Costs, charges, cut_by_kernels, stays_of
from steno.engine.money.prices import Book
from steno.engine.money.report import performance
from steno.engine.state.kernel_mark import listener_machine
from steno.engine.state.sources import Source
from steno.engine.state.states import State, VmState
from steno.engine.state.vm import Vm
from steno.engine.state.world import World
from steno.events.clock import SECOND

LISTENER = "kernels-mi300x-0123456789ab"


def kept(*kernels: tuple[str, float, float | None], last: float = 3600) -> Vm:
    """The listener's machine: (kernel, when it started, when it ended)."""
    there = [replace(on(name, 0, until), started_at=at(since)) for name, since, until in kernels]
    vm = machine(listener_machine("listener"), (0, VmState.BUSY), last=last, prices=[(0, 0.0)], occupancies=there)
    vm.provider, vm.provider_id, vm.source = "kernels", "listener", "kernels/main"
    return vm


def hour(*kernels: tuple[str, float, float | None]) -> World:
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
    assert [costs.of_run(run_id) for run_id in ("listener", "a", "b")] == [100_000, 50_000, 7_000]
    lines = {line: sum(charge.cost for charge in costs.charges() if charge.line is line) for line in Line}
    assert {line: cost for line, cost in lines.items() if cost} == {
        Line.PROVISIONING: 100_000,
        Line.BUSY: 57_000,
        Line.IDLE: 3_443_000,
    }


def test_a_listeners_machine_and_its_task_are_one_machine_and_one_run() -> None:
    """Its time counts once, and its task is not a user's run."""
    costs = Costs(hour(("a", 200, 250)))
    assert {charge.vm_id for charge in costs.charges()} == {"vm"}
    assert sum(charge.time for charge in costs.charges()) == 3600 * SECOND
    counts = {measure.name: measure.count for measure in performance(costs)}
    assert (counts["cost per task"], counts["cost per task, idle included"]) == (1, 1)


def test_kernels_that_overlap_by_a_clock_follow_one_another() -> None:
    """A single kernel runs at a time."""
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
    expect_whole(bill)
    assert all(charge.run_id != "run-0" or charge.line is not Line.BUSY or not charge.time for charge in charges(bill))
