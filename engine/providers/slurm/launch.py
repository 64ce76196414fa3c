"""`steno slurm run` and `up`: a command on the GPUs that start first, with the project it belongs to."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import click

from engine.providers.slurm.asking import asking, planned, shown, with_variables

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from engine.providers.kind import Host
    from engine.providers.slurm.plan import Strategy
    from engine.providers.slurm.project import Project

FAN_OUT = 16  # the most strategies submitted at once


def task_of(strategy: Strategy, *, commands: Sequence[str], race: str, total: int, **more: object) -> dict[str, Any]:
    """The task that a strategy submits; `more`: further fields, except None."""
    from engine.providers.slurm.plan import Kind

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


def _running(command: Callable[..., None]) -> Callable[..., None]:
    options = (
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
        click.option(
            "--dry-run", is_flag=True, help="Print the strategies and the first one's script; submit nothing."
        ),
        click.option("--detach", is_flag=True, help="Return once they are submitted."),
        click.option("--give-up-after", metavar="DURATION", help="Stop all if none runs within this."),
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.command("run")
@click.argument("words", metavar="COMMAND…", nargs=-1, type=click.UNPROCESSED, required=True)
@asking
@_running
@click.pass_obj
def run_command(host: Host, /, words: tuple[str, ...], **asked: Any) -> None:
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
    _launch(host, words, **asked)


@click.command("up")
@asking
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
    name: str | None,
    more: Sequence[str],
    env: Sequence[str],
    no_environment: bool,
    dry_run: bool,
    detach: bool,
    give_up_after: str | None,
    **asked: Any,
) -> None:
    from engine.providers.slurm.caller import in_folder
    from engine.providers.slurm.invocation import invocation
    from engine.providers.slurm.project import manifest, project_of, sync
    from engine.providers.slurm.script import render
    from engine.providers.slurm.shell import Shell
    from engine.providers.slurm.spec import spec_of
    from engine.providers.task import Completed, check_name, choose_name, resolve_env
    from events.clock import parse_duration

    patience = None if give_up_after is None else _duration(give_up_after, parse_duration)
    if name is not None:
        check_name(name)
    here = Path.cwd()
    variables = resolve_env(list(env), os.environ, "--env")
    call = invocation(words, here)
    project = None
    if call.project or more:
        project = project_of(here, call.files, [here / path for path in more], environment=not no_environment)
    options = with_variables(**asked)
    account, more_fields = options.pop("account"), {field: options.pop(field) for field in ("qos", "constraint")}
    plan, request, site = planned(host, **options)
    race, stem, found = host.ids.new(), name or _stem(call.line), dict[str, Any]()
    with closing(Shell(site)) as client:
        if project is not None:
            snapshot = f"{project.name}/dry-run"
            if not dry_run:
                snapshot, _ = sync(client, project, host.clock.now())
                host.append([manifest(client, project, snapshot, host.clock)])
            folder = str(PurePosixPath(f"{client.folder()}/projects/{snapshot}", project.workdir))
            found = {"snapshot": snapshot, "working_dir": folder, "environment": project.environment}
            _say(project, snapshot)
        else:
            found, place = in_folder({}, client, str(here))
            if place is not None:
                click.echo(place, err=True)
        tasks = [
            task_of(
                one,
                commands=[call.line],
                race=race,
                total=request.minutes,
                env=variables,
                account=account or site.account,
                workers=call.workers,
                **more_fields,
                **found,
            )
            for one in plan.strategies[:FAN_OUT]
        ]
        if dry_run:
            script = render(spec_of(tasks[0]), name=stem, run_id=race, folder=client.folder())
            value = {"strategies": plan.strategies, "excluded": plan.excluded, "script": script, "project": project}
            host.print(f"{shown(host, plan)}\n\nThe script of the first:\n\n{script}", value)
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


def _duration(text: str, parse: Callable[[str], int]) -> int:
    try:
        return parse(text)
    except ValueError:
        raise click.UsageError(f"--give-up-after: {text!r} is not a duration; write 90s, 15m or 2h") from None


def _stem(line: str) -> str:
    """The name of a command's runs: its script, else its first word."""
    parts = line.split() or ["run"]
    chosen = next((part for part in parts if part.endswith((".py", ".sh"))), parts[0])
    return chosen.strip("'\"").rpartition("/")[2].removesuffix(".py").removesuffix(".sh") or "run"
