"""A round of questions to a cluster: its controller, accounting and the files of our job scripts, at the same time."""

import re
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import msgspec
from msgspec.structs import replace

from steno.engine.errors import ProviderRefused, ProviderUnreachable
from steno.engine.providers.slurm.allocation import report_in
from steno.engine.providers.slurm.query import ENDS, REPORTS, question
from steno.engine.providers.slurm.reading import CLUSTER_NAME, SlurmReading
from steno.engine.providers.slurm.rows import Row, time
from steno.engine.providers.slurm.settings import Site
from steno.engine.providers.slurm.shell import Done, Shell, poll_of
from steno.engine.providers.slurm.spec import MARK
from steno.engine.state.policy import DAY
from steno.events.clock import SECOND, Clock, format_time
from steno.events.poll import Poll

SQUEUE: Final = "%i|%T|%r|%P|%u|%V|%S|%N|%k|%i|%j"  # comment and name may hold the separator: the id parts them
SACCT: Final = (  # the columns of accounting, if known; the last as of `SQUEUE`
    "JobID", "State", "ExitCode", "DerivedExitCode", "Submit", "Start", "End", "Suspended", "Timelimit", "AllocTRES",
    "NodeList", "Partition", "User", "UID", "Reason", "Comment", "JobID", "JobName",
)  # fmt: skip
PROOF: Final = ("-X", "-D", "-P", "-n")
NO_ACCOUNTING: Final = ("disabled", "not enabled", "Access denied", "permission denied", "Permission denied")
"""In errors of sacct where its use is forbidden, or there is no accounting."""
TASK: Final = re.compile(r"[_+]")  # before the number of a task, or of a component of a het job
_RESERVATIONS: Final = ("scontrol", "-o", "show", "reservation")  # asked while a job waits for maintenance
_SINFO: Final = "%N|%T|%E|%C|%m|%G|%R"
_AT_ONCE: Final = 2000  # ids of one call of sacct
_CLUSTER_NAME: Final = re.compile(r"^ClusterName\s*=\s*(\S+)", re.MULTILINE)
_PAIR: Final = re.compile(r"(\w+)=(\S*)")
LOOK_BACK: Final = 60 * SECOND  # a cluster's clock may be behind ours


