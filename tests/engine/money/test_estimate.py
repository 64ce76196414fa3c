"""The estimate: by formula, by trying every number of runs, and by the same bills that real machines get."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stenotest.bills import at, machine, on

from steno.engine.money.bill import bill_vm
from steno.engine.money.estimate import PATTERNS, Workload, cost_of, estimate, machine_time, series_time
from steno.engine.money.prices import Book
from steno.engine.state.policy import MINUTE
from steno.engine.state.states import VmState
from steno.engine.wire import DOLLAR
from steno.events.clock import SECOND

EXAMPLE = Workload(hourly=1_990_000, idle_timeout=5 * MINUTE, run=30 * SECOND)
TIMES = st.integers(0, 20 * MINUTE)
WORKLOADS = st.builds(
    Workload,
    hourly=st.integers(0, 50 * DOLLAR),
    idle_timeout=TIMES | st.none(),
    runs_per_day=st.integers(1, 5_000),
    run=TIMES,
    provisioning=TIMES,
)


def test_three_runs_cost_the_same_on_the_bill_of_a_machine() -> None:
    """Three runs of 30 s on one machine with five minutes of idling: $0.281917; each on its own: $0.248750."""
    runs = [(120, 150), (150, 180), (180, 210)]
    vm = machine(
        "vm",
        (0, VmState.PROVISIONING),
        (120, VmState.BUSY),
        (210, VmState.IDLE),
        (510, VmState.TERMINATED),
        ended=510,
        occupancies=[on(f"r{number}", *times) for number, times in enumerate(runs)],
        made_for="r0",
    )
    assert bill_vm(vm, until=at(510), book=Book()).cost == cost_of(series_time(EXAMPLE, 3), EXAMPLE.hourly) == 281_917
    alone = machine("vm", (0, VmState.PROVISIONING), (120, VmState.BUSY), (150, VmState.TERMINATED), ended=150)
    assert abs(bill_vm(alone, until=at(150), book=Book()).cost - estimate(EXAMPLE).cold) <= 1


@pytest.mark.parametrize(
    ("runs", "dollars"),
    [(10, (24.875, 11.94, 74.625)), (50, (124.375, 31.84, 373.125)), (200, (497.5, 106.465, 1492.5))],
)
def test_a_month_of_short_runs(runs: int, dollars: tuple[float, ...]) -> None:
    """Half a minute each, ended after five minutes of idling: spread evenly they cost most."""
    months = estimate(Workload(hourly=1_990_000, idle_timeout=5 * MINUTE, run=30 * SECOND, runs_per_day=runs)).months
    assert [month.pattern for month in months] == list(PATTERNS)
    assert tuple(month.cost / DOLLAR for month in months) == pytest.approx(dollars)
    assert [month.saved for month in months] == [months[0].cost - month.cost for month in months]


@given(WORKLOADS)
def test_reuse_pays_from_the_first_number_of_runs_that_costs_less(given: Workload) -> None:
    """By trying them all."""

    def pays(runs: int) -> bool:
        return series_time(given, runs) < runs * (given.provisioning + given.run)

    least = estimate(given).pays_from
    if least is None:
        assert given.idle_timeout is None or not any(pays(runs) for runs in range(1, 60))
    else:
        assert pays(least)
        assert not pays(least - 1)


@given(WORKLOADS)
def test_any_workload_has_an_estimate(given: Workload) -> None:
    """No machine time is less than that of the runs; a machine that is never ended is paid round the clock."""
    for pattern in PATTERNS:
        time = machine_time(given, pattern)
        assert time >= given.runs_per_day * given.run
        assert given.idle_timeout is not None or pattern == PATTERNS[0] or time >= 86_400 * SECOND
