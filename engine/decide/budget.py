"""The budget: what is spent, what live runs and machines may still cost, and whether one more run fits. spent: every
machine's bill since ever, to the newest poll, without archives. committed: the worst still to come: of a machine, its
run's remaining time and one idle timeout; of a run of ours that waits, its worst case.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from steno.engine.decide.machine import backstop, timeout_of
from steno.engine.decide.placement import Plan
from steno.engine.errors import RefusedByPolicy
from steno.engine.money.bill import life_cost
from steno.engine.money.prices import Book, GpuHours, price_of, rung_at
from steno.engine.state.kernel_mark import gpu_kept, is_kept
from steno.engine.state.policy import BACKSTOP, DAY, HOUR, OFF, Policy
from steno.engine.state.run import Requirements, Run
from steno.engine.state.states import VmState
from steno.engine.state.vm import Vm
from steno.engine.state.world import World
from steno.engine.wire import DOLLAR, Position, Shape, Time, Usd, rate, usd
from steno.events.clock import SECOND, count_due, duration
from steno.events.types import BudgetCrossed

_AHEAD: Final = 30 * DAY  # a budget has no month of its own
UNCONFIRMED_AFTER = 14 * 60 * SECOND  # how long a machine that was told to stop may take before it is unconfirmed


class WorstCase(NamedTuple):
    """The most that a submission may cost. Microseconds and micro-dollars."""

    price: int | None  # an hour of one machine; None: unknown, so the budget does not guard it
    idle: int
    amount: int | None
    lines: tuple[str, ...]  # the arithmetic in words, term by term
    gpu_time: int  # millionths of GPU-hours
    advice: str = "Give the task a shorter `max_duration`"  # what makes it less


class PastSpend(NamedTuple):
    """The cost of the machines that a state leaves out; none of them existed in the last 24 hours."""

    spent: int = 0  # micro-dollars
    since: int | None = None  # when the first of them was created; None: none is left out


class Forecast(StrEnum):
    """How much is known about when the budget is used up."""

    NO_BUDGET = "no_budget"
    USED_UP = "used_up"
    TOO_EARLY = "too_early"  # the first machine is less than a day old
    NEVER = "never"  # nothing was spent in the last 24 hours
    DATED = "dated"


class BudgetAlert(Shape, frozen=True, kw_only=True):
    threshold: float
    reached: bool
    told_at_position: Position | None


class Account(
    Shape,
    frozen=True,
    kw_only=True,
    rename={
        "spent_day": "spent_24h_usd",
        "rate_now": "rate_now_usd_per_hour",
        "burn_rate_hourly": "burn_rate_usd_per_hour",
        **{name: f"{name}_usd" for name in ("total", "spent", "committed", "remaining", "available")},
    },
):
    """The budget; null where there is none."""

    total: Usd | None
    spent: Usd
    committed: Usd  # the worst still to come of what is live
    remaining: Usd | None  # total − spent
    available: Usd | None  # remaining − committed: what one more submission may cost at worst
    used_pct: float | None
    spent_day: Usd  # in the last 24 hours
    rate_now: Usd  # an hour of all machines that may be billed now
    burn_rate_hourly: Usd
    """The mean of the last 24 hours, or of the time since the first machine if that is shorter (an hour at least)."""
    forecast: Forecast
    exhausted_at: Time | None
    """When it is used up at that rate; None: there is no such date, `forecast` says why."""
    alerts: tuple[BudgetAlert, ...]


_NOTHING: Final = PastSpend()


def spent(state: World, *, since: int | None = None) -> int:
    """Every machine's bill since ever, or since a moment, to the newest poll."""
    book, until = Book.of(state), state.last_at if state.last_at is not None else 0

    def cost(vm: Vm) -> int:
        return 0 if vm.archive is not None else life_cost(vm, until=until, book=book, since=since)

    if since is not None:
        return sum(map(cost, (*state.vms.open(), *state.vms.ended_since(since))))
    return state.vms.sums(f"spent by {book.digest()}", lambda vm: ("", cost(vm)))[""]


