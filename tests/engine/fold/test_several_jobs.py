"""Where a run is whose jobs are in different states, and what its provider contradicts."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from stenotest.dstack_history import DstackHistory, Item, job, nodes, run_item, single, submission

from steno.engine.replay.replay import replay_polls
from steno.engine.replay.result import JsonObject
from steno.engine.state.states import PROGRESS, State

LACKS = ("terminating", "failed_to_start_due_to_no_capacity", None)
WAITS = ("submitted", None, None)


def told(*polls: Item) -> JsonObject:
    """The replay of these, five seconds apart."""
    story = DstackHistory()
    for item in polls:
        story.wait(5).listed(item)
    return replay_polls(list(story.polls())).to_json()


def seen(*polls: Item) -> tuple[list[str], bool, list[str]]:
    """The states of the only run, whether it has started, and the anomalies."""
    replayed = told(*polls)
    (run,) = replayed["runs"]
    moves = [step["to"] for step in run["transitions"]]
    return moves, run["started_at"] is not None, [anomaly["detail"] for anomaly in replayed["anomalies"]]


def test_a_run_is_where_its_most_advanced_unended_job_is() -> None:
    """A node of two got no machine while the other was only submitted: nothing runs."""
    assert seen(nodes("submitted", WAITS, WAITS), nodes("submitted", LACKS, WAITS)) == (["queued"], False, [])


def test_a_run_is_never_behind_what_was_seen_of_the_attempt() -> None:
    """The job that was further has ended; that contradicts nothing."""
    made = nodes("submitted", ("provisioning", None, None), WAITS)
    assert seen(made, nodes("submitted", LACKS, WAITS)) == (["provisioning"], False, [])
    runs, pulls = nodes("running", ("running", None, None), WAITS), ("pulling", None, None)
    assert seen(runs, nodes("running", ("terminating", "instance_unreachable", None), pulls)) == (["running"], True, [])


JOBS = st.sampled_from(["submitted", "provisioning", "pulling", "running", "terminating", "terminated"])


@given(st.lists(st.tuples(JOBS, JOBS, JOBS), min_size=1, max_size=6))
def test_a_run_goes_forward_and_has_started_only_if_a_job_was_seen_running(polls: list[tuple[str, ...]]) -> None:
    """Law, whatever three jobs of one attempt show."""
    items = [nodes("submitted", *((status, None, None) for status in statuses)) for statuses in polls]
    moves, started, _ = seen(*items)
    assert all(PROGRESS.index(State(before)) < PROGRESS.index(State(after)) for before, after in pairwise(moves))
    assert ("running" in moves) <= any("running" in statuses for statuses in polls)
    assert started <= any("running" in statuses for statuses in polls)


def test_done_with_a_nonzero_exit_is_a_contradiction_once_and_flips_nothing() -> None:
    """The first poll with the exit status decides; `done` after it, or at once, says the same."""
    exits = {"job_status": "done", "job_reason": "done_by_runner", "exit_status": 137}
    lags, done = single("a", "running", **exits), single("a", "done", reason="all_jobs_done", **exits)
    ends = single("a", "terminating", reason="all_jobs_done", **exits)
    for polls in ([lags, ends, done, done], [done], [done, lags]):
        replayed = told(*polls)
        (run,) = replayed["runs"]
        assert (run["state"], run["reason"], run["exit_status"]) == ("failed", "exit_nonzero", 137)
        assert [step["to"] for step in run["transitions"]] == ["failed"]
        assert [(anomaly["kind"], anomaly["detail"]) for anomaly in replayed["anomalies"]] == [
            ("contradiction", "all_jobs_done, yet failed/exit_nonzero (exit 137)")
        ]


def test_an_answer_without_jobs_neither_hides_nor_makes_an_attempt() -> None:
    """Its run's submission is that of no attempt."""
    first, second = submission("failed", exit_status=1, submitted=0.1), submission("running", num=1, submitted=4)
    again, running = run_item("a", "running", job(first, second)), single("a", "running", "running")
    bare = {**running, "jobs": [], "latest_job_submission": None}
    assert seen(running, bare, again) == (["running", "queued", "running"], True, [])
    assert seen(bare, again) == (["running"], True, [])
