"""A bill continued from its settled part equals the whole bill, to the micro-dollar, at every moment."""

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from stenotest.bills import SOURCE, at, dates, machine, machines, on
from stenotest.dstack_history import DstackHistory, Item, job, run_item, submission
from stenotest.machines import HOST, machine_item

from steno.engine.fold.fold import Fold
from steno.engine.money.bill import BillCache, bill_vm
from steno.engine.money.prices import Book
from steno.engine.providers.registry import READINGS
from steno.engine.replay.replay import fold_polls
from steno.engine.state.policy import Billing, Policy
from steno.engine.state.states import VmState as S
from steno.engine.state.vm import Vm
from steno.engine.state.world import PolicyStep
from steno.events.clock import SECOND

BILLINGS = (
    Billing(backend="amddevcloud"),
    Billing(backend="amddevcloud", minimum=600 * SECOND, granularity=60 * SECOND),
    Billing(backend="amddevcloud", granularity=3600 * SECOND),
)


def book_of(*billings: Billing) -> Book:
    steps = tuple(PolicyStep(position=1, at=0, policy=Policy(billing=(billing,))) for billing in billings)
    return Book(policies=dict.fromkeys((SOURCE, "dstack/main"), steps))


@st.composite
def lives(draw: st.DrawFn) -> list[tuple[Vm, int]]:
    """A machine as it is known at one moment after the other: phases, runs and prices come, runs end, clocks jump."""
    moment, vm = 0, machine("vm", (0, S.PROVISIONING))
    blocks = draw(st.sampled_from((1, 1, 1, 4)))
    vm.facts = msgspec.structs.replace(vm.facts, total_blocks=blocks)
    moments: list[tuple[Vm, int]] = []
    number = 0
    for what in draw(st.lists(st.sampled_from(_WHAT), min_size=1, max_size=60)):
        moment += draw(st.sampled_from((0, 1, 5, 5, 30, 90)))
        vm = _copy(vm)
        vm.last_at = at(moment - draw(st.sampled_from((0, 0, 0, 7))))
        match what:
            case "phase":
                after = draw(st.sampled_from((S.BUSY, S.IDLE, S.BUSY, S.IDLE, S.TERMINATING, S.UNCONFIRMED)))
                step = machine("vm", (moment, after, moment - draw(st.integers(0, 90)))).steps[0]
                vm.steps = (*vm.steps, msgspec.structs.replace(step, before=vm.state))
                vm.state = after
            case "run":
                number += 1
                since = moment - draw(st.sampled_from((0, 1, 20, 200)))
                until = draw(st.none() | st.just(moment + 3))
                vm.occupancies = (*vm.occupancies, on(f"run-{number % 7}", since, until, seen=moment, blocks=1))
            case "left" if vm.occupancies:
                place = draw(st.integers(max(0, len(vm.occupancies) - 3), len(vm.occupancies) - 1))
                left = msgspec.structs.replace(vm.occupancies[place], until=at(moment - draw(st.integers(0, 40))))
                vm.occupancies = (*vm.occupancies[:place], left, *vm.occupancies[place + 1 :])
            case "renamed":
                vm.occupancies = tuple(
                    msgspec.structs.replace(stay, run_id="other") if stay.run_id == "run-1" else stay
                    for stay in vm.occupancies
                )
            case "dated":
                late = moment - draw(st.sampled_from((0, 0, 1, 5, 30, 400)))
                date = draw(dates(st.just(late)))
                vm.dates = tuple(sorted((*vm.dates, date), key=lambda dated: dated.at))
            case "free" if vm.occupancies:
                last = msgspec.structs.replace(vm.occupancies[-1], free_at=at(moment - draw(st.integers(0, 40))))
                vm.occupancies = (*vm.occupancies[:-1], last)
            case "lost" if vm.occupancies:
                last = msgspec.structs.replace(vm.occupancies[-1], until=at(moment), forgotten=draw(st.booleans()))
                vm.occupancies = (*vm.occupancies[:-1], msgspec.structs.replace(last, cut_off=not last.forgotten))
            case "dearer":
                vm.prices = machine("vm", prices=[(0, 1.99), (moment, 0.5 + moment % 3)]).prices
            case "silent":
                vm.unreachable = machine("vm", unreachable=[(moment - draw(st.integers(0, 90)), None)]).unreachable
            case "heard":
                vm.unreachable = ()
            case "gone":
                vm.state, vm.finished_at = S.TERMINATED, at(moment - draw(st.integers(0, 60)))
                step = machine("vm", (moment, S.TERMINATED)).steps[0]
                vm.steps, vm.finished_low = (*vm.steps, step), vm.finished_at
            case _:
                pass
        moments.append((vm, at(moment)))
    return moments


