"""Strategies to get GPUs: type × partition × topology × kind, each sized so that it can run. Pure.

One kind never displaces another: what looks worse by its estimate may start first.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final

import msgspec
from msgspec.structs import replace

from steno.engine.providers.slurm.cluster import Cluster, NodePool, is_slice_of, spelled
from steno.engine.state.policy import list_price

SOON: Final = 5 * 60  # seconds: a probe that starts this early fits a gap of the schedule (backfill)
MULTI_NODE_FROM: Final = 4  # GPUs from which two nodes are tried
MOST_CPUS: Final = 32
CPUS_PER_GPU: Final = 4
SLICE_CPUS, SLICE_MEMORY = 1, 16 * 1024
LEAST_SEGMENT: Final = 10  # minutes; a shorter one would only start and write checkpoints


class Kind(StrEnum):
    """How a strategy gets its machine."""

    DIRECT = "direct"  # a normal place in the queue
    BACKFILL = "backfill"  # a probe says that it fits into a gap now
    CHECKPOINT = "checkpoint"  # segments that fit gaps, each resuming the last
    MIG = "mig"  # a slice of a GPU


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `sbatch --test-only` to a request; its start is an upper bound."""

    partition: str
    gpu: str
    gpus: int
    nodes: int
    minutes: int
    start: int | None  # seconds from the probe; None: refused


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A user's request. Memory in MiB, time in minutes."""

    gpus: int = 1
    types: tuple[str, ...] = ()  # by preference; empty: any
    mig: bool = False
    minutes: int = 60
    memory: int | None = None
    partition: str | None = None


class Strategy(msgspec.Struct, frozen=True, kw_only=True):
    """A way to get the GPUs."""

    kind: Kind
    partition: str
    gpu: str
    nodes: int
    gpus_per_node: int
    cpus: int
    memory: int  # MiB of one node
    minutes: int  # of one segment, with `checkpoint`; else all
    segments: int = 1
    start: int | None = None  # seconds, if a probe gives a soon start; None: unknown
    units: float | None = None  # service units of all of it; None: the site's table has no rate for its GPUs
    why: str = ""  # the reason for its rank

    @property
    def label(self) -> str:
        """`2×a40 on gpu-a40 (backfill)`, `2×4 a100_80 on …`."""
        shape = f"{self.gpus_per_node}" if self.nodes == 1 else f"{self.nodes}×{self.gpus_per_node}"
        return f"{shape}×{self.gpu} on {self.partition} ({self.kind.value})"


class Excluded(msgspec.Struct, frozen=True, kw_only=True):
    """A pool that cannot serve the request."""

    partition: str
    gpu: str
    why: str


class Allocation(msgspec.Struct, frozen=True, kw_only=True):
    """Strategies by rank, best first, and what was left out."""

    strategies: tuple[Strategy, ...]
    excluded: tuple[Excluded, ...]


def resolve(name: str, aliases: Mapping[str, Sequence[str]], cluster: Cluster, *, mig: bool = False) -> tuple[str, ...]:
    """The types of the cluster that a typed name means: the one of that name, those it is an alias of, and with `mig`
    the slices of that model; () for an unknown name. Raises TaskInvalid if it may be one of several.
    """
    known = [pool.gpu for pool in cluster.pools]
    names = (name, *aliases.get(name.lower(), ()))
    kinds = [spelled(name, known) for name in names]
    kinds += [gpu for gpu in known if mig and any(is_slice_of(gpu, name) for name in names)]
    return tuple(dict.fromkeys(kind for kind in kinds if kind is not None))


def make(
    request: Request, cluster: Cluster, probes: Iterable[Probe] = (), rates: Mapping[str, float] | None = None
) -> Allocation:
    """The plan, best strategy first, each with its reason."""
    answers = tuple(probes)
    strategies: list[Strategy] = []
    excluded: list[Excluded] = []
    for pool in cluster.pools:
        shapes, why = topologies(request, pool)
        if why is not None:
            excluded.append(Excluded(partition=pool.partition, gpu=pool.gpu, why=why))
        for nodes, gpus_per_node in shapes:
            strategies += _kinds(request, pool, nodes, gpus_per_node, answers, rates or {})

    def key(way: Strategy) -> tuple[bool, float, float, int, int]:
        """A soon start, then the cost, then the order of the request."""
        place = request.types.index(way.gpu) if way.gpu in request.types else len(request.types)
        return way.start is None, way.start or 0, math.inf if way.units is None else way.units, place, way.nodes

    ranked = (replace(way, why=_why(way)) for way in sorted(strategies, key=key))
    return Allocation(strategies=tuple(ranked), excluded=tuple(excluded))