def account(state: World, policy: Policy, now: int, settled: PastSpend = _NOTHING) -> Account:
    """Where the budget stands at `now`. `settled` stands for machines that are over and not in `state`."""
    gone = spent(state) + settled.spent
    promised, total = committed(state, policy, now), policy.budget_total
    left = None if total is None else total - gone
    day = spent(state, since=now - DAY)
    created = (vm.created for vm in state.vms.all() if vm.archive is None)
    first = min([*created, *([] if settled.since is None else [settled.since])], default=now)
    burn = day * HOUR // max(HOUR, now - max(now - DAY, first))
    book = Book.of(state)
    present = sum(rung_at(book.tariff(vm), now).best for vm in _billed(state))
    forecast, exhausted_at = _forecast(left, burn, now, now - first)
    reached = _crossed(policy, gone)
    return Account(
        total=total,
        spent=gone,
        committed=promised,
        remaining=left,
        available=None if left is None else left - promised,
        used_pct=round(gone * 100 / total, 1) if total else None,
        spent_day=day,
        rate_now=present,
        burn_rate_hourly=burn,
        forecast=forecast,
        exhausted_at=exhausted_at,
        alerts=tuple(
            BudgetAlert(
                threshold=threshold / 1000,
                reached=threshold in reached,
                told_at_position=state.crossed.get(f"{threshold}/{total}"),
            )
            for threshold in policy.thresholds
        ),
    )


