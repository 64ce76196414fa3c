"""Slurm as a provider: a round asks each source once, for all jobs; a submission is one `sbatch` with our mark."""

import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import msgspec
from msgspec.structs import replace

from engine.errors import (
    Conflict,
    ProviderError,
    ProviderRefused,
    ProviderUnreachable,
    RunNotFound,
    TaskInvalid,
    VmInUse,
    VmNotFound,
)
from engine.providers.base import Named, Provider, Stop, Submission, Submitted
from engine.providers.slurm import cancel, node_report
from engine.providers.slurm.cluster import gpus_of, spelled
from engine.providers.slurm.output import output_of
from engine.providers.slurm.question import ENDS, REPORTS, question
from engine.providers.slurm.reading import CLUSTER_NAME, PREFIX, SlurmReading
from engine.providers.slurm.rows import Row, is_silent, maintenance, rows
from engine.providers.slurm.script import render, variables
from engine.providers.slurm.settings import Site
from engine.providers.slurm.shell import UNKNOWN_JOB, Done, Shell
from engine.providers.slurm.spec import MARK, spec_of
from engine.providers.slurm.words import LIVE
from events.clock import SECOND, Clock, format_time
from events.errors import StenoError
from events.poll import Poll

_SQUEUE: Final = "%i|%T|%r|%P|%u|%V|%S|%N|%k|%i|%j"  # comment and name may hold the separator: the id parts them
_SACCT: Final = (  # asked of accounting, if known; the last as of `_SQUEUE`
    "JobID", "State", "ExitCode", "DerivedExitCode", "Submit", "Start", "End", "Suspended", "Timelimit", "AllocTRES",
    "NodeList", "Partition", "User", "Reason", "Comment", "JobID", "JobName",
)  # fmt: skip
_MORE: Final = ("SubmitLine",)
NO_ACCOUNTING: Final = ("disabled", "not enabled", "Access denied", "permission denied", "Permission denied")
"""What sacct says where it may not be asked, or there is no accounting."""
_JOB: Final = re.compile(r"\d+(_\d+|\+\d+)?")
_TASK: Final = re.compile(r"[_+]")  # before the number of a task, or of a component of a het job
_RESERVATIONS: Final = ("scontrol", "-o", "show", "reservation")  # asked while a job waits for maintenance
_SINFO: Final = "%N|%T|%E|%C|%m|%G|%R"
_PREPARE: Final = (
    'for one in output ends reports claims; do mkdir -p "$1/$one"; done; echo "steno $(readlink "$1/claims/$2")"'
)
_SBATCH: Final = 'echo "steno $(date +%s)"; exec sbatch "$@"'
"""The time is the cluster's: it is compared with Slurm's own times."""
_CLAIM: Final = """
folder=$1; shift; mkdir -p "$folder"
while [ $# -gt 1 ]; do
    ln -sn "$2" "$folder/$1" 2>/dev/null; echo "steno $1 $(readlink "$folder/$1")"; shift 2
done
"""
_NUMBER: Final = re.compile(r"^steno (\d+)$", re.MULTILINE)
_HOLDER: Final = re.compile(r"^steno (\S+) (\d+)$", re.MULTILINE)
_SUBMITTED: Final = re.compile(r"(\d+)(?:;.*)?")
_MARKED: Final = re.compile(rf"--comment=[\"']?{MARK}([0-9a-f-]+)")
_PROOF: Final = ("-X", "-D", "-P", "-n")
_AT_ONCE: Final = 2000  # ids of one call of sacct
_DAY: Final = 86_400 * SECOND
_CLUSTER_NAME: Final = re.compile(r"^ClusterName\s*=\s*(\S+)", re.MULTILINE)
_LOOK_BACK: Final = 60 * SECOND  # a cluster's clock may be behind ours
_PACE: Final = SECOND
_KEPT_DAYS: Final = 90  # variables of jobs that have not started for so long are deleted
_REFUSED: Final = "sbatch: error:"


