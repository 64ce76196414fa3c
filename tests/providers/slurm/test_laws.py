"""Laws of a job's verdict, for any history of jobs and any order, loss and lag of what the sources say of it.

A history is made from the truth; what squeue and sacct print is computed from it. The controller knows the truth while
it lists a job, and never how it ended. Accounting is behind, does not answer while its database is down, and is as
it was before that for 16 s afterwards, with exit code 0. Verdicts are compared with the truth after every poll.
"""

import json
import shlex
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.fold.record_fold import RecordFold
from engine.fold.tick import PollReader, Until
from engine.fold.world import World
from engine.fold.world_codec import dump, load
from engine.providers.readings import READINGS, every_rule_set
from engine.replay.provider_costs import fill_costs
from engine.replay.record import replay_record, world_of
from engine.replay.result import Replay
from engine.replay.trace import NumberedPoll, replay_polls
from events.clock import SECOND, SystemClock, format_time, parse_time
from events.poll import Poll
from events.store.record import Record

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
    """Seconds after the start of the story; one that never ran has no `started`."""

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

    @property
    def left(self) -> int:
        """When the controller forgets it."""
        return self.attempts[-1].ended + self.completing + KEPT_S

    @property
    def verdict(self) -> tuple[str, str, int | None]:
        return ENDS[self.attempts[-1].state, self.attempts[-1].code]

    def queued(self, now: int) -> str | None:
        """Its line in squeue."""
        for one in reversed(self.attempts):
            if now >= one.submitted:
                break
        else:
            return None
        if now >= self.left:
            return None
        state = "PENDING"
        if one is self.attempts[-1] and now >= one.ended + self.completing:
            state = one.state.partition(" ")[0]
        elif now >= one.ended:  # of an attempt that is followed by another, squeue shows nothing else
            state = "COMPLETING"
        elif one.started is not None and now >= one.started:
            state = "RUNNING"
        return f"{self.number}|{state}|None|gpu|me|{clock(one.submitted)}|n1|(null)|job-{self.number}"

    def accounted(self, known: int) -> list[str]:
        """Its lines in sacct, which knows the truth of the second `known`."""
        found = []
        for one in self.attempts:
            if known < one.submitted:
                continue
            state, start, end, code = "PENDING", "Unknown", "Unknown", "0:0"
            if known >= one.ended:
                state, end, code = one.state, clock(one.ended), one.code
            elif one.started is not None and known > one.started:
                state = "RUNNING"
            tres = nodes = ""
            if one.started is not None and known >= one.started:
                start, tres, nodes = clock(one.started), "billing=100,cpu=1,gres/gpu:a6000=1,node=1", "n1"
            elif known >= one.ended:
                start = "None"
            found.append(
                f"{self.number}|{state}|{code}|0:0|{clock(one.submitted)}|{start}|{end}|{tres}|{nodes}|gpu|me|None||"
                f"job-{self.number}"
            )
        return found


def clock(second: int) -> str:
    return format_time(START + second * SECOND).partition(".")[0]


@st.composite
def jobs(draw: Any) -> tuple[Job, ...]:
    found = []
    for number in range(1, draw(st.integers(1, 3)) + 1):
        at, attempts = draw(st.integers(0, 20)), []
        completing = draw(st.integers(0, 6))
        for state in [*draw(st.lists(st.sampled_from(["PREEMPTED", "REQUEUED", "NODE_FAIL"]), max_size=2)), None]:
            waits, goes = draw(st.integers(0, 12)), draw(st.integers(1, 25))
            runs = state is not None or draw(st.booleans())
            if state is not None:
                end = state, "0:0"
            else:
                end = draw(st.sampled_from(sorted(ENDS))) if runs else ("CANCELLED by 5", "0:0")
            started = at + waits if runs else None
            attempts.append(Attempt(at, started, at + waits + goes, *end))
            at += waits + goes + completing + draw(st.integers(0, 1))
        found.append(Job(number, tuple(attempts), completing))
    return tuple(found)


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
        return [line for job in self.jobs if (line := job.queued(now)) is not None]

    def sacct(self, now: int) -> list[str] | None:
        first, last = self.down
        if first <= now < last:
            return None
        known = (first if last <= now < last + STALE_S else now) - self.lag
        return [line for job in self.jobs for line in job.accounted(known)]


@st.composite
def clusters(draw: Any) -> Cluster:
    down = draw(st.integers(0, 80))
    lasts = draw(st.sampled_from([0, 0, 3, 30]))
    if not lasts:
        down = -2 * STALE_S
    return Cluster(draw(jobs()), draw(st.integers(0, 4)), (down, down + lasts))


def poll(words: tuple[str, ...], lines: list[str] | None, started: int, observed: int, *, asked: bool = True) -> Poll:
    """One answer; None: none came. Times are microseconds after the start."""
    return Poll(
        source="slurm/lab",
        path=f"slurm:{shlex.join(words)}",
        req=json.dumps(words).encode(),
        started_at=START + started,
        observed_at=START + observed,
        status=None if not asked else 1 if lines is None else 0,
        error="sacct: error: Problem talking to the database: Connection refused" if lines is None else None,
        body=None if not asked else json.dumps("".join(f"{line}\n" for line in lines or ())).encode(),
        text=asked,
        answered=lines is not None,
    )


