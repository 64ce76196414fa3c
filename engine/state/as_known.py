"""A run or machine as it was at a moment, by what was learnt of that moment later.

Two times: a fold up to a position says what was *known* by then; a provider's dates, polls and logs say later what was
so *at* a moment before. Only runs and machines have two times: what Steno itself decided was known at once.
"""

from typing import Any, Final, TypeVar

from msgspec.structs import replace

from steno.engine.state.changes import Transition, VmStep
from steno.engine.state.run import Reported, Run
from steno.engine.state.states import State, VmState
from steno.engine.state.vm import Occupancy, Vm

_Step = TypeVar("_Step", Transition, VmStep)

_DOUBTS: Final = frozenset({State.LOST, VmState.UNCONFIRMED})
"""States of not knowing: what is seen later takes their place."""
_ALIVE: Final[dict[str, Any]] = {"finished_at": None, "finished_low": None, "unseen_end": False, "confirmed": False}
_UNSEEN: Final[dict[str, Any]] = {
    "pauses": (),
    "unreachable": (),
    **dict.fromkeys(("drain", "told", "wish", "ending_since", "ending_from", "idle_since", "idle_from", "missing")),
}
_EMPTY: Final = frozenset({VmState.IDLE, VmState.DRAINING})


def run_as_known(then: Run | None, known: Run, moment: int) -> Run | None:
    """The run at a moment (microseconds UTC), by `known` later; None: not there yet. `then`: as known at the moment."""
    if min(at for at in (known.requested_at, known.submitted_at, known.first_at) if at is not None) > moment:
        return then
    dates = [_run_date(known, step) for step in known.transitions]
    if known.terminal and dates and dates[-1] <= moment:
        return known
    steps = _begun(known.transitions, dates, moment)
    state = steps[-1].after if steps else State.QUEUED if known.requested_at is None else State.REQUESTED
    base = then or replace(  # no poll had shown it yet: without what its end says
        known, reported=Reported(), later_attempts=(), cost=None, cost_at=None, held=None, said=None
    )
    started = known.started_at if known.started_at is not None and known.started_at <= moment else None
    started = then.started_at if started is None and then is not None else started
    moved = replace(base, transitions=steps, started_at=started, finished_at=None)
    if state is base.state:
        return moved
    rule, evidence = (steps[-1].rule, (steps[-1].position,)) if steps else (None, ())
    return replace(moved, state=state, reason=None, exit_status=None, rule=rule, evidence=evidence, missing=None)


def vm_as_known(then: Vm | None, known: Vm, moment: int) -> Vm | None:
    """The machine at a moment, as `run_as_known`."""
    if known.created > moment:
        return then
    dates = [_vm_date(known, step) for step in known.steps]
    if known.state is VmState.TERMINATED and dates and dates[-1] <= moment:
        return known
    steps = _begun(known.steps, dates, moment)
    if not steps and known.steps:  # it was there, and no poll had shown it
        steps = (replace(known.steps[0], at=known.created, low_at=known.created, after=VmState.PROVISIONING),)
    state = steps[-1].after if steps else VmState.REQUESTED
    base = then if then is not None else _unseen_vm(known, moment)
    stays = tuple(_stay(base, stay, moment) for stay in known.occupancies if stay.since <= moment)
    moved = replace(
        base,
        **_ALIVE,
        **{name: getattr(known, name) for name in ("created", "skew", "made_for")},
        prices=tuple(price for price in known.prices if price.at <= moment),
        dates=tuple(date for date in known.dates if date.at <= moment),
        steps=steps,
        occupancies=stays,
        runs=tuple(dict.fromkeys(stay.run_id for stay in stays)),
    )
    if state is base.state:
        return moved
    idle_since = steps[-1].at if steps and state in _EMPTY else None
    return replace(moved, state=state, reason=None, missing=None, idle_since=idle_since, idle_from=None)


def _stay(base: Vm, stay: Occupancy, moment: int) -> Occupancy:
    """A run's stay on a machine, as of a moment."""
    if stay.until is not None and stay.until <= moment:
        return stay
    before = (other for other in base.occupancies if (other.run_id, other.job) == (stay.run_id, stay.job))
    return next((other for other in before if other.until is None), replace(stay, until=None, cut_off=False))


def _begun(steps: tuple[_Step, ...], dates: list[int], moment: int) -> tuple[_Step, ...]:
    """The steps begun by a moment, each at its date if a poll showed it only later. A doubt that was
    cleared later does not count.
    """
    count = max((place for place, date in enumerate(dates, 1) if date <= moment), default=0)
    while 0 < count < len(steps) and steps[count - 1].after in _DOUBTS and steps[-1].after not in _DOUBTS:
        count -= 1
    begun: list[_Step] = []
    for step, date in zip(steps[:count], dates, strict=False):
        if step.at <= moment:
            begun.append(step)
            continue
        at = max([min(date, moment), *(before.at for before in begun[-1:])])
        low = {"low_at": min(getattr(step, "low_at", at), at)} if hasattr(step, "low_at") else {}
        begun.append(replace(step, at=at, **low))
    return tuple(begun)


def _run_date(run: Run, step: Transition) -> int:
    """When a run's step was, by its provider's dates; never after a poll showed it."""
    if step is run.transitions[-1] and run.terminal and run.finished_at is not None:
        return min(step.at, run.finished_at)
    newest = next(other for other in reversed(run.transitions) if other.after is step.after)
    # The dates are those of the newest attempt.
    is_dated = step.after is State.RUNNING and run.started_at is not None and step is newest
    return min(step.at, run.started_at or step.at) if is_dated else step.at


def _vm_date(vm: Vm, step: VmStep) -> int:
    """When a machine's step was: by its provider's dates, else by those of the runs on it, between both polls."""
    if step.after is VmState.TERMINATED and vm.over_at is not None:
        return min(step.at, vm.over_at)
    moments = [date.at for date in vm.dates if (date.before, date.after) == (step.before.value, step.after.value)]
    if step.after is VmState.IDLE:
        moments += [stay.until for stay in vm.occupancies if stay.until is not None and not stay.forgotten]
    if step.after is VmState.BUSY:  # a run may be submitted long before the machine made for it is up
        was_up = step.before in _EMPTY
        moments += [at for stay in vm.occupancies if (at := stay.since if was_up else stay.started_at) is not None]
    return max((at for at in moments if step.low_at <= at <= step.at), default=step.at)


def _unseen_vm(vm: Vm, moment: int) -> Vm:
    """A machine that no poll had shown yet, without what its end says."""
    started = {source: min(at, moment) for source, at in vm.started.items()}
    facts = replace(vm.facts, finished_at=None, reason=None)
    return replace(vm, **_UNSEEN, facts=facts, last_at=min(vm.last_at, moment), started=started)
