"""What `steno slurm plan`, `run` and `up` ask for, and the plan for it."""

from __future__ import annotations

import math
import os
from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from engine.providers.kind import Host
    from engine.providers.slurm.plan import Allocation, Request
    from engine.providers.slurm.settings import Site
    from engine.providers.slurm.shell import Shell


_LIMIT = "1h"


def asking(command: Callable[..., None]) -> Callable[..., None]:
    options = (
        click.option("--gpu", "gpus", metavar="COUNT", type=click.IntRange(0, 1024), help="How many GPUs."),
        click.option("--type", "types", metavar="NAME", multiple=True, help="A GPU type or alias; may be repeated."),
        click.option("--mig", is_flag=True, help="A slice of a GPU."),
        click.option("--time", "limit", metavar="DURATION", help="For how long.  [default: 1h]"),
        click.option("--mem", metavar="SIZE", help="Memory of a node: 32G; else in proportion to the GPUs."),
        click.option("--partition", metavar="NAME", help="Only this partition."),
        click.option("--account", metavar="NAME", help="The account to charge."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def with_variables(**options: Any) -> dict[str, Any]:
    """The options with what `SBATCH_*` of the user's shell say of those not given, `qos` and `constraint` too; says so
    on stderr.
    """
    from engine.providers.slurm import caller

    options["max_duration"] = options.pop("limit")
    given = {name: value for name, value in options.items() if value is not None}
    found, line = caller.with_variables(given, os.environ, (*caller.PLAIN.values(), "max_duration"))
    if line is not None:
        click.echo(line, err=True)
    options |= {"qos": None, "constraint": None, **found}
    options["limit"] = options.pop("max_duration")
    return options


def opened(host: Host) -> tuple[Site, Any, Shell]:
    from engine.providers.slurm.settings import site_of
    from engine.providers.slurm.shell import Shell
    from engine.providers.slurm.survey import Survey

    site = site_of(host.settings)
    client = Shell(site)
    return site, Survey(client, host.clock), client


def planned(
    host: Host,
    *,
    gpus: int | None,
    types: Sequence[str],
    mig: bool,
    limit: str | None,
    mem: str | None,
    partition: str | None,
) -> tuple[Allocation, Request, Site]:
    """The plan for what was asked, its answers recorded. TaskInvalid: unknown GPU or partition, or nothing fits."""
    from engine.errors import TaskInvalid
    from engine.providers.slurm.plan import Request, make, resolve
    from engine.providers.slurm.spec import mebibytes, minutes

    site, survey, client = opened(host)
    with closing(client):
        cluster = survey.cluster()
        wanted: list[str] = []
        for name in types:
            found = resolve(name, site.aliases, cluster, mig=mig)
            if not found:
                known = ", ".join(sorted({pool.gpu for pool in cluster.pools}))
                raise TaskInvalid(f"the cluster has no GPU {name!r}; it has: {known or 'none'}")
            wanted += found
        if partition is not None and partition not in cluster.partitions:
            raise TaskInvalid(f"there is no partition {partition!r}; there are: {', '.join(cluster.partitions)}")
        request = Request(
            gpus=1 if gpus is None else gpus,
            types=tuple(wanted),
            mig=mig,
            minutes=minutes(limit or _LIMIT, "--time"),
            memory=None if mem is None else mebibytes(mem, "--mem"),
            partition=partition,
        )
        probes = survey.probes(request, cluster)
    host.append(survey.polls)
    plan = make(request, cluster, probes, site.rates)
    if not plan.strategies:
        why = "; ".join(f"{one.gpu} on {one.partition}: {one.why}" for one in plan.excluded)
        raise TaskInvalid(f"nothing can serve this: {why or 'the cluster has no GPUs'}")
    return plan, request, site


def shown(host: Host, plan: Allocation) -> str:
    rows = [
        (
            str(number),
            one.label,
            "unknown" if one.start is None else f"~{max(1, one.start // 60)} min",
            "–" if one.units is None else str(math.ceil(one.units)),
            f"{one.cpus} CPUs, {one.memory / 1024:.0f} GB",
            one.why,
        )
        for number, one in enumerate(plan.strategies, 1)
    ]
    lines = [host.table(("", "STRATEGY", "START", "SU", "A NODE", "WHY"), rows)]
    lines += [f"left out: {one.gpu} on {one.partition}: {one.why}" for one in plan.excluded]
    return "\n".join(lines)


def span(minutes: int) -> str:
    days, rest = divmod(minutes, 1440)
    return (f"{days}d" if days else "") + (f"{rest // 60}h" if rest >= 60 else f"{rest}m" if rest or not days else "")
