"""Bills of machines: laws of any machine, and cases worked out by hand."""

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from stenotest.bills import SOURCE, at, expect_whole, machine, machines, machines_ahead, on, world

from steno.engine.money.bill import Bill, Line, bill_vm, life_cost, split
from steno.engine.money.costs import Costs, charges
from steno.engine.money.prices import Book
from steno.engine.state.policy import Billing, Policy, Rate
from steno.engine.state.states import VmState
from steno.engine.state.vm import Phase, Vm
from steno.engine.state.world import PolicyStep
from steno.events.clock import SECOND

REQUESTED_RATE = Rate(gpu="mi300x", hourly=2_500_000)
BILLINGS = st.sampled_from(
    (
        Billing(backend="amddevcloud"),
        Billing(backend="amddevcloud", minimum=60 * SECOND, granularity=60 * SECOND),
        Billing(backend="AMDDEVCLOUD", minimum=3600 * SECOND),
    )
)


@st.composite
def books(draw: st.DrawFn) -> Book:
    """No policy, or up to two, with and without an override and a rounding."""
    steps = tuple(
        PolicyStep(
            position=number,
            at=at(moment),
            policy=Policy(
                rates=draw(st.sampled_from(((), (REQUESTED_RATE,)))),
                billing=(draw(BILLINGS),),
            ),
        )
        for number, moment in enumerate(sorted(draw(st.lists(st.integers(-100, 4_000), max_size=2))))
    )
    return Book(policies={SOURCE: steps})


def cost_of(seconds: float, hourly: float = 1.99) -> int:
    return round(seconds * hourly / 3600 * 1_000_000)


def phases(bill: Bill) -> list[tuple[str, float]]:
    """(phase, seconds) of each interval."""
    return [
        (interval.phase.value, ((interval.until or bill.until) - interval.since) / SECOND)
        for interval in bill.intervals
    ]


def success() -> Vm:
    """The recorded run `ok-run` on 0.22.5, from its polls."""
    return machine(
        "vm",
        (0.85, VmState.PROVISIONING),
        (21.839, VmState.BUSY, 20.8),
        (62.838, VmState.IDLE, 61.8),
        (87.947, VmState.TERMINATING, 86.9),
        (96.864, VmState.TERMINATED, 95.8),
        ended=96.844564,
        occupancies=[on("ok-run", -0.145737, 62.644096, seen=15.8)],
        made_for="ok-run",
    )


def relabelled() -> Vm:
    """It stopped answering while a run was on it whose end lies ahead of the newest poll."""
    runs = [on("run-0", 0), on("run-1", 0, 3659, seen=7), on("run-2", 5), on("run-0", 0, seen=3)]
    return machine("vm", (0, VmState.IDLE), last=8, unreachable=[(8, None)], occupancies=runs)


# -- laws


@given(machines(), books(), st.integers(0, 6_000))
def test_the_bill_of_any_machine_is_whole(vm: Vm, book: Book, until: int) -> None:
    """Whatever its clocks did, and however many runs share it; nobody pays less than nothing."""
    bill = bill_vm(vm, until=at(until), book=book)
    expect_whole(bill)
    assert bill.since == vm.created
    assert life_cost(vm, until=at(until), book=book) == bill.cost
    lines = list(charges(bill))
    assert all(line.cost >= 0 and 0 <= line.time <= line.until - line.since for line in lines)
    assert all(sum(cost for _, _, cost in interval.parts) <= interval.cost for interval in bill.intervals)
    assert all(interval.until is None or interval.since < interval.until for interval in bill.intervals[1:])


