"""When a machine is ended: idle too long → drained → seen empty once more → told to stop; and when it stays after all.
Only machines Steno made are touched. Idle time is recorded evidence: time in which the source answered and showed the
machine idle. No clock is compared with it, so blind time and clock jumps end nothing.
"""

from collections.abc import Iterator
from typing import Final, Literal

from engine.decide.placement import Plan, by_idleness, comer, is_occupied, is_told, unfit
from engine.decide.source_view import Scene, run_name, timeout_of
from engine.fold.run import Run
from engine.fold.sources import BLIND_AFTER
from engine.fold.vm import Drain, DrainBy, Vm
from engine.fold.world_codec import idle_evidence
from engine.policy import HOUR, MINUTE
from engine.states import VmState
from events.clock import SECOND, backoff
from events.types import StopRequested, VmDrainCancelled, VmDrainStarted, VmStopIntended

STENO: Final = "steno"  # who requests the stops that a policy decides

REFUSED_FIRST: Final = 15 * SECOND
REFUSED_MOST: Final = 5 * MINUTE  # pause after a refusal; doubles each time, up to the most

UNHEARD_FIRST: Final = 14 * MINUTE
UNHEARD_MOST: Final = 4 * HOUR
UNHEARD_FOR: Final = 24 * HOUR
"""A machine never seen gone is told to stop again after as long as it has been ending already, between the first and
the most, for a day. After that only a person can find out what became of it.
"""


def cancelled_drains(plan: Plan) -> Iterator[VmDrainCancelled]:
    """Machines that stay after all, given what the queue is about to get."""
    for vm in plan.scene.ours:
        drain = _drain_of(vm)
        why = None if drain is None else _stays(plan.scene, plan, vm, drain)
        if why is not None:
            yield VmDrainCancelled(vm_id=vm.vm_id, provider=plan.scene.provider, why=why)


def machine_endings(plan: Plan) -> Iterator[StopRequested | VmDrainStarted | VmStopIntended]:
    """The next step towards the end of each machine that is to end."""
    scene = plan.scene
    for vm in scene.ours:
        if (drain := _drain_of(vm)) is not None:
            if _stays(scene, plan, vm, drain) is None and _goes(scene, plan, vm, drain):
                yield _stop(scene, vm, drain.by)
        elif vm.state is VmState.UNCONFIRMED and _is_unheard(scene, vm) and vm.told is not None:
            yield _stop(scene, vm, vm.told.by)
        elif vm.state is VmState.BUSY:
            yield from _stopped_runs(scene, vm)
    yield from _drains(scene, plan)


def _drain_of(vm: Vm) -> Drain | None:
    """Its drain, as long as the provider was not told to stop it."""
    return vm.drain if vm.state is VmState.DRAINING and not is_told(vm) else None


def _stop(scene: Scene, vm: Vm, by: DrainBy) -> VmStopIntended:
    return VmStopIntended(vm_id=vm.vm_id, provider=scene.provider, provider_id=vm.provider_id, by=by)


# -- one machine -----------------------------------------------------------------------------------------------------


def _due(scene: Scene, vm: Vm) -> tuple[Literal["user", "create", "idle", "orphan"], str] | None:
    """Whose timeout or request ends this machine once it is empty, and that in words; None: nobody's."""
    if vm.wish is not None:
        return "user", "a user requested the stop"
    timeout, evidence = timeout_of(scene.state, vm, scene.policy), idle_evidence(scene.state, vm)
    if timeout.after is None or vm.idle_from is None or evidence < timeout.after:
        return None
    if timeout.source == "create":
        return "create", "it was created for one run, which has ended"
    seconds = f"seen idle for {evidence // SECOND} s; its timeout is {timeout.after // SECOND} s ({timeout.source})"
    return "idle" if vm.runs else "orphan", seconds


