"""Asks the cluster for its resources, and what would start when. Each answer is a poll."""

import re
import shlex
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import msgspec

from engine.errors import ProviderUnreachable
from engine.providers.slurm.cluster import SINFO, Cluster, NodePool, describe
from engine.providers.slurm.plan import Probe, Request, backfill_window, size, topologies
from engine.providers.slurm.reading import PREFIX
from engine.providers.slurm.rows import time
from engine.providers.slurm.shell import Done, Shell
from engine.providers.slurm.spec import gres
from events.clock import SECOND, Clock
from events.poll import Poll

_START: Final = re.compile(r"to start at (\S+)")
_LADDER: Final = (480, 240, 120, 60, 30)  # minutes, tried in turn if the time asked for does not fit a gap
_AT_ONCE: Final = 8


class Survey:
    """One look at the cluster; `polls` has its questions and answers."""

    def __init__(self, client: Shell, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self.polls: list[Poll] = []

    def cluster(self) -> Cluster:
        """The cluster as it is now. Raises ProviderUnreachable."""
        asked = (
            ("sinfo", "-h", "-N", "-o", SINFO),
            ("scontrol", "-o", "show", "partition"),
            ("sacctmgr", "-nP", "show", "qos", "format=name,maxtresperjob,maxwall"),
        )
        with ThreadPoolExecutor(len(asked), "steno-survey") as pool:
            sinfo, partitions, qos = pool.map(lambda words: self._ask(*words), asked)
        for done in (sinfo, partitions):
            if done.status != 0:
                raise ProviderUnreachable(f"Slurm on {self._client.where} does not answer: {done.problem}")
        return describe(sinfo.out, partitions.out, qos.out if qos.status == 0 else "")

    def probes(self, request: Request, cluster: Cluster) -> tuple[Probe, ...]:
        """What would start when: every shape with the time asked for and, if that does not fit, shorter times."""
        shapes = [(pool, *shape) for pool in cluster.pools for shape in topologies(request, pool)[0]]
        with ThreadPoolExecutor(_AT_ONCE, "steno-probe") as threads:
            found = threads.map(lambda shape: self._window(request, *shape), shapes)
            return tuple(probe for probes in found for probe in probes)

    def _window(self, request: Request, pool: NodePool, nodes: int, gpus_per_node: int) -> list[Probe]:
        found: list[Probe] = []
        for minutes in (request.minutes, *(one for one in _LADDER if one < request.minutes)):
            found.append(self._probe(request, pool, nodes, gpus_per_node, minutes))
            if found[-1].start is None or backfill_window(pool, nodes, gpus_per_node, found):
                break
        return found

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
        said = done.err.strip() or done.out.strip()
        told = _START.search(said)
        at = time(told[1]) if told is not None and done.status == 0 else None
        start = None if at is None else max(0, (at - now) // SECOND)
        return Probe(
            partition=pool.partition,
            gpu=pool.gpu,
            gpus=gpus_per_node,
            nodes=nodes,
            minutes=minutes,
            start=start,
            said=said.splitlines()[-1] if said else "",
        )

    def _ask(self, *command: str) -> Done:
        words, started = self._client.words(*command), self._clock.now()
        done = self._client.run(words)
        self.polls.append(poll_of(self._client, words, started, done, self._clock))
        return done


def poll_of(client: Shell, words: Sequence[str], started: int, done: Done, clock: Clock) -> Poll:
    return Poll(
        source=f"slurm/{client.site.cluster}",
        path=PREFIX + shlex.join(words),
        req=msgspec.json.encode(list(words)),
        started_at=started,
        observed_at=clock.now(),
        status=done.status,
        error=done.problem if done.status else None,
        body=msgspec.json.encode(done.out),
        text=True,
        answered=done.status == 0,
        extra={"err": msgspec.Raw(msgspec.json.encode(done.err))} if done.err else {},
    )
