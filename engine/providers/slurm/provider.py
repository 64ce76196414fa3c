"""Slurm as a provider: a round asks each source once, for all jobs; a submission is an `sbatch` with our mark."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from steno.engine.errors import (
    Conflict,
    ProviderError,
    ProviderUnreachable,
    RunNotFound,
    TaskInvalid,
    VmInUse,
    VmNotFound,
)
from steno.engine.providers.base import Entrance, Named, Provider, StopTarget, Submission, Submitted
from steno.engine.providers.sampler import SCRIPT
from steno.engine.providers.slurm import cancel
from steno.engine.providers.slurm.cluster import gpus_of, spelled
from steno.engine.providers.slurm.output import output_of
from steno.engine.providers.slurm.query import question
from steno.engine.providers.slurm.reading import SlurmReading
from steno.engine.providers.slurm.rounds import LOOK_BACK, PROOF, SACCT, SQUEUE, TASK, ClusterRounds, moment
from steno.engine.providers.slurm.rows import Row, is_silent, readable_rows
from steno.engine.providers.slurm.samples import samples_of_job, usage_of_job
from steno.engine.providers.slurm.script import render, variables
from steno.engine.providers.slurm.settings import Site
from steno.engine.providers.slurm.shell import Done, Shell
from steno.engine.providers.slurm.spec import MARK, spec_of
from steno.engine.providers.slurm.words import LIVE
from steno.engine.state.samples import Sample
from steno.events.clock import SECOND, Clock, format_time
from steno.events.errors import StenoError
from steno.events.poll import Poll

_JOB: Final = re.compile(r"\d+(_\d+|\+\d+)?")
_PREPARE: Final = (
    'for one in output ends reports claims; do mkdir -p "$1/$one"; done; '
    '{ cat > "$1/.sampler-$2" && mv "$1/.sampler-$2" "$1/sampler"; } 2>/dev/null; '
    'find "$1/samples" -type f -mtime +90 -delete 2>/dev/null; '
    'echo "steno $(readlink "$1/claims/$2")"'
)
_SBATCH: Final = 'echo "steno $(date +%s)"; exec sbatch "$@"'
"""The time is the cluster's: it is compared with Slurm's own times."""
_CLAIM: Final = """
folder=$1; shift; mkdir -p "$folder"
while [ $# -gt 1 ]; do
    ln -sn "$2" "$folder/$1" 2>/dev/null; echo "steno $1 $(readlink "$folder/$1")"; shift 2
done
"""
_NO_JOB: Final = "0"
_NUMBER: Final = re.compile(r"^steno (\d+)$", re.MULTILINE)
_HOLDER: Final = re.compile(r"^steno (\S+) (\d+)$", re.MULTILINE)
_SUBMITTED: Final = re.compile(r"(\d+)(?:;.*)?")
_MARKED: Final = re.compile(rf"--comment=[\"']?{MARK}([0-9a-f-]+)")
_PACE: Final = SECOND
_UNHURRIED: Final = 30 * SECOND  # likewise, for a reader that can wait
_KEEP: Final = 'umask 077; mkdir -p "$1" && find "$1" -type f -mtime +90 -delete; cat > "$1/$2"'
"""Keeps the variables of a job, which touches its file at each start; deletes those of 90 days without a start."""
_REFUSED: Final = "sbatch: error:"


class SlurmProvider(Provider):
    """Jobs of one user on one cluster."""

    name = "slurm"

    def __init__(self, site: Site, *, clock: Clock, reading: SlurmReading | None = None) -> None:
        """`reading`: what reads its polls, so that each line is parsed once."""
        self.site = site
        self.project = site.cluster
        self.source = site.source
        self.client = Shell(site)
        self._clock = clock
        self.rounds = ClusterRounds(site, self.client, reading or SlurmReading(), clock)

    def poll(self, follow: Mapping[str, int], *, since: int | None) -> Iterator[Poll]:
        return self.rounds.poll(follow, since=since)

    def submit(self, submission: Submission) -> Submitted:
        """Submits a single job, however often it is called: `sbatch` can take longer than our timeout and survives us,
        so the first of two jobs claims the run (see the job script), and its id is the answer.
        """
        spec = spec_of(submission.configuration, partition=self.site.partition, account=self.site.account)
        if spec.gpu is not None:
            spec = replace(spec, gpu=self._spelled(spec.gpu))
        folder, run_id, name = self.client.folder(), submission.run_id, submission.name
        script, sampler = render(spec, name=name, run_id=run_id, folder=folder), SCRIPT.encode()
        claimed = _NUMBER.search(self.client.ask("sh", "-c", _PREPARE, "sh", folder, run_id, given=sampler).out)
        if claimed is not None:
            return Submitted(provider_id=claimed[1], name=name, sent=script)
        if spec.env:
            kept = self.client.ask("sh", "-c", _KEEP, "sh", f"{folder}/env", run_id, given=variables(spec).encode())
            if kept.status != 0:
                raise ProviderError(f"{folder}/env on {self.client.where} cannot be written: {kept.problem}")
        done = self.client.ask(
            "sh", "-c", _SBATCH, "sbatch", "--parsable", f"--comment={MARK}{run_id}", given=script.encode()
        )
        refusals = [line.removeprefix(_REFUSED).strip() for line in done.err.splitlines() if line.startswith(_REFUSED)]
        if done.status > 0 and refusals:
            raise TaskInvalid(f"Slurm refuses the job: {'; '.join(refusals)}")
        if done.status > 0:
            raise ProviderError(f"sbatch on {self.client.where} failed: {done.problem}")
        answer = _SUBMITTED.fullmatch(done.out.strip().rpartition("\n")[2].strip())
        if answer is None:  # killed, or a site's wrapper swallowed the answer
            raise ProviderUnreachable(f"sbatch on {self.client.where} gave no job id: {done.problem}")
        job, at = answer[1], _NUMBER.search(done.out)
        try:
            holder = self._claim({run_id: job}).get(run_id, job)
            if holder != job:
                self.stop(StopTarget(provider_id=job, name=name, mark=run_id))
        except StenoError as error:
            raise ProviderUnreachable(f"job {job} was submitted, and then: {error}") from None
        before = None if at is None or holder != job else int(at[1]) * SECOND
        return Submitted(provider_id=holder, name=name, submitted_at=before, sent=script)

    def _claim(self, jobs: Mapping[str, str]) -> dict[str, str]:
        """The jobs that have claimed these runs; a run without such a job is claimed for the given job."""
        words = (word for pair in jobs.items() for word in pair)
        done = self.client.ask("sh", "-c", _CLAIM, "sh", f"{self.client.folder()}/claims", *words)
        return dict(_HOLDER.findall(done.out))

    def withdraw(self, run_id: str) -> str | None:
        """No job has the id 0: a job that arrives later finds the run claimed, and ends at once."""
        holder = self._claim({run_id: _NO_JOB}).get(run_id)
        return None if holder == _NO_JOB else holder

    def _spelled(self, gpu: str) -> str:
        """A GPU type as the cluster spells it; unchanged if the cluster does not list it. Raises TaskInvalid."""
        listed = self.client.ask("sinfo", "-h", "-o", "%G").out.splitlines()
        return spelled(gpu, (kind for line in listed for kind in gpus_of(line))) or gpu

    def find(self, name: str, since: int) -> tuple[Named, ...]:
        """Jobs of that name: those of the controller, those whose script wrote that it began, and those of accounting,
        with the mark in their command line. Accounting hears of a job later than the controller may forget it.

        Of a run of ours, the job that has claimed it, an array as a single job; if none has, the oldest claims it now.
        """
        listed = self._read(self.client.must("squeue", "-h", "-t", "all", "--me", "-n", name, "-o", SQUEUE))
        jobs = {row.job: _named(row) for row in listed}
        now = self._clock.now()
        if since > now + LOOK_BACK:
            return ()
        if self.rounds.has_accounting():
            words = ("sacct", *PROOF, "-u", self.client.user(), "--name", name, "-S", moment(since, now))
            done = self.client.must(*words, "-o", ",".join(self.client.columns((*SACCT, "SubmitLine"))))
            for line in done.out.splitlines():
                mark = _MARKED.search(line)
                for row in readable_rows(question(done.words), line):
                    jobs.setdefault(row.job, _named(row, mark[1] if mark is not None else None))
        written = self.client.ask("grep", "-rHs", "-e", f" {name}$", "-e", f" {name} ", self.rounds.ends())
        for row in self._read(written):
            if row.name == name:
                jobs.setdefault(row.job, _named(row))
        early = since - LOOK_BACK
        kept = [job for job in jobs.values() if job.submitted_at is None or job.submitted_at >= early]
        # Slurm's times are whole seconds; a later job has a greater number.
        kept.sort(key=lambda job: (job.submitted_at or 0, len(job.provider_id), job.provider_id), reverse=True)
        return tuple(self._once(kept))

    def _once(self, jobs: Sequence[Named]) -> Iterator[Named]:
        """Newest first, each run of ours once."""
        holders = {job.mark: _whole(job.provider_id) for job in jobs if job.mark is not None}
        if holders:
            holders |= self._claim(holders)
        going = {_whole(job.provider_id) for job in jobs if not job.ended}
        for job in jobs:
            whole = _whole(job.provider_id)
            if job.mark is None:
                yield job
            elif holders.get(job.mark) == whole:
                del holders[job.mark]
                yield replace(job, provider_id=whole, ended=whole not in going)

    def _read(self, done: Done) -> list[Row]:
        """The rows of an answer. Raises ProviderError if it is not an answer of this command."""
        rows = readable_rows(question(done.words), done.out)
        if not rows and not is_silent(done.out) and done.status == 0:
            raise ProviderError(f"{question(done.words).tool} on {self.client.where} answers {done.problem[:80]!r}")
        return rows

    def stop(self, stop: StopTarget) -> None:
        """`scancel`: SIGTERM, then SIGKILL after the cluster's KillWait; `abort`: SIGKILL at once, then the same."""
        done = self.client.ask("sh", "-c", cancel.SCRIPT, "squeue", *cancel.arguments(stop))
        jobs = cancel.read(done.out)
        if done.status != 0 and not done.unknown_job:
            raise ProviderError(f"job {stop.provider_id} on {self.client.where} cannot be cancelled: {done.problem}")
        if not jobs and done.status == 0 and not is_silent(done.out):
            raise ProviderError(f"squeue on {self.client.where} answers {done.problem[:80]!r}")
        if not jobs:
            self._expect(stop.provider_id)
        other = next((job for job in jobs if not job.over and not job.proven), None)
        if other is not None:
            at = "" if other.submitted is None else f", submitted {format_time(other.submitted)[:19]}Z"
            raise Conflict(
                f"{other.job} on {self.client.where} is a job {other.name!r} of {other.user}{at}, and nothing proves "
                f"that it is the run to be stopped: it was left alone; `scancel {other.job}` there cancels it"
            )

    def _expect(self, provider_id: str) -> bool:
        """True if the job still waits or runs. Raises RunNotFound if no source knows it."""
        rows = self._read(self.client.must("squeue", "-h", "-t", "all", "-j", provider_id, "-o", SQUEUE))
        if rows:
            return any(row.state in LIVE for row in rows)
        if not _JOB.fullmatch(provider_id):
            known = False
        elif self.rounds.has_accounting():
            known = bool(self.client.must("sacct", *PROOF, "-j", provider_id, "-o", "JobID").out.strip())
        else:
            known = bool(self.client.tail(f"{self.rounds.ends()}/{provider_id}", 0))
        if not known:
            raise RunNotFound(f"Slurm on {self.client.where} knows no job {provider_id}")
        return False

    def stop_vm(self, provider_id: str) -> None:
        """A job's machine ends only with the job."""
        job = provider_id.partition("@")[0]
        try:
            busy = self._expect(job)
        except RunNotFound:
            raise VmNotFound(f"{self.client.where} has no allocation {provider_id}") from None
        if busy:
            raise VmInUse(f"job {job} has it: stop that run")

    def logs(self, provider_id: str, name: str, *, follow: bool) -> Iterator[bytes]:
        return self._logs(provider_id, _PACE, follow=follow)

    def unhurried_logs(self, provider_id: str, name: str) -> Iterator[bytes]:
        return self._logs(provider_id, _UNHURRIED, follow=True)

    def _logs(self, provider_id: str, pace: int, *, follow: bool) -> Iterator[bytes]:
        going = self._expect(provider_id)
        own = f"{self.client.folder()}/output/{provider_id}.out"
        path = output_of(self.client, provider_id, own, accounting=self.rounds.has_accounting())
        return self._output(provider_id, path, going and follow, pace)

    def _output(self, provider_id: str, path: str, follow: bool, pace: int) -> Iterator[bytes]:
        offset = 0
        while True:
            going = follow and self._expect(provider_id)
            piece = self.client.tail(path, offset)
            offset += len(piece)
            if piece:
                yield piece
            elif going:
                self._clock.sleep(pace)
            else:
                return

    def samples(self, provider_id: str, name: str, *, since: int) -> tuple[str, list[Sample]] | None:
        """The samples of the first node of a job that Steno submitted; of other jobs, accounting's sums at the end."""
        if not _JOB.fullmatch(provider_id):
            return None
        samples = samples_of_job(self.client, provider_id, since)
        return usage_of_job(self.client, provider_id) if samples is None and self.rounds.has_accounting() else samples

    def entrance(self, provider_id: str, name: str, port: int | None) -> Entrance:
        """A step beside the job's own (`srun --overlap`), and ssh to its first node, through the login node if any."""
        node = self.client.must("squeue", "-h", "-t", "R", "-j", provider_id, "-o", "%B").out.strip()
        if not node:
            raise ProviderError(f"job {provider_id} does not run on {self.client.where}")
        login, shell = self.site.host, f"srun --jobid={provider_id} --overlap --pty bash"
        if login is None:
            return Entrance(address=None if port is None else f"http://{node}:{port}", inside=shell)
        forward = () if port is None else (f"ssh -N -L {port}:{node}:{port} {login}",)
        return Entrance(
            address=None if port is None else f"http://127.0.0.1:{port}",
            commands=forward,
            inside=f"ssh -t {login} {shell}",
        )

    def close(self) -> None:
        self.client.close()


def _named(row: Row, mark: str | None = None) -> Named:
    comment = row.comment or ""
    mark = comment.removeprefix(MARK) if comment.startswith(MARK) else mark
    return Named(provider_id=row.job, mark=mark, ended=row.state not in LIVE, submitted_at=row.submitted or row.ended)


def _whole(job: str) -> str:
    """The job of a task of an array, or of a component."""
    return TASK.split(job)[0]
