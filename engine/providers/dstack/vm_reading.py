"""A machine of a dstack answer as facts (servers 0.19.37 to 0.22.5). Unknown words never raise."""

import re
from typing import Annotated, Final

import msgspec

from steno.engine.providers.dstack import words
from steno.engine.providers.dstack.lenient import Identified, LenientDecoder, shared
from steno.engine.providers.dstack.run_reading import read_time
from steno.engine.state.facts import VmEvent, VmFacts
from steno.engine.state.states import VmState
from steno.engine.wire import DOLLAR

DEAREST: Final = 1_000_000  # dollars an hour; no real price is higher

_Whole = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Price = Annotated[float, msgspec.Meta(ge=0, le=DEAREST)]


class _Gpu(msgspec.Struct):
    name: str | None = None
    memory_mib: _Whole | None = None


class _Disk(msgspec.Struct):
    size_mib: _Whole | None = None


class Resources(msgspec.Struct):
    cpus: _Whole | None = None
    memory_mib: _Whole | None = None
    gpus: list[_Gpu] = []
    spot: bool | None = None
    disk: _Disk | None = None


class InstanceType(msgspec.Struct):
    name: str | None = None
    resources: Resources | None = None


class _Instance(Identified):
    """A machine as dstack sends it, as far as we read it."""

    project_name: str | None = None
    backend: str | None = None
    instance_type: InstanceType | None = None
    name: str | None = None
    fleet_name: str | None = None
    instance_num: _Whole | None = None
    hostname: str | None = None
    status: str | None = None
    unreachable: bool | None = None
    health_status: str | None = None  # since 0.19.22; of GPUs of NVIDIA alone
    termination_reason: str | None = None
    termination_reason_message: str | None = None
    created: str | None = None
    finished_at: str | msgspec.UnsetType | None = msgspec.UNSET
    region: str | None = None
    price: Price | None = None
    total_blocks: _Whole | None = None
    busy_blocks: _Whole | None = None


_instances: Final = LenientDecoder(_Instance, "a machine")


class _Target(Identified):
    type: str


class _Event(msgspec.Struct):
    """A row of `events/list`, as far as we read it."""

    message: str
    recorded_at: str
    targets: list[_Target]


_event = msgspec.json.Decoder(_Event)
_CHANGED: Final = re.compile(r"Instance status changed ([A-Z]+) -> ([A-Z]+)\b")
_PROVISIONED: Final = "Instance provisioned for job."


def read_vm_event(item: bytes) -> VmEvent | None:
    """The status change of a machine that a row of `events/list` dates; None if none.

    An event only refines a time that polls bracket, so an unreadable row is skipped.
    """
    try:
        wire = _event.decode(item)
    except msgspec.DecodeError:
        return None
    at = read_time(wire.recorded_at, "recorded_at", [])
    changed = _CHANGED.match(wire.message)
    if changed is not None:
        before, after = words.VM_STATE.get(changed[1].lower()), words.VM_STATE.get(changed[2].lower())
    elif wire.message.startswith(_PROVISIONED):
        before, after = VmState.REQUESTED, VmState.PROVISIONING
    else:
        return None
    machine = next((target.id for target in wire.targets if target.type == "instance"), None)
    if machine is None or at is None or before is None or after is None:
        return None
    return VmEvent(provider_id=machine, at=at, before=before, after=after)


def read_vm(item: bytes) -> VmFacts:
    """The facts of one machine. Raises ValueError for an item that is not a JSON object with an id."""
    wire, odd = _instances.decode(item)
    drift = list(odd)
    if wire.status is not None and wire.status not in words.INSTANCE_STATUSES:
        drift.append(f"status: unknown word {wire.status!r}")
    if wire.health_status is not None and wire.health_status not in words.HEALTH:
        drift.append(f"health_status: unknown word {wire.health_status!r}")
    if wire.termination_reason and words.instance_reason(wire.termination_reason) is None:
        drift.append(f"termination_reason: unknown word {wire.termination_reason!r}")
    reason, gives_end = wire.termination_reason or None, wire.finished_at is not msgspec.UNSET
    kind = wire.instance_type or InstanceType()
    made = kind.resources or Resources()
    gpu = made.gpus[0] if made.gpus else _Gpu()
    return VmFacts(
        provider_id=wire.id,
        name=wire.name,
        project=shared(wire.project_name),
        fleet=shared(wire.fleet_name),
        instance_num=wire.instance_num,
        hostname=shared(wire.hostname or None),
        backend=shared(wire.backend),
        region=shared(wire.region),
        status=shared(wire.status),
        state=words.VM_STATE.get(wire.status or ""),
        unreachable=wire.unreachable is True,
        health=None if wire.health_status == "healthy" else shared(wire.health_status),
        reason=reason,
        cause=words.vm_cause(reason, gives_end=gives_end),
        by_request=reason in (None, "terminated_by_user"),
        message=wire.termination_reason_message or None,
        created=read_time(wire.created, "created", drift),
        finished_at=read_time(wire.finished_at or None, "finished_at", drift),
        gives_end=gives_end,
        one_at_a_time=not gives_end,  # 0.19.37: two runs on one machine while others are idle; not seen of 0.22.5
        # A machine of dstack's Slurm backend is a Slurm job, which has its own bill; its price here is always 0.
        price=None if wire.price is None or wire.backend == words.SLURM else round(wire.price * DOLLAR),
        spot=made.spot,
        instance_type=shared(kind.name),
        gpu=shared(gpu.name),
        gpu_count=len(made.gpus),
        gpu_memory_mib=gpu.memory_mib,
        cpus=made.cpus,
        memory_mib=made.memory_mib,
        disk_mib=None if made.disk is None else made.disk.size_mib,
        total_blocks=wire.total_blocks,
        busy_blocks=wire.busy_blocks,
        drift=tuple(dict.fromkeys(drift)) if drift else (),
    )
