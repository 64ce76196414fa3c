"""A cluster as sinfo, scontrol and sacctmgr describe it: its GPUs, and the limits of a job. Pure."""

import math
import re
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from steno.engine.errors import TaskInvalid
from steno.engine.providers.slurm.words import duration
from steno.engine.state.policy import UNNAMED_GPU
from steno.events.clock import SECOND

SINFO: Final = "%N|%R|%T|%c|%m|%C|%G"  # node, partition, state, CPUs, MiB, CPUs by use (A/I/O/T), GRES
UNTYPED: Final = UNNAMED_GPU  # the type of GPUs without one: `gpu:4`
_WHERE: Final = re.compile(r"\([^)]*\)")  # `(S:0-3)`, `(IDX:0,2)`
_SLICE: Final = re.compile(r"(?:^|(.*)[._-])(?:\d+c\.)?(\d+)g[._]?(\d+)gb(?![a-z0-9])", re.IGNORECASE)
_APART: Final = re.compile(r"[._-]+")
_PAIR: Final = re.compile(r"(\w+)=(\S*)")
_FLAGS: Final = "*~#!%$@^-+"
_AWAY: Final = "*$^"
"""Flags behind a node's state: it does not respond, is in maintenance, reboots. With `~#!%` (power saving), `@`
(a reboot to come) and `-` (planned for another job) it takes jobs later, so it is up and not idle.
"""
_DOWN: Final = ("down", "drain", "fail", "maint", "unk", "reserved", "boot", "future", "inval")
_POWER: Final = "power"  # `powered_down`, `powering_up`: as `~#!%`


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The most that one job may request; None: no limit. Memory in MiB, time in minutes."""

    time: int | None = None
    nodes: int | None = None
    cpus: int | None = None
    gpus: int | None = None
    memory_per_cpu: int | None = None
    memory_per_node: int | None = None


class NodePool(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes of one partition with GPUs of one type."""

    partition: str
    gpu: str  # Slurm's name of the type: `A100`, `a100_3g.20gb` for a slice, UNTYPED
    gpus_per_node: int
    nodes: int  # those that are up
    idle: int = 0
    cpus: int = 1
    memory: int = 1024
    limits: Limits = Limits()

    @property
    def is_slice(self) -> bool:
        """True if its GPUs are slices (MIG)."""
        return slice_of(self.gpu) is not None


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """All pools with GPUs, and the names of all partitions."""

    pools: tuple[NodePool, ...]
    partitions: tuple[str, ...]


def describe(sinfo: str, partitions: str, qos: str = "") -> Cluster:
    """The cluster.

    Args:
        sinfo: `sinfo -h -N -o SINFO`.
        partitions: `scontrol -o show partition`.
        qos: `sacctmgr -nP show qos format=name,maxtresperjob,maxwall`; "" where there is no accounting.
    """
    caps = dict(_caps(qos))
    settings = (dict(_PAIR.findall(line)) for line in partitions.splitlines())
    known = {pairs["PartitionName"]: pairs for pairs in settings if "PartitionName" in pairs}
    nodes: dict[tuple[str, str, int], list[tuple[str, int, int]]] = {}
    for line in sinfo.splitlines():
        columns = [column.strip() for column in line.split("|")]
        if len(columns) < 7 or not (columns[3].isdecimal() and columns[4].rstrip("+").isdecimal()):
            continue
        _, partition, state, cpus, memory, _, gres = columns[:7]
        for gpu, count in gpus_of(gres).items():
            pool = nodes.setdefault((partition, gpu, count), [])
            if _is_up(state.lower()):
                pool.append((state.lower(), int(cpus), int(memory.rstrip("+"))))
    pools = [
        NodePool(
            partition=partition,
            gpu=gpu,
            gpus_per_node=count,
            nodes=len(up),
            idle=sum(state == "idle" for state, _, _ in up),
            cpus=min(cpus for _, cpus, _ in up),
            memory=min(memory for _, _, memory in up),
            limits=_limits(pairs, caps.get(pairs.get("QoS", ""), {}), gpu),
        )
        for (partition, gpu, count), up in nodes.items()
        if up and (pairs := known.get(partition, {})).get("State", "UP") == "UP"
    ]
    return Cluster(pools=tuple(pools), partitions=tuple(known))


def _is_up(state: str) -> bool:
    word = state.rstrip(_FLAGS)
    if any(flag in _AWAY for flag in state[len(word) :]):
        return False
    return word.startswith(_POWER) or not any(down in word for down in _DOWN)


def gpus_of(gres: str) -> dict[str, int]:
    """GPUs of a node by type, as spelled: `gpu:A100:2(S:0-1),gpu:1g.5gb:7,shard:8` → {`A100`: 2, `1g.5gb`: 7}."""
    counts: dict[str, int] = {}
    for resource in _WHERE.sub("", gres).split(","):
        name, *rest = resource.strip().split(":")
        count = rest.pop() if rest and rest[-1].isdecimal() else "1"
        if name == "gpu" and int(count):
            kind = ":".join(rest) or UNTYPED
            counts[kind] = counts.get(kind, 0) + int(count)
    return counts


def slice_of(gpu: str) -> tuple[str, str] | None:
    """(model, size) of a type that is a slice (MIG): `a100_3g.20gb` → (`a100`, `3g.20gb`); None: it is a whole GPU."""
    match = _SLICE.match(gpu)
    if match is None:
        return None
    model = (match[1] or "").lower().removesuffix("mig").strip("._-")
    return model, f"{match[2]}g.{match[3]}gb"


def is_slice_of(gpu: str, model: str) -> bool:
    """True if a type is a slice of that model, as `nvidia_h200_nvl_4g.71gb` is of `h200`."""
    part = slice_of(gpu)
    if part is None:
        return False
    words, wanted = _APART.split(part[0]), _APART.split(model.lower())
    return any(words[at : at + len(wanted)] == wanted for at in range(len(words)))


def spelled(name: str, types: Iterable[str]) -> str | None:
    """How the cluster spells a type; None: it has no such type. Slurm's names are case-sensitive; what people type is
    not, unless several types differ in case only. Raises TaskInvalid if it may be one of several.
    """
    known = dict.fromkeys(types)
    like = [kind for kind in known if kind.casefold() == name.casefold()]
    if name in known or not like:
        return name if name in known else None
    if len(like) > 1:
        raise TaskInvalid(f"GPU {name!r} may be {' or '.join(like)} on this cluster; write one of them as it is there")
    return like[0]


def _limits(pairs: Mapping[str, str], qos: Mapping[str, str], gpu: str) -> Limits:
    walls = [duration(text) for text in (pairs.get("MaxTime", ""), qos.get("wall", ""))]
    gpus = [_number(qos.get(name, "")) for name in ("gres/gpu", f"gres/gpu:{gpu}")]
    return Limits(
        time=min((math.ceil(wall / (60 * SECOND)) for wall in walls if wall is not None), default=None),
        nodes=_number(pairs.get("MaxNodes", "")),
        cpus=_number(qos.get("cpu", "")),
        gpus=min((count for count in gpus if count is not None), default=None),
        memory_per_cpu=_number(pairs.get("MaxMemPerCPU", "")) or None,
        memory_per_node=_number(pairs.get("MaxMemPerNode", "")) or None,
    )


def _caps(qos: str) -> Iterable[tuple[str, dict[str, str]]]:
    for line in qos.splitlines():
        name, _, rest = line.partition("|")
        tres, _, wall = rest.partition("|")
        yield name, dict(part.split("=", 1) for part in tres.split(",") if "=" in part) | {"wall": wall}


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() else None