def _forecast(left: int | None, burn: int, now: int, history: int) -> tuple[Forecast, int | None]:
    """When `left` is used up at `burn` an hour. A day of history is needed: before, one machine decides the rate."""
    if left is None:
        return Forecast.NO_BUDGET, None
    if left <= 0:
        return Forecast.USED_UP, now
    if history < DAY:
        return Forecast.TOO_EARLY, None
    return (Forecast.DATED, now + left * HOUR // burn) if burn > 0 else (Forecast.NEVER, None)


def committed(state: World, policy: Policy, now: int, before: Run | None = None) -> int:
    """The worst still to come of live machines and of our runs that have none yet. With `before`, that run is left out,
    and so are later requests without a place: a run is never refused because of one behind it.
    """
    return sum(amount for _, amount in promises(state, policy, now, Book.of(state), before))


def promises(
    state: World, policy: Policy, now: int, book: Book, before: Run | None = None
) -> Iterator[tuple[Vm | Run, int]]:
    """The terms of `committed`, each with its machine, or its run without a machine; by the prices of a book."""
    order, billed = None if before is None else _order(before), _billed(state)
    on_machines = {occupant.run_id for vm in billed for occupant in vm.occupants}
    for vm in billed:
        yield vm, _still(vm, state, policy, now, rung_at(book.tariff(vm), now).best)
    for run in (run for run in state.runs.open() if run.run_id not in on_machines):
        if run.terminal or run.terms is None:
            continue
        if order is None or _order(run) < order or (has_place(run) and _order(run) != order):
            worst = worst_case(run.terms, policy, state, now)
            amount = worst.gpu_time if isinstance(book, GpuHours) else worst.amount or 0
            yield run, amount * left_of(run, state) // run.terms.tasks


def has_place(run: Run) -> bool:
    return run.placed is not None or run.provider_id is not None


def left_of(run: Run, state: World) -> int:
    """How many tasks of a request have no machine yet; 1 if it is not an array."""
    begun = [task_run for task_run in (state.runs[task] for task in run.tasks) if task_run.terminal or task_run.links]
    return max(0, (1 if run.terms is None else run.terms.tasks) - len(begun))


def worst_case(terms: Requirements, policy: Policy, state: World, now: int = 0) -> WorstCase:
    """(`max_duration`, or the assumed one) × price × nodes × tasks, and one idle timeout of each machine; of a
    schedule, all of it for each firing of the 30 days from `now` on.
    """
    length = longest(terms, policy)
    idle = backstop(terms, policy)  # until the provider ends it, if nobody records
    if idle == OFF:
        idle = policy.assumed_duration
    advice = ("Let `retry` cover no-capacity only",) if terms.repeats else ()
    # The newest machine of each kind is in memory, and only its price counts.
    guess = price_of(terms, policy, [vm for vm in state.vms.in_memory() if vm.archive is None])
    firings = _firings(terms, length, now)
    nodes = max(1, terms.nodes) * terms.tasks * firings
    gpus = max(terms.gpu_count, int(terms.gpu_counts.most or 0), 1 if terms.gpu else 0)
    gpu_time = _cost((length + idle) * nodes, gpus * DOLLAR)
    if guess is None:
        unknown = "No price of such a machine is known, so the budget does not guard this run."
        return WorstCase(None, idle, None, (unknown,), gpu_time, *advice)
    running, idling = (_cost(time * nodes, guess.hourly) for time in (length, idle))
    times = "" if terms.nodes <= 1 else f" × {terms.nodes} nodes"
    times += "" if terms.tasks == 1 else f" × {terms.tasks} tasks"
    times += "" if not terms.crons else f" × {firings} firings in 30 days"
    origin = "no max_duration, so assumed" if terms.max_duration is None else "max_duration"
    origin = "`retry` has no end, so assumed" if terms.max_duration != length and terms.repeats else origin
    lines = (
        f"run: {duration(length)} ({origin}) × {rate(guess.hourly)} ({guess.why}){times} = {usd(running)}",
        f"idle after it: {duration(idle)} × {rate(guess.hourly)}{times} = {usd(idling)}",
        f"at worst: {usd(running + idling)}",
    )
    return WorstCase(guess.hourly, idle, running + idling, lines, gpu_time, *advice)


def longest(terms: Requirements, policy: Policy) -> int:
    """How long the attempts of a run are taken to last: `max_duration`; the assumed time at least if there is none, or
    if each failure begins another attempt.
    """
    limit = policy.assumed_duration if terms.max_duration is None else terms.max_duration
    return max(limit, policy.assumed_duration) if terms.repeats else limit


def _firings(terms: Requirements, length: int, now: int) -> int:
    """How often it runs in the next 30 days: one firing begins only once the one before is over."""
    if not terms.crons:
        return 1
    return count_due(terms.crons, now, now + _AHEAD, most=_AHEAD // max(length, SECOND) + 1)


def check(terms: Requirements, policy: Policy, state: World, now: int, run: Run | None = None) -> WorstCase:
    """The worst case of a submission that fits into what is left. `run`: the run itself, if it is known already.

    Raises:
        RefusedByPolicy: it does not fit; the message has the arithmetic.
    """
    worst = worst_case(terms, policy, state, now)
    if policy.budget_total is None or worst.amount is None or policy.free:
        return worst
    gone = spent(state)
    promised = committed(state, policy, now, before=run)
    left = policy.budget_total - gone - promised
    if worst.amount <= left:
        return worst
    raise RefusedByPolicy(
        f"The budget does not allow this run. {'; '.join(worst.lines)}; left: {usd(policy.budget_total)} − "
        f"{usd(gone)} spent − {usd(promised)} that live runs and machines may still cost = {usd(left)}. "
        f"{worst.advice} or raise the budget."
    )


def due_alerts(plan: Plan) -> tuple[BudgetCrossed, ...]:
    """Thresholds reached for which no alert was given at this total; none of a provider whose machines are free."""
    state, policy = plan.situation.state, plan.situation.policy
    total = None if policy.free else policy.budget_total
    new = [threshold for threshold in policy.thresholds if f"{threshold}/{total}" not in state.crossed]
    if total is None or not new:
        return ()
    gone = spent(state)
    return tuple(
        BudgetCrossed(threshold=threshold, spent=gone, total=total)
        for threshold in _crossed(policy, gone)
        if threshold in new
    )


class Metrics(msgspec.Struct, frozen=True, kw_only=True):
    """As `GET /api/amd/metrics` answers: every value a JSON number (null only where there is no budget)."""

    total_cost_usd: float
    remaining_credits_usd: float | None
    credits_used_pct: float | None  # percent, to one decimal: 5.25 of 1400 is 0.4
    tasks_completed: int  # `cold_starts` + `warm_reuses`
    cold_starts: int  # finished tasks that a machine was made for
    warm_reuses: int  # finished tasks that found one
    active_vms: int  # every machine that may be billed


def metrics(state: World, account: Account, starts: Mapping[str, int]) -> Metrics:
    """The figures of a state that has the machines that may be billed; `starts` as `starts_of`."""
    cold, warm = starts.get("cold", 0), starts.get("warm", 0)
    return Metrics(
        total_cost_usd=account.spent / DOLLAR,
        remaining_credits_usd=None if account.remaining is None else account.remaining / DOLLAR,
        credits_used_pct=None if account.total is None else _percent(account.spent, account.total),
        tasks_completed=cold + warm,
        cold_starts=cold,
        warm_reuses=warm,
        active_vms=sum(not is_kept(vm) for vm in _billed(state)),
    )


def starts_of(state: World) -> Counter[str]:
    """How many finished runs had a `cold` start, and a `warm` one; no archives, no listeners."""

    def start(run: Run) -> tuple[str, int] | None:
        counts = run.terminal and run.archive is None and gpu_kept(run) is None
        return (run.start, 1) if run.start is not None and counts else None

    return state.runs.sums("starts but listeners", start)


def _billed(state: World) -> list[Vm]:
    """The machines that may be billed."""
    return [vm for vm in state.vms.open() if vm.billed and vm.archive is None]


def _still(vm: Vm, state: World, policy: Policy, now: int, hourly: int) -> int:
    timeout, most = timeout_of(state, vm, policy), _limit_left(vm, now)
    idle = policy.assumed_duration if timeout.after is None else timeout.after
    if idle and timeout.source == "policy" and timeout.after is not None:
        idle += BACKSTOP  # the provider's own timer, if nobody records
    match vm.state:
        case VmState.TERMINATING:
            time = max(0, UNCONFIRMED_AFTER - (now - (vm.ending_since if vm.ending_since is not None else now)))
        case VmState.UNCONFIRMED:
            time = policy.assumed_duration if most is None else most
        case VmState.DRAINING:
            time = UNCONFIRMED_AFTER
        case VmState.IDLE:
            time = max(0, idle - (now - (vm.idle_since if vm.idle_since is not None else now)))
            if (kept := vm.kept(now)) is not None:
                time = max(time, kept.until - now)
        case _:
            left = 0
            for occupant in vm.occupants:  # `max_duration` counts from where a run runs
                run = state.runs.get(occupant.run_id)
                terms = None if run is None else run.terms
                limit = None if terms is None or terms.max_duration is None else longest(terms, policy)
                began = now if run is None or run.started_at is None else run.started_at
                own = most if limit is None else limit - (now - began)
                left = max(left, policy.assumed_duration - (now - began) if own is None else own)
            time = idle + left
    return _cost(time if most is None else min(time, most), hourly)


def _limit_left(vm: Vm, now: int) -> int | None:
    """The rest of the longest life that its provider allows; None: it has no limit."""
    limit = vm.facts.limit
    return None if limit is None else max(0, vm.created + limit + vm.facts.suspended - now)


def _order(run: Run) -> tuple[int, int]:
    return run.requested_at or 0, run.first_position


def _crossed(policy: Policy, gone: int) -> tuple[int, ...]:
    total = policy.budget_total
    if total is None or gone <= 0:
        return ()
    return tuple(threshold for threshold in policy.thresholds if gone * 1000 >= threshold * total)


def _cost(time: int, hourly: int) -> int:
    """Rounded up: a worst case is never too low."""
    return -(-time * hourly // HOUR)


def _percent(part: int, whole: int) -> float:
    """To one decimal, half up; of nothing, all or nothing."""
    if whole <= 0:
        return 100.0 if part > 0 else 0.0
    return (2000 * part + whole) // (2 * whole) / 10
