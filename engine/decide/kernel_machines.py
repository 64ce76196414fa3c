"""The machines kept for kernels: which there are by the world, which to ask for now, and why a kernel waits for one.

A machine is kept by a run of another provider, whose program is the listener; its name tells the GPU. Which kernel gets
which machine, and when an idle one ends, is decided as for all machines (`queue`, `idle_policy`).
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from steno.engine.decide.situation import Situation, terms_of
from steno.engine.kernel.kept_machine import KeptMachine
from steno.engine.state.kernel_mark import FORGOTTEN, NO_GPU, gpu_kept
from steno.engine.state.policy import MINUTE
from steno.engine.state.run import Run
from steno.engine.state.states import State, VmState
from steno.engine.state.world import World, source_of, vms_of
from steno.events.clock import SECOND, backoff, format_second

FIRST: Final = 15 * SECOND
MOST: Final = 10 * MINUTE  # the pause after a machine that failed; doubles with each, up to the most
_LOOKED_AT: Final = 1_000  # the newest runs in which failed machines are looked for


def kept_machines(state: World, source: str, beneath: str) -> tuple[KeptMachine, ...]:
    """Every machine of the source that may still be there. `beneath`: the source of the runs that keep them."""
    vms = [vm for vm in vms_of(state, source) if vm.billed]
    known = {vm.provider_id for vm in vms}
    listened = {vm.provider_id for vm in vms if vm.state not in (VmState.REQUESTED, VmState.PROVISIONING)}
    runs = [run for run in state.runs.open() if source_of(run) == beneath]
    runs += [state.runs[run_id] for run_id in known if run_id in state.runs and state.runs[run_id] not in runs]
    machines = [
        replace(machine, listened=machine.run_id in listened)
        for run in runs
        if (machine := kept_machine(run)) is not None
    ]
    return tuple(sorted(machines, key=lambda machine: machine.created))


def kept_machine(run: Run) -> KeptMachine | None:
    gpu = gpu_kept(run)
    if gpu is None:
        return None
    forgotten = run.terminal and run.exit_status == FORGOTTEN
    failed = forgotten or (run.terminal and run.state is not State.SUCCEEDED and run.state is not State.STOPPED)
    return KeptMachine(
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


def to_start(situation: Situation, beneath: str, kept: Sequence[KeptMachine], most: int) -> tuple[str | None, ...]:
    """The GPUs of the machines to ask for now: as many as kernels wait for, at most `most` of each GPU, and after one
    that failed not before a pause. `scene`: of the kernels' source.
    """
    gpus = []
    for gpu, waiting in _waiting(situation).items():
        fit = [machine for machine in kept if not machine.over and machine.gpu == gpu]
        coming = sum(machine.run_id not in {vm.provider_id for vm in situation.vms if vm.runs} for machine in fit)
        if waiting > coming and len(fit) < most and _due(situation, beneath, gpu)[0] <= situation.now:
            gpus.append(gpu)
    return tuple(gpus)


def why_waiting(
    situation: Situation,
    beneath: str,
    kept: Sequence[KeptMachine],
    run: Run,
    last_words: Callable[[KeptMachine], str] = lambda _: "",
) -> str:
    """Why a kernel has no machine now, for people.

    Args:
        last_words: of a machine that failed; empty: not known.
    """
    gpu, up = _gpu_of(run), {vm.provider_id for vm in situation.vms if vm.state is not VmState.PROVISIONING}
    fit = [machine for machine in kept if not machine.over and gpu in (None, machine.gpu)]
    coming = [machine for machine in fit if machine.run_id not in up]
    if fit and not coming:
        return f"{fit[0].name} has another kernel" if len(fit) == 1 else "all machines that fit have other kernels"
    if coming:
        doing = "its listener starts" if coming[0].state is State.RUNNING else coming[0].state.value
        return f"{coming[0].name} is being made ready: {doing}"
    due, failed = _due(situation, beneath, gpu)
    if failed is None:
        return "a machine is being requested"
    why = ": ".join(filter(None, (failed.why, last_words(failed))))
    failure = f"{failed.name} did not keep its machine ({why}; see `steno logs {failed.name}`)"
    return f"{failure}, the next request is at {format_second(due)}"


def _waiting(situation: Situation) -> dict[str | None, int]:
    """How many kernels wait, by GPU; those that need none go to any machine, so they count last."""
    counts: dict[str | None, int] = {}
    for run in (run for run in situation.queue if not situation.holds_back(run)):
        counts[_gpu_of(run)] = counts.get(_gpu_of(run), 0) + 1
    if None in counts and any(vm.facts.gpu is not None for vm in situation.vms):
        del counts[None]
    return counts


def _gpu_of(run: Run) -> str | None:
    return next((gpu.upper() for gpu in terms_of(run).gpu), None)


def _due(situation: Situation, beneath: str, gpu: str | None) -> tuple[int, KeptMachine | None]:
    """When the next machine may be asked for, and the newest one if that failed."""
    failures, newest = 0, None
    for machine in _newest(situation.state, beneath):
        if machine.gpu != gpu or not machine.over:
            continue
        if machine.failed_at is None:
            break
        failures, newest = failures + 1, newest or machine
    if newest is None or newest.failed_at is None:
        return 0, None
    return newest.failed_at + backoff(failures, first=FIRST, most=MOST), newest


def _newest(state: World, beneath: str) -> Iterable[KeptMachine]:
    for _, run in zip(range(_LOOKED_AT), state.runs.newest(), strict=False):
        if source_of(run) == beneath and (machine := kept_machine(run)) is not None:
            yield machine
