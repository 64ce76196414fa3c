"""Slurm as a provider: a round asks every source once, for all jobs; a submission is one `sbatch` with our mark."""

import re
import shlex
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import msgspec

from engine.errors import NameInUse, ProviderError, ProviderUnreachable, RunNotFound, TaskInvalid
from engine.providers.base import Named, Provider, Submission, Submitted
from engine.providers.slurm import node_report
from engine.providers.slurm.reading import PREFIX, SlurmReading
from engine.providers.slurm.rows import REPORTS, Row, question, rows
from engine.providers.slurm.script import MARK, render, variables
from engine.providers.slurm.settings import Site
from engine.providers.slurm.shell import Done, Shell
from engine.providers.slurm.spec import spec_of
from engine.providers.slurm.words import LIVE, pending
from events.clock import SECOND, Clock, format_time
from events.poll import Poll

_SQUEUE: Final = "%i|%T|%r|%P|%u|%V|%S|%N|%k|%j"
_SACCT: Final = (
    "JobID,State,ExitCode,DerivedExitCode,Submit,Start,End,AllocTRES,NodeList,Partition,User,Reason,Comment,JobName"
)
_SINFO: Final = "%N|%T|%E|%C|%m|%G|%R"
_SUBMITTED: Final = re.compile(r"(\d+)(?:;.*)?")
_MARKED: Final = re.compile(rf"--comment=[\"']?{MARK}([0-9a-f-]+)")
_PROOF: Final = ("-X", "-D", "-P", "-n")
_LOOK_BACK: Final = 60 * SECOND
"""A cluster's clock may be behind ours."""
_PACE: Final = SECOND
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
        self._listed: frozenset[str] = frozenset()
        """Jobs the controller listed in the last round."""
        self._unreported: frozenset[str] = frozenset()
        """Jobs of ours that have not yet said what they found on their machine, and that they run their command."""
        self._reported: set[str] = set()
        self._reading = SlurmReading()

    # -- polls ---------------------------------------------------------------------------------------------------------

    def poll(self, follow: Collection[str], *, since: int | None) -> Iterator[Poll]:
        """The sources at the same time, each answer in the order of the questions: the controller's first."""
        try:
            commands = self._commands({job for one in follow for job in (one.partition("_")[0],)}, since)
            commands += self._reports(self._unreported & set(follow))
        except ProviderUnreachable as error:
            yield self._poll(self.client.words("squeue"), self._clock.now(), str(error))
            return
        with ThreadPoolExecutor(len(commands), "steno-slurm") as pool:
            asked = [(words, self._clock.now(), pool.submit(self._asked, words)) for words in commands]
            for words, started, answer in asked:
                poll = self._poll(words, started, answer.result())
                if question(words).tool in ("squeue", "scontrol") and poll.answered and poll.body is not None:
                    scope = self._reading.scope(poll.path, poll.req)
                    lines = msgspec.json.decode(poll.body, type=str).splitlines()
                    listed = [row for line in lines for row in _rows(words, line)]
                    found = (row.job.partition("_")[0] for row in listed)
                    self._listed = frozenset(found) if scope is not None else self._listed
                    ours = {row.job for row in listed if (row.comment or "").startswith(MARK)}
                    self._unreported = (self._unreported & set(follow) | ours) - self._reported
                elif question(words).tool == REPORTS and poll.answered and poll.body is not None:
                    said = map(node_report.read, msgspec.json.decode(poll.body, type=str).splitlines())
                    self._reported |= {one[0] for one in said if one is not None and one[1].phase == "command"}
                    self._unreported -= self._reported
                yield poll

    def _commands(self, follow: set[str], since: int | None) -> list[tuple[str, ...]]:
        sinfo = self.client.words("sinfo", "-h", "-N", "-o", _SINFO)
        if not self.has_accounting():
            words = self.client.words("scontrol", "-o", "show", "job", STENO_ACCOUNTING="none", **self._rates())
            ends = self.client.words(
                "grep", "-rHs", "", f"{self.client.folder()}/ends", STENO_ACCOUNTING="none", **self._rates()
            )
            return [words, ends, sinfo]
        squeue = self.client.words("squeue", "-h", "-t", "all", "--me", "-o", _SQUEUE)
        jobs = sorted(follow | self._listed, key=lambda job: (len(job), job))
        which = ("-j", ",".join(jobs)) if jobs else ("-S", _moment(since, self._clock.now()))
        sacct = self.client.words("sacct", *_PROOF, *which, "-o", _SACCT, **self._rates())
        return [squeue, sacct, sinfo]

    def _reports(self, jobs: Collection[str]) -> list[tuple[str, ...]]:
        """One question for all of them; `find`, unlike `grep`, succeeds where a file is not there yet."""
        names = [word for job in sorted(jobs) for word in ("-o", "-name", job)][1:]
        where = f"{self.client.folder()}/reports"
        words = (REPORTS, where, "(", *names, ")", "-exec", "grep", "-H", "", "{}", "+")
        return [self.client.words(*words)] if names else []

    def _rates(self) -> dict[str, str]:
        if self.site.rates is None:
            return {}
        return {"STENO_RATES": msgspec.json.encode(self.site.rates).decode()}

    def has_accounting(self) -> bool:
        """Whether sacct can be asked here; found out once.

        Raises:
            ProviderUnreachable: nobody answers.
        """
        if self._accounting is None:
            done = self.client.run(self.client.words("sacct", "-X", "-n", "-P", "-S", "now", "-o", "JobID"))
            down = done.status != 0 and "disabled" not in done.err and "not enabled" not in done.err
            if down and "Problem talking" not in done.err and "refused" not in done.err:
                raise ProviderUnreachable(f"sacct on {self.client.where}: {done.problem}")
            self._accounting = done.status == 0 or down
        return self._accounting

    def _asked(self, words: tuple[str, ...]) -> Done | str:
        try:
            return self.client.run(words)
        except (ProviderUnreachable, ProviderError) as error:
            return str(error)

    def _poll(self, words: tuple[str, ...], started: int, answer: Done | str) -> Poll:
        path, req = PREFIX + shlex.join(words), msgspec.json.encode(words)
        done = answer if isinstance(answer, Done) else None
        body = None if done is None else msgspec.json.encode(done.out)
        status = None if done is None else done.status
        error = answer if isinstance(answer, str) else (answer.problem if answer.status else None)
        extra = {"err": msgspec.Raw(msgspec.json.encode(done.err))} if done is not None and done.err else {}
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
            answered=self._reading.answered(path, req, status, body, error),
            extra=extra,
        )

    # -- runs ----------------------------------------------------------------------------------------------------------

    def submit(self, submission: Submission) -> Submitted:
        spec = spec_of(submission.configuration, partition=self.site.partition, account=self.site.account)
        holder = self.holder(submission.name)
        if holder is not None:
            raise NameInUse(f"job {holder.provider_id} has the name {submission.name}; choose another --name")
        folder = self.client.folder()
        script = render(spec, name=submission.name, run_id=submission.run_id, folder=folder)
        self.client.ask("mkdir", "-p", f"{folder}/output", f"{folder}/ends", f"{folder}/reports")
        if spec.env:
            write = 'umask 077; mkdir -p "$1" && cat > "$1/$2"'
            kept = self.client.ask(
                "sh", "-c", write, "sh", f"{folder}/env", submission.run_id, given=variables(spec).encode()
            )
            if kept.status != 0:
                raise ProviderError(f"{folder}/env on {self.client.where} cannot be written: {kept.problem}")
        command = ("sbatch", "--parsable", f"--comment={MARK}{submission.run_id}")
        done = self.client.ask(*command, given=script.encode())
        if done.status != 0:
            raise TaskInvalid(f"Slurm refuses the job: {_refusal(done)}")
        lines = done.out.strip().splitlines()
        found = _SUBMITTED.fullmatch(lines[-1].strip()) if lines else None
        if found is None:
            raise ProviderError(f"sbatch gave no job id: {done.problem}")
        return Submitted(provider_id=found[1], name=submission.name, sent=script)

    def find(self, name: str, since: int) -> tuple[Named, ...]:
        """Jobs of that name: those the controller has, and those of accounting, whose own command line is the proof."""
        found: dict[str, Named] = {}
        listed = self.client.ask("squeue", "-h", "-t", "all", "--me", "-n", name, "-o", _SQUEUE)
        for line in listed.out.splitlines():
            for row in _rows(listed.words, line):
                found[row.job] = _named(row, (row.comment or "").removeprefix(MARK) or None)
        if self.has_accounting():
            start = _moment(since, self._clock.now())
            asked = self.client.ask("sacct", *_PROOF, "--name", name, "-S", start, "-o", f"{_SACCT},SubmitLine")
            if asked.status != 0:
                raise ProviderUnreachable(f"sacct on {self.client.where}: {asked.problem}")
            for line in asked.out.splitlines():
                columns, mark = line.rpartition("|")[0], _MARKED.search(line)
                for row in _rows((*asked.words[:-1], _SACCT), columns):
                    found.setdefault(row.job, _named(row, mark[1] if mark is not None else None))
        early = since - _LOOK_BACK
        kept = [one for one in found.values() if one.submitted_at is None or one.submitted_at >= early]
        return tuple(sorted(kept, key=lambda one: one.submitted_at or 0, reverse=True))

    def holder(self, name: str) -> Named | None:
        listed = self.client.ask("squeue", "-h", "--me", "-n", name, "-o", _SQUEUE)
        found = [row for line in listed.out.splitlines() for row in _rows(listed.words, line)]
        return _named(found[0], (found[0].comment or "").removeprefix(MARK) or None) if found else None

    def stop(self, provider_id: str, name: str, abort: bool) -> None:
        """`scancel`: SIGTERM, then SIGKILL after the cluster's KillWait; `abort`: SIGKILL at once, then the same."""
        self._expect(provider_id)
        if abort:
            self.client.ask("scancel", "--signal=KILL", "--full", provider_id)
        done = self.client.ask("scancel", provider_id)
        if done.status != 0:
            raise ProviderError(f"scancel {provider_id}: {done.problem}")

    def _expect(self, provider_id: str) -> bool:
        """Whether the job still waits or runs.

        Raises:
            RunNotFound: neither the controller nor accounting knows it.
        """
        listed = self.client.ask("squeue", "-h", "-t", "all", "-j", provider_id, "-o", _SQUEUE)
        states = [row.state for line in listed.out.splitlines() for row in _rows(listed.words, line)]
        if states:
            return any(state in LIVE for state in states)
        if self.has_accounting():
            known = self.client.ask("sacct", *_PROOF, "-j", provider_id, "-o", "JobID")
            if known.status == 0 and known.out.strip():
                return False
        elif self.client.tail(f"{self.client.folder()}/ends/{provider_id}", 0):
            return False
        raise RunNotFound(f"Slurm on {self.client.where} knows no job {provider_id}")

    def logs(self, provider_id: str, name: str, *, follow: bool) -> Iterator[bytes]:
        going = self._expect(provider_id)
        return self._output(provider_id, going and follow)

    def _output(self, provider_id: str, follow: bool) -> Iterator[bytes]:
        path, offset = f"{self.client.folder()}/output/{provider_id}.out", 0
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

    def waits_for(self, reason: str, provider_id: str) -> str:
        return pending(reason, provider_id)

    def close(self) -> None:
        self.client.close()


def _rows(words: tuple[str, ...], line: str) -> list[Row]:
    try:
        return list(rows(question(words), line))
    except ValueError:
        return []


def _named(row: Row, mark: str | None) -> Named:
    return Named(provider_id=row.job, mark=mark, ended=row.state not in LIVE, submitted_at=row.submitted)


def _moment(since: int | None, now: int) -> str:
    """A time as sacct's `-S` takes it; a day back where nothing is said."""
    at = (now - 86_400 * SECOND) if since is None else since - _LOOK_BACK
    return format_time(at).partition(".")[0]


def _refusal(done: Done) -> str:
    lines = [line.removeprefix(_REFUSED).strip() for line in done.err.splitlines() if line.startswith(_REFUSED)]
    return "; ".join(lines) or done.problem