class ClusterRounds:
    """The rounds of one recorder."""

    def __init__(self, site: Site, client: Shell, reading: SlurmReading, clock: Clock) -> None:
        self.client = client
        self._site = site
        self._reading = reading
        self._clock = clock
        self._accounting = site.accounting
        self._listed: dict[str, int] = {}  # jobs the controller listed in the last round → when they were submitted
        self._looked_at: int | None = None
        """When the controller last listed jobs; what came and went since then is in accounting alone."""
        self._cluster: str | None = None  # its own name (ClusterName), once it was asked
        self._unreported: frozenset[str] = frozenset()
        """Jobs of ours that have not yet said what they found on their machine, and that they run their command."""
        self._reported: set[str] = set()
        self._maintenance: str | None = None  # what jobs wait for, as `maintenance`; "": not known when it is

    def poll(self, follow: Mapping[str, int], *, since: int | None) -> Iterator[Poll]:
        """The sources at the same time, each answer in the order of the questions: the controller's first."""
        try:
            commands = self._commands(follow, since)
            if jobs := self._unreported & set(follow):
                commands.append((self._reports(jobs), b""))
            if self._maintenance is not None:
                commands.append((self.client.words(*_RESERVATIONS), b""))
        except (ProviderUnreachable, ProviderRefused) as error:
            yield self._poll(self.client.words("squeue"), self._clock.now(), str(error))
            return
        with ThreadPoolExecutor(len(commands), "steno-slurm") as pool:
            calls = [(words, self._clock.now(), pool.submit(self._answer, words, ids)) for words, ids in commands]
            for words, started, call in calls:
                answer = call.result()
                poll = self._poll(words, started, answer)
                if poll.answered and isinstance(answer, Done):
                    self._remember(poll.req, words, answer.out, follow)
                yield poll

    def _remember(self, req: bytes, words: tuple[str, ...], text: str, follow: Mapping[str, int]) -> None:
        """Keeps what the next round's questions depend on."""
        match question(words).tool:
            case "squeue" | "scontrol":
                listed = [row for line in text.splitlines() for row in self._rows(req, line)]
                self._cluster, self._looked_at = self._cluster or None, self._clock.now()
                self._listed = {row.job: row.submitted for row in listed if row.submitted is not None}
                ours = {row.job for row in listed if (row.comment or "").startswith(MARK)}
                self._unreported = (self._unreported & set(follow) | ours) - self._reported
                kept = any("maint" in (row.reason or "").lower() for row in listed)
                self._maintenance = self._maintenance or "" if kept else None
            case "scontrol-other":
                self._maintenance = maintenance(text, self._clock.now())
            case tool if tool == REPORTS:
                reports = filter(None, map(report_in, text.splitlines()))
                self._reported |= {job for job, report in reports if report.phase == "command"}
                self._unreported -= self._reported

    def _rows(self, req: bytes, line: str) -> tuple[Row, ...]:
        try:
            return self._reading.rows(req, line)
        except ValueError:
            return ()  # unreadable: the fold reports it

    def _commands(self, follow: Mapping[str, int], since: int | None) -> list[tuple[tuple[str, ...], bytes]]:
        """The commands of a round, each with its standard input: ids of accounting that change there change neither the
        question nor the record. Accounting is asked for jobs from the day of the oldest on: under the same ids it may
        have jobs of years ago.
        """
        sinfo = self.client.words("sinfo", "-h", "-N", "-o", _SINFO)
        rates = self._site.rates
        given = {} if rates is None else {"STENO_RATES": msgspec.json.encode(rates).decode()}
        where = {} if (name := self._cluster_name()) is None else {CLUSTER_NAME: name}
        closed = {"STENO_MAINTENANCE": self._maintenance} if self._maintenance else {}
        if not self.has_accounting():
            given = {"STENO_ACCOUNTING": "none", "STENO_USER": self.client.user(), **given, **where}
            jobs = self.client.words("scontrol", "-o", "show", "job", **given, **closed)
            ends = self.client.words("grep", "-rHs", "", self.ends(), **given)
            return [(jobs, b""), (ends, b""), (sinfo, b"")]
        squeue = self.client.words("squeue", "-h", "-t", "all", "--me", "-o", SQUEUE, **closed, **where)
        submitted = {**self._listed, **follow}
        ids = sorted({TASK.split(job)[0] for job in submitted}, key=lambda job: (len(job), job))
        if ids:
            start = format_time(min(submitted.values()) - DAY).partition("T")[0]
        else:
            start = moment(since, self._clock.now())
        lines = "\n".join(",".join(ids[at : at + _AT_ONCE]) for at in range(0, len(ids), _AT_ONCE))
        questions = [(self._sacct(start, by_id=bool(ids), **given, **where), lines.encode())]
        if ids and (self._looked_at is None or self._clock.now() - self._looked_at > LOOK_BACK):
            begun = moment(since if self._looked_at is None else self._looked_at, self._clock.now())
            questions.append((self._sacct(begun, by_id=False, **given, **where), b""))
        return [(squeue, b""), *questions, (sinfo, b"")]

    def _sacct(self, start: str, *, by_id: bool, **environment: str) -> tuple[str, ...]:
        """Accounting of one's own jobs from then on, of the ids of its standard input or all."""
        words = ["sacct", *PROOF, "-u", self.client.user(), "-S", start]
        words += ["-o", ",".join(self.client.columns(SACCT))]
        return self.client.words(*(["xargs", "-n1", *words, "-j"] if by_id else words), **environment)

    def _cluster_name(self) -> str | None:
        """The cluster's own name; None: it has none, or has not answered yet."""
        if self._cluster is None:
            answer = self._answer(self.client.words("scontrol", "show", "config"), b"")
            known = None if isinstance(answer, str) else _CLUSTER_NAME.search(answer.out)
            self._cluster = "" if known is None else known[1]  # asked again once the controller answers
        return self._cluster or None

    def _reports(self, jobs: Collection[str]) -> tuple[str, ...]:
        """A command for all; unlike `grep`, `find` succeeds if a file is missing."""
        names = [word for job in sorted(jobs) for word in ("-o", "-name", job)][1:]
        where = f"{self.client.folder()}/reports"
        return self.client.words(REPORTS, where, "(", *names, ")", "-exec", "grep", "-H", "", "{}", "+")

    def has_accounting(self) -> bool:
        """True if we may read its accounting, even with the database down. Asks once. Raises ProviderUnreachable."""
        if self._accounting is None:
            done = self.client.run(self.client.words("sacct", "-X", "-n", "-P", "-S", "now", "-o", "JobID"))
            self._accounting = not any(word in done.err for word in NO_ACCOUNTING)
        return self._accounting

    def _answer(self, words: tuple[str, ...], given: bytes) -> Done | str:
        try:
            return self.client.run(words, given=given)
        except (ProviderUnreachable, ProviderRefused) as error:
            return str(error)

    def _poll(self, words: tuple[str, ...], started: int, answer: Done | str) -> Poll:
        poll = poll_of(self._site, words, started, self._clock.now(), answer)
        error = poll.error
        if isinstance(answer, Done) and question(words).tool == ENDS and not answer.err:
            error = None  # no file yet, or none with a line
        answered = self._reading.answered(poll.path, poll.req, poll.status, poll.body, error)
        return replace(poll, error=error, answered=answered, complete=answered)  # each answer is a whole list

    def ends(self) -> str:
        """The folder with the exit statuses of job scripts."""
        return f"{self.client.folder()}/ends"


def maintenance(text: str, now: int) -> str:
    """`<start>/<end>` of the next maintenance of `scontrol show reservation`; start "": it has begun; "": none."""
    pairs = (dict(_PAIR.findall(line)) for line in text.splitlines() if "MAINT" in line)
    for end, start in sorted((pair.get("EndTime", ""), pair.get("StartTime", "")) for pair in pairs):
        if (time(end) or 0) > now:
            return f"{start if (time(start) or 0) > now else ''}/{end}"
    return ""


def moment(since: int | None, now: int) -> str:
    """A time as sacct's `-S` takes it; by default a day back."""
    at = (now - DAY) if since is None else since - LOOK_BACK
    return format_time(at).partition(".")[0]