@given(machines(), st.integers(0, 6_000), st.integers(0, 3_000))
@example(relabelled(), 694, 3_000)
def test_a_poll_that_repeats_moves_nothing_but_the_open_end(vm: Vm, until: int, more: int) -> None:
    """Every interval before the last one stays to the micro-dollar, and the last keeps its phase and its beginning; an
    ended machine's bill does not move at all.
    """
    before = bill_vm(vm, until=at(until), book=Book())
    vm.last_at = max(vm.last_at, at(until + more))
    after = bill_vm(vm, until=at(until + more), book=Book())
    if not before.open:
        assert after.intervals == before.intervals
        return
    *closed, last = before.intervals
    assert [
        (interval.phase, interval.since, interval.until, interval.cost) for interval in after.intervals[: len(closed)]
    ] == [(interval.phase, interval.since, interval.until, interval.cost) for interval in closed]
    going_on = after.intervals[len(closed)]
    assert before.until == last.since or (going_on.phase, going_on.since) == (last.phase, last.since)
    assert after.cost >= before.cost


@given(machines_ahead(), st.integers(0, 100))
def test_nor_does_it_where_a_run_ends_ahead_of_the_newest_poll(seen: tuple[Vm, int], more: int) -> None:
    """The same law, of lives that are rare among any machines."""
    test_a_poll_that_repeats_moves_nothing_but_the_open_end.hypothesis.inner_test(*seen, more)


@given(st.lists(machines(), min_size=1, max_size=4), st.integers(0, 6_000))
def test_what_runs_pay_and_what_nobody_pays_is_what_machines_cost(vms: list[Vm], last: int) -> None:
    """The law behind every report."""
    for number, vm in enumerate(vms):
        vm.vm_id = f"vm-{number}"
    state = world(*vms, last=last)
    billed = Costs(state).bills()
    own = sum(line.cost for bill in billed.values() for line in charges(bill) if line.run_id is None)
    assert sum(Costs(state).of_runs().values()) + own == sum(bill.cost for bill in billed.values())


@given(st.integers(0, 10**9), st.lists(st.integers(0, 50), min_size=1, max_size=6).filter(any))
def test_a_split_is_exact_and_fair_to_a_micro_dollar(amount: int, weights: list[int]) -> None:
    """Largest remainder."""
    parts = split(amount, weights)
    assert sum(parts) == amount
    assert all(abs(part - amount * weight / sum(weights)) < 1 for part, weight in zip(parts, weights, strict=True))


# -- cases


def test_a_cold_run_is_charged_provisioning_and_busy_and_the_rest_is_nobodys() -> None:
    """96.844564 s at $1.99: $0.0535, as the cloud charged. The low bound ends where dstack began to end it."""
    bill = bill_vm(success(), until=at(1000), book=Book())
    assert (bill.low, bill.cost, bill.high) == (cost_of(86.9), 53_534, 53_534)
    assert phases(bill) == [
        ("provisioning", 21.839),
        ("busy", 40.805096),
        ("idle", 25.302904),
        ("terminating", 8.897564),
    ]
    lines = {(line.line, line.run_id): line.cost for line in charges(bill)}
    assert lines == {
        (Line.PROVISIONING, "ok-run"): 12_072,
        (Line.BUSY, "ok-run"): 22_556,
        (Line.IDLE, None): 13_987,
        (Line.TERMINATING, None): 4_919,
    }


def test_two_runs_in_a_row_without_an_idle_poll_between_are_told_apart() -> None:
    """The second waited in its submission until the first had left; the seam is the first's end."""
    vm = machine(
        "vm",
        (0, VmState.PROVISIONING),
        (60, VmState.BUSY),
        (260, VmState.IDLE),
        last=300,
        occupancies=[on("first", 0, 150, seen=60), on("second", 100, 250, seen=152)],
        made_for="first",
    )
    state = world(vm, last=300)
    billed = Costs(state).bills()
    assert Costs(state).of_runs() == {"first": cost_of(150), "second": cost_of(260) - cost_of(150)}
    assert [interval.parts[0][0] for interval in billed["vm"].intervals] == ["first", "first", "second", None]


def test_a_shared_machine_splits_its_price_by_blocks() -> None:
    """Eight blocks, one run on two and one on four: two stay unused and are nobody's."""
    vm = machine(
        "vm",
        (0, VmState.BUSY),
        last=3600,
        prices=[(0, 8.0)],
        blocks=8,
        occupancies=[on("two", 0, None, blocks=2), on("four", 0, 1800, blocks=4)],
    )
    state = world(vm, last=3600)
    billed = Costs(state).bills()
    assert Costs(state).of_runs() == {"two": 2_000_000, "four": 2_000_000}
    unused = [line for line in charges(billed["vm"]) if line.run_id is None]
    assert {line.line for line in unused} == {Line.UNATTRIBUTED}
    assert sum(line.cost for line in unused) == 4_000_000
    assert sum(line.time for line in unused) == 1800 * SECOND