def topologies(request: Request, pool: NodePool) -> tuple[tuple[tuple[int, int], ...], str | None]:
    """(nodes, GPUs of each) that the pool can give; with none, why not."""
    if request.partition is not None and pool.partition != request.partition:
        return (), f"partition {request.partition} was asked for"
    if pool.is_slice != request.mig:
        return (), "a slice of a GPU; ask with --mig" if pool.is_slice else "whole GPUs; --mig asks for a slice"
    if request.types and pool.gpu not in request.types:
        return (), f"{', '.join(request.types)} was asked for"
    limits = pool.limits
    if limits.gpus is not None and request.gpus > limits.gpus:
        return (), f"a job may have {limits.gpus} GPUs there, {request.gpus} were asked for"
    if limits.time is not None and request.minutes > limits.time:
        return (), f"its time limit is {limits.time} min, {request.minutes} min were asked for"
    most = min(pool.nodes, limits.nodes or pool.nodes)
    shapes = [(1, request.gpus)] if request.gpus <= pool.gpus_per_node else []
    if request.gpus >= MULTI_NODE_FROM and request.gpus % 2 == 0 and not request.mig:
        half = request.gpus // 2
        if half <= pool.gpus_per_node and most >= 2:
            shapes.append((2, half))
    if not shapes:
        return (), f"{most} × {pool.gpus_per_node} GPUs at most, {request.gpus} were asked for on one or two nodes"
    return tuple(shapes), None


def size(pool: NodePool, gpus_per_node: int, memory: int | None = None) -> tuple[int, int]:
    """(CPUs, MiB) of one node: in proportion to its GPUs, then fitted to the partition and its QOS.

    Slurm raises the CPUs of a job above MaxMemPerCPU, and a QOS may then never let it start: so memory follows the
    CPUs, or the CPUs follow a requested memory.
    """
    if pool.is_slice:
        cpus, mebibytes = SLICE_CPUS, memory or SLICE_MEMORY
    else:
        cpus = min(MOST_CPUS, CPUS_PER_GPU * gpus_per_node, pool.cpus)
        mebibytes = memory or pool.memory * gpus_per_node // pool.gpus_per_node
    limits = pool.limits
    if limits.cpus is not None:
        cpus = max(1, min(cpus, limits.cpus))
    mebibytes = min(mebibytes, limits.memory_per_node or mebibytes, pool.memory)
    each = limits.memory_per_cpu
    if each is not None and mebibytes > cpus * each:
        if memory is not None:
            cpus = min(math.ceil(mebibytes / each), limits.cpus or pool.cpus, pool.cpus)
        mebibytes = min(mebibytes, cpus * each)
    return cpus, mebibytes


def _kinds(
    request: Request,
    pool: NodePool,
    nodes: int,
    gpus_per_node: int,
    probes: Sequence[Probe],
    rates: Mapping[str, float],
) -> list[Strategy]:
    cpus, memory = size(pool, gpus_per_node, request.memory)
    soon = soon_starts(pool, nodes, gpus_per_node, probes)
    window = max((probe.minutes for probe in soon), default=0)
    start = min((probe.start or 0 for probe in soon if probe.minutes >= request.minutes), default=None)

    def strategy(kind: Kind, minutes: int, segments: int = 1, start: int | None = None) -> Strategy:
        hourly = list_price({pool.gpu: nodes * gpus_per_node}, {"cpu": nodes * cpus, "node": nodes}, rates)
        hours = max(request.minutes, minutes) / 60
        return Strategy(
            kind=kind,
            partition=pool.partition,
            gpu=pool.gpu,
            nodes=nodes,
            gpus_per_node=gpus_per_node,
            cpus=cpus,
            memory=memory,
            minutes=minutes,
            segments=segments,
            start=start,
            units=None if hourly is None else hourly * hours,
        )

    if pool.is_slice:
        return [strategy(Kind.MIG, request.minutes, start=start)]
    if window >= request.minutes:
        return [strategy(Kind.BACKFILL, request.minutes, start=start)]
    strategies = [strategy(Kind.DIRECT, request.minutes)]
    if LEAST_SEGMENT <= window < request.minutes:
        strategies.append(strategy(Kind.CHECKPOINT, window, math.ceil(request.minutes / window), start=0))
    return strategies


def soon_starts(pool: NodePool, nodes: int, gpus_per_node: int, probes: Iterable[Probe]) -> list[Probe]:
    """The probes of that shape that would start soon."""
    shape = pool.partition, pool.gpu, nodes, gpus_per_node
    return [
        probe
        for probe in probes
        if (probe.partition, probe.gpu, probe.nodes, probe.gpus) == shape
        and probe.start is not None
        and probe.start <= SOON
    ]


def _why(way: Strategy) -> str:
    cost = f"no rate for {way.gpu}" if way.units is None else f"{math.ceil(way.units)} SU"
    if way.kind is Kind.CHECKPOINT:
        return f"{way.segments} segments of {way.minutes} min fit into gaps; {cost}"
    if way.start is not None:
        return f"a probe starts within {max(1, math.ceil(way.start / 60))} min; {cost}"
    return f"start unknown: no probe starts soon; {cost}"
