"""Laws of a job's verdict, for any history of jobs and any order, loss and lag of what the sources say of it.

A history is made from the truth; what squeue and sacct print is computed from it. The controller knows the truth while
it lists a job, and never how it ended. Accounting is behind, does not answer while its database is down, and is as
it was before that for 16 s afterwards, with exit code 0. Verdicts are compared with the truth after every poll.
"""

import json
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stenotest.slurm_histories import ENDS, SACCT, SQUEUE, STALE_S, START, Attempt, Cluster, Job, poll

from steno.engine.fold.fold import Fold
from steno.engine.fold.poll_reader import PollReader, Until
from steno.engine.fold.record_fold import RecordFold
from steno.engine.providers.registry import READINGS, every_rule_set
from steno.engine.replay.replay import NumberedPoll, replay_polls, replay_record, world_of
from steno.engine.replay.result import Replay, fill_costs
from steno.engine.state.sources import STALE_AFTER
from steno.engine.state.world import dump, load
from steno.events.clock import SECOND, SystemClock
from steno.events.poll import Poll
from steno.events.store.record import Record


@st.composite
def jobs(draw: Any) -> tuple[Job, ...]:
    drawn = []
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
        drawn.append(Job(number, tuple(attempts), completing))
    return tuple(drawn)


@st.composite
def clusters(draw: Any) -> Cluster:
    down = draw(st.integers(0, 80))
    lasts = draw(st.sampled_from([0, 0, 3, 30]))
    if not lasts:
        down = -2 * STALE_S
    return Cluster(draw(jobs()), draw(st.integers(0, 4)), (down, down + lasts))


@st.composite
def seen(draw: Any) -> tuple[Cluster, list[NumberedPoll]]:
    """A cluster and what was polled of it: sources in any order, each answer lost, doubled or late."""
    cluster = draw(clusters())
    answers: list[tuple[int, Poll]] = []
    now = 0
    while now < cluster.over:
        for words in draw(st.permutations([SQUEUE, SACCT])):
            fate = draw(st.sampled_from(["told", "told", "told", "lost", "twice", "late", "none"]))
            lines = cluster.squeue(now) if words is SQUEUE else cluster.sacct(now)
            began = now * SECOND + draw(st.integers(0, 9)) * 10_000
            took = draw(st.sampled_from([10_000, 300_000]))
            answer = poll(words, None if fate == "none" else lines, began, began + took, answers=fate != "none")
            # An answer that comes late was true when it was asked for.
            heard_at = began + took + (draw(st.integers(1, 9)) * SECOND if fate == "late" else 0)
            answers += [(heard_at, answer)] * {"lost": 0, "twice": 2}.get(fate, 1)
        now += draw(st.sampled_from([1, 1, 2, 5, 20]))
    first, last = cluster.down
    if first >= 0 and last > first:  # an outage without a poll in it leaves no trace
        at = draw(st.integers(first, last - 1)) * SECOND
        answers.append((at + 10_000, poll(SACCT, None, at, at + 10_000)))
    answers.sort(key=lambda pair: pair[0])
    newest = answers[-1][0] if answers else 0  # every answer may have been lost
    for after in (1, 2):
        # A source that was silent is not believed for a while after it is back, which may be by the first of these.
        at = newest + cluster.over * SECOND + after * (STALE_AFTER + SECOND)
        second = at // SECOND
        answers.append((at, poll(SQUEUE, cluster.squeue(second), at, at + 10_000)))
        answers.append((at, poll(SACCT, cluster.sacct(second), at, at + 300_000)))
    return cluster, [(number, answer) for number, (_, answer) in enumerate(answers, 1)]


@given(story=seen())
def test_no_verdict_is_wrong_and_every_verdict_comes(story: tuple[Cluster, list[NumberedPoll]]) -> None:
    """After every poll: who has a verdict is over, by accounting's own record, and the verdict is right. Once both
    sources have answered after the end each job has its verdict and all its attempts.
    """
    cluster, polls = story
    truth = {str(job.number): job for job in cluster.jobs}
    world = Fold(READINGS)
    reader, accounted, latest = PollReader(READINGS), set[str](), START
    for number, answer in polls:
        assert answer is not None
        world.apply(reader.read(number, answer))
        latest = max(latest, answer.observed_at)
        if answer.answered and "sacct" in answer.path:
            for line in json.loads(answer.body or b'""').splitlines():
                if line.split("|")[1:3] == [*truth[line.split("|")[0]].attempts[-1][3:5]]:
                    accounted.add(line.split("|")[0])
        for run in world.state.runs.all():
            job = truth[run.provider_id or ""]
            assert run.attempts <= len(job.attempts)
            if run.terminal:
                assert run.provider_id in accounted, "no record of accounting's says so"
                assert latest >= START + job.attempts[-1].ended * SECOND, "it is not over"
                assert (run.state.value, str(run.reason), run.exit_status) == job.verdict
    runs = {run.provider_id: (run.terminal, run.attempts) for run in world.state.runs.all()}
    assert runs == {number: (True, len(job.attempts)) for number, job in truth.items()}
    assert not [anomaly for anomaly in world.state.anomalies if anomaly.kind == "contradiction"]


@given(story=seen())
def test_the_controller_alone_ends_no_job(story: tuple[Cluster, list[NumberedPoll]]) -> None:
    """Its absence from squeue is evidence of nothing."""
    polls = [(number, answer) for number, answer in story[1] if answer is not None and "squeue" in answer.path]
    assert not any(run.terminal for run in replay_polls(polls).runs)


@given(story=seen())
def test_polling_twice_changes_nothing(story: tuple[Cluster, list[NumberedPoll]]) -> None:
    """The same answer twice is the same history."""
    once = replay_polls(story[1]).to_json()
    twice = replay_polls([answer for answer in story[1] for _ in range(2)]).to_json()
    assert twice.pop("events") == 2 * once.pop("events")
    assert twice == once


@settings(
    deadline=None, suppress_health_check=[*settings.default.suppress_health_check, HealthCheck.function_scoped_fixture]
)
@given(story=seen(), rules=st.sampled_from(sorted(every_rule_set())), data=st.data())
def test_any_history_replays_alike_from_polls_and_record(
    story: tuple[Cluster, list[NumberedPoll]], rules: str, data: st.DataObject, tmp_path: Path
) -> None:
    """Answers that the fold of a record skips change nothing, nor does the position where it is resumed."""
    for old in tmp_path.glob("record.db*"):
        old.unlink()
    polls = [(number, answer) for number, answer in story[1] if answer is not None]
    with Record.open(
        tmp_path / "record.db", clock=SystemClock(), write=True, create=True, shapes=READINGS.shape
    ) as record:
        done = record.append_polls([answer for _, answer in polls])
        at = [(added.position, poll) for added, (_, poll) in zip(done, polls, strict=True)]
        whole = replay_record(record, rules).to_json()
        assert whole == replay_polls(at, rules).to_json()
        if rules == "current":
            cut = data.draw(st.integers(0, record.head().position))
            world = Fold(READINGS, state=load(dump(world_of(record, until=Until(position=cut)).state)))
            RecordFold(record, world).run()
            fill_costs(record, world.state.runs.all())
            assert Replay(world).to_json() == whole
