"""A job id comes again: another job is another run, a requeued one is the same. Histories of a cluster whose ids wrap
after three.
"""

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from stenotest.slurm_histories import ENDS, SACCT, SQUEUE, START, Attempt, Cluster, Job, clock, poll

from steno.engine.fold.fold import Fold
from steno.engine.fold.poll_reader import PollReader
from steno.engine.providers.registry import READINGS
from steno.engine.providers.slurm.words import REQUEUED
from steno.engine.state.facts import RunFacts
from steno.engine.state.run import Run
from steno.engine.state.states import State
from steno.events import types
from steno.events.clock import SECOND, foreign_run_id, parse_time

MAX_JOB_ID = 3


@st.composite
def recycled(draw: Any) -> Cluster:
    """Up to seven jobs under three ids, one after the other on each id; some of another user, as an operator sees."""
    free, drawn = dict.fromkeys(range(1, MAX_JOB_ID + 1), 0), list[Job]()
    for count in range(draw(st.integers(2, 7))):
        number = 1 + count % MAX_JOB_ID
        at, attempts = free[number] + draw(st.integers(1, 900)), list[Attempt]()
        completing = draw(st.integers(0, 3))
        # `squeue --me` does not list another user's job: whether it is requeued shows too late.
        user, again = draw(st.sampled_from([("me", 2), ("me", 2), ("you", 0)]))
        for state in [*draw(st.lists(st.sampled_from(["PREEMPTED", "REQUEUED", "NODE_FAIL"]), max_size=again)), None]:
            started, ended = at + draw(st.integers(0, 12)), 0
            ended = started + draw(st.integers(1, 25))
            end = (state, "0:0") if state is not None else draw(st.sampled_from(sorted(ENDS)))
            attempts.append(Attempt(at, started, ended, *end))
            at = ended + completing + draw(st.integers(0, 1))
        job = Job(number, tuple(attempts), completing, f"job-{count}", user)
        drawn.append(job)
        # Behind an end that is often followed by a requeue, an id comes again later: else nobody can tell.
        free[number] = job.left + (600 if job.attempts[-1].state in REQUEUED else 0)
    return Cluster(tuple(drawn), draw(st.integers(0, 4)), (-40, -40))


def truth_of(cluster: Cluster) -> dict[tuple[str, int], Any]:
    """By id and first submission: name, user, verdict, attempts."""
    return {
        (str(job.number), job.attempts[0].submitted): (job.name, job.user, job.verdict, len(job.attempts))
        for job in cluster.jobs
    }


def shown(run: Run) -> tuple[str, int]:
    assert run.provider_id is not None
    assert run.submitted_at is not None
    return run.provider_id, (run.submitted_at - START) // SECOND


REQUEUED_AT_ONCE = Job(1, (Attempt(57, 57, 58, "PREEMPTED", "0:0"), Attempt(59, 59, 68, "FAILED", "3:0")), 1, "job-0")
"""Between two polls it is requeued and runs again."""


@settings(max_examples=settings.default.max_examples * 2)
@given(recycled(), st.sampled_from([1, 5, 60, 700]), st.lists(st.booleans(), min_size=1, max_size=40))
@example(Cluster((REQUEUED_AT_ONCE,), 0, (-40, -40)), 1, [False, True, True])
def test_no_job_gets_the_verdict_name_or_time_of_another(cluster: Cluster, pace: int, lost: list[bool]) -> None:
    """Whatever is lost between polls: each job that accounting lists at the end is one run, and no other is there."""
    world, reader, number, now = Fold(READINGS), PollReader(READINGS), 0, 0
    truth = truth_of(cluster)
    end = cluster.over + 1
    while now <= end + 3 * pace:
        for words in (SQUEUE, SACCT):
            number += 1
            if now <= end and lost[number % len(lost)]:
                continue
            lines = cluster.squeue(now) if words is SQUEUE else cluster.sacct(now)
            world.apply(reader.read(number, poll(words, lines, now * SECOND, now * SECOND + 10_000)))
            rows = [line.split("|") for line in lines or () if words is SQUEUE]
            running = {(row[0], parse_time(f"{row[5]}Z")) for row in rows if row[1] == "RUNNING"}
            for run in world.state.runs.all():
                if run.facts is not None and (run.provider_id, run.facts.last_submitted_at) in running:
                    assert run.state is State.RUNNING, "the controller says so of its newest attempt"
                if run.terminal:
                    name, user, verdict, _ = truth[shown(run)]
                    assert run.facts is not None
                    assert (run.name, run.facts.user) == (name, user)
                    assert (run.state.value, str(run.reason), run.exit_status) == verdict
        now += pace
    known = {
        shown(run): (run.name, run.facts and run.facts.user, run.terminal, run.attempts)
        for run in world.state.runs.all()
    }
    assert known == {key: (name, user, True, attempts) for key, (name, user, _, attempts) in truth.items()}
    assert not [anomaly for anomaly in world.state.anomalies if anomaly.kind in ("contradiction", "illegal_transition")]
    begun = {(str(job.number), job.attempts[0].submitted): job.attempts[-1].started for job in cluster.jobs}
    for run in world.state.runs.all():
        at = START + (begun[shown(run)] or 0) * SECOND
        assert run.started_at is None or run.started_at >= at, "it is that of the last attempt"
    ids = {run.run_id for run in world.state.runs.all()}
    assert {foreign_run_id("slurm", job) for job, _ in truth} <= ids, "the first run of an id has the id's own run id"
    for run in world.state.runs.all():
        assert run.facts is not None
        own = {f"{run.provider_id}@{(attempt.submitted_at or 0) // SECOND}" for attempt in run.facts.jobs[0].attempts}
        billed = {vm.provider_id for vm in world.state.vms.all() if run.run_id in vm.runs}
        assert billed <= own, "it is billed for its own attempts only"
        chain = [world.state.runs[run_id] for run_id in run.same_id]
        assert [link.submitted_at for link in chain] == sorted(link.submitted_at or 0 for link in chain)
        assert {link.provider_id for link in chain} <= {run.provider_id}


