"""Machines made by hand, for tests of bills: a life told phase by phase, and random lives that obey the machine.

Times are seconds after `START`, prices dollars an hour.
"""

from collections.abc import Sequence

from hypothesis import strategies as st

from steno.engine.money.bill import Bill
from steno.engine.money.costs import charges
from steno.engine.state.changes import VmStep
from steno.engine.state.facts import VmFacts
from steno.engine.state.inventory import Inventory
from steno.engine.state.policy import Policy
from steno.engine.state.run import Run
from steno.engine.state.states import State, VmState
from steno.engine.state.vm import Occupancy, PriceStep, SilentSpan, Vm, VmDate
from steno.engine.state.world import PolicyStep, World
from steno.engine.wire import DOLLAR
from steno.events.clock import SECOND, parse_time

START = parse_time("2026-11-20T09:00:00Z")
SOURCE = "dstack:main"

EventWorld = tuple[float, VmState] | tuple[float, VmState, float]
"""(seconds, the state from then on[, the last poll that showed the one before])."""


def at(seconds: float) -> int:
    """A moment, `seconds` after `START`."""
    return START + round(seconds * SECOND)


def machine(
    vm_id: str = "vm",
    *phases: EventWorld,
    created: float = 0,
    ended: float | None = None,
    ended_low: float | None = None,
    last: float | None = None,
    prices: Sequence[tuple[float, float]] = ((0, 1.99),),
    occupancies: Sequence[Occupancy] = (),
    unreachable: Sequence[tuple[float, float | None]] = (),
    made_for: str | None = None,
    gpu: str | None = "MI300X",
    gpus: int = 1,
    spot: bool = False,
    blocks: int = 1,
    backend: str = "amddevcloud",
    ours: bool = True,
) -> Vm:
    """A machine that went through these states; `ended` is the provider's own end unless `ended_low` is given."""
    steps, before = [], VmState.REQUESTED
    for moment, after, *low in phases:
        steps.append(VmStep(position=1, at=at(moment), low_at=at(*(low or (moment,))), before=before, after=after))
        before = after
    newest = last if last is not None else max([created, *(moment for moment, *_ in phases)])
    return Vm(
        vm_id=vm_id,
        provider="dstack",
        provider_id=vm_id,
        source=SOURCE,
        state=before,
        facts=VmFacts(
            provider_id=vm_id,
            name="f-0",
            project="main",
            backend=backend,
            region="atl1",
            price=round(prices[-1][1] * DOLLAR),
            spot=spot,
            gpu=gpu,
            gpu_count=gpus if gpu else 0,
            total_blocks=blocks,
            instance_type="gpu-mi300x1",
        ),
        created=at(created),
        finished_at=None if ended is None else at(ended),
        finished_low=None if ended is None else at(ended if ended_low is None else ended_low),
        first_position=1,
        first_at=at(created),
        last_position=2,
        last_at=at(newest),
        prices=tuple(
            PriceStep(at=at(moment), low_at=at(max(created, moment - 5)), hourly=round(price * DOLLAR))
            for moment, price in prices
        ),
        steps=tuple(steps),
        unreachable=tuple(
            SilentSpan(since=at(since), until=None if until is None else at(until)) for since, until in unreachable
        ),
        runs=tuple(dict.fromkeys(occupancy.run_id for occupancy in occupancies)),
        occupancies=tuple(occupancies),
        made_for=made_for,
        ours=ours,
    )


def on(
    run_id: str, since: float, until: float | None = None, *, seen: float | None = None, blocks: int = 1
) -> Occupancy:
    """A submission of a run on the machine."""
    return Occupancy(
        run_id=run_id,
        job="0/0/0",
        since=at(since),
        seen_at=at(since if seen is None else seen),
        until=None if until is None else at(until),
        cold=False,
        blocks=blocks,
    )


def a_run(run_id: str, state: State = State.SUCCEEDED, **more: object) -> Run:
    """A run with nothing said of it but its state, and what is given."""
    run = Run(
        run_id=run_id, provider="dstack", state=state, first_position=1, first_at=START, last_position=1, last_at=START
    )
    for name, value in more.items():
        setattr(run, name, value)
    return run


def world(*vms: Vm, last: float, runs: Sequence[Run] = (), policies: Sequence[tuple[float, Policy]] = ()) -> World:
    """A world of these machines whose newest poll was `last`."""
    state = World(rules="current", last_at=at(last))
    there = [vm.vm_id for vm in vms if vm.state is not VmState.TERMINATED]
    state.vms = Inventory({vm.vm_id: vm for vm in vms}, there)
    state.runs = Inventory({run.run_id: run for run in runs}, [run.run_id for run in runs if not run.terminal])
    if policies:
        steps = (PolicyStep(position=1, at=at(moment), policy=policy) for moment, policy in policies)
        state.policies[SOURCE] = tuple(steps)
    return state


