"""The placement of a run on a machine: a pure decision by the holder of the gate, from what exists then."""

import re
from collections.abc import Sequence

import msgspec

from steno.engine.errors import TaskInvalid
from steno.engine.providers.base import Submission
from steno.engine.state.run import Requirements

_GPU_MIB = {"MI210": 64 << 10, "MI250X": 128 << 10, "MI300X": 192 << 10, "MI325X": 256 << 10, "H100": 80 << 10}
"""Memory of one GPU of the models somebody may want to play with; 0 where it is not known."""

_LABEL = re.compile(r"([A-Za-z][A-Za-z0-9_-]{0,31})(?::([1-9][0-9]?))?")
_MOST_GPUS = 16


class LocalOffer(msgspec.Struct, frozen=True, kw_only=True):
    """A new machine and its price, by the settings."""

    price: int = 0  # micro-dollars an hour; 0: free
    boot: int = 0  # microseconds it takes to come up
    gpu: str | None = None  # the model it claims; a label only: a process gets what this host has
    gpu_count: int = 0


class MachineSpec(LocalOffer, frozen=True, kw_only=True):
    """A machine. Times are microseconds UTC."""

    id: str
    name: str  # `steno-slot-1-0`, `local-0`: reused once its machine is gone
    num: int
    slot: str | None
    hostname: str  # unique, and the only link from a run to its machine
    created: int
    idle: int  # how long it may idle; 0: it ends with its run; -1: no limit
    cpus: int
    memory_mib: int
    disk_mib: int

    @property
    def kept(self) -> bool:
        """It outlives its run, so it is a process of its own."""
        return self.idle != 0

    @property
    def waited_for(self) -> bool:
        """A run on it starts later than it is placed: `begun.json` has the time."""
        return self.kept or self.boot > 0


def gpu_label(text: str) -> tuple[str, int]:
    """Model and count of `MI300X` or `MI300X:2`; ValueError if it is neither."""
    match = _LABEL.fullmatch(text.strip())
    if match is None or int(match[2] or 1) > _MOST_GPUS:
        raise ValueError(f"a GPU model with its number, as MI300X or MI300X:2 (at most {_MOST_GPUS})")
    return match[1], int(match[2] or 1)


def gpu_memory_mib(model: str) -> int:
    return _GPU_MIB.get(model, 0)


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """The machine that a run asks for."""

    slot: str | None = None  # the name its machine must have; None: any
    fresh: bool = False  # never a machine that was used before
    reuse: bool = False  # only an existing machine
    idle: int = 0  # of a new machine, as in `MachineSpec`
    gpus: tuple[str, ...] = ()  # acceptable models; empty: any, or none
    gpu_count: int = 0


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    spec: MachineSpec
    free: bool  # no run on it, and not told to end


class NoCapacity(msgspec.Struct, frozen=True):
    why: str


def place(wanted: Wanted, offer: LocalOffer, there: Sequence[Standing]) -> MachineSpec | NoCapacity | None:
    """The free machine it goes to, None to make one, or why there is no place: a slot has at most one machine."""
    if wanted.slot is not None:
        here = [machine for machine in there if machine.spec.slot == wanted.slot]
        if here and (wanted.fresh or not here[0].free):
            return NoCapacity(f"{wanted.slot} has its machine, {here[0].spec.name}, and it is not free")
    else:
        here = [machine for machine in there if machine.free and not wanted.fresh]
    fitting = [machine.spec for machine in here if _fits(wanted, offer, machine.spec)]
    if fitting:
        return min(fitting, key=lambda spec: (spec.created, spec.id))
    if wanted.slot is not None and here:
        return NoCapacity(f"{wanted.slot} has a machine of another kind, {here[0].spec.name}")
    if wanted.reuse:
        return NoCapacity("no idle machine matches, and none may be made (creation_policy: reuse)")
    if offer.gpu is not None and not _has(wanted, offer.gpu, offer.gpu_count):
        request = f"{' or '.join(wanted.gpus) or 'GPU'}:{wanted.gpu_count}"
        return NoCapacity(f"no offers: {request} is requested, this host has {offer.gpu}:{offer.gpu_count}")
    return None


def _fits(wanted: Wanted, offer: LocalOffer, spec: MachineSpec) -> bool:
    if wanted.gpus and spec.gpu is not None:
        return _has(wanted, spec.gpu, spec.gpu_count)
    return (spec.gpu, spec.gpu_count) == (offer.gpu, offer.gpu_count)


def _has(wanted: Wanted, gpu: str, count: int) -> bool:
    return (not wanted.gpus or gpu.lower() in map(str.lower, wanted.gpus)) and wanted.gpu_count <= count


def wanted(submission: Submission, terms: Requirements) -> Wanted:
    """The machine that a submission with these `terms` asks for, kept warm only where it or its task says so.

    Raises TaskInvalid if its `idle_duration` is malformed.
    """
    duration = submission.configuration.get("idle_duration")
    if duration not in (None, True) and terms.idle is None:
        raise TaskInvalid(f"idle_duration: {duration!r} is not a duration; write seconds, or 30s, 10m, 2h, or off")
    idle = submission.idle or 0
    if terms.idle is not None:
        idle = terms.idle if submission.idle is None or submission.idle < 0 else min(terms.idle, submission.idle)
    return Wanted(
        slot=submission.slot,
        fresh=submission.creation != "reuse" and terms.creation == "create",
        reuse=submission.creation == "reuse",
        idle=idle,
        gpus=terms.gpu if submission.gpu is None else (submission.gpu,),
        gpu_count=terms.gpu_count,
    )