@st.composite
def seen(draw: Any) -> tuple[Cluster, list[NumberedPoll]]:
    """A cluster and what was polled of it: sources in any order, each answer lost, doubled or late."""
    cluster = draw(clusters())
    found: list[tuple[int, Poll]] = []
    now = 0
    while now < cluster.over:
        for words in draw(st.permutations([SQUEUE, SACCT])):
            fate = draw(st.sampled_from(["told", "told", "told", "lost", "twice", "late", "none"]))
            lines = cluster.squeue(now) if words is SQUEUE else cluster.sacct(now)
            began = now * SECOND + draw(st.integers(0, 9)) * 10_000
            took = draw(st.sampled_from([10_000, 300_000]))
            one = poll(words, None if fate == "none" else lines, began, began + took, asked=fate != "none")
            # An answer that comes late was true when it was asked for.
            told = began + took + (draw(st.integers(1, 9)) * SECOND if fate == "late" else 0)
            found += [(told, one)] * {"lost": 0, "twice": 2}.get(fate, 1)
        now += draw(st.sampled_from([1, 1, 2, 5, 20]))
    first, last = cluster.down
    if first >= 0 and last > first:  # nobody can know of an outage that nobody met
        at = draw(st.integers(first, last - 1)) * SECOND
        found.append((at + 10_000, poll(SACCT, None, at, at + 10_000)))
    found.sort(key=lambda pair: pair[0])
    for after in (1, 2):
        at = found[-1][0] + cluster.over * SECOND + after * SECOND
        second = at // SECOND
        found.append((at, poll(SQUEUE, cluster.squeue(second), at, at + 10_000)))
        found.append((at, poll(SACCT, cluster.sacct(second), at, at + 300_000)))
    return cluster, [(number, one) for number, (_, one) in enumerate(found, 1)]


@given(story=seen())
def test_no_verdict_is_wrong_and_every_verdict_comes(story: tuple[Cluster, list[NumberedPoll]]) -> None:
    """After every poll: who has a verdict is over, by accounting's own record, and the verdict is right. Once both
    sources have answered after the end each job has its verdict, and as many attempts as it had.
    """
    cluster, polls = story
    truth = {str(job.number): job for job in cluster.jobs}
    world = World(READINGS)
    reader, accounted, latest = PollReader(READINGS), set[str](), START
    for number, one in polls:
        assert one is not None
        world.apply(reader.read(number, one))
        latest = max(latest, one.observed_at)
        if one.answered and "sacct" in one.path:
            for line in json.loads(one.body or b'""').splitlines():
                if line.split("|")[1:3] == [*truth[line.split("|")[0]].attempts[-1][3:5]]:
                    accounted.add(line.split("|")[0])
        for run in world.state.runs.values():
            job = truth[run.provider_id or ""]
            assert run.attempts <= len(job.attempts)
            if run.terminal:
                assert run.provider_id in accounted, "no record of accounting's says so"
                assert latest >= START + job.attempts[-1].ended * SECOND, "it is not over"
                assert (run.state.value, str(run.reason), run.exit_status) == job.verdict
    found = {run.provider_id: (run.terminal, run.attempts) for run in world.state.runs.values()}
    known = {number: (True, len(job.attempts)) for number, job in truth.items()}
    assert found == known
    assert not [one for one in world.state.anomalies if one.kind == "contradiction"]


@given(story=seen())
def test_the_controller_alone_ends_no_job(story: tuple[Cluster, list[NumberedPoll]]) -> None:
    """Its absence from squeue is evidence of nothing."""
    polls = [(number, one) for number, one in story[1] if one is not None and "squeue" in one.path]
    assert not any(run.terminal for run in replay_polls(polls).runs)


@given(story=seen())
def test_polling_twice_changes_nothing(story: tuple[Cluster, list[NumberedPoll]]) -> None:
    """The same answer twice is the same history."""
    once = replay_polls(story[1]).to_json()
    twice = replay_polls([one for one in story[1] for _ in range(2)]).to_json()
    assert twice.pop("events") == 2 * once.pop("events")
    assert twice == once


@settings(
    deadline=None,
    suppress_health_check=[*settings.default.suppress_health_check, HealthCheck.function_scoped_fixture],
)
@given(story=seen(), rules=st.sampled_from(sorted(every_rule_set())), data=st.data())
def test_any_history_replays_alike_from_polls_and_record(
    story: tuple[Cluster, list[NumberedPoll]], rules: str, data: st.DataObject, tmp_path: Path
) -> None:
    """What a fold of a record skips changes nothing, nor where it is resumed."""
    for old in tmp_path.glob("record.db*"):
        old.unlink()
    polls = [(number, one) for number, one in story[1] if one is not None]
    with Record.open(
        tmp_path / "record.db", clock=SystemClock(), write=True, create=True, shapes=READINGS.shape
    ) as record:
        done = record.append_polls([one for _, one in polls])
        at = [(one.position, poll) for one, (_, poll) in zip(done, polls, strict=True)]
        whole = replay_record(record, rules).to_json()
        assert whole == replay_polls(at, rules).to_json()
        if rules == "current":
            cut = data.draw(st.integers(0, record.head().position))
            world = World(READINGS, state=load(dump(world_of(record, until=Until(position=cut)).state)))
            RecordFold(record, world).run()
            fill_costs(record, world.state.runs.values())
            assert Replay(world).to_json() == whole