OURS = "0192a1b2-0000-7000-8000-00000000000a"


def submitted(world: Fold, position: int, job: str, at: int) -> None:
    """We requested a run, and sbatch gave it that id; `at` by the cluster's clock, seconds after the start."""
    requested = types.RunRequested(
        run_id=OURS, provider="slurm", project="lab", name="ours", submitter="me", configuration=b"{}"
    )
    moment = START + at * SECOND
    world.apply_event(position, moment, requested)
    world.apply_event(position + 1, moment, types.SubmitIntended(run_id=OURS, provider="slurm", name="ours"))
    world.apply_event(
        position + 2,
        moment,
        types.SubmitSucceeded(run_id=OURS, provider="slurm", provider_id=job, name="ours", submitted_at=moment),
    )


def row(state: str, at: int, *, mark: str = "", name: str = "theirs", started: int = 0, ended: int = 0) -> str:
    start, end = (clock(second) if second else "Unknown" for second in (started, ended))
    return f"12|{state}|0:0|0:0|{clock(at)}|{start}|{end}|cpu=1|n1|gpu|me|None|{mark}|{name}"


@pytest.mark.parametrize("order", ["seen before the answer", "seen after the answer"])
def test_our_submission_gets_an_id_that_another_job_had(order: str) -> None:
    """The old job keeps its verdict and name; ours begins at its own submission."""
    world, reader = Fold(READINGS), PollReader(READINGS)
    old = row("COMPLETED", 0, started=1, ended=9)
    new = [old, row("RUNNING", 1000, mark=f"steno:{OURS}", name="ours", started=1001)]
    world.apply(reader.read(1, poll(SACCT, [old], 20 * SECOND, 21 * SECOND)))
    if order == "seen after the answer":
        submitted(world, 2, "12", 1000)
    world.apply(reader.read(5, poll(SACCT, new, 1002 * SECOND, 1003 * SECOND)))
    if order == "seen before the answer":
        submitted(world, 6, "12", 1000)
    theirs, ours = world.state.runs[foreign_run_id("slurm", "12")], world.state.runs[OURS]
    assert (theirs.name, theirs.state.value, theirs.attempts) == ("theirs", "succeeded", 1)
    assert (ours.name, ours.state.value, ours.attempts, ours.provider_id) == ("ours", "running", 1, "12")
    assert len(world.state.runs) == 2
    assert theirs.same_id == ours.same_id == (theirs.run_id, OURS)


def test_the_next_job_of_our_id_is_not_ours() -> None:
    """Not by its name either; a later stop of our run finds its own job gone."""
    world, reader = Fold(READINGS), PollReader(READINGS)
    submitted(world, 1, "12", 0)
    mine = row("COMPLETED", 1, mark=f"steno:{OURS}", name="ours", started=2, ended=9)
    world.apply(reader.read(5, poll(SACCT, [mine], 20 * SECOND, 21 * SECOND)))
    later = [mine, row("RUNNING", 5000, name="ours", started=5001)]
    world.apply(reader.read(6, poll(SACCT, later, 5002 * SECOND, 5003 * SECOND)))
    assert world.state.runs[OURS].state.value == "succeeded"
    (other,) = (run for run in world.state.runs.all() if run.run_id != OURS)
    assert (other.state.value, other.requested_at) == ("running", None)
    assert other.run_id == foreign_run_id("slurm", f"12@{(other.submitted_at or 0) // SECOND}")
    newest = world.state.by_provider["slurm/12"]
    assert newest == other.run_id
    assert world.identify("slurm", RunFacts(provider_id="12", submitted_at=other.submitted_at)) == other.run_id


@pytest.mark.parametrize(("names", "runs"), [(("green", "green"), 1), (("green", "blue"), 2), ((None, None), 2)])
def test_a_cluster_is_known_by_its_own_name(names: tuple[str | None, str | None], runs: int) -> None:
    """Two sources of one cluster show one job; without its name each source is a cluster of its own."""
    world, reader = Fold(READINGS), PollReader(READINGS)
    for number, (source, name) in enumerate(zip(("here", "there"), names, strict=True), 1):
        own = () if name is None else (f"STENO_CLUSTER_NAME={name}",)
        words = ("env", f"STENO_CLUSTER={source}", *own, *SACCT[4:])
        world.apply(reader.read(number, poll(words, [row("RUNNING", 0, started=1)], number, number + 1)))
    assert len(world.state.runs) == runs


def test_an_earlier_attempt_that_is_found_later_extends_the_run_and_does_not_rename_it() -> None:
    """The controller shows the second attempt first."""
    world, reader = Fold(READINGS), PollReader(READINGS)
    queued = f"12|PENDING|BeginTime|gpu|me|{clock(40)}|n1|(null)|theirs"
    world.apply(reader.read(1, poll(SQUEUE, [queued], 41 * SECOND, 42 * SECOND)))
    (run_id,) = world.state.runs.ids()
    both = [row("PREEMPTED", 0, started=1, ended=39), row("RUNNING", 40, started=45)]
    world.apply(reader.read(2, poll(SACCT, both, 50 * SECOND, 51 * SECOND)))
    (run,) = world.state.runs.all()
    assert (run.run_id, run.attempts, run.submitted_at) == (run_id, 2, START)
    assert run_id == foreign_run_id("slurm", "12")
