"""`steno slurm plan`, `run` and `up`: a command on the GPUs that start first, with the project it belongs to."""

import math
import os
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import reduce
from pathlib import Path, PurePosixPath
from typing import Any

import click

from steno.engine.errors import TaskInvalid
from steno.engine.providers.kind import Host
from steno.engine.providers.slurm.invocation import invocation
from steno.engine.providers.slurm.plan import Allocation, Kind, Request, Strategy, make, resolve
from steno.engine.providers.slurm.project import Project, manifest, project_of, sync
from steno.engine.providers.slurm.script import render
from steno.engine.providers.slurm.settings import site_of
from steno.engine.providers.slurm.shell import Shell
from steno.engine.providers.slurm.spec import PLAIN, in_folder, mebibytes, minutes, spec_of, with_variables
from steno.engine.providers.slurm.survey import Survey
from steno.engine.providers.task import Completed, check_name, choose_name, resolve_env
from steno.events.clock import parse_duration

FAN_OUT = 16  # the most strategies submitted at once
_LIMIT = "1h"


def opened(host: Host) -> Shell:
    """The commands of the cluster that the settings name."""
    return Shell(site_of(host.settings))


def _options(*options: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator that adds these options to a command."""
    return lambda command: reduce(lambda command, option: option(command), reversed(options), command)


_asking = _options(
    click.option("--gpu", "gpus", metavar="COUNT", type=click.IntRange(0, 1024), help="How many GPUs."),
    click.option("--type", "types", metavar="NAME", multiple=True, help="A GPU type or alias; may be repeated."),
    click.option("--mig", is_flag=True, help="A slice of a GPU."),
    click.option("--time", "max_duration", metavar="DURATION", help="For how long.  [default: 1h]"),
    click.option("--mem", metavar="SIZE", help="Memory of a node: 32G; else in proportion to the GPUs."),
    click.option("--partition", metavar="NAME", help="Only this partition."),
    click.option("--account", metavar="NAME", help="The account to charge."),
)


def _with_variables(**options: Any) -> dict[str, Any]:
    """The options with `SBATCH_*` of the user's shell for those not given; prints a line about them on stderr."""
    given = {name: value for name, value in options.items() if value is not None}
    filled, line = with_variables(given, os.environ, (*PLAIN.values(), "max_duration"))
    if line is not None:
        click.echo(line, err=True)
    return {**options, "qos": None, "constraint": None, **filled}


def _planned(
    host: Host,
    client: Shell,
    *,
    gpus: int | None,
    types: Sequence[str],
    mig: bool,
    max_duration: str | None,
    mem: str | None,
    partition: str | None,
) -> tuple[Allocation, Request]:
    """The plan for a request, its answers recorded. TaskInvalid: unknown GPU or partition, or nothing fits."""
    survey = Survey(client, host.clock)
    cluster = survey.cluster()
    wanted: list[str] = []
    for name in types:
        meant = resolve(name, client.site.aliases, cluster, mig=mig)
        if not meant:
            known = ", ".join(sorted({pool.gpu for pool in cluster.pools}))
            raise TaskInvalid(f"the cluster has no GPU {name!r}; it has: {known or 'none'}")
        wanted += meant
    if partition is not None and partition not in cluster.partitions:
        raise TaskInvalid(f"there is no partition {partition!r}; the partitions are {', '.join(cluster.partitions)}")
    request = Request(
        gpus=1 if gpus is None else gpus,
        types=tuple(wanted),
        mig=mig,
        minutes=minutes(max_duration or _LIMIT, "--time"),
        memory=None if mem is None else mebibytes(mem, "--mem"),
        partition=partition,
    )
    probes = survey.probes(request, cluster)
    host.append(survey.polls)
    plan = make(request, cluster, probes, client.site.rates)
    if not plan.strategies:
        why = "; ".join(f"{pool.gpu} on {pool.partition}: {pool.why}" for pool in plan.excluded)
        raise TaskInvalid(f"nothing can serve this: {why or 'the cluster has no GPUs'}")
    return plan, request


def _listing(host: Host, plan: Allocation) -> str:
    rows = [
        (
            str(number),
            strategy.label,
            "unknown" if strategy.start is None else f"~{max(1, strategy.start // 60)} min",
            "–" if strategy.units is None else str(math.ceil(strategy.units)),
            f"{strategy.cpus} CPUs, {strategy.memory / 1024:.0f} GB",
            strategy.why,
        )
        for number, strategy in enumerate(plan.strategies, 1)
    ]
    lines = [host.table(("", "STRATEGY", "START", "SU", "A NODE", "WHY"), rows)]
    lines += [f"left out: {pool.gpu} on {pool.partition}: {pool.why}" for pool in plan.excluded]
    return "\n".join(lines)


@click.command("plan")
@_asking
@click.pass_obj
def plan_command(host: Host, /, **options: Any) -> None:
    """Show every way to get the GPUs, best first, with the reason for each rank; nothing is submitted.

    An estimate of Slurm's is an upper bound: where no probe starts soon, the start is unknown.

    \b
    Examples:
      steno slurm plan --gpu 2 --time 30m
      steno slurm plan --gpu 4 --type a100 --time 12h
    """
    options = _with_variables(**options)
    for name in ("account", "qos", "constraint"):
        del options[name]
    with closing(opened(host)) as client:
        plan = _planned(host, client, **options)[0]
    host.print(_listing(host, plan), {"strategies": plan.strategies, "excluded": plan.excluded})


def _task_of(strategy: Strategy, *, commands: Sequence[str], race: str, total: int, **more: object) -> dict[str, Any]:
    """The task that a strategy submits; `more`: further fields, except None."""
    task: dict[str, Any] = {
        "type": "task",
        "commands": list(commands),
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
        **{name: value for name, value in more.items() if value is not None},
    }
    if strategy.kind is Kind.CHECKPOINT:
        task |= {"checkpoint": f"{strategy.minutes}m", "total_time": f"{total}m"}
    return task


_running = _options(
    click.option("--name", metavar="NAME", help="What the runs are called; else after the command."),
    click.option("--with", "more", metavar="PATH", multiple=True, help="Send this too; may be repeated."),
    click.option(
        "--env",
        "-e",
        "env",
        metavar="NAME[=VALUE]",
        multiple=True,
        help="Environment variable; without =VALUE the value comes from your shell.",
    ),
    click.option("--no-environment", is_flag=True, help="Use the packages of the machine, not a lock file."),
    click.option("--dry-run", is_flag=True, help="Print the strategies and the script of the first; submit nothing."),
    click.option("--detach", is_flag=True, help="Return once they are submitted."),
    click.option("--give-up-after", metavar="DURATION", help="Stop all if none runs within this."),
)


@click.command("run")
@click.argument("words", metavar="COMMAND…", nargs=-1, type=click.UNPROCESSED, required=True)
@_asking
@_running
@click.pass_obj
def run_command(host: Host, /, words: tuple[str, ...], **options: Any) -> None:
    """Run a command on the GPUs that start first: the best strategies are submitted, and the first to run wins.

    The others are stopped in the poll that shows the winner; what they cost is counted. The winner's output is printed
    while the job writes it, and the exit code is 0 if it succeeded and 1 if not. Ctrl-C before one runs stops all;
    later the winner goes on (exit 130). --give-up-after also stops all.

    A command that names files of this machine runs on a snapshot of its project: what git tracks, and what the command
    or --with names. Packages come from uv.lock, requirements.txt or pyproject.toml and are installed once.

    \b
    Examples:
      steno slurm run check.py --mig --time 10m
      steno slurm run --gpu 4 --type a100 "torchrun --nproc_per_node=4 train.py"
      steno slurm run --gpu 8 --time 24h --dry-run train.py
    """
    _launch(host, words, **options)


@click.command("up")
@_asking
@click.option("--run", "line", metavar="COMMAND", help="What to run; without it the machine is held for its time.")
@_running
@click.pass_obj
def up_command(host: Host, /, line: str | None, **options: Any) -> None:
    """Get GPUs and hold them, or run something on them: as `steno slurm run`.

    \b
    Examples:
      steno slurm up --gpu 2 --type h200 --time 30m --dry-run
      steno slurm up --gpu 4 --time 30m --run "torchrun --nproc_per_node=4 train.py"
    """
    _launch(host, (line,) if line else ("sleep infinity",), **options)


def _launch(
    host: Host,
    words: Sequence[str],
    *,
    name: str | None,
    more: Sequence[str],
    env: Sequence[str],
    no_environment: bool,
    dry_run: bool,
    detach: bool,
    give_up_after: str | None,
    **options: Any,
) -> None:
    patience = None if give_up_after is None else _duration(give_up_after)
    if name is not None:
        check_name(name)
    here = Path.cwd()
    variables = resolve_env(list(env), os.environ, "--env")
    call = invocation(words, here)
    project = None
    if call.project or more:
        project = project_of(here, call.files, [here / path for path in more], environment=not no_environment)
    options = _with_variables(**options)
    account, fields = options.pop("account"), {field: options.pop(field) for field in ("qos", "constraint")}
    race, stem = host.ids.new(), name or _stem(call.line)
    with closing(opened(host)) as client:
        plan, request = _planned(host, client, **options)
        if project is not None:
            snapshot = f"{project.name}/dry-run"
            if not dry_run:
                snapshot, _ = sync(client, project, host.clock.now())
                host.append([manifest(client, project, snapshot, host.clock)])
            folder = str(PurePosixPath(f"{client.folder()}/projects/{snapshot}", project.workdir))
            fields |= {"snapshot": snapshot, "working_dir": folder, "environment": project.environment}
            _say(project, snapshot)
        else:
            place, line = in_folder({}, client, str(here))
            fields |= place
            if line is not None:
                click.echo(line, err=True)
        tasks = [
            _task_of(
                strategy,
                commands=[call.line],
                race=race,
                total=request.minutes,
                env=variables,
                account=account or client.site.account,
                workers=call.workers,
                **fields,
            )
            for strategy in plan.strategies[:FAN_OUT]
        ]
        if dry_run:
            script = render(spec_of(tasks[0]), name=stem, run_id=race, folder=client.folder())
            answer = {"strategies": plan.strategies, "excluded": plan.excluded, "script": script, "project": project}
            host.print(f"{_listing(host, plan)}\n\nThe script of the first:\n\n{script}", answer)
            return
    cpus = tasks[0]["resources"]["cpu"]
    if call.workers is not None and call.workers > cpus:
        click.echo(f"{call.workers} data workers will share {cpus} CPUs; use {cpus}", err=True)
    named = [
        Completed(name=name if name and len(tasks) == 1 else choose_name(host.ids.new(), stem), configuration=task)
        for task in tasks
    ]
    host.race(named, wait=not detach, give_up_after=patience)


def _say(project: Project, snapshot: str) -> None:
    using = "" if project.environment is None else f", packages of {project.environment.rpartition('@')[0]}"
    files = "1 file" if len(project.files) == 1 else f"{len(project.files)} files"
    click.echo(f"{files} of {project.root} as {snapshot}{using}", err=True)
    if project.untracked:
        few = ", ".join(project.untracked[:3]) + (" …" if len(project.untracked) > 3 else "")
        click.echo(f"git does not track {few}, so it is not sent; --with PATH sends it", err=True)


def _duration(text: str) -> int:
    try:
        return parse_duration(text)
    except ValueError:
        raise click.UsageError(f"--give-up-after: {text!r} is not a duration; write 90s, 15m or 2h") from None


def _stem(line: str) -> str:
    """The name of a command's runs: its script, else its first word."""
    parts = line.split() or ["run"]
    chosen = next((part for part in parts if part.endswith((".py", ".sh"))), parts[0])
    return chosen.strip("'\"").rpartition("/")[2].removesuffix(".py").removesuffix(".sh") or "run"
