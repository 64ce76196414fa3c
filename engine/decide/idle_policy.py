"""When a machine is ended: idle too long → drained → seen empty once more → told to stop; and when it stays after all.
Only machines Steno made are touched. Idle time is recorded evidence: time in which the source answered and showed the
machine idle. No clock is compared with it, so blind time and clock jumps end nothing.

And when a run is stopped whose GPUs are idle: too long by its samples → warned → still idle by newer samples → stopped.
That idle time is between two samples, by the clock that measured them; a time without samples begins it again.
"""

from collections.abc import Iterator
from typing import Final, Literal

from msgspec.structs import replace

from steno.engine.decide.machine import by_idleness, comer, is_occupied, is_told, timeout_of, unfit
from steno.engine.decide.placement import Plan
from steno.engine.decide.queue import CLOSED
from steno.engine.decide.situation import Situation, run_name
from steno.engine.state.gpu_use import idle_since
from steno.engine.state.kernel_mark import gpu_kept
from steno.engine.state.levers import sentence
from steno.engine.state.policy import HOUR, MINUTE
from steno.engine.state.run import Run
from steno.engine.state.sources import BLIND_AFTER
from steno.engine.state.states import State, VmState
from steno.engine.state.vm import Drain, DrainBy, Vm
from steno.engine.state.world import idle_evidence
from steno.events.clock import SECOND, backoff, format_second
from steno.events.types import RunIdleWarned, StopRequested, VmDrainCancelled, VmDrainStarted, VmStopIntended

STENO: Final = "steno"  # who requests the stops that a policy decides

REFUSED_FIRST: Final = 15 * SECOND
REFUSED_MOST: Final = 5 * MINUTE  # pause after a refusal; doubles each time, up to the most

UNHEARD_FIRST: Final = 14 * MINUTE
UNHEARD_MOST: Final = 4 * HOUR
UNHEARD_FOR: Final = 24 * HOUR
"""A machine never seen gone is told to stop again after as long as it has been ending already, between the first and
the most, for a day. After that only a person can find out what became of it.
"""

NOTICE: Final = 10 * MINUTE  # from the warning to the stop; of a timeout below 20 minutes its half
STALE: Final = 15 * MINUTE  # nobody has measured since: what the GPUs do is unknown


def cancelled_drains(plan: Plan) -> Iterator[VmDrainCancelled]:
    """Machines that stay after all, given what the queue is about to get."""
    for vm in plan.situation.ours:
        drain = _drain_of(vm)
        why = None if drain is None else _stays(plan.situation, plan, vm, drain)
        if why is not None:
            yield VmDrainCancelled(vm_id=vm.vm_id, provider=plan.situation.provider, why=why)


def machine_endings(plan: Plan) -> Iterator[StopRequested | VmDrainStarted | VmStopIntended]:
    """The next step towards the end of each machine that is to end."""
    situation = plan.situation
    for vm in situation.ours:
        if (drain := _drain_of(vm)) is not None:
            if _stays(situation, plan, vm, drain) is None and _goes(situation, plan, vm, drain):
                yield _stop(situation, vm, drain.by)
        elif vm.state is VmState.UNCONFIRMED and _is_unheard(situation, vm) and vm.told is not None:
            yield _stop(situation, vm, vm.told.by)
        elif vm.state is VmState.BUSY:
            yield from _stopped_runs(situation, vm)
    yield from _drains(situation, plan)


def _drain_of(vm: Vm) -> Drain | None:
    """Its drain, as long as the provider was not told to stop it."""
    return vm.drain if vm.state is VmState.DRAINING and not is_told(vm) else None


def _stop(situation: Situation, vm: Vm, by: DrainBy) -> VmStopIntended:
    return VmStopIntended(vm_id=vm.vm_id, provider=situation.provider, provider_id=vm.provider_id, by=by)


def lever_stops(plan: Plan) -> Iterator[StopRequested]:
    """Stops for the runs that a lever stops: all that it matched at its position."""
    for run in plan.situation.live:
        if run.halted and run.halt is not None:
            project, halt = run.project or plan.situation.source.partition("/")[2], run.halt
            yield replace(stop_request(run, project, by="user", submitter=halt.by), lever=halt.lever_id)


def _due(situation: Situation, vm: Vm) -> tuple[Literal["user", "create", "idle", "orphan", "lever"], str] | None:
    """Whose timeout or request ends this machine once it is empty, and that in words; None: nobody's."""
    if vm.wish is not None:
        return "user", "a user requested the stop"
    timeout, evidence = timeout_of(situation.state, vm, situation.policy), idle_evidence(situation.state, vm)
    if vm.idle_from is None or vm.kept(situation.moment) is not None:
        return None
    if (lever := situation.drainer(vm)) is not None or situation.is_closed:
        return "lever", CLOSED if lever is None else sentence(lever)
    if (kept := vm.outlasted) is not None:
        return "lever", f"{kept.by} kept it until {format_second(kept.until)}"
    if timeout.after is None or evidence < timeout.after:
        return None
    if timeout.source == "create":
        return "create", "it was created for one run, which has ended"
    seconds = f"seen idle for {evidence // SECOND} s; its timeout is {timeout.after // SECOND} s ({timeout.source})"
    return "idle" if vm.runs else "orphan", seconds