_WHAT = (
    *(["phase"] * 8),
    *(["run"] * 4),
    *(["left"] * 4),
    *(["dated"] * 4),
    "free",
    "lost",
    "wait",
    "renamed",
    "dearer",
    "silent",
    "heard",
    "gone",
)


def _copy(vm: Vm) -> Vm:
    return msgspec.structs.replace(vm)


@given(life=lives(), billing=st.sampled_from(BILLINGS), kept=st.integers(1, 3), data=st.data())
def test_a_bill_that_goes_on_is_the_bill_computed_again(
    life: list[tuple[Vm, int]], billing: Billing, kept: int, data: st.DataObject
) -> None:
    """Law: at every moment in turn, and at moments of the past in between."""
    book, memory = book_of(billing), BillCache(kept)
    for number, (vm, until) in enumerate(life):
        assert bill_vm(vm, until=until, book=book, cache=memory) == bill_vm(
            vm, until=until, book=book, cache=BillCache()
        )
        if data.draw(st.integers(0, 9)) == 0:
            then, moment = life[data.draw(st.integers(0, number))]
            assert bill_vm(then, until=moment, book=book, cache=memory) == bill_vm(
                then, until=moment, book=book, cache=BillCache()
            )


@given(fleet=st.lists(machines(), min_size=1, max_size=4), kept=st.integers(1, 3))
def test_a_bill_remembers_no_other_machine_of_the_same_name(fleet: list[Vm], kept: int) -> None:
    """Law: what is kept is compared with the machine, whatever the machine is."""
    book, memory = Book(), BillCache(kept)
    for vm in (*fleet, *fleet):
        for until in (at(1000), at(6000), at(100)):
            assert bill_vm(vm, until=until, book=book, cache=memory) == bill_vm(
                vm, until=until, book=book, cache=BillCache()
            )


def task(number: int, status: str, submitted: float, finished: float | None = None) -> Item:
    attempt = submission(status, submitted=submitted, finished=finished, hostname=HOST, price=1.99)
    return run_item(f"run-{number}", "done" if status == "done" else "running", job(attempt), submitted=submitted)


@settings(max_examples=25)
@given(rests=st.lists(st.sampled_from((0, 5, 30, 90)), min_size=5, max_size=30), queued=st.booleans())
def test_a_machine_that_takes_run_after_run_is_billed_alike_at_every_poll(rests: list[int], queued: bool) -> None:
    """Polls through the fold: one run behind the other, asked for at once or in turn."""
    story, world, memory, book = DstackHistory(), Fold(READINGS), BillCache(1), book_of(*BILLINGS)
    story.machines(machine_item(status="idle")).wait(5)
    for number, rest in enumerate(rests):
        submitted = 0 if queued else story.now - 1
        story.listed(task(number, "running", submitted)).machines(machine_item(status="busy")).wait(5)
        story.listed(task(number, "done", submitted, story.now - 2)).wait(1)
        if rest:
            story.machines(machine_item(status="idle")).wait(rest)
    for _ in fold_polls(world, story.polls()):
        for vm in world.state.vms.all():
            until = world.state.last_at or 0
            assert bill_vm(vm, until=until, book=book, cache=memory) == bill_vm(
                vm, until=until, book=book, cache=BillCache()
            )


def test_only_the_last_phases_of_a_long_life_are_reckoned_with_each_poll() -> None:
    """Settled intervals are the same objects again."""
    moves = [(0.0, S.IDLE)]
    for number in range(300):
        moves += [(10.0 + number * 60, S.BUSY), (40.0 + number * 60, S.IDLE)]
    runs = [on(f"run-{number}", 9 + number * 60, 39 + number * 60, seen=10 + number * 60) for number in range(300)]
    vm, memory = machine("vm", *moves, last=18_100, occupancies=runs), BillCache()
    first = bill_vm(vm, until=at(18_100), book=Book(), cache=memory)
    again = bill_vm(vm, until=at(18_200), book=Book(), cache=memory)
    same = [before is other for before, other in zip(first.intervals, again.intervals, strict=True)]
    assert len(same) == 601
    assert sum(same) >= 500
    assert again == bill_vm(vm, until=at(18_200), book=Book(), cache=BillCache())
