"""`steno slurm …`: what a cluster has, what a request could get, and what else only a cluster has."""

import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from statistics import median

import click

from steno.engine.errors import ProviderError, RunNotFound
from steno.engine.providers.kind import Host
from steno.engine.providers.slurm.bench import bench_command
from steno.engine.providers.slurm.launch import opened, plan_command, run_command, up_command
from steno.engine.providers.slurm.project import manifest, project_of, sync
from steno.engine.providers.slurm.query import question
from steno.engine.providers.slurm.rows import readable_rows
from steno.engine.providers.slurm.spec import MARK
from steno.engine.providers.slurm.survey import Survey
from steno.engine.state.policy import rate_of
from steno.events.clock import SECOND, duration

_PASSED_ON = {"ignore_unknown_options": True, "allow_interspersed_args": False}


@click.group("slurm")
def slurm() -> None:
    """GPU types, plans, races and files of a Slurm cluster; everything else works as anywhere: submit, ps, logs, costs.

    The settings name the cluster: slurm.host for a login node (ssh), else Slurm's commands of this machine.

    \b
    Examples:
      steno slurm gpus
      steno slurm run --gpu 2 --time 30m train.py
    """


for _command in (plan_command, run_command, up_command, bench_command):
    slurm.add_command(_command)


@slurm.command("gpus")
@click.pass_obj
def gpus_command(host: Host) -> None:
    """List the GPU types there are, with nodes, limits, service units, and how long your runs waited for them.

    \b
    Examples:
      steno slurm gpus
      STENO_SLURM_HOST=me@login.cluster steno slurm gpus
    """
    with closing(opened(host)) as client:
        survey = Survey(client, host.clock)
        cluster = survey.cluster()
    host.append(survey.polls)
    rates, waits = client.site.rates or {}, host.waits()
    rows = [
        (
            pool.gpu,
            pool.partition,
            f"{pool.idle} of {pool.nodes}",
            str(pool.gpus_per_node),
            str(pool.cpus),
            f"{pool.memory / 1024:.0f} GB",
            "–" if pool.limits.time is None else duration(pool.limits.time * 60 * SECOND),
            "–" if (rate := rate_of(pool.gpu, rates)) is None else f"{rate:g}",
            _waited(waits.get(pool.gpu, ())),
        )
        for pool in sorted(cluster.pools, key=lambda pool: (pool.gpu, pool.partition))
    ]
    header = ("GPU", "PARTITION", "IDLE NODES", "GPUS/NODE", "CPUS", "MEMORY", "LONGEST", "SU/H", "WAITED")
    host.print(
        host.table(header, rows) if rows else "the cluster has no GPUs", {"pools": cluster.pools, "waits": waits}
    )


def _waited(waits: Sequence[int]) -> str:
    """Median and longest: `12 s, 6 m at most (of 9)`."""
    if not waits:
        return "–"
    middle, longest = (duration(at) for at in (int(median(waits)), max(waits)))
    return f"{middle}, {longest} at most (of {len(waits)})"


@slurm.command("exec", context_settings=_PASSED_ON)
@click.argument("words", metavar="COMMAND…", nargs=-1, type=click.UNPROCESSED, required=True)
@click.pass_obj
def exec_command(host: Host, /, words: tuple[str, ...]) -> None:
    """Run a command on the login node, with its output here and its exit code.

    One word is a shell line; several are run as they stand.

    \b
    Examples:
      steno slurm exec squeue --me
      steno slurm exec "ls -lh /scratch/me | tail"
    """
    with closing(opened(host)) as client:
        host.end(client.attached(("bash", "-lc", words[0]) if len(words) == 1 else words))


@slurm.command("attach")
@click.argument("run", metavar="RUN")
@click.argument("words", metavar="[COMMAND…]", nargs=-1, type=click.UNPROCESSED)
@click.pass_obj
def attach_command(host: Host, /, run: str, words: tuple[str, ...]) -> None:
    """Open a shell on the machine of a run that runs, beside it; or run a command there.

    RUN is a name, a job id, or a run id or its first characters.

    \b
    Examples:
      steno slurm attach train
      steno slurm attach 1234 -- nvidia-smi
    """
    with closing(opened(host)) as client:
        listed = client.must("squeue", "-h", "--me", "-t", "running", "-o", "%i|%T|%k|%i|%j")
        jobs = [
            (row.job, row.comment or "", row.name or "") for row in readable_rows(question(listed.words), listed.out)
        ]
        exact = [job for job, _, name in jobs if run in (job, name)]
        begun = [job for job, mark, name in jobs if name.startswith(f"{run}-") or mark.startswith(f"{MARK}{run}")]
        matching = exact or begun
        if len(matching) != 1:
            running = ", ".join(f"{name} ({job})" for job, _, name in jobs) or "none"
            what = f"{len(matching)} running jobs" if matching else "no running job"
            raise RunNotFound(f"{run!r} is {what} of yours on {client.where}; running: {running}")
        terminal = ["--pty"] if sys.stdin.isatty() else []
        step = ("srun", f"--jobid={matching[0]}", "--overlap", *terminal, *(words or ("bash",)))
        host.end(client.attached(step))


@slurm.command("sync")
@click.argument("paths", metavar="[PATH…]", nargs=-1, type=click.Path(exists=True, path_type=Path))
@click.option("--dry-run", is_flag=True, help="List the files; copy nothing.")
@click.pass_obj
def sync_command(host: Host, /, paths: tuple[Path, ...], dry_run: bool) -> None:
    """Copy the project of the current folder to the cluster: what git tracks, and PATHs.

    Each copy is a snapshot of its own; what did not change since the last one takes no space.

    \b
    Examples:
      steno slurm sync --dry-run
      steno slurm sync data/vocab.json
    """
    here = Path.cwd()
    project = project_of(here, (), [here / path for path in paths])
    if dry_run:
        host.print("\n".join(project.files) or "there is nothing to send", project)
        return
    with closing(opened(host)) as client:
        snapshot, folder = sync(client, project, host.clock.now())
        host.append([manifest(client, project, snapshot, host.clock)])
    answer = {"snapshot": snapshot, "folder": folder, "project": project}
    host.print(f"{len(project.files)} files are in {folder}", answer)


@slurm.command("quota")
@click.pass_obj
def quota_command(host: Host, /) -> None:
    """Show what the site says of your quota, and the free space of Steno's folder.

    The setting slurm.quota names the command that prints it; without it, `quota`.

    \b
    Examples:
      steno slurm quota
      STENO_SLURM_QUOTA=hdquota steno slurm quota
    """
    with closing(opened(host)) as client:
        own = client.run(("bash", "-lc", client.site.quota or "command -v quota >/dev/null && quota -s 2>&1; true"))
        space = client.run(("sh", "-c", 'mkdir -p "$1" && df -Ph "$1"', "sh", client.folder()))
    for done in (own, space):
        if done.status != 0:
            raise ProviderError(f"on {client.where}: {done.problem}")
    parts = [text for text in (own.out.strip(), space.out.strip()) if text]
    host.print("\n\n".join(parts), {"quota": own.out, "space": space.out})
