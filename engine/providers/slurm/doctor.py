"""`steno doctor` for a cluster: its commands, controller, accounting, partitions and folder; nothing changes."""

import re
from collections.abc import Iterator
from contextlib import closing
from time import monotonic
from typing import Final

from steno.engine.errors import TaskInvalid
from steno.engine.providers.kind import Check, CheckState, Checkup
from steno.engine.providers.slurm.rounds import NO_ACCOUNTING
from steno.engine.providers.slurm.settings import Site
from steno.engine.providers.slurm.shell import Shell
from steno.engine.providers.slurm.spec import MARK
from steno.engine.providers.slurm.survey import Survey
from steno.events.clock import Clock
from steno.events.errors import StenoError

_UNACCOUNTED: Final = (
    "runs are followed by scontrol and by the exit status that their scripts write; a job that dies with its node, or "
    "by SIGKILL, stays unknown if no poll sees it before the controller forgets it{age}"
)
_FORGETS: Final = re.compile(r"^MinJobAge\s*=\s*(\d+)", re.MULTILINE)
_CONTROLLER: Final = re.compile(r"^SlurmctldHost\[0\]\s*=\s*(.*)", re.MULTILINE)
_WRITABLE: Final = (
    'd=$1; while [ ! -e "$d" ]; do d=$(dirname "$d"); done; [ -d "$d" ] && [ -w "$d" ] && '
    "df -Pm \"$d\" | awk 'NR == 2 { print $4 }'"
)


def checkup(site: Site, clock: Clock) -> Checkup:
    """All checks; ends at the first that keeps every task from running."""
    checks: list[Check] = []
    with closing(Shell(site)) as client:
        try:
            checks += _checks(site, client, clock)
        except StenoError as error:
            return Checkup(checks=tuple(checks), problem=error)
    return Checkup(checks=tuple(checks))


def _checks(site: Site, client: Shell, clock: Clock) -> Iterator[Check]:
    began = monotonic()
    version = client.must("sbatch", "--version").out.strip()
    if site.host is not None:
        again = monotonic()
        client.must("sbatch", "--version")
        message = f"{site.host} lets us in without a password; a command takes {monotonic() - again:.2f} s"
        yield Check(name="ssh", message=f"{message} (the first {again - began:.2f} s)")
    yield Check(name="slurm", message=f"{version} on {client.where}")
    config = client.ask("scontrol", "show", "config")
    host = _CONTROLLER.search(config.out)
    if config.status != 0 or host is None:
        message = f"the controller does not answer: {config.problem}; nothing can be submitted until it does"
        yield Check(name="controller", state=CheckState.FAILED, message=message)
        return
    yield Check(name="controller", message=f"{host[1].strip()} answers")
    yield _accounting(site, client, config.out)
    yield from _partitions(site, client, clock)
    yield _folder(client)
    yield from _comments(client)


def _warning(name: str, message: str) -> Check:
    return Check(name=name, state=CheckState.WARNING, message=message)


def _accounting(site: Site, client: Shell, config: str) -> Check:
    age = _FORGETS.search(config)
    unknown = _UNACCOUNTED.format(age="" if age is None else f" (MinJobAge: {age[1]} s)")
    if site.accounting is False:
        return _warning("accounting", f"not asked (slurm.accounting); {unknown}")
    done = client.run(client.words("sacct", "-X", "-n", "-P", "-S", "now", "-o", "JobID"))
    if done.status == 0:
        return Check(name="accounting", message="sacct answers: it has every job's end and exit status")
    if any(word in done.err for word in NO_ACCOUNTING):
        return _warning("accounting", f"this cluster has no accounting; {unknown}")
    remedy = "verdicts wait for it; if this cluster has none, set slurm.accounting to none"
    return _warning("accounting", f"sacct does not answer ({done.problem}): {remedy}")


def _partitions(site: Site, client: Shell, clock: Clock) -> Iterator[Check]:
    cluster = Survey(client, clock).cluster()
    if site.partition is not None and site.partition not in cluster.partitions:
        message = f"slurm.partition is {site.partition!r}; the partitions are {', '.join(cluster.partitions)}"
        yield Check(name="partitions", state=CheckState.FAILED, message=message, error=TaskInvalid(message))
        return
    gpus = sorted({f"{pool.partition} ({pool.nodes} × {pool.gpus_per_node} {pool.gpu})" for pool in cluster.pools})
    if gpus:
        yield Check(name="partitions", message=f"with GPUs: {', '.join(gpus)}")
    else:
        yield _warning("partitions", f"none has GPUs; the partitions are {', '.join(cluster.partitions) or 'none'}")


def _comments(client: Shell) -> Iterator[Check]:
    """Warns if a job that claimed a run of ours has lost our mark: some sites' plug-ins write comments of their own."""
    listed = client.must("squeue", "-h", "-t", "all", "--me", "-o", "%F|%k").out.splitlines()
    others = dict(line.split("|", 1) for line in listed if "|" in line and f"|{MARK}" not in line)
    if not others:
        return
    names = [word for job in others for word in ("-o", "-lname", job)][1:]
    claims = client.ask("find", f"{client.folder()}/claims", "-type", "l", "(", *names, ")", "-printf", "%l\\n")
    job = next((job_id for job_id in claims.out.split() if job_id in others), None)
    if job is not None:
        message = (
            f"job {job} of ours has the comment {others[job]!r}: this site rewrites comments. The run id in its script "
            "proves that a job is ours; after a lost answer it is found once its script has begun"
        )
        yield _warning("comments", message)


def _folder(client: Shell) -> Check:
    path = client.folder()
    done = client.ask("sh", "-c", _WRITABLE, "sh", path)
    free = done.out.strip()
    if done.status != 0 or not free.isdecimal():
        message = f"{path} on {client.where} cannot be written: set slurm.folder"
        return Check(name="folder", state=CheckState.FAILED, message=message)
    return Check(name="folder", message=f"{path} on {client.where}, {int(free) / 1024:.0f} GB free")
