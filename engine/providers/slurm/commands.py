"""`steno slurm …`: what a cluster has, what a request could get, and what else only a cluster has."""

from __future__ import annotations

from contextlib import closing
from statistics import median
from typing import TYPE_CHECKING, Any

import click

from engine.price_list import rate_of
from engine.providers.slurm.asking import asking, opened, planned, shown, span, with_variables
from engine.providers.slurm.bench import bench_command
from engine.providers.slurm.launch import run_command, up_command
from engine.providers.slurm.login_node import attach_command, exec_command, quota_command, sync_command
from events.clock import span as time_span

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.providers.kind import Host


@click.group("slurm")
def slurm() -> None:
    """What only a Slurm cluster has; everything else works on it as anywhere: submit, ps, logs, costs, replay.

    Where the cluster is, the settings say: slurm.host for a login node (ssh), else Slurm's commands of this machine.

    \b
    Examples:
      steno slurm gpus
      steno slurm run --gpu 2 --time 30m train.py
    """


@slurm.command("gpus")
@click.pass_obj
def gpus_command(host: Host) -> None:
    """List the GPU types there are, with nodes, limits, service units, and how long your runs waited for them.

    \b
    Examples:
      steno slurm gpus
      STENO_SLURM_HOST=me@login.cluster steno slurm gpus
    """
    site, survey, client = opened(host)
    with closing(client):
        cluster = survey.cluster()
    host.append(survey.polls)
    rates, waits = site.rates or {}, host.waits()
    rows = [
        (
            pool.gpu,
            pool.partition,
            f"{pool.idle} of {pool.nodes}",
            str(pool.gpus_per_node),
            str(pool.cpus),
            f"{pool.memory / 1024:.0f} GB",
            "–" if pool.limits.time is None else span(pool.limits.time),
            "–" if (rate := rate_of(pool.gpu, rates)) is None else f"{rate:g}",
            _waited(waits.get(pool.gpu, ())),
        )
        for pool in sorted(cluster.pools, key=lambda one: (one.gpu, one.partition))
    ]
    header = ("GPU", "PARTITION", "IDLE NODES", "GPUS/NODE", "CPUS", "MEMORY", "LONGEST", "SU/H", "WAITED")
    host.print(
        host.table(header, rows) if rows else "the cluster has no GPUs", {"pools": cluster.pools, "waits": waits}
    )


def _waited(waits: Sequence[int]) -> str:
    """Median and longest: `12s, 6m at most (of 9)`."""
    if not waits:
        return "–"
    middle, longest = (time_span(at) for at in (int(median(waits)), max(waits)))
    return f"{middle}, {longest} at most (of {len(waits)})"


@slurm.command("plan")
@asking
@click.pass_obj
def plan_command(host: Host, /, **asked: Any) -> None:
    """Show every way to get the GPUs, best first, with the reason for each rank; nothing is submitted.

    An estimate of Slurm's is an upper bound: where no probe starts soon, the start is unknown.

    \b
    Examples:
      steno slurm plan --gpu 2 --time 30m
      steno slurm plan --gpu 4 --type a100 --time 12h
    """
    options = with_variables(**asked)
    for name in ("account", "qos", "constraint"):
        del options[name]
    plan = planned(host, **options)[0]
    host.print(shown(host, plan), {"strategies": plan.strategies, "excluded": plan.excluded})


for _command in (run_command, up_command, exec_command, attach_command, sync_command, quota_command, bench_command):
    slurm.add_command(_command)
