"""Which runs keep a machine for kernels, and which of the kernels' machines that is."""

from typing import Final

from engine.fold.run import Run
from engine.fold.vm import Vm, vm_id_of
from engine.kernel_mark import gpu_named

KERNELS: Final = "kernels"  # the provider whose runs are kernels
NO_GPU: Final = "CPU"  # the GPU of a kernel that needs none


def gpu_kept(run: Run) -> str | None:
    """The GPU of the machine that the run keeps, `CPU` for none; None: it keeps none."""
    return None if run.name is None or run.requested_at is None else gpu_named(run.name)


def listener_machine(run_id: str) -> str:
    """The id of the kernels' machine that this run keeps, if it keeps one."""
    return vm_id_of(KERNELS, run_id)


def is_kept(vm: Vm) -> bool:
    """Whether it is a kernels' machine: a part of the one that its listener's run is on, which alone is billed."""
    return vm.provider == KERNELS
