"""Asks the cluster for its resources, and when a request would start. Each answer is a poll."""

import re
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from steno.engine.errors import ProviderUnreachable
from steno.engine.providers.slurm.cluster import SINFO, Cluster, NodePool, describe
from steno.engine.providers.slurm.plan import Probe, Request, size, soon_starts, topologies
from steno.engine.providers.slurm.rows import time
from steno.engine.providers.slurm.shell import Done, Shell, poll_of
from steno.engine.providers.slurm.spec import gres
from steno.events.clock import SECOND, Clock
from steno.events.poll import Poll

_START: Final = re.compile(r"to start at (\S+)")
_LADDER: Final = (480, 240, 120, 60, 30)  # minutes, tried in turn if the requested time does not fit a gap
_AT_ONCE: Final = 8


class Survey:
    """A look at the cluster; `polls` has its questions and answers."""

    def __init__(self, client: Shell, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self.polls: list[Poll] = []

    def cluster(self) -> Cluster:
        """The cluster as it is now. Raises ProviderUnreachable."""
        commands = (
            ("sinfo", "-h", "-N", "-o", SINFO),
            ("scontrol", "-o", "show", "partition"),
            ("sacctmgr", "-nP", "show", "qos", "format=name,maxtresperjob,maxwall"),
        )
        with ThreadPoolExecutor(len(commands), "steno-survey") as pool:
            sinfo, partitions, qos = pool.map(lambda words: self._ask(*words), commands)
        for done in (sinfo, partitions):
            if done.status != 0:
                raise ProviderUnreachable(f"Slurm on {self._client.where} does not answer: {done.problem}")
        return describe(sinfo.out, partitions.out, qos.out if qos.status == 0 else "")

    def probes(self, request: Request, cluster: Cluster) -> tuple[Probe, ...]:
        """The start of every shape with the requested time and, if that does not fit, with shorter times."""
        shapes = [(pool, *shape) for pool in cluster.pools for shape in topologies(request, pool)[0]]
        with ThreadPoolExecutor(_AT_ONCE, "steno-probe") as threads:
            windows = threads.map(lambda shape: self._window(request, *shape), shapes)
            return tuple(probe for probes in windows for probe in probes)

    def _window(self, request: Request, pool: NodePool, nodes: int, gpus_per_node: int) -> list[Probe]:
        probes: list[Probe] = []
        for minutes in (request.minutes, *(step for step in _LADDER if step < request.minutes)):
            probes.append(self._probe(request, pool, nodes, gpus_per_node, minutes))
            if probes[-1].start is None or soon_starts(pool, nodes, gpus_per_node, probes):
                break
        return probes

    def _probe(self, request: Request, pool: NodePool, nodes: int, gpus_per_node: int, minutes: int) -> Probe:
        cpus, memory = size(pool, gpus_per_node, request.memory)
        options = (
            f"--partition={pool.partition}",
            f"--gres={gres(pool.gpu, gpus_per_node)}",
            f"--nodes={nodes}",
            f"--cpus-per-task={cpus}",
            f"--mem={memory}M",
            f"--time={minutes}",
        )
        now = self._clock.now()
        done = self._ask("sbatch", "--test-only", *options, "--wrap=true")
        # sbatch answers on standard error, and gives a time even for what can never run
        match = _START.search(done.err.strip() or done.out)
        at = time(match[1]) if match is not None and done.status == 0 else None
        start = None if at is None else max(0, (at - now) // SECOND)
        return Probe(
            partition=pool.partition, gpu=pool.gpu, gpus=gpus_per_node, nodes=nodes, minutes=minutes, start=start
        )

    def _ask(self, *command: str) -> Done:
        words, started = self._client.words(*command), self._clock.now()
        done = self._client.run(words)
        self.polls.append(poll_of(self._client.site, words, started, self._clock.now(), done))
        return done
