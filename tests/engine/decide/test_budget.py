"""The budget: what is committed, what a submission may cost at worst, when an alert is due."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stenotest.bills import a_run, at, machine, machines, on, world

from steno.engine.decide.budget import Forecast, account, check, committed, due_alerts, worst_case
from steno.engine.decide.placement import Plan
from steno.engine.decide.situation import Situation
from steno.engine.errors import RefusedByPolicy
from steno.engine.state.policy import BACKSTOP, HOUR, MINUTE, Billing, Policy, Rate
from steno.engine.state.run import Placed, Requirements, Run
from steno.engine.state.states import State, VmState
from steno.engine.state.vm import Vm
from steno.engine.state.world import World
from steno.engine.wire import DOLLAR
from steno.events.clock import SECOND
from steno.events.types import BudgetCrossed

HOURLY = 1_990_000
MI300X = Requirements(submitter="ada", gpu=("MI300X",), gpu_count=1)


def limited(**more: object) -> Requirements:
    """A task for one MI300X of at most an hour."""
    return Requirements(submitter="ada", gpu=("MI300X",), gpu_count=1, max_duration=HOUR, **more)  # type: ignore[arg-type]


def waiting(run_id: str, requested: float) -> Run:
    return a_run(run_id, State.REQUESTED, requested_at=at(requested), terms=limited())


def idle_machine(hourly: float = 1.99, **more: object) -> Vm:
    return machine("vm", (0, VmState.IDLE), last=0, prices=[(0, hourly)], **more)  # type: ignore[arg-type]


def test_the_worst_case_is_the_run_and_one_idle_timeout() -> None:
    """An hour and ten and a half minutes at $1.99, with the arithmetic: then the provider ends it if nobody
    records.
    """
    worst = worst_case(limited(), Policy(), world(last=0))
    assert (worst.price, worst.amount) == (HOURLY, 1_990_000 + 348_250)
    assert worst.lines == (
        "run: 1 h (max_duration) × $1.99/h (assumed for MI300X) = $1.99",
        "idle after it: 10 m 30 s × $1.99/h = $0.34825",
        "at worst: $2.33825",
    )


def test_a_task_without_max_duration_is_taken_to_last_a_day() -> None:
    """24 h at $1.99 and the idle timeout, and it says so."""
    worst = worst_case(MI300X, Policy(), world(last=0))
    assert worst.amount == 24 * HOURLY + 348_250
    assert worst.lines[0].startswith("run: 24 h (no max_duration, so assumed)")


def test_a_task_that_is_tried_again_after_each_failure_is_taken_to_last_a_day() -> None:
    """At least: `max_duration` ends an attempt, and the next one begins. So it is while it runs."""
    terms = limited(retry=True, repeats=True)
    worst = worst_case(terms, Policy(), world(last=0))
    assert worst.amount == 24 * HOURLY + 348_250
    assert worst.lines[0].startswith("run: 24 h (`retry` has no end, so assumed)")
    with pytest.raises(RefusedByPolicy, match="Let `retry` cover no-capacity only or raise the budget"):
        check(terms, Policy(budget_total=DOLLAR), world(last=0), at(0))
    longer = worst_case(terms, Policy(assumed_duration=MINUTE), world(last=0))
    assert longer.lines[0].startswith("run: 1 h (max_duration)")
    run = a_run("r", State.RUNNING, requested_at=at(0), started_at=at(0), terms=terms, vm_id="vm")
    busy = machine("vm", (0, VmState.BUSY), occupancies=[on("r", 0)], last=3600)
    state = world(busy, last=3600, runs=[run])
    assert committed(state, Policy(), at(3600)) == 23 * HOURLY + 348_250


@pytest.mark.parametrize(
    ("terms", "policy", "vm", "price"),
    [
        (limited(), Policy(), None, HOURLY),
        (limited(), Policy(), idle_machine(1.50), 1_500_000),
        (limited(), Policy(rates=(Rate(gpu="mi300x", hourly=2_500_000),)), idle_machine(1.50), 2_500_000),
        (limited(spot="spot"), Policy(rates=(Rate(gpu="MI300X", hourly=2_500_000),)), None, HOURLY),
        (limited(spot="spot"), Policy(), idle_machine(0.50, spot=True), 500_000),
        (limited(spot="on-demand"), Policy(), idle_machine(0.50, spot=True), HOURLY),
        (limited(), Policy(), idle_machine(4.00, gpus=2), 2_000_000),
        (limited(fallback=("MI210",)), Policy(assumed=(Rate(gpu="MI210", hourly=3_000_000),)), None, 3_000_000),
        (limited(max_price=1_000_000), Policy(), None, 1_000_000),
        (limited(backends=("runpod",)), Policy(assumed=()), idle_machine(), None),
        (Requirements(submitter="ada", gpu=("H100",), gpu_count=1), Policy(), None, None),
        (Requirements(submitter="ada", gpu=("H100",), gpu_count=1, max_price=4 * DOLLAR), Policy(), None, 4 * DOLLAR),
        (Requirements(submitter="ada", gpu=("MI300X",), gpu_count=2), Policy(), None, 2 * HOURLY),
        (Requirements(submitter="ada"), Policy(), idle_machine(), None),
        (Requirements(submitter="ada"), Policy(free=True), None, 0),
    ],
    ids=[
        "assumed",
        "recorded",
        "override",
        "no override of spot",
        "recorded spot",
        "spot says nothing of on-demand",
        "recorded, scaled",
        "dearest of the fallback list",
        "max_price",
        "another backend's price",
        "unknown",
        "unknown but max_price",
        "two GPUs",
        "no GPU",
        "free",
    ],
)
def test_the_price_is_the_override_else_the_newest_recorded_else_the_assumed(
    terms: Requirements, policy: Policy, vm: Vm | None, price: int | None
) -> None:
    """The price is that of the dearest GPU the task takes."""
    state = world(*([] if vm is None else [vm]), last=0)
    assert worst_case(terms, policy, state).price == price


@pytest.mark.parametrize(
    ("terms", "policy", "idle"),
    [
        (limited(), Policy(), 10 * MINUTE + BACKSTOP),
        (limited(idle=2 * MINUTE), Policy(), 2 * MINUTE),
        (limited(idle=20 * MINUTE), Policy(), 10 * MINUTE + BACKSTOP),
        (limited(idle=10 * MINUTE + 5), Policy(), 10 * MINUTE + 5),
        (limited(), Policy(idle_timeout=2 * SECOND), 2 * SECOND + BACKSTOP),
        (limited(idle=0), Policy(), 0),
        (limited(idle=-1), Policy(), 24 * HOUR),
        (limited(creation="create"), Policy(), 0),
        (limited(), Policy(idle_timeout=None), 24 * HOUR),
        (limited(idle=MINUTE), Policy(idle_timeout=None), MINUTE),
    ],
)
def test_the_idle_time_after_a_run_is_the_shorter_of_the_tasks_and_the_policys(
    terms: Requirements, policy: Policy, idle: int
) -> None:
    """As long as the provider lets it, if nobody records. `off` and no timeout are taken to last the assumed duration;
    `create` leaves no machine behind.
    """
    assert worst_case(terms, policy, world(last=0)).idle == idle


def test_each_node_runs_and_idles() -> None:
    """Two nodes cost twice."""
    two = worst_case(limited(nodes=2), Policy(), world(last=0)).amount
    assert two == 2 * HOURLY + 696_500
    assert "× 2 nodes" in worst_case(limited(nodes=2), Policy(), world(last=0)).lines[0]


def test_a_submission_that_would_overrun_is_refused_with_the_arithmetic() -> None:
    """$2.33825 at worst against $2.33; one cent more is enough."""
    with pytest.raises(RefusedByPolicy) as refused:
        check(limited(), Policy(budget_total=2_330_000), world(last=0), at(0))
    assert str(refused.value) == (
        "The budget does not allow this run. run: 1 h (max_duration) × $1.99/h (assumed for MI300X) = $1.99; idle "
        "after it: 10 m 30 s × $1.99/h = $0.34825; at worst: $2.33825; left: $2.33 − $0.00 spent − $0.00 that live "
        "runs and machines may still cost = $2.33. Give the task a shorter `max_duration` or raise the budget."
    )
    assert check(limited(), Policy(budget_total=2_340_000), world(last=0), at(0)).amount == 2_338_250


@pytest.mark.parametrize(
    ("terms", "policy"),
    [
        (MI300X, Policy(budget_total=None)),
        (Requirements(submitter="ada", gpu=("H100",), gpu_count=1), Policy(budget_total=1)),
        (MI300X, Policy(budget_total=0, free=True)),
    ],
    ids=["no budget", "no price", "free"],
)
def test_what_cannot_overrun_or_cannot_be_known_is_not_refused(terms: Requirements, policy: Policy) -> None:
    """An unknown price is not guarded, and the answer says so."""
    worst = check(terms, policy, world(last=0), at(0))
    assert worst.amount is not None or worst.lines == (
        "No price of such a machine is known, so the budget does not guard this run.",
    )


@given(machines(), st.integers(0, 6_000), st.integers(0, 3 * HOUR))
def test_no_admitted_submission_can_overrun(vm: Vm, now: int, duration: int) -> None:
    """Spent, committed and the worst case of an admitted run never exceed the total together."""
    policy = Policy(budget_total=4 * DOLLAR, billing=(Billing(backend="amddevcloud"),))
    state = world(vm, last=now)
    terms = Requirements(submitter="ada", gpu=("MI300X",), gpu_count=1, max_duration=duration)
    standing = account(state, policy, at(now))
    assert standing.available is not None
    try:
        worst = check(terms, policy, state, at(now))
    except RefusedByPolicy:
        assert (worst_case(terms, policy, state).amount or 0) > standing.available
    else:
        assert standing.spent + standing.committed + (worst.amount or 0) <= 4 * DOLLAR


def test_runs_that_wait_are_committed_at_their_worst_and_a_run_is_not_refused_for_those_behind_it() -> None:
    """Three runs of $2.33825 in a budget of $5: the two in front get their place, the third does not."""
    runs = [waiting("first", 0), waiting("second", 1), waiting("third", 2)]
    state = world(last=10, runs=runs)
    policy = Policy(budget_total=5 * DOLLAR)
    assert committed(state, policy, at(10)) == 3 * 2_338_250
    assert check(limited(), policy, state, at(10), run=runs[0]).amount == 2_338_250
    assert check(limited(), policy, state, at(10), run=runs[1]).amount == 2_338_250
    with pytest.raises(RefusedByPolicy):
        check(limited(), policy, state, at(10), run=runs[2])
    placed = Placed(position=9, at=at(9), slot=None, vm_id=None, creation="reuse-or-create", gpu=None)
    runs[2].placed = placed
    assert committed(state, policy, at(10), before=runs[0]) == 2_338_250


@pytest.mark.parametrize(
    ("steps", "seconds"),
    [
        ([(0, VmState.IDLE)], 630 - 100),
        ([(0, VmState.PROVISIONING)], 630),
        ([(0, VmState.BUSY)], 3600 - 100 + 630),
        ([(0, VmState.IDLE), (50, VmState.DRAINING)], 840),
        ([(0, VmState.TERMINATING)], 840 - 100),
        ([(0, VmState.UNCONFIRMED)], 24 * 3600),
        ([(0, VmState.IDLE), (90, VmState.TERMINATED)], 0),
    ],
    ids=lambda value: value[-1][1].value if isinstance(value, list) else "",
)
def test_what_a_live_machine_may_still_cost(steps: list[tuple[float, VmState]], seconds: float) -> None:
    """Its run's remaining time and one idle timeout; what is told to go, the grace; what nobody saw go, a day."""
    on_it = [on("r", 0)] if steps[0][1] is VmState.BUSY else []
    vm = machine("vm", *steps, last=100, occupancies=on_it, ended=90 if steps[-1][1] is VmState.TERMINATED else None)
    vm.idle_since, vm.ending_since = at(0), at(0)
    run = a_run("r", State.RUNNING, requested_at=at(0), started_at=at(0), terms=limited(), vm_id="vm")
    state = world(vm, last=100, runs=[run] if on_it else [])
    assert committed(state, Policy(), at(100)) == -(-round(seconds) * HOURLY // 3600)


def test_the_burn_rate_is_the_mean_of_the_last_day_and_gives_the_date() -> None:
    """Two machines at $1.99: a mean of $3.98 an hour; a date only with a day of history."""
    vms = [machine(name, (0, VmState.IDLE), last=7200) for name in ("a", "b")]
    standing = account(world(*vms, last=7200), Policy(budget_total=14 * DOLLAR), at(7200))
    assert (standing.spent, standing.spent_day, standing.rate_now) == (4 * HOURLY, 4 * HOURLY, 2 * HOURLY)
    assert standing.burn_rate_hourly == 2 * HOURLY
    assert standing.remaining == 14 * DOLLAR - 4 * HOURLY
    assert (standing.forecast, standing.exhausted_at) == (Forecast.TOO_EARLY, None)
    vms = [machine(name, (0, VmState.IDLE), last=86400) for name in ("a", "b")]
    standing = account(world(*vms, last=86400), Policy(budget_total=200 * DOLLAR), at(86400))
    assert standing.remaining == 200 * DOLLAR - 48 * HOURLY
    assert standing.forecast is Forecast.DATED
    assert standing.exhausted_at == at(86400) + standing.remaining * HOUR // (2 * HOURLY)


def test_what_was_spent_more_than_a_day_ago_is_no_burn_rate() -> None:
    """Nothing lately, nothing live: no date. A used-up budget is used up now."""
    vm = machine("vm", (0, VmState.IDLE), (3600, VmState.TERMINATED), ended=3600)
    standing = account(world(vm, last=3600), Policy(), at(3 * 86400))
    assert (standing.spent, standing.burn_rate_hourly, standing.exhausted_at) == (HOURLY, 0, None)
    assert standing.forecast is Forecast.NO_BUDGET
    rich = account(world(vm, last=3600), Policy(budget_total=14 * DOLLAR), at(3 * 86400))
    assert (rich.forecast, rich.exhausted_at) == (Forecast.NEVER, None)
    over = account(world(vm, last=3600), Policy(budget_total=DOLLAR), at(3 * 86400))
    assert over.forecast is Forecast.USED_UP
    assert (over.remaining, over.exhausted_at) == (-990_000, at(3 * 86400))


def alerts(state: World, policy: Policy) -> tuple[BudgetCrossed, ...]:
    situation = Situation(state=state, source="dstack/main", policy=policy, now=at(3600))
    return due_alerts(Plan(situation, wanted=0, free=None, slots=set()))


def test_each_threshold_is_told_once_for_each_total() -> None:
    """80 and 100 % of $1.99: reached to the micro-dollar; reported thresholds stay silent until the total changes."""
    vm = machine("vm", (0, VmState.IDLE), last=3600)
    state = world(vm, last=3600)
    policy = Policy(budget_total=HOURLY, thresholds=(500, 800, 1000))
    assert [alert.threshold for alert in alerts(state, policy)] == [500, 800, 1000]
    state.crossed = {f"500/{HOURLY}": 7, f"800/{HOURLY}": 8}
    assert [(alert.threshold, alert.spent, alert.total) for alert in alerts(state, policy)] == [(1000, HOURLY, HOURLY)]
    larger = Policy(budget_total=2 * HOURLY, thresholds=(500, 800))
    assert [alert.threshold for alert in alerts(state, larger)] == [500]
    assert alerts(state, Policy(budget_total=None)) == ()
    assert alerts(world(last=0), Policy(budget_total=0)) == ()
