"""What a machine of this host is: fixed when it is made, written down with it and with every run it carries."""

import os
import re

import msgspec

_MIB = 1 << 20
_GPU_MIB = {"MI210": 64 << 10, "MI250X": 128 << 10, "MI300X": 192 << 10, "MI325X": 256 << 10, "H100": 80 << 10}
"""Memory of one GPU of the models somebody may want to play with; 0 where it is not known."""

_LABEL = re.compile(r"([A-Za-z][A-Za-z0-9_-]{0,31})(?::([1-9][0-9]?))?")
_MOST_GPUS = 16


class LocalOffer(msgspec.Struct, frozen=True, kw_only=True):
    """What a new machine is like and costs, as the settings have it."""

    price: int = 0
    """Micro-dollars an hour; 0: free."""
    boot: int = 0
    """Microseconds it takes to come up."""
    gpu: str | None = None
    """The model it is said to have; a label only, for a process has what this host has."""
    gpu_count: int = 0


class MachineSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One machine. Times are microseconds UTC."""

    id: str
    name: str
    """`steno-slot-1-0`, `local-0`: given again once its machine is gone."""
    num: int
    slot: str | None
    hostname: str
    """Unique, and the only link from a run to its machine, as with dstack."""
    created: int
    price: int
    boot: int
    idle: int
    """How long it may idle before it goes by itself; 0: it goes with its run; -1: never."""
    gpu: str | None
    gpu_count: int
    cpus: int
    memory_mib: int
    disk_mib: int

    @property
    def kept(self) -> bool:
        """It outlives its run, and so is a process of its own."""
        return self.idle != 0

    @property
    def waited_for(self) -> bool:
        """A run on it starts later than it is taken: `begun.json` tells when."""
        return self.kept or self.boot > 0


def new_machine(
    offer: LocalOffer, *, machine_id: str, slot: str | None, num: int, idle: int, created: int, root: str
) -> MachineSpec:
    """A machine of this host; `root` is the folder whose disk it has."""
    disk = os.statvfs(root)
    return MachineSpec(
        id=machine_id,
        name=f"{slot or 'local'}-{num}",
        num=num,
        slot=slot,
        hostname=f"local-{machine_id[:13]}",
        created=created,
        price=offer.price,
        boot=offer.boot,
        idle=idle,
        gpu=offer.gpu,
        gpu_count=offer.gpu_count,
        cpus=os.cpu_count() or 1,
        memory_mib=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // _MIB,
        disk_mib=disk.f_frsize * disk.f_blocks // _MIB,
    )


def gpu_label(text: str) -> tuple[str, int]:
    """Model and count of `MI300X` or `MI300X:2`.

    Raises:
        ValueError: it is neither.
    """
    found = _LABEL.fullmatch(text.strip())
    if found is None or int(found[2] or 1) > _MOST_GPUS:
        raise ValueError(f"a GPU model with its number, as MI300X or MI300X:2 (at most {_MOST_GPUS})")
    return found[1], int(found[2] or 1)


def gpu_memory_mib(model: str) -> int:
    """Of one GPU of that model; 0: not known."""
    return _GPU_MIB.get(model, 0)