def _stays(situation: Situation, plan: Plan, vm: Vm, drain: Drain) -> str | None:
    """Why its drain is cancelled; None: it is not."""
    by = drain.by
    if is_occupied(vm):
        return "a run is on it"
    if by == "user":
        return None if vm.wish is not None else "the stop request was withdrawn"
    if (kept := vm.kept(situation.moment)) is not None and vm.wish is None:
        return f"{kept.by} keeps it until {format_second(kept.until)}"
    keep = next((kept for kept in plan.keeps if kept.vm_id == vm.vm_id), None)
    if keep is not None:
        return f"run {run_name(situation.state, keep.run_id)} can use it"
    coming = comer(situation, plan.landing, vm)
    if coming is not None:
        return f"run {run_name(situation.state, coming)} may be about to start on it"
    if _due(situation, vm) is not None or (by == "room" and plan.wanting):
        return None
    if by == "lever":
        return "the lever was released"
    return "no run needs the room any more" if by == "room" else "its idle time is below the timeout again"


def _goes(situation: Situation, plan: Plan, vm: Vm, drain: Drain) -> bool:
    """True if a poll asked after the drain began shows it empty, and the provider may be told (again) now."""
    stop, since = vm.told, drain.at
    if stop is not None and stop.position > drain.position and stop.refused_at is not None:
        since = max(since, stop.refused_at)
        pause = backoff(stop.times, first=REFUSED_FIRST, most=REFUSED_MOST)
        # A clock behind the record cannot measure the pause: try once, early.
        if stop.refused_at <= situation.now < stop.refused_at + pause:
            return False
    seen_empty = vm.started.get(vm.source, since) > since and vm.facts.state is VmState.IDLE and vm.missing is None
    fresh = situation.now - vm.last_at <= BLIND_AFTER
    return seen_empty and fresh and comer(situation, plan.landing, vm) is None


def _is_unheard(situation: Situation, vm: Vm) -> bool:
    """True if the provider accepted the stop, the machine was not seen to end, and a (ever rarer) retry is due."""
    stop = vm.told
    if stop is None or vm.ending_since is None or vm.missing is not None or is_occupied(vm):
        return False
    at = stop.taken_at if stop.taken_at is not None else stop.refused_at
    if at is None or situation.now - vm.ending_since > UNHEARD_FOR:
        return False
    return situation.now < at or situation.now - at >= min(UNHEARD_MOST, max(UNHEARD_FIRST, at - vm.ending_since))


def _stopped_runs(situation: Situation, vm: Vm) -> Iterator[StopRequested]:
    """A user wants the machine gone at once: stop our runs on it first. Somebody else's run on it keeps the machine."""
    if vm.wish is None or vm.wish.when_idle:
        return
    runs = [run for occupant in vm.occupants if (run := situation.state.runs.get(occupant.run_id)) is not None]
    if len(runs) < len(vm.occupants) or any(run.requested_at is None for run in runs):
        return
    for run in runs:
        if not run.terminal and run.stop_by is None:
            yield stop_request(run, run.project or situation.source.partition("/")[2], by="policy", submitter=STENO)


def stop_request(
    run: Run, project: str, *, by: Literal["user", "policy"], submitter: str, abort: bool = False
) -> StopRequested:
    return StopRequested(
        run_id=run.run_id,
        provider=run.provider,
        project=project,
        provider_id=run.provider_id,
        name=run.name or "",
        abort=abort,
        by=by,
        submitter=submitter,
    )


def _drains(situation: Situation, plan: Plan) -> Iterator[VmDrainStarted]:
    empty = [
        vm
        for vm in sorted(situation.ours, key=by_idleness)
        if vm.state is VmState.IDLE
        and vm.facts.state is VmState.IDLE
        and not is_told(vm)
        and vm.missing is None
        and not is_occupied(vm)
        and vm.vm_id not in plan.claimed
        and comer(situation, plan.landing, vm) is None
    ]
    going = sum(vm.state in (VmState.DRAINING, VmState.TERMINATING) for vm in situation.ours)
    kept: list[Vm] = []
    for vm in empty:
        due = _due(situation, vm)
        if due is None:
            kept.append(vm)
            continue
        going += 1
        yield VmDrainStarted(vm_id=vm.vm_id, provider=situation.provider, by=due[0], detail=due[1])
    for vm in kept:
        if going >= plan.wanting or plan.head is None:
            return
        if unfit(situation, plan.head, vm) and vm.kept(situation.moment) is None:
            going += 1
            detail = f"run {run_name(situation.state, plan.head.run_id)} needs its place"
            yield VmDrainStarted(vm_id=vm.vm_id, provider=situation.provider, by="room", detail=detail)


def idle_runs(plan: Plan) -> Iterator[RunIdleWarned | StopRequested]:
    """A warning for each run whose GPUs are idle for too long, and later its stop."""
    policy, now = plan.situation.policy, plan.situation.now
    if policy.free or (timeout := policy.busy_idle_timeout) is None:
        return
    notice = min(NOTICE, timeout // 2)
    for run in plan.situation.live:
        since = idle_since(run.use)
        if run.use is None or since is None or not _counts(run):
            continue
        newest, warning = run.use.newest * SECOND, run.warned
        if now - newest > STALE or newest - since < timeout - notice:
            continue
        if warning is None:
            # Behind the newest sample too: whatever the clock of the samples says, the stop needs a later one.
            due = max(now, newest) + notice
            yield RunIdleWarned(run_id=run.run_id, provider=run.provider, since=since, stops_at=due)
        elif min(now, newest) >= warning.stops_at and newest - since >= timeout:
            project = run.project or plan.situation.source.partition("/")[2]
            yield replace(stop_request(run, project, by="policy", submitter=STENO), idle_since=since)


def _counts(run: Run) -> bool:
    """True for a running run that the policy is about: no schedule or firing, no array, no machine for kernels."""
    whole = run.schedule is None and not run.is_schedule and not run.tasks and gpu_kept(run) is None
    return run.state is State.RUNNING and run.stop_by is None and whole and not (run.terms and run.terms.keep_idle)
