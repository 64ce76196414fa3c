"""`steno slurm …`: what a cluster has, what a request could get, and runs that take what starts first."""

from __future__ import annotations

import math
from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from engine.providers.kind import Host
    from engine.providers.slurm.plan import Allocation, Request, Strategy
    from engine.providers.slurm.settings import Site
    from engine.providers.slurm.shell import Shell

FAN_OUT = 16
"""The most strategies submitted at once."""


def _asking(command: Callable[..., None]) -> Callable[..., None]:
    """The options that say what is asked for."""
    options = (
        click.option("--gpu", "gpus", metavar="COUNT", type=click.IntRange(0, 1024), help="How many GPUs."),
        click.option("--type", "types", metavar="NAME", multiple=True, help="A GPU type or alias; may be repeated."),
        click.option("--mig", is_flag=True, help="A slice of a GPU."),
        click.option("--time", "limit", metavar="DURATION", default="1h", show_default=True, help="For how long."),
        click.option("--mem", metavar="SIZE", help="Memory of a node: 32G; else in proportion to the GPUs."),
        click.option("--partition", metavar="NAME", help="Only this partition."),
        click.option("--account", metavar="NAME", help="The account to charge."),
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.group("slurm")
def slurm() -> None:
    """What only a Slurm cluster has; everything else works on it as anywhere: submit, ps, logs, costs, replay.

    Where the cluster is, the settings say: slurm.host for a login node (ssh), else Slurm's commands of this machine.
    """


@slurm.command("gpus")
@click.pass_obj
def gpus_command(host: Host) -> None:
    """List the GPU types there are, with nodes, limits and service units.

    \b
    Examples:
      steno slurm gpus
      STENO_SLURM_HOST=me@login.cluster steno slurm gpus
    """
    site, survey, client = _opened(host)
    with closing(client):
        cluster = survey.cluster()
    host.append(survey.polls)
    rates = site.rates or {}
    rows = [
        (
            pool.gpu,
            pool.partition,
            f"{pool.idle} of {pool.nodes}",
            str(pool.gpus_per_node),
            str(pool.cpus),
            f"{pool.memory / 1024:.0f} GB",
            "–" if pool.limits.time is None else _span(pool.limits.time),
            f"{rates[pool.gpu]:g}" if pool.gpu in rates else "–",
        )
        for pool in sorted(cluster.pools, key=lambda one: (one.gpu, one.partition))
    ]
    header = ("GPU", "PARTITION", "IDLE NODES", "GPUS/NODE", "CPUS", "MEMORY", "LONGEST", "SU/H")
    host.print(host.table(header, rows) if rows else "the cluster has no GPUs", {"pools": cluster.pools})


@slurm.command("plan")
@_asking
@click.pass_obj
def plan_command(host: Host, /, account: str | None, **asked: Any) -> None:
    """Show every way to get the GPUs, best first, with the reason for each rank; nothing is submitted.

    An estimate of Slurm's is an upper bound: where no probe starts soon, the start is unknown.

    \b
    Examples:
      steno slurm plan --gpu 2 --time 30m
      steno slurm plan --gpu 4 --type a100 --time 12h
    """
    del account
    plan = _planned(host, **asked)[0]
    host.print(_shown(host, plan), {"strategies": plan.strategies, "excluded": plan.excluded})


def _opened(host: Host) -> tuple[Site, Any, Shell]:
    from engine.providers.slurm.settings import site_of
    from engine.providers.slurm.shell import Shell
    from engine.providers.slurm.survey import Survey

    site = site_of(host.settings)
    client = Shell(site)
    return site, Survey(client, host.clock), client


def _planned(
    host: Host,
    *,
    gpus: int | None,
    types: Sequence[str],
    mig: bool,
    limit: str,
    mem: str | None,
    partition: str | None,
) -> tuple[Allocation, Request, Site]:
    """The plan for what was asked, and its answers in the record.

    Raises:
        TaskInvalid: there is no such GPU or partition, or nothing can serve the request.
    """
    from engine.errors import TaskInvalid
    from engine.providers.slurm.plan import Request, make, resolve
    from engine.providers.slurm.spec import mebibytes, minutes

    site, survey, client = _opened(host)
    with closing(client):
        cluster = survey.cluster()
        wanted: list[str] = []
        for name in types:
            found = resolve(name, site.aliases, cluster)
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
            minutes=minutes(limit, "--time"),
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


def _shown(host: Host, plan: Allocation) -> str:
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


def _span(minutes: int) -> str:
    days, rest = divmod(minutes, 1440)
    return (f"{days}d" if days else "") + (f"{rest // 60}h" if rest >= 60 else f"{rest}m" if rest or not days else "")


def task_of(
    strategy: Strategy, *, commands: Sequence[str], race: str, total: int, account: str | None
) -> dict[str, Any]:
    """The task that a strategy submits."""
    from engine.providers.slurm.plan import Kind

    task: dict[str, Any] = {
        "type": "task",
        "commands": list(commands),
        "env": {},
        "resources": {
            "gpu": f"{strategy.gpu}:{strategy.gpus_per_node}",
            "cpu": strategy.cpus,
            "memory": f"{strategy.memory}M",
        },
        "nodes": strategy.nodes,
        "partition": strategy.partition,
        "max_duration": f"{strategy.minutes}m",
        "race": race,
        "strategy": strategy.label,
    }
    if account is not None:
        task["account"] = account
    if strategy.kind is Kind.CHECKPOINT:
        task |= {"checkpoint": f"{strategy.minutes}m", "total_time": f"{total}m"}
    return task


def _running(command: Callable[..., None]) -> Callable[..., None]:
    options = (
        click.option("--name", metavar="NAME", help="What the runs are called; else after the command."),
        click.option(
            "--dry-run", is_flag=True, help="Print the strategies and the first one's script; submit nothing."
        ),
        click.option("--detach", is_flag=True, help="Return once they are submitted."),
        click.option("--give-up-after", metavar="DURATION", help="Stop all if none runs within this."),
    )
    for option in reversed(options):
        command = option(command)
    return command


@slurm.command("run")
@click.argument("words", metavar="COMMAND…", nargs=-1, type=click.UNPROCESSED, required=True)
@_asking
@_running
@click.pass_obj
def run_command(host: Host, /, words: tuple[str, ...], **asked: Any) -> None:
    """Run a command on the GPUs that start first: the best strategies are submitted, and the first to run wins.

    The others are stopped in the poll that shows the winner; what they cost is counted. Ctrl-C before one runs stops
    all.

    \b
    Examples:
      steno slurm run check.py --mig --time 10m
      steno slurm run --gpu 4 --type a100 "torchrun --nproc_per_node=4 train.py"
      steno slurm run --gpu 8 --time 24h --dry-run train.py
    """
    _launch(host, words, **asked)


@slurm.command("up")
@_asking
@click.option("--run", "line", metavar="COMMAND", help="What to run; without it the machine is held for its time.")
@_running
@click.pass_obj
def up_command(host: Host, /, line: str | None, **asked: Any) -> None:
    """Get GPUs and hold them, or run something on them: as `steno slurm run`.

    \b
    Examples:
      steno slurm up --gpu 2 --type h200 --time 30m --dry-run
      steno slurm up --gpu 4 --time 30m --run "torchrun --nproc_per_node=4 train.py"
    """
    _launch(host, (line,) if line else ("sleep infinity",), **asked)


def _launch(
    host: Host,
    words: Sequence[str],
    *,
    account: str | None,
    name: str | None,
    dry_run: bool,
    detach: bool,
    give_up_after: str | None,
    **asked: Any,
) -> None:
    from engine.providers.slurm.script import render
    from engine.providers.slurm.spec import spec_of
    from engine.providers.task import Completed, check_name, choose_name
    from events.clock import parse_duration

    patience = None if give_up_after is None else _duration(give_up_after, parse_duration)
    if name is not None:
        check_name(name)
    plan, request, site = _planned(host, **asked)
    race, commands = host.ids.new(), _lines(words)
    best = plan.strategies[:FAN_OUT]
    tasks = [
        task_of(one, commands=commands, race=race, total=request.minutes, account=account or site.account)
        for one in best
    ]
    stem = name or _stem(words)
    if dry_run:
        script = render(spec_of(tasks[0]), name=stem, run_id=race, folder=site.folder)
        found = {"strategies": plan.strategies, "excluded": plan.excluded, "script": script}
        host.print(f"{_shown(host, plan)}\n\nThe script of the first:\n\n{script}", found)
        return
    named = [
        Completed(name=name if name and len(tasks) == 1 else choose_name(host.ids.new(), stem), configuration=task)
        for task in tasks
    ]
    host.race(named, wait=not detach, give_up_after=patience)


def _duration(text: str, parse: Callable[[str], int]) -> int:
    try:
        return parse(text)
    except ValueError:
        raise click.UsageError(f"--give-up-after: {text!r} is no duration; write 90s, 15m or 2h") from None


def _lines(words: Sequence[str]) -> list[str]:
    import shlex

    line = words[0] if len(words) == 1 else shlex.join(words)
    first = line.split(" ", 1)[0]
    return [f"python {line}" if first.endswith(".py") else line]


def _stem(words: Sequence[str]) -> str:
    parts = words[0].split() or ["run"]
    return next((part for part in parts if part.endswith(".py")), parts[0]).rpartition("/")[2].removesuffix(".py")