def test_a_run_whose_end_lies_ahead_of_the_newest_poll_is_there_until_that_poll() -> None:
    """The provider's clock is 1.5 s ahead: the poll at 8 s shows the machine idle, and its run over at 9.5 s."""
    vm = machine("vm", (0, VmState.IDLE), last=8, occupancies=[on("r", 3, 9.5, seen=7)])
    assert phases(bill_vm(vm, until=at(8), book=Book())) == [("idle", 3.0), ("busy", 5.0)]
    assert phases(bill_vm(vm, until=at(13), book=Book())) == [("idle", 3.0), ("busy", 6.5), ("idle", 3.5)]


def test_a_run_pays_up_to_its_end_or_to_the_last_poll_that_shows_the_machine_busy() -> None:
    """The run ended at 100 s, the last poll that shows it busy was at 120 s, the next came an hour later."""
    vm = machine("vm", (0, VmState.BUSY), (3720, VmState.IDLE, 120), last=3720, occupancies=[on("r", 0, 100)])
    bill = bill_vm(vm, until=at(3720), book=Book())
    assert [(interval.phase.value, interval.parts[0][0]) for interval in bill.intervals] == [
        ("busy", "r"),
        ("idle", None),
    ]
    assert bill.intervals[0].cost == cost_of(120)


def test_a_machine_seen_only_when_it_was_over_is_billed_by_its_runs() -> None:
    """No poll showed a phase: its runs' own times are busy, the rest is idle."""
    vm = machine("vm", (500, VmState.TERMINATED), ended=400, occupancies=[on("r", -5, 100)])
    bill = bill_vm(vm, until=at(500), book=Book())
    assert phases(bill) == [("busy", 100.0), ("idle", 300.0)]
    assert bill.low == bill.cost == cost_of(400)


def test_a_price_that_changes_under_way_counts_from_the_first_poll_that_shows_it() -> None:
    """An hour at $1, then an hour at $3; the five seconds between the two polls are in doubt."""
    vm = machine("vm", (0, VmState.IDLE), last=7200, prices=[(0, 1.0), (3600, 3.0)])
    bill = bill_vm(vm, until=at(7200), book=Book())
    assert [(interval.hourly, interval.cost) for interval in bill.intervals] == [
        (1_000_000, 1_000_000),
        (3_000_000, 3_000_000),
    ]
    assert (bill.low, bill.high) == (4_000_000, 4_000_000 + cost_of(5, 2.0))


def test_a_new_price_is_told_from_the_poll_that_shows_it() -> None:
    """Not first from the next poll: a subscriber of the stream gets this poll, and not that."""
    vm = machine("vm", (0, VmState.IDLE), last=3600, prices=[(0, 1.0), (3600, 3.0)])
    bill = bill_vm(vm, until=at(3600), book=Book())
    assert [interval.hourly for interval in bill.intervals] == [1_000_000]
    assert bill.hourly == 3_000_000


@pytest.mark.parametrize(
    ("vm", "hourly"),
    [
        (machine("vm", (0, VmState.IDLE), gpu="MI300X", gpus=1), 2_500_000),
        (machine("vm", (0, VmState.IDLE), gpu="MI300X", gpus=2), 5_000_000),
        (machine("vm", (0, VmState.IDLE), gpu="MI300X", gpus=1, spot=True), 1_990_000),
        (machine("vm", (0, VmState.IDLE), gpu="MI210", gpus=1), 1_990_000),
        (machine("vm", (0, VmState.IDLE), gpu=None), 1_990_000),
    ],
)
def test_an_override_is_of_one_gpu_of_its_model_on_demand(vm: Vm, hourly: int) -> None:
    """MI300X:2 costs twice the rate; spot machines, an MI210 and machines without a GPU keep the recorded price."""
    book = Book.of(world(vm, last=3600, policies=[(0, Policy(rates=(REQUESTED_RATE,)))]))
    assert bill_vm(vm, until=at(3600), book=book).cost == hourly