_WORDS = ("pending", "provisioning", "busy", "idle", "terminating", "terminated")


@st.composite
def dates(draw: st.DrawFn, moments: st.SearchStrategy[int]) -> VmDate:
    """Any status change that a provider can date."""
    before, after = draw(st.permutations(_WORDS))[:2]
    return VmDate(at=at(draw(moments)), before=before, after=after)


_ALIVE = (VmState.PROVISIONING, VmState.IDLE, VmState.BUSY, VmState.DRAINING, VmState.TERMINATING, VmState.UNCONFIRMED)
_MOMENTS = st.integers(min_value=-100, max_value=5_000)


def expect_whole(bill: Bill) -> None:
    """The laws of every bill: its intervals are its life without a gap, its lines sum to it to the micro-dollar, its
    bounds enclose it.
    """
    ends = [bill.until if interval.until is None else interval.until for interval in bill.intervals]
    assert [interval.since for interval in bill.intervals] == [bill.since, *ends[:-1]]
    assert ends[-1] == bill.until >= bill.since
    assert [interval.until is None for interval in bill.intervals] == [False] * (len(ends) - 1) + [bill.open]
    lines = list(charges(bill))
    assert sum(interval.cost for interval in bill.intervals) == bill.cost == sum(line.cost for line in lines)
    assert sum(line.time for line in lines) == bill.until - bill.since
    assert 0 <= bill.low <= bill.cost <= bill.high
    assert all(0 <= interval.low <= interval.cost <= interval.high for interval in bill.intervals)
    assert sum(interval.low for interval in bill.intervals) <= bill.low
    assert sum(interval.high for interval in bill.intervals) >= bill.high


@st.composite
def machines(draw: st.DrawFn, vm_id: str = "vm") -> Vm:
    """Any machine, its clocks jumping: edges may lie before its creation, behind its end, or out of order."""
    states = draw(st.lists(st.sampled_from(_ALIVE), min_size=1, max_size=8))
    phases: list[EventWorld] = []
    for state in states:
        moment = draw(_MOMENTS)
        phases.append((moment, state, moment - draw(st.integers(0, 90))))
    over = draw(st.booleans())
    end = draw(_MOMENTS) if over else None
    if over:
        moment = draw(_MOMENTS)
        phases.append((moment, VmState.TERMINATED, moment - draw(st.integers(0, 90))))
    occupancies = []
    for number in range(draw(st.integers(0, 4))):
        since = draw(_MOMENTS)
        until = draw(st.none() | st.integers(min_value=since - 20, max_value=6_000))
        seen = since + draw(st.integers(0, 100))
        occupancies.append(on(f"run-{number % 3}", since, until, seen=seen, blocks=draw(st.integers(1, 4))))
    changes = st.tuples(st.integers(1, 4_000), st.sampled_from((0.0, 0.5, 1.99, 3.98)))
    prices = [(0, 1.99), *sorted(draw(st.lists(changes, max_size=3)))]
    vm = machine(
        vm_id,
        *phases,
        ended=end,
        ended_low=None if end is None else end - draw(st.integers(0, 60)),
        last=draw(_MOMENTS),
        prices=prices,
        occupancies=occupancies,
        unreachable=[
            (since, draw(st.none() | st.integers(since, 6_000)))
            for since in sorted(draw(st.lists(_MOMENTS, max_size=2)))
        ],
        made_for=draw(st.sampled_from((None, "run-0"))),
        gpus=draw(st.sampled_from((1, 2))),
        spot=draw(st.booleans()),
        blocks=draw(st.sampled_from((1, 1, 4, 8))),
    )
    vm.dates = tuple(sorted(draw(st.lists(dates(_MOMENTS), max_size=6)), key=lambda date: date.at))
    vm.first_at = at(draw(_MOMENTS))
    vm.unseen_end, vm.confirmed = draw(st.sampled_from(((False, False), (True, False), (False, True))))
    return vm


@st.composite
def machines_ahead(draw: st.DrawFn) -> tuple[Vm, int]:
    """A machine that a poll shows, and the second of that poll: the provider's clock is ahead, so the newest run on it
    ends after the poll. It may have stopped answering by then.
    """
    seen = draw(st.integers(1, 60))
    since = draw(st.integers(0, seen - 1))
    state = draw(st.sampled_from((VmState.IDLE, VmState.BUSY)))
    earlier = [on("run-0", 0, since)] if draw(st.booleans()) else []
    silent = draw(st.none() | st.integers(since, seen))
    vm = machine(
        "vm",
        (0, state),
        last=seen,
        occupancies=[*earlier, on("run-1", since, seen + draw(st.integers(1, 60)))],
        unreachable=[] if silent is None else [(silent, None)],
    )
    return vm, seen
