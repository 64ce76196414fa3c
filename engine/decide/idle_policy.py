"""When a machine goes: idle for too long → drained → seen empty once more → told; and when it stays after all.

Only machines Steno made are ever touched. Idle time is recorded evidence: time in which the source answered and showed
the machine idle. No clock is compared with it, so blind time and a clock that jumps end nothing.
"""

from collections.abc import Iterator
from typing import Final

from engine.decide.candidates import by_idleness, comer, is_occupied, is_told, unfit
from engine.decide.decisions import CancelDrain, StartDrain, StopRun, StopVm
from engine.decide.idle_timeout import timeout_of
from engine.decide.queue import Plan
from engine.decide.source_view import Scene
from engine.fold.queries import idle_evidence
from engine.fold.sources import BLIND_AFTER
from engine.fold.vm import Drain, DrainBy, Vm
from engine.policy import HOUR, MINUTE
from engine.states import VmState
from events.clock import SECOND
from events.duration import backoff

REFUSED_FIRST: Final = 15 * SECOND
REFUSED_MOST: Final = 5 * MINUTE
"""After a refusal the provider is told again this much later: twice as long each time, up to the most."""

UNHEARD_FIRST: Final = 14 * MINUTE
UNHEARD_MOST: Final = 4 * HOUR
UNHEARD_FOR: Final = 24 * HOUR
"""A machine that was never seen gone is told to go again after as long as it has been going already, at least the
first, at most the most, for a day. Then only a person can say what has become of it.
"""


def shutdown(scene: Scene, plan: Plan) -> Iterator[CancelDrain | StopRun | StartDrain | StopVm]:
    """What is to become of the source's machines, given what the queue is about to get."""
    for vm in scene.ours:
        if vm.state is VmState.DRAINING and vm.drain is not None and not is_told(vm):
            why = _stays(scene, plan, vm, vm.drain)
            if why is not None:
                yield CancelDrain(vm_id=vm.vm_id, why=why)
            elif _goes(scene, plan, vm, vm.drain):
                yield StopVm(vm_id=vm.vm_id, provider_id=vm.provider_id, by=vm.drain.by)
        elif vm.state is VmState.UNCONFIRMED:
            yield from _again(scene, vm)
        elif vm.state is VmState.BUSY:
            yield from _stopped_runs(scene, vm)
    yield from _drains(scene, plan)


def is_due(scene: Scene, vm: Vm) -> DrainBy | None:
    """Whose timeout, or wish, says that this machine goes once it is empty; None: nobody's."""
    if vm.wish is not None:
        return "user"
    timeout = timeout_of(scene.state, vm, scene.policy)
    if timeout.after is None or vm.idle_from is None or idle_evidence(scene.state, vm) < timeout.after:
        return None
    if timeout.source == "create":
        return "create"
    return "idle" if vm.runs else "orphan"


# -- one machine -----------------------------------------------------------------------------------------------------


def _stays(scene: Scene, plan: Plan, vm: Vm, drain: Drain) -> str | None:
    """Why its drain is taken back; None: it is not."""
    by = drain.by
    if is_occupied(vm):
        return "a run is on it"
    if by == "user":
        return None if vm.wish is not None else "the wish was taken back"
    keep = next((one for one in plan.keeps if one.vm_id == vm.vm_id), None)
    if keep is not None:
        return f"run {_name(scene, keep.run_id)} can use it"
    coming = comer(scene, plan.room.landing, vm)
    if coming is not None:
        return f"run {_name(scene, coming)} may be about to start on it"
    if is_due(scene, vm) is not None or (by == "room" and plan.wanting):
        return None
    return "no run needs the room any more" if by == "room" else "its timeout is no longer over"


def _goes(scene: Scene, plan: Plan, vm: Vm, drain: Drain) -> bool:
    """Whether a poll asked after the drain began shows it empty, and the provider may be told (again) now."""
    told, since = vm.told, drain.at
    if told is not None and told.position > drain.position and told.refused_at is not None:
        since = max(since, told.refused_at)
        if not _has_passed(told.refused_at, told.times, scene.now):
            return False
    seen_empty = vm.started.get(vm.source, since) > since and vm.facts.state is VmState.IDLE and vm.missing is None
    fresh = scene.now - vm.last_at <= BLIND_AFTER
    return seen_empty and fresh and comer(scene, plan.room.landing, vm) is None


def _again(scene: Scene, vm: Vm) -> Iterator[StopVm]:
    """A machine the provider had said it would end, and that was not seen to go: told again, ever more rarely."""
    told = vm.told
    if told is None or vm.ending_since is None or vm.missing is not None or is_occupied(vm):
        return
    at = told.taken_at if told.taken_at is not None else told.refused_at
    if at is None or scene.now - vm.ending_since > UNHEARD_FOR:
        return
    if scene.now < at or scene.now - at >= min(UNHEARD_MOST, max(UNHEARD_FIRST, at - vm.ending_since)):
        yield StopVm(vm_id=vm.vm_id, provider_id=vm.provider_id, by=told.by)


def _stopped_runs(scene: Scene, vm: Vm) -> Iterator[StopRun]:
    """A user wants the machine gone at once: our runs on it are ended first. One of somebody else's keeps it."""
    if vm.wish is None or vm.wish.when_idle:
        return
    runs = [scene.state.runs.get(one.run_id) for one in vm.occupants]
    if any(run is None or run.requested_at is None for run in runs):
        return
    for run in runs:
        if run is not None and not run.terminal and run.stop_by is None:
            yield StopRun(run_id=run.run_id)


# -- all of them -----------------------------------------------------------------------------------------------------


def _drains(scene: Scene, plan: Plan) -> Iterator[StartDrain]:
    empty = [
        vm
        for vm in sorted(scene.ours, key=by_idleness)
        if vm.state is VmState.IDLE
        and vm.facts.state is VmState.IDLE
        and not is_told(vm)
        and vm.missing is None
        and not is_occupied(vm)
        and vm.vm_id not in plan.room.claimed
        and comer(scene, plan.room.landing, vm) is None
    ]
    going = sum(vm.state in (VmState.DRAINING, VmState.TERMINATING) for vm in scene.ours)
    for vm in empty:
        by = is_due(scene, vm)
        if by is not None:
            going += 1
            yield StartDrain(vm_id=vm.vm_id, by=by, detail=_said(scene, vm, by))
    for vm in empty:
        if going >= plan.wanting or plan.head is None:
            return
        if is_due(scene, vm) is None and unfit(scene, plan.head, vm):
            going += 1
            yield StartDrain(vm_id=vm.vm_id, by="room", detail=f"run {_name(scene, plan.head.run_id)} needs its place")


def _has_passed(at: int, times: int, now: int) -> bool:
    """Whether it may be tried again. A clock behind the record says nothing of how long it was: one early try."""
    return now < at or now - at >= backoff(times, first=REFUSED_FIRST, most=REFUSED_MOST)


def _said(scene: Scene, vm: Vm, by: DrainBy) -> str:
    timeout = timeout_of(scene.state, vm, scene.policy)
    evidence = idle_evidence(scene.state, vm) // SECOND
    match by:
        case "user":
            return "a user asked for it to go"
        case "create":
            return "the run it was made for wanted a machine of its own, and is over"
        case _:
            after = 0 if timeout.after is None else timeout.after // SECOND
            return f"seen idle for {evidence} s; its timeout is {after} s ({timeout.source})"


def _name(scene: Scene, run_id: str) -> str:
    run = scene.state.runs.get(run_id)
    return run_id if run is None or run.name is None else run.name
