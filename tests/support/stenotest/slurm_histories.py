"""A Slurm cluster computed from the truth about its jobs: what squeue and sacct print of them, and when."""

import json
import shlex
from typing import NamedTuple

from steno.events.clock import SECOND, format_time, parse_time
from steno.events.poll import Poll

START = parse_time("2026-11-20T12:00:00Z")
STALE_S = 16
KEPT_S = 8
"""How long `squeue -t all` lists a job that is over: MinJobAge."""
ENV = ("env", "TZ=UTC", "LC_ALL=C", "STENO_CLUSTER=lab")
SQUEUE = (*ENV, "squeue", "-h", "-t", "all", "--me", "-o", "%i|%T|%r|%P|%u|%V|%N|%k|%j")
SACCT = (
    *ENV, "xargs", "-n1", "sacct", "-X", "-D", "-P", "-n", "-o",
    "JobID,State,ExitCode,DerivedExitCode,Submit,Start,End,AllocTRES,NodeList,Partition,User,Reason,Comment,JobName",
    "-j",
)  # fmt: skip
ENDS: dict[tuple[str, str], tuple[str, str, int | None]] = {
    ("COMPLETED", "0:0"): ("succeeded", "exit_zero", 0),
    ("FAILED", "3:0"): ("failed", "exit_nonzero", 3),
    ("FAILED", "0:11"): ("failed", "exit_nonzero", 139),
    ("FAILED", "0:16"): ("failed", "duplicate", None),
    ("CANCELLED by 5", "0:0"): ("stopped", "stopped_by_user", None),
    ("TIMEOUT", "0:0"): ("failed", "timed_out", None),
    ("OUT_OF_MEMORY", "0:125"): ("failed", "out_of_memory", None),
    ("NODE_FAIL", "0:0"): ("failed", "node_failed", None),
    ("BOOT_FAIL", "0:0"): ("failed", "node_failed", None),
    ("PREEMPTED", "0:0"): ("failed", "interrupted", None),
    ("DEADLINE", "0:0"): ("failed", "timed_out", None),
}
"""State and exit code in accounting → the verdict."""


class Attempt(NamedTuple):
    """Seconds after the start of the story; an attempt that never ran has no `started`."""

    submitted: int
    started: int | None
    ended: int
    state: str
    code: str


class Job(NamedTuple):
    number: int
    attempts: tuple[Attempt, ...]
    completing: int
    """Seconds of COMPLETING behind each attempt."""
    name: str = ""
    user: str = "me"
    mark: str = ""
    """Its comment."""

    @property
    def called(self) -> str:
        return self.name or f"job-{self.number}"

    @property
    def left(self) -> int:
        """When the controller forgets it."""
        return self.attempts[-1].ended + self.completing + KEPT_S

    @property
    def verdict(self) -> tuple[str, str, int | None]:
        return ENDS[self.attempts[-1].state, self.attempts[-1].code]

    def queued(self, now: int) -> str | None:
        """Its line in squeue."""
        for attempt in reversed(self.attempts):
            if now >= attempt.submitted:
                break
        else:
            return None
        if now >= self.left:
            return None
        state = "PENDING"
        if attempt is self.attempts[-1] and now >= attempt.ended + self.completing:
            state = attempt.state.partition(" ")[0]
        elif now >= attempt.ended:  # of an attempt that is followed by another, squeue shows nothing else
            state = "COMPLETING"
        elif attempt.started is not None and now >= attempt.started:
            state = "RUNNING"
        return f"{self.number}|{state}|None|gpu|me|{clock(attempt.submitted)}|n1|{self.mark or '(null)'}|{self.called}"

    def accounted(self, known: int) -> list[str]:
        """Its lines in sacct, which knows the truth of the second `known`."""
        rows = []
        for attempt in self.attempts:
            if known < attempt.submitted:
                continue
            state, start, end, code = "PENDING", "Unknown", "Unknown", "0:0"
            if known >= attempt.ended:
                state, end, code = attempt.state, clock(attempt.ended), attempt.code
            elif attempt.started is not None and known > attempt.started:
                state = "RUNNING"
            tres = nodes = ""
            if attempt.started is not None and known >= attempt.started:
                start, tres, nodes = clock(attempt.started), "billing=100,cpu=1,gres/gpu:a6000=1,node=1", "n1"
            elif known >= attempt.ended:
                start = "None"
            rows.append(
                f"{self.number}|{state}|{code}|0:0|{clock(attempt.submitted)}|{start}|{end}|{tres}|{nodes}|gpu|{self.user}|"
                f"None|{self.mark}|{self.called}"
            )
        return rows


def clock(second: int) -> str:
    return format_time(START + second * SECOND).partition(".")[0]


class Cluster(NamedTuple):
    """A history, and when which source says what of it."""

    jobs: tuple[Job, ...]
    lag: int
    """Seconds that accounting is behind."""
    down: tuple[int, int]
    """Its database is down from … to; then it is stale."""

    @property
    def over(self) -> int:
        """From when on both sources have the whole truth."""
        return max(*(job.left for job in self.jobs), self.down[1] + STALE_S) + self.lag + 1

    def squeue(self, now: int) -> list[str]:
        """The lines of `squeue --me`."""
        return [line for job in self.jobs if job.user == "me" and (line := job.queued(now)) is not None]

    def sacct(self, now: int) -> list[str] | None:
        first, last = self.down
        if first <= now < last:
            return None
        known = (first if last <= now < last + STALE_S else now) - self.lag
        return [line for job in self.jobs for line in job.accounted(known)]


def poll(words: tuple[str, ...], lines: list[str] | None, started: int, observed: int, *, answers: bool = True) -> Poll:
    """An answer; None: none came. Times are microseconds after the start."""
    return Poll(
        source="slurm/lab",
        path=f"slurm:{shlex.join(words)}",
        req=json.dumps(words).encode(),
        started_at=START + started,
        observed_at=START + observed,
        status=None if not answers else 1 if lines is None else 0,
        error="sacct: error: Problem talking to the database: Connection refused" if lines is None else None,
        body=None if not answers else json.dumps("".join(f"{line}\n" for line in lines or ())).encode(),
        text=answers,
        answered=lines is not None,
    )