def test_an_override_does_not_rewrite_what_was_before_its_adoption() -> None:
    """An hour at the recorded price, an hour at the rate; taking it back counts from then on too."""
    vm = machine("vm", (0, VmState.IDLE), last=3 * 3600)
    policies = [(3600, Policy(rates=(REQUESTED_RATE,))), (7200, Policy())]
    bill = bill_vm(vm, until=at(3 * 3600), book=Book.of(world(vm, last=0, policies=policies)))
    assert [interval.cost for interval in bill.intervals] == [1_990_000, 2_500_000, 1_990_000]


def test_the_minimum_and_the_granularity_of_a_backend_are_a_line_of_their_own() -> None:
    """90 s charged as 120 s: the life stays 90 s, the last interval carries the rest."""
    vm = machine("vm", (0, VmState.IDLE), (60, VmState.TERMINATING), (90, VmState.TERMINATED), ended=90)
    policy = Policy(billing=(Billing(backend="amddevcloud", minimum=60 * SECOND, granularity=60 * SECOND),))
    bill = bill_vm(vm, until=at(90), book=Book.of(world(vm, last=90, policies=[(0, policy)])))
    assert bill.charged == 120 * SECOND
    assert bill.cost == cost_of(120)
    assert phases(bill) == [("idle", 60.0), ("terminating", 30.0)]
    assert [(line.line, line.cost) for line in charges(bill)][-1] == (Line.ROUNDING, bill.rounding)
    other = machine("vm", (0, VmState.IDLE), (90, VmState.TERMINATED), ended=90, backend="hotaisle")
    assert bill_vm(other, until=at(90), book=Book.of(world(other, last=90, policies=[(0, policy)]))).rounding == 0


def test_an_open_machine_is_costed_to_the_last_poll_and_its_low_bound_to_its_last_sight() -> None:
    """Seen at 100 s, another source polled until 400 s."""
    vm = machine("vm", (0, VmState.IDLE), last=100)
    bill = bill_vm(vm, until=at(400), book=Book())
    assert bill.open
    assert bill.intervals[-1].until is None
    assert (bill.low, bill.cost, bill.high) == (cost_of(100), cost_of(400), cost_of(400))


def test_an_unconfirmed_machine_is_billed_on_and_its_low_bound_stops() -> None:
    """It was told to go at 100 s: the cloud can have ended it at any moment since. Never told: its last sight."""
    moves = ((0, VmState.IDLE), (100, VmState.TERMINATING), (940, VmState.UNCONFIRMED))
    listed = bill_vm(machine("vm", *moves, last=2000), until=at(2000), book=Book())
    gone = bill_vm(machine("vm", *moves, last=500), until=at(2000), book=Book())
    assert listed.cost == gone.cost == cost_of(2000)
    assert (listed.low, gone.low) == (cost_of(100), cost_of(100))
    missing = machine("vm", (0, VmState.IDLE), (1100, VmState.UNCONFIRMED, 500), last=500)
    assert bill_vm(missing, until=at(2000), book=Book()).low == cost_of(500)
    assert listed.intervals[-1].phase is Phase.UNCONFIRMED


def test_an_end_the_provider_takes_back_leaves_no_hole() -> None:
    """Terminated, then there again: the time between is unconfirmed, and billed."""
    moves = ((0, VmState.IDLE), (100, VmState.TERMINATED), (160, VmState.UNCONFIRMED), (200, VmState.IDLE))
    bill = bill_vm(machine("vm", *moves, last=300), until=at(300), book=Book())
    assert phases(bill) == [("idle", 100.0), ("unconfirmed", 60.0), ("unconfirmed", 40.0), ("idle", 100.0)]
    assert bill.cost == cost_of(300)


