"""`steno slurm exec`, `attach`, `sync` and `quota`: what is done on the login node itself."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from engine.providers.slurm.asking import opened

if TYPE_CHECKING:
    from engine.providers.kind import Host

_PASSED_ON = {"ignore_unknown_options": True, "allow_interspersed_args": False}


@click.command("exec", context_settings=_PASSED_ON)
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
    with closing(opened(host)[2]) as client:
        host.end(client.attached(("bash", "-lc", words[0]) if len(words) == 1 else words))


@click.command("attach")
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
    import sys

    from engine.errors import RunNotFound
    from engine.providers.slurm.question import question
    from engine.providers.slurm.rows import rows
    from engine.providers.slurm.spec import MARK

    with closing(opened(host)[2]) as client:
        listed = client.must("squeue", "-h", "--me", "-t", "running", "-o", "%i|%T|%k|%i|%j")
        shown = (row for line in listed.out.splitlines() for row in rows(question(listed.words), line))
        jobs = [(row.job, row.comment or "", row.name or "") for row in shown]
        exact = [job for job, _, name in jobs if run in (job, name)]
        begun = [job for job, mark, name in jobs if name.startswith(f"{run}-") or mark.startswith(f"{MARK}{run}")]
        found = exact or begun
        if len(found) != 1:
            there = ", ".join(f"{name} ({job})" for job, _, name in jobs) or "none"
            what = f"{len(found)} running jobs" if found else "no running job"
            raise RunNotFound(f"{run!r} is {what} of yours on {client.where}; running: {there}")
        terminal = ["--pty"] if sys.stdin.isatty() else []
        step = ("srun", f"--jobid={found[0]}", "--overlap", *terminal, *(words or ("bash",)))
        host.end(client.attached(step))


@click.command("sync")
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
    from engine.providers.slurm.project import manifest, project_of, sync

    here = Path.cwd()
    project = project_of(here, (), [here / path for path in paths])
    if dry_run:
        host.print("\n".join(project.files) or "there is nothing to send", project)
        return
    with closing(opened(host)[2]) as client:
        snapshot, folder = sync(client, project, host.clock.now())
        host.append([manifest(client, project, snapshot, host.clock)])
    found = {"snapshot": snapshot, "folder": folder, "project": project}
    host.print(f"{len(project.files)} files are in {folder}", found)


@click.command("quota")
@click.pass_obj
def quota_command(host: Host, /) -> None:
    """Show what the site says of your quota, and the free space of Steno's folder.

    The command that says it is the setting slurm.quota; without it, `quota`.

    \b
    Examples:
      steno slurm quota
      STENO_SLURM_QUOTA=hdquota steno slurm quota
    """
    site, _, client = opened(host)
    with closing(client):
        own = client.run(("bash", "-lc", site.quota or "command -v quota >/dev/null && quota -s 2>&1; true"))
        space = client.run(("sh", "-c", 'mkdir -p "$1" && df -Ph "$1"', "sh", client.folder()))
    if own.status != 0 or space.status != 0:
        from engine.errors import ProviderError

        failed = own if own.status != 0 else space
        raise ProviderError(f"on {client.where}: {failed.problem}")
    parts = [text for text in (own.out.strip(), space.out.strip()) if text]
    host.print("\n\n".join(parts), {"quota": own.out, "space": space.out})
