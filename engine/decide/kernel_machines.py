"""The machines kept for kernels: which there are by the world, which to ask for now, and why a kernel waits for one.

A machine is kept by a run of another provider, whose program is the listener; its name tells the GPU. Which kernel gets
which machine, and when an idle one ends, is decided as for all machines (`queue`, `idle_policy`).
"""

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from engine.decide.source_view import Scene, terms_of
from engine.fold.run import Run
from engine.fold.world_codec import WorldState, source_of, vms_of
from engine.kernel.held_machine import HeldMachine
from engine.kernel.listener_run import NO_GPU, gpu_kept
from engine.kernel_mark import FORGOTTEN
from engine.policy import MINUTE
from engine.states import State, VmState
from events.clock import SECOND, backoff, format_second

FIRST: Final = 15 * SECOND
MOST: Final = 10 * MINUTE  # the pause after a machine that failed; doubles with each, up to the most
_LOOKED_AT: Final = 1_000  # the newest runs in which failed machines are looked for


def held_machines(state: WorldState, source: str, beneath: str) -> tuple[HeldMachine, ...]:
    """Every machine of the source that may still be there. `beneath`: the source of the runs that keep them."""
    vms = [vm for vm in vms_of(state, source) if vm.billed]
    known = {vm.provider_id for vm in vms}
    listened = {vm.provider_id for vm in vms if vm.state not in (VmState.REQUESTED, VmState.PROVISIONING)}
    runs = [run for run in state.unsettled_runs() if source_of(run) == beneath]
    runs += [state.runs[run_id] for run_id in known if run_id in state.runs and state.runs[run_id] not in runs]
    found = [replace(one, listened=one.run_id in listened) for run in runs if (one := held_machine(run)) is not None]
    return tuple(sorted(found, key=lambda one: one.created))


def held_machine(run: Run) -> HeldMachine | None:
    gpu = gpu_kept(run)
    if gpu is None:
        return None
    forgotten = run.terminal and run.exit_status == FORGOTTEN
    failed = forgotten or (run.terminal and run.state is not State.SUCCEEDED and run.state is not State.STOPPED)
    return HeldMachine(
        run_id=run.run_id,
        name=run.name or "",
        gpu=None if gpu == NO_GPU else gpu,
        created=run.requested_at or 0,
        provider_id=run.provider_id,
        state=run.state,
        over=run.terminal,
        failed_at=run.transitions[-1].at if failed else None,
        forgotten=forgotten,
        why="" if run.reason is None else run.reason.value.replace("_", " "),
    )


def to_start(scene: Scene, beneath: str, held: Sequence[HeldMachine], most: int) -> tuple[str | None, ...]:
    """The GPUs of the machines to ask for now: as many as kernels wait for, at most `most` of each GPU, and after one
    that failed not before a pause. `scene`: of the kernels' source.
    """
    found = []
    for gpu, waiting in _waiting(scene).items():
        fit = [one for one in held if not one.over and one.gpu == gpu]
        coming = sum(one.run_id not in {vm.provider_id for vm in scene.vms if vm.runs} for one in fit)
        if waiting > coming and len(fit) < most and _due(scene, beneath, gpu)[0] <= scene.now:
            found.append(gpu)
    return tuple(found)


def why_waiting(scene: Scene, beneath: str, held: Sequence[HeldMachine], run: Run) -> str:
    """Why a kernel has no machine now, for people."""
    gpu, up = _gpu_of(run), {vm.provider_id for vm in scene.vms if vm.state is not VmState.PROVISIONING}
    fit = [one for one in held if not one.over and gpu in (None, one.gpu)]
    coming = [one for one in fit if one.run_id not in up]
    if fit and not coming:
        return f"{fit[0].name} has another kernel" if len(fit) == 1 else "all machines that fit have other kernels"
    if coming:
        doing = "its listener starts" if coming[0].state is State.RUNNING else coming[0].state.value
        return f"{coming[0].name} is being made ready: {doing}"
    due, failed = _due(scene, beneath, gpu)
    if failed is None:
        return "a machine is being requested"
    said = f"{failed.name} did not keep its machine ({failed.why}; see `steno logs {failed.name}`)"
    return f"{said}, the next request is at {format_second(due)}"


def _waiting(scene: Scene) -> dict[str | None, int]:
    """How many kernels wait, by GPU; those that need none go to any machine, so they count last."""
    found: dict[str | None, int] = {}
    for run in scene.queue:
        found[_gpu_of(run)] = found.get(_gpu_of(run), 0) + 1
    if None in found and any(vm.facts.gpu is not None for vm in scene.vms):
        del found[None]
    return found


def _gpu_of(run: Run) -> str | None:
    return next((gpu.upper() for gpu in terms_of(run).gpu), None)


def _due(scene: Scene, beneath: str, gpu: str | None) -> tuple[int, HeldMachine | None]:
    """When the next machine may be asked for, and the newest one if that failed."""
    failures, newest = 0, None
    for one in _newest(scene.state, beneath):
        if one.gpu != gpu or not one.over:
            continue
        if one.failed_at is None:
            break
        failures, newest = failures + 1, newest or one
    if newest is None or newest.failed_at is None:
        return 0, None
    return newest.failed_at + backoff(failures, first=FIRST, most=MOST), newest


def _newest(state: WorldState, beneath: str) -> Iterable[HeldMachine]:
    for _, run in zip(range(_LOOKED_AT), reversed(state.runs.values()), strict=False):
        if source_of(run) == beneath and (found := held_machine(run)) is not None:
            yield found
