"""Busy time and its money by what GPUs did: the parts sum to the bill, exactly."""

from hypothesis import given
from hypothesis import strategies as st
from stenotest.bills import a_run, at, machine, machines, on, world

from steno.engine.money.bill import Line
from steno.engine.money.costs import Charge, Costs, charges
from steno.engine.money.use_split import UseSplit, UseSplitter, split_of_run
from steno.engine.state.gpu_use import GpuUse, used
from steno.engine.state.inventory import Inventory
from steno.engine.state.samples import Sample
from steno.engine.state.states import VmState
from steno.engine.state.vm import Vm
from steno.engine.state.world import World
from steno.events.clock import SECOND

SAMPLED = st.lists(st.tuples(st.integers(1, 90), st.sampled_from([None, 0, 0, 0, 80])), max_size=40)


def use_of(samples: list[tuple[int, int | None]], first: float = 0) -> GpuUse | None:
    """Samples of one GPU: (seconds since the one before, its use)."""
    moment, taken = at(first), list[Sample]()
    for gap, use in samples:
        moment += gap * SECOND
        taken.append(Sample(at=moment, device="0", use=use, memory=1))
    return used(None, taken, moment)


def costs_of(vms: list[Vm], uses: dict[str, GpuUse | None], last: float) -> Costs:
    state: World = world(*vms, last=last)
    runs = {run_id: a_run(run_id, use=uses.get(run_id)) for vm in vms for run_id in (*vm.runs, vm.made_for) if run_id}
    state.runs = Inventory(runs)
    return Costs(state)


@given(
    st.lists(machines(), min_size=1, max_size=3),
    st.lists(SAMPLED, min_size=4, max_size=4),
    st.integers(0, 1_000),
    st.integers(0, 6_000),
)
def test_the_parts_sum_to_the_busy_time_and_its_money(
    vms: list[Vm], samples: list[list[tuple[int, int | None]]], first: int, last: int
) -> None:
    """Law: of each charge, each run and each machine; a run without samples is unknown."""
    for number, vm in enumerate(vms):
        vm.vm_id = f"vm-{number}"
    uses = {f"run-{number}": use_of(taken, first) for number, taken in enumerate(samples)}
    costs = costs_of(vms, uses, last)
    splitter, by_run = UseSplitter(costs.state), dict[str, list[Charge]]()
    for vm in vms:
        busy = [charge for charge in charges(costs.bill(vm.vm_id)) if charge.line is Line.BUSY]
        total = splitter.total(busy)
        assert (total is None) == all(uses.get(charge.run_id or "") is None for charge in busy)
        expect_sums(total, busy)
        for charge in busy:
            by_run.setdefault(charge.run_id or "", []).append(charge)
    for run_id, paid in by_run.items():
        use = UseSplitter(costs.state).total(paid)
        expect_sums(use, paid)
        if run_id in costs.state.runs:
            costs.state.runs[run_id].links = {vm.vm_id: vm.vm_id for vm in vms}
            assert split_of_run(costs, run_id) == use


def expect_sums(use: UseSplit | None, busy: list[Charge]) -> None:
    if use is not None:
        assert min(use) >= 0
        assert sum(use[:3]) == sum(charge.time for charge in busy)
        assert sum(use[3:]) == sum(charge.cost for charge in busy)


def test_a_run_that_idled_half_its_time_at_a_dollar_an_hour() -> None:
    """Worked out by hand: 10 minutes work, 20 idle, 10 unknown, 20 before the first sample."""
    vm = machine(
        "vm", (0, VmState.BUSY), (3_600, VmState.TERMINATED), ended=3_600, prices=((0, 1.0),),
        occupancies=[on("a", 0, 3_600), on("b", 0, 3_600)], blocks=2,
    )  # fmt: skip
    use = use_of([(60, 90)] + [(60, 90)] * 10 + [(60, 0)] * 20, first=1_140)
    costs = costs_of([vm], {"a": use}, 3_600)
    (bill,) = costs.bills().values()
    splits = {charge.run_id: UseSplitter(costs.state).total([charge]) for charge in charges(bill)}
    minute, dollars = 30 * SECOND, 500_000 // 6
    assert splits == {
        "a": UseSplit(10 * minute, 20 * minute, 30 * minute, dollars, 2 * dollars + 1, 250_000),
        "b": None,
    }
    both = UseSplitter(costs.state).total(charges(bill))
    assert both is not None
    assert (both.unknown_time, both.unknown_cost) == (90 * minute, 750_000)


def test_days_sum_to_the_run() -> None:
    """To the micro-dollar, though each day is rounded."""
    vm = machine("vm", (0, VmState.BUSY), last=200_000, occupancies=[on("a", 0)])
    costs = costs_of([vm], {"a": use_of([(60, 90), (59, 0)] * 1_000, first=53_000)}, 200_000)
    (charge,) = charges(costs.bill("vm"))
    parts = UseSplitter(costs.state).parts(charge)
    assert len(parts) == 3
    days = [use for _, use in parts if use is not None]
    total = UseSplit()
    for day in days:
        total = total.plus(day)
    costs.state.runs["a"].links = {"0/0/0": "vm"}
    assert total == split_of_run(costs, "a")