class SlurmProvider(Provider):
    """Jobs of one user on one cluster."""

    name = "slurm"

    def __init__(self, site: Site, *, clock: Clock) -> None:
        self.site = site
        self.project = site.cluster
        self.source = f"slurm/{site.cluster}"
        self.client = Shell(site)
        self._clock = clock
        self._accounting = site.accounting
        self._known: tuple[str, ...] | None = None
        self._listed: dict[str, int] = {}  # jobs the controller listed in the last round → when they were submitted
        self._cluster: str | None = None  # its own name (ClusterName), once it was asked
        self._unreported: frozenset[str] = frozenset()
        """Jobs of ours that have not yet said what they found on their machine, and that they run their command."""
        self._reported: set[str] = set()
        self._reading = SlurmReading()
        self._maintenance: str | None = None  # what jobs wait for, as `maintenance`; "": not known when it is

    # -- polls ---------------------------------------------------------------------------------------------------------

    def poll(self, follow: Mapping[str, int], *, since: int | None) -> Iterator[Poll]:
        """The sources at the same time, each answer in the order of the questions: the controller's first."""
        try:
            commands = self._commands(follow, since)
            commands += [(words, b"") for words in self._reports(self._unreported & set(follow))]
            if self._maintenance is not None:
                commands.append((self.client.words(*_RESERVATIONS), b""))
        except (ProviderUnreachable, ProviderRefused) as error:
            yield self._poll(self.client.words("squeue"), self._clock.now(), str(error))
            return
        with ThreadPoolExecutor(len(commands), "steno-slurm") as pool:
            asked = [(words, self._clock.now(), pool.submit(self._asked, words, ids)) for words, ids in commands]
            for words, started, answer in asked:
                poll = self._poll(words, started, answer.result())
                if question(words).tool in ("squeue", "scontrol") and poll.answered and poll.body is not None:
                    scope = self._reading.scope(poll.path, poll.req)
                    lines = msgspec.json.decode(poll.body, type=str).splitlines()
                    listed = [row for line in lines for row in _rows(words, line)]
                    self._cluster = self._cluster or None
                    if scope is not None:
                        self._listed = {row.job: row.submitted for row in listed if row.submitted is not None}
                    ours = {row.job for row in listed if (row.comment or "").startswith(MARK)}
                    self._unreported = (self._unreported & set(follow) | ours) - self._reported
                    kept = any("maint" in (row.reason or "").lower() for row in listed)
                    self._maintenance = self._maintenance or "" if kept else None
                elif words[-len(_RESERVATIONS) :] == _RESERVATIONS and poll.answered and poll.body is not None:
                    self._maintenance = maintenance(msgspec.json.decode(poll.body, type=str), self._clock.now())
                elif question(words).tool == REPORTS and poll.answered and poll.body is not None:
                    said = map(node_report.read, msgspec.json.decode(poll.body, type=str).splitlines())
                    self._reported |= {one[0] for one in said if one is not None and one[1].phase == "command"}
                    self._unreported -= self._reported
                yield poll

    def _commands(self, follow: Mapping[str, int], since: int | None) -> list[tuple[tuple[str, ...], bytes]]:
        """The commands of a round, each with its standard input. There the changing ids of accounting, any number of
        them, change neither the question nor the record. Accounting is asked for jobs from the day of the oldest on:
        under the same ids it may have jobs of years ago.
        """
        sinfo = self.client.words("sinfo", "-h", "-N", "-o", _SINFO)
        where = {} if (name := self._cluster_name()) is None else {CLUSTER_NAME: name}
        closed = {"STENO_MAINTENANCE": self._maintenance} if self._maintenance else {}
        if not self.has_accounting():
            told = {"STENO_ACCOUNTING": "none", "STENO_USER": self.client.user(), **self._rates(), **where}
            words = self.client.words("scontrol", "-o", "show", "job", **told, **closed)
            ends = self.client.words("grep", "-rHs", "", self._ends(), **told)
            return [(words, b""), (ends, b""), (sinfo, b"")]
        squeue = self.client.words("squeue", "-h", "-t", "all", "--me", "-o", _SQUEUE, **closed, **where)
        there = {**self._listed, **follow}
        jobs = sorted({_TASK.split(job)[0] for job in there}, key=lambda job: (len(job), job))
        own, given = ("-u", self.client.user()), {**self._rates(), **where}
        if not jobs:
            start = _moment(since, self._clock.now())
            sacct = self.client.words("sacct", *_PROOF, *own, "-S", start, "-o", self._fields(), **given)
            return [(squeue, b""), (sacct, b""), (sinfo, b"")]
        start = format_time(min(there.values()) - _DAY).partition("T")[0]
        sacct = self.client.words(
            "xargs", "-n1", "sacct", *_PROOF, *own, "-S", start, "-o", self._fields(), "-j", **given
        )
        ids = "\n".join(",".join(jobs[at : at + _AT_ONCE]) for at in range(0, len(jobs), _AT_ONCE))
        return [(squeue, b""), (sacct, ids.encode()), (sinfo, b"")]

    def _cluster_name(self) -> str | None:
        """What the cluster calls itself; None: it does not say, or not yet."""
        if self._cluster is None:
            answer = self._asked(self.client.words("scontrol", "show", "config"), b"")
            known = None if isinstance(answer, str) else _CLUSTER_NAME.search(answer.out)
            self._cluster = "" if known is None else known[1]  # asked again once the controller answers
        return self._cluster or None

    def _reports(self, jobs: Collection[str]) -> list[tuple[str, ...]]:
        """One question for all; unlike `grep`, `find` succeeds if a file is missing."""
        names = [word for job in sorted(jobs) for word in ("-o", "-name", job)][1:]
        where = f"{self.client.folder()}/reports"
        words = (REPORTS, where, "(", *names, ")", "-exec", "grep", "-H", "", "{}", "+")
        return [self.client.words(*words)] if names else []

    def _rates(self) -> dict[str, str]:
        if self.site.rates is None:
            return {}
        return {"STENO_RATES": msgspec.json.encode(self.site.rates).decode()}

    def has_accounting(self) -> bool:
        """Whether sacct can be asked here; asked once. A database that is down counts as present.

        Raises ProviderUnreachable.
        """
        if self._accounting is None:
            done = self.client.run(self.client.words("sacct", "-X", "-n", "-P", "-S", "now", "-o", "JobID"))
            self._accounting = not any(word in done.err for word in NO_ACCOUNTING)
        return self._accounting

    def _fields(self, *more: str) -> str:
        """The columns of accounting that this version has: an unknown one fails the whole call."""
        if self._known is None:
            listed = self.client.run(self.client.words("sacct", "--helpformat")).out.lower().split()
            self._known = tuple(name for name in (*_SACCT, *_MORE) if name.lower() in listed) or (*_SACCT, *_MORE)
        return ",".join(name for name in self._known if name in (*_SACCT, *more))

    def _asked(self, words: tuple[str, ...], given: bytes) -> Done | str:
        try:
            return self.client.run(words, given=given)
        except (ProviderUnreachable, ProviderRefused) as error:
            return str(error)

    def _poll(self, words: tuple[str, ...], started: int, answer: Done | str) -> Poll:
        path, req = PREFIX + shlex.join(words), msgspec.json.encode(words)
        done = answer if isinstance(answer, Done) else None
        body = None if done is None else msgspec.json.encode(done.out)
        status = None if done is None else done.status
        error = answer if isinstance(answer, str) else (answer.problem if answer.status else None)
        if done is not None and question(words).tool == ENDS and not done.err:
            error = None  # no file yet, or none with a line
        extra = {"err": msgspec.Raw(msgspec.json.encode(done.err))} if done is not None and done.err else {}
        answered = self._reading.answered(path, req, status, body, error)
        return Poll(
            source=self.source,
            path=path,
            req=req,
            started_at=started,
            observed_at=self._clock.now(),
            status=status,
            error=error,
            body=body,
            text=body is not None,
            answered=answered,
            complete=answered,  # each answer is a whole list
            extra=extra,
        )

    # -- runs ----------------------------------------------------------------------------------------------------------

    def submit(self, submission: Submission) -> Submitted:
        """One job, however often it is asked for: `sbatch` can take longer than our patience and survives us, so the
        first of two jobs claims the run (see the job script), and its id is the answer.
        """
        spec = spec_of(submission.configuration, partition=self.site.partition, account=self.site.account)
        if spec.gpu is not None:
            spec = replace(spec, gpu=self._spelled(spec.gpu))
        folder, run_id, name = self.client.folder(), submission.run_id, submission.name
        script = render(spec, name=name, run_id=run_id, folder=folder)
        claimed = _NUMBER.search(self.client.ask("sh", "-c", _PREPARE, "sh", folder, run_id).out)
        if claimed is not None:
            return Submitted(provider_id=claimed[1], name=name, sent=script)
        if spec.env:
            # A job touches its file whenever it starts.
            write = f'umask 077; mkdir -p "$1" && find "$1" -type f -mtime +{_KEPT_DAYS} -delete; cat > "$1/$2"'
            kept = self.client.ask("sh", "-c", write, "sh", f"{folder}/env", run_id, given=variables(spec).encode())
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
        lines = done.out.strip().splitlines()
        found = _SUBMITTED.fullmatch(lines[-1].strip()) if lines else None
        if found is None:  # killed, or a site's wrapper swallowed the answer
            raise ProviderUnreachable(f"sbatch on {self.client.where} gave no job id: {done.problem}")
        job, at = found[1], _NUMBER.search(done.out)
        try:
            holder = self._claim({run_id: job}).get(run_id, job)
            if holder != job:
                self.stop(Stop(provider_id=job, name=name, mark=run_id))
        except StenoError as error:
            raise ProviderUnreachable(f"job {job} was submitted, and then: {error}") from None
        before = None if at is None or holder != job else int(at[1]) * SECOND
        return Submitted(provider_id=holder, name=name, submitted_at=before, sent=script)

    def _claim(self, jobs: Mapping[str, str]) -> dict[str, str]:
        """The jobs that have claimed these runs; a run that none has is claimed for the given job."""
        words = (word for pair in jobs.items() for word in pair)
        done = self.client.ask("sh", "-c", _CLAIM, "sh", f"{self.client.folder()}/claims", *words)
        return dict(_HOLDER.findall(done.out))

    def _spelled(self, gpu: str) -> str:
        """A GPU type as the cluster spells it; unchanged if the cluster does not list it. Raises TaskInvalid."""
        listed = self.client.ask("sinfo", "-h", "-o", "%G").out.splitlines()
        return spelled(gpu, (one for line in listed for one in gpus_of(line))) or gpu

    def find(self, name: str, since: int) -> tuple[Named, ...]:
        """Jobs of that name: those of the controller, those whose script wrote that it began, and those of accounting,
        with the mark in their command line. Accounting hears of a job later than the controller may forget it.

        Of a run of ours, the job that has claimed it, an array as one; if none has, the oldest claims it now.
        """
        found = {row.job: _named(row) for row in self._listed_as(name, "-t", "all")}
        now = self._clock.now()
        if since > now + _LOOK_BACK:
            return ()
        if self.has_accounting():
            asked = ("sacct", *_PROOF, "-u", self.client.user(), "--name", name, "-S", _moment(since, now))
            done = self.client.must(*asked, "-o", self._fields("SubmitLine"))
            for line in done.out.splitlines():
                mark = _MARKED.search(line)
                for row in _rows(done.words, line):
                    found.setdefault(row.job, _named(row, mark[1] if mark is not None else None))
        written = self.client.ask("grep", "-rHs", "-e", f" {name}$", "-e", f" {name} ", self._ends())
        for row in self._read(written):
            if row.name == name:
                found.setdefault(row.job, _named(row))
        early = since - _LOOK_BACK
        kept = [one for one in found.values() if one.submitted_at is None or one.submitted_at >= early]
        # Slurm's times are whole seconds; a later job has a greater number.
        kept.sort(key=lambda one: (one.submitted_at or 0, len(one.provider_id), one.provider_id), reverse=True)
        return tuple(self._once(kept))

    def _once(self, found: Sequence[Named]) -> Iterator[Named]:
        """Newest first, each run of ours once."""
        jobs = {one.mark: _whole(one.provider_id) for one in found if one.mark is not None}
        if jobs:
            jobs |= self._claim(jobs)
        going = {_whole(one.provider_id) for one in found if not one.ended}
        for one in found:
            job = _whole(one.provider_id)
            if one.mark is None:
                yield one
            elif jobs.get(one.mark) == job:
                del jobs[one.mark]
                yield replace(one, provider_id=job, ended=job not in going)

    def _listed_as(self, name: str, *options: str) -> list[Row]:
        return self._read(self.client.must("squeue", "-h", *options, "--me", "-n", name, "-o", _SQUEUE))

    def _read(self, done: Done) -> list[Row]:
        """The rows of an answer. Raises ProviderError if it is not an answer of this command."""
        found = [row for line in done.out.splitlines() for row in _rows(done.words, line)]
        if not found and not is_silent(done.out) and done.status == 0:
            raise ProviderError(f"{question(done.words).tool} on {self.client.where} answers {done.problem[:80]!r}")
        return found

    def _ends(self) -> str:
        return f"{self.client.folder()}/ends"

    def stop(self, stop: Stop) -> None:
        """`scancel`: SIGTERM, then SIGKILL after the cluster's KillWait; `abort`: SIGKILL at once, then the same."""
        done = self.client.ask("sh", "-c", cancel.SCRIPT, "squeue", *cancel.arguments(stop))
        jobs = cancel.read(done.out)
        if done.status != 0 and UNKNOWN_JOB not in done.err:
            raise ProviderError(f"job {stop.provider_id} on {self.client.where} cannot be cancelled: {done.problem}")
        if not jobs and done.status == 0 and not is_silent(done.out):
            raise ProviderError(f"squeue on {self.client.where} answers {done.problem[:80]!r}")
        if not jobs:
            self._expect(stop.provider_id)
        other = next((one for one in jobs if not one.over and not one.proven), None)
        if other is not None:
            at = "" if other.submitted is None else f", submitted {format_time(other.submitted)[:19]}Z"
            raise Conflict(
                f"{other.job} on {self.client.where} is a job {other.name!r} of {other.user}{at}, and nothing proves "
                f"that it is the run to be stopped: it was left alone; `scancel {other.job}` there cancels it"
            )

    def _expect(self, provider_id: str) -> bool:
        """Whether the job still waits or runs. Raises RunNotFound if no source knows it."""
        rows = self._read(self.client.must("squeue", "-h", "-t", "all", "-j", provider_id, "-o", _SQUEUE))
        if rows:
            return any(row.state in LIVE for row in rows)
        if not _JOB.fullmatch(provider_id):
            known = False
        elif self.has_accounting():
            known = bool(self.client.must("sacct", *_PROOF, "-j", provider_id, "-o", "JobID").out.strip())
        else:
            known = bool(self.client.tail(f"{self._ends()}/{provider_id}", 0))
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
        going = self._expect(provider_id)
        own = f"{self.client.folder()}/output/{provider_id}.out"
        path = output_of(self.client, provider_id, own, accounting=self.has_accounting())
        return self._output(provider_id, path, going and follow)

    def _output(self, provider_id: str, path: str, follow: bool) -> Iterator[bytes]:
        offset = 0
        while True:
            going = follow and self._expect(provider_id)
            piece = self.client.tail(path, offset)
            offset += len(piece)
            if piece:
                yield piece
            elif not going:
                return
            if not piece:
                self._clock.sleep(_PACE)

    def close(self) -> None:
        self.client.close()


def _rows(words: tuple[str, ...], line: str) -> list[Row]:
    try:
        return list(rows(question(words), line))
    except ValueError:
        return []


def _named(row: Row, mark: str | None = None) -> Named:
    comment = row.comment or ""
    mark = comment.removeprefix(MARK) if comment.startswith(MARK) else mark
    return Named(provider_id=row.job, mark=mark, ended=row.state not in LIVE, submitted_at=row.submitted or row.ended)


def _moment(since: int | None, now: int) -> str:
    """A time as sacct's `-S` takes it; by default a day back."""
    at = (now - _DAY) if since is None else since - _LOOK_BACK
    return format_time(at).partition(".")[0]


def _whole(job: str) -> str:
    """The job of a task of an array, or of a component."""
    return _TASK.split(job)[0]