def _stays(scene: Scene, plan: Plan, vm: Vm, drain: Drain) -> str | None:
    """Why its drain is cancelled; None: it is not."""
    by = drain.by
    if is_occupied(vm):
        return "a run is on it"
    if by == "user":
        return None if vm.wish is not None else "the stop request was withdrawn"
    keep = next((one for one in plan.keeps if one.vm_id == vm.vm_id), None)
    if keep is not None:
        return f"run {run_name(scene.state, keep.run_id)} can use it"
    coming = comer(scene, plan.landing, vm)
    if coming is not None:
        return f"run {run_name(scene.state, coming)} may be about to start on it"
    if _due(scene, vm) is not None or (by == "room" and plan.wanting):
        return None
    return "no run needs the room any more" if by == "room" else "its idle time is below the timeout again"


def _goes(scene: Scene, plan: Plan, vm: Vm, drain: Drain) -> bool:
    """Whether a poll asked after the drain began shows it empty, and the provider may be told (again) now."""
    told, since = vm.told, drain.at
    if told is not None and told.position > drain.position and told.refused_at is not None:
        since = max(since, told.refused_at)
        pause = backoff(told.times, first=REFUSED_FIRST, most=REFUSED_MOST)
        # A clock behind the record cannot measure the pause: try once, early.
        if told.refused_at <= scene.now < told.refused_at + pause:
            return False
    seen_empty = vm.started.get(vm.source, since) > since and vm.facts.state is VmState.IDLE and vm.missing is None
    fresh = scene.now - vm.last_at <= BLIND_AFTER
    return seen_empty and fresh and comer(scene, plan.landing, vm) is None


def _is_unheard(scene: Scene, vm: Vm) -> bool:
    """Whether the provider accepted the stop, the machine was not seen to end, and a (ever rarer) retry is due."""
    told = vm.told
    if told is None or vm.ending_since is None or vm.missing is not None or is_occupied(vm):
        return False
    at = told.taken_at if told.taken_at is not None else told.refused_at
    if at is None or scene.now - vm.ending_since > UNHEARD_FOR:
        return False
    return scene.now < at or scene.now - at >= min(UNHEARD_MOST, max(UNHEARD_FIRST, at - vm.ending_since))


def _stopped_runs(scene: Scene, vm: Vm) -> Iterator[StopRequested]:
    """A user wants the machine gone at once: stop our runs on it first. Somebody else's run on it keeps the machine."""
    if vm.wish is None or vm.wish.when_idle:
        return
    runs = [run for one in vm.occupants if (run := scene.state.runs.get(one.run_id)) is not None]
    if len(runs) < len(vm.occupants) or any(run.requested_at is None for run in runs):
        return
    for run in runs:
        if not run.terminal and run.stop_by is None:
            yield stop_request(run, run.project or scene.source.partition("/")[2], by="policy", submitter=STENO)


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


# -- all of them -----------------------------------------------------------------------------------------------------


def _drains(scene: Scene, plan: Plan) -> Iterator[VmDrainStarted]:
    empty = [
        vm
        for vm in sorted(scene.ours, key=by_idleness)
        if vm.state is VmState.IDLE
        and vm.facts.state is VmState.IDLE
        and not is_told(vm)
        and vm.missing is None
        and not is_occupied(vm)
        and vm.vm_id not in plan.claimed
        and comer(scene, plan.landing, vm) is None
    ]
    going = sum(vm.state in (VmState.DRAINING, VmState.TERMINATING) for vm in scene.ours)
    kept: list[Vm] = []
    for vm in empty:
        due = _due(scene, vm)
        if due is None:
            kept.append(vm)
            continue
        going += 1
        yield VmDrainStarted(vm_id=vm.vm_id, provider=scene.provider, by=due[0], detail=due[1])
    for vm in kept:
        if going >= plan.wanting or plan.head is None:
            return
        if unfit(scene, plan.head, vm):
            going += 1
            detail = f"run {run_name(scene.state, plan.head.run_id)} needs its place"
            yield VmDrainStarted(vm_id=vm.vm_id, provider=scene.provider, by="room", detail=detail)
