"""A cluster as sinfo, scontrol and sacctmgr describe it: its GPUs, and the limits of a job. Pure."""

import re
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

SINFO: Final = "%N|%R|%T|%c|%m|%C|%G"  # node, partition, state, CPUs, MiB, CPUs by use (A/I/O/T), GRES
_GRES: Final = re.compile(r"gpu:([A-Za-z0-9._-]+):(\d+)")
_UNNAMED: Final = re.compile(r"gpu:(\d+)")
_SLICE: Final = re.compile(r"\d+g\.\d+gb")
_PAIR: Final = re.compile(r"(\w+)=(\S*)")
_DOWN: Final = ("down", "drain", "fail", "maint", "unk", "resv", "power", "boot", "no_resp", "planned_down")
_UNLIMITED: Final = frozenset({"", "UNLIMITED", "INFINITE", "NONE", "N/A", "(null)"})


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What one job may ask for; None: no limit. Memory in MiB, time in minutes."""

    time: int | None = None
    nodes: int | None = None
    cpus: int | None = None
    gpus: int | None = None
    memory_per_cpu: int | None = None
    memory_per_node: int | None = None


class NodePool(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes of one partition with GPUs of one type."""

    partition: str
    gpu: str  # Slurm's name of the type: `a6000`, or `1g.10gb` for a slice
    gpus_per_node: int
    nodes: int  # those that are up
    idle: int = 0
    cpus: int = 1
    memory: int = 1024
    limits: Limits = Limits()

    @property
    def is_slice(self) -> bool:
        """Whether its GPUs are slices (MIG)."""
        return bool(_SLICE.fullmatch(self.gpu))


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """All pools with GPUs, and what was not understood."""

    pools: tuple[NodePool, ...]
    partitions: tuple[str, ...]
    default: str | None = None


def describe(sinfo: str, partitions: str, qos: str = "") -> Cluster:
    """The cluster.

    Args:
        sinfo: `sinfo -h -N -o SINFO`.
        partitions: `scontrol -o show partition`.
        qos: `sacctmgr -nP show qos format=name,maxtresperjob,maxwall`; "" where there is no accounting.
    """
    caps = dict(_caps(qos))
    known = {pairs["PartitionName"]: pairs for line in partitions.splitlines() if (pairs := _pairs(line))}
    nodes: dict[tuple[str, str, int], list[tuple[str, int, int]]] = {}
    for line in sinfo.splitlines():
        columns = [column.strip() for column in line.split("|")]
        if len(columns) < 7 or not (columns[3].isdecimal() and columns[4].rstrip("+").isdecimal()):
            continue
        _, partition, state, cpus, memory, _, gres = columns[:7]
        for gpu, count in _gpus(gres):
            one = (state.lower(), int(cpus), int(memory.rstrip("+")))
            nodes.setdefault((partition, gpu, count), []).append(one)
    pools = []
    for (partition, gpu, count), found in nodes.items():
        up = [one for one in found if not any(word in one[0] for word in _DOWN)]
        pairs = known.get(partition, {})
        if not up or pairs.get("State", "UP") != "UP":
            continue
        pools.append(
            NodePool(
                partition=partition,
                gpu=gpu,
                gpus_per_node=count,
                nodes=len(up),
                idle=sum(one[0].startswith("idle") for one in up),
                cpus=min(one[1] for one in up),
                memory=min(one[2] for one in up),
                limits=_limits(pairs, caps.get(pairs.get("QoS", ""), {})),
            )
        )
    default = next((name for name, pairs in known.items() if pairs.get("Default") == "YES"), None)
    return Cluster(pools=tuple(pools), partitions=tuple(known), default=default)


def _gpus(gres: str) -> Iterable[tuple[str, int]]:
    """`gpu:a6000:4(S:0-1),shard:8` → (`a6000`, 4)."""
    found = [(kind.lower(), int(count)) for kind, count in _GRES.findall(gres)]
    if found:
        return found
    unnamed = _UNNAMED.search(gres)
    return [("gpu", int(unnamed[1]))] if unnamed is not None else []


def _pairs(line: str) -> Mapping[str, str]:
    found = dict(_PAIR.findall(line))
    return found if "PartitionName" in found else {}


def _limits(pairs: Mapping[str, str], qos: Mapping[str, str]) -> Limits:
    walls = [minutes_of(pairs.get("MaxTime", "")), minutes_of(qos.get("wall", ""))]
    return Limits(
        time=min((one for one in walls if one is not None), default=None),
        nodes=_number(pairs.get("MaxNodes", "")),
        cpus=_number(qos.get("cpu", "")),
        gpus=_number(qos.get("gres/gpu", "")),
        memory_per_cpu=_number(pairs.get("MaxMemPerCPU", "")) or None,
        memory_per_node=_number(pairs.get("MaxMemPerNode", "")) or None,
    )


def _caps(qos: str) -> Iterable[tuple[str, dict[str, str]]]:
    for line in qos.splitlines():
        name, _, rest = line.partition("|")
        tres, _, wall = rest.partition("|")
        yield name, dict(one.split("=", 1) for one in tres.split(",") if "=" in one) | {"wall": wall}


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() else None


def minutes_of(text: str) -> int | None:
    """`1-00:00:00` → 1440; None: no limit."""
    if text.upper() in _UNLIMITED:
        return None
    days, dash, clock = text.rpartition("-")
    parts = [int(part) for part in clock.split(":") if part.isdecimal()]
    if not parts:
        return None
    hours, minutes, seconds = (*parts, 0, 0)[:3] if len(parts) == 3 or dash else (0, *parts, 0)[:3]
    return (int(days) if days.isdecimal() else 0) * 1440 + hours * 60 + minutes + (seconds > 0)