@pytest.mark.parametrize(
    ("until", "low"),
    [(None, 700), (1050, 1300), (1300, 700)],
    ids=["never answered again", "answered again", "told to go before it answered"],
)
def test_the_low_bound_stops_before_a_machine_was_seen_silent_unless_it_answered_again(
    until: float | None, low: float
) -> None:
    """Seen silent at 1000 s, terminating from 1300 s, gone at 1400 s: its provider may have noticed 5 minutes late. The
    high bound runs on in any case.
    """
    moves = ((0, VmState.BUSY), (1300, VmState.TERMINATING), (1400, VmState.TERMINATED))
    bill = bill_vm(machine("vm", *moves, ended=1400, unreachable=[(1000, until)]), until=at(1400), book=Book())
    assert abs(bill.low - cost_of(low)) <= 1
    assert abs(bill.high - cost_of(1400)) <= 1


def test_the_low_bound_of_a_silent_machine_keeps_its_last_certain_answer() -> None:
    """Seen silent at 100 s; a job on it went on at 80 s."""
    run = msgspec.structs.replace(on("r", 0, 300), answered_at=at(80))
    vm = machine("vm", (0, VmState.BUSY), (400, VmState.IDLE), occupancies=[run], unreachable=[(100, None)])
    assert bill_vm(vm, until=at(400), book=Book()).low == cost_of(80)


def test_a_run_that_ended_with_its_machine_proves_nothing_after_its_last_answer() -> None:
    """No poll showed the flag: dstack gave the run up at 300 s because nothing answered."""
    run = msgspec.structs.replace(on("r", 0, 300), answered_at=at(80), cut_off=True)
    vm = machine("vm", (0, VmState.BUSY), (301, VmState.IDLE, 290), occupancies=[run])
    assert bill_vm(vm, until=at(400), book=Book()).low == cost_of(80)


def test_an_end_somebody_saw_in_the_console_is_certain() -> None:
    """Silent since 100 s, unconfirmed, and then confirmed to have ended at 300 s."""
    vm = machine(
        "vm",
        (0, VmState.IDLE),
        (200, VmState.UNCONFIRMED),
        (900, VmState.TERMINATED),
        ended=300,
        unreachable=[(100, None)],
    )
    vm.confirmed = True
    bill = bill_vm(vm, until=at(900), book=Book())
    assert bill.low == bill.cost == bill.high == cost_of(300)


def test_an_end_nobody_saw_was_at_the_latest_where_a_poll_first_shows_it_over() -> None:
    """0.19.37, seen when it was over: billed to the end of its last run, at most to the poll."""
    vm = machine("vm", (500, VmState.TERMINATED), ended=100, occupancies=[on("r", 0, 100)])
    vm.unseen_end, vm.first_at = True, at(500)
    bill = bill_vm(vm, until=at(900), book=Book())
    assert (bill.low, bill.cost, bill.high) == (0, cost_of(100), cost_of(500))
    assert bill.intervals[-1].high >= bill.high


def test_an_end_the_provider_does_not_date_lies_between_two_polls() -> None:
    """0.19.37: the first `terminated` poll is the end, the poll before the low bound."""
    vm = machine("vm", (0, VmState.IDLE), (100, VmState.TERMINATED, 90), ended=100, ended_low=90)
    bill = bill_vm(vm, until=at(500), book=Book())
    assert (bill.low, bill.cost) == (cost_of(90), cost_of(100))


def test_a_clock_that_jumps_back_makes_no_negative_span() -> None:
    """Ended before it was created: a life of nothing, which costs nothing."""
    vm = machine("vm", (50, VmState.IDLE), (40, VmState.TERMINATED), created=100, ended=30)
    bill = bill_vm(vm, until=at(500), book=Book())
    assert (bill.cost, bill.low, bill.charged, len(bill.intervals)) == (0, 0, 0, 1)


def test_a_machine_no_poll_has_shown_has_no_bill() -> None:
    """Asked for, and nothing more."""
    bill = bill_vm(machine("vm"), until=at(500), book=Book())
    assert (bill.intervals, bill.cost, bill.high) == ((), 0, 0)
