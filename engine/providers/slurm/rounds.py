"""One round of questions to a cluster: its controller, accounting and the files of our job scripts, asked at once."""

import re
import shlex
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import msgspec

from engine.errors import ProviderRefused, ProviderUnreachable
from engine.providers.slurm import node_report
from engine.providers.slurm.question import ENDS, REPORTS, question
from engine.providers.slurm.reading import CLUSTER_NAME, PREFIX, SlurmReading
from engine.providers.slurm.rows import Row, maintenance, rows
from engine.providers.slurm.settings import Site
from engine.providers.slurm.shell import Done, Shell
from engine.providers.slurm.spec import MARK
from events.clock import SECOND, Clock, format_time
from events.poll import Poll

SQUEUE: Final = "%i|%T|%r|%P|%u|%V|%S|%N|%k|%i|%j"  # comment and name may hold the separator: the id parts them
SACCT: Final = (  # asked of accounting, if known; the last as of `SQUEUE`
    "JobID", "State", "ExitCode", "DerivedExitCode", "Submit", "Start", "End", "Suspended", "Timelimit", "AllocTRES",
    "NodeList", "Partition", "User", "Reason", "Comment", "JobID", "JobName",
)  # fmt: skip
_MORE: Final = ("SubmitLine",)
PROOF: Final = ("-X", "-D", "-P", "-n")
NO_ACCOUNTING: Final = ("disabled", "not enabled", "Access denied", "permission denied", "Permission denied")
"""What sacct says where it may not be asked, or there is no accounting."""
TASK: Final = re.compile(r"[_+]")  # before the number of a task, or of a component of a het job
_RESERVATIONS: Final = ("scontrol", "-o", "show", "reservation")  # asked while a job waits for maintenance
_SINFO: Final = "%N|%T|%E|%C|%m|%G|%R"
_AT_ONCE: Final = 2000  # ids of one call of sacct
_DAY: Final = 86_400 * SECOND
_CLUSTER_NAME: Final = re.compile(r"^ClusterName\s*=\s*(\S+)", re.MULTILINE)
LOOK_BACK: Final = 60 * SECOND  # a cluster's clock may be behind ours


class ClusterRounds:
    """The rounds of one recorder."""

    def __init__(self, site: Site, client: Shell, source: str, clock: Clock) -> None:
        self.client = client
        self._site = site
        self._source = source
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
                    listed = [row for line in lines for row in rows_of(words, line)]
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
            ends = self.client.words("grep", "-rHs", "", self.ends(), **told)
            return [(words, b""), (ends, b""), (sinfo, b"")]
        squeue = self.client.words("squeue", "-h", "-t", "all", "--me", "-o", SQUEUE, **closed, **where)
        there = {**self._listed, **follow}
        jobs = sorted({TASK.split(job)[0] for job in there}, key=lambda job: (len(job), job))
        own, given = ("-u", self.client.user()), {**self._rates(), **where}
        if not jobs:
            start = moment(since, self._clock.now())
            sacct = self.client.words("sacct", *PROOF, *own, "-S", start, "-o", self.fields(), **given)
            return [(squeue, b""), (sacct, b""), (sinfo, b"")]
        start = format_time(min(there.values()) - _DAY).partition("T")[0]
        sacct = self.client.words(
            "xargs", "-n1", "sacct", *PROOF, *own, "-S", start, "-o", self.fields(), "-j", **given
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
        if self._site.rates is None:
            return {}
        return {"STENO_RATES": msgspec.json.encode(self._site.rates).decode()}

    def has_accounting(self) -> bool:
        """Whether sacct can be asked here; asked once. A database that is down counts as present.

        Raises ProviderUnreachable.
        """
        if self._accounting is None:
            done = self.client.run(self.client.words("sacct", "-X", "-n", "-P", "-S", "now", "-o", "JobID"))
            self._accounting = not any(word in done.err for word in NO_ACCOUNTING)
        return self._accounting

    def fields(self, *more: str) -> str:
        """The columns of accounting that this version has: an unknown one fails the whole call."""
        if self._known is None:
            listed = self.client.run(self.client.words("sacct", "--helpformat")).out.lower().split()
            self._known = tuple(name for name in (*SACCT, *_MORE) if name.lower() in listed) or (*SACCT, *_MORE)
        return ",".join(name for name in self._known if name in (*SACCT, *more))

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
            source=self._source,
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

    def ends(self) -> str:
        """The folder with the exit statuses of job scripts."""
        return f"{self.client.folder()}/ends"


def rows_of(words: tuple[str, ...], line: str) -> list[Row]:
    """The rows of a line of an answer; none if it is unreadable."""
    try:
        return list(rows(question(words), line))
    except ValueError:
        return []


def moment(since: int | None, now: int) -> str:
    """A time as sacct's `-S` takes it; by default a day back."""
    at = (now - _DAY) if since is None else since - LOOK_BACK
    return format_time(at).partition(".")[0]
