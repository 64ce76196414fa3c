"""The rule set `current`: when dstack has said enough, and what it has said."""

import json
from pathlib import Path

import pytest
from stenotest.story import Item, job, nodes, read_run, run_item, single, submission

from engine.facts import RunFacts
from engine.providers.dstack.words import RETRY_EVENT_OF, RUN_REASONS
from engine.rules.current import judge
from engine.rules.sets import Live, Verdict
from engine.states import Reason

TRACES = Path(__file__).parents[2] / "traces"


def facts(item: Item) -> RunFacts:
    return read_run(json.dumps(item).encode())


def verdict(item: Item, *, policy: bool = False) -> tuple[str, str, int | None] | str | None:
    """(state, reason, exit status) of a verdict, or the live state."""
    move = judge(facts(item), stopped_by_policy=policy)
    if isinstance(move, Verdict):
        return (move.state.value, move.reason.value, move.exit_status)
    return move.state.value if move.state is not None else None


@pytest.mark.parametrize(
    ("item", "wanted"),
    [
        # the statuses of facts as real servers give them
        (
            single(run="done", job_status="done", reason="all_jobs_done", job_reason="done_by_runner", exit_status=0),
            ("succeeded", "exit_zero", 0),
        ),
        (
            single(
                run="failed",
                job_status="failed",
                reason="job_failed",
                job_reason="container_exited_with_error",
                exit_status=1,
            ),
            ("failed", "exit_nonzero", 1),
        ),
        (
            single(
                run="terminated", job_status="terminated", reason="stopped_by_user", job_reason="terminated_by_user"
            ),
            ("stopped", "stopped_by_user", None),
        ),
        (
            single(run="terminated", job_status="aborted", reason="aborted_by_user", job_reason="aborted_by_user"),
            ("stopped", "aborted_by_user", None),
        ),
        (
            single(run="failed", job_status="terminated", reason="job_failed", job_reason="max_duration_exceeded"),
            ("failed", "timed_out", None),
        ),
        (
            single(
                run="failed",
                job_status="failed",
                reason="job_failed",
                job_reason="failed_to_start_due_to_no_capacity",
            ),
            ("failed", "no_capacity", None),
        ),
        (
            single(
                run="failed",
                job_status="failed",
                reason="retry_limit_exceeded",
                job_reason="container_exited_with_error",
                exit_status=7,
                retry=["error"],
            ),
            ("failed", "exit_nonzero", 7),
        ),
        (
            single(
                run="failed",
                job_status="failed",
                reason="retry_limit_exceeded",
                job_reason="failed_to_start_due_to_no_capacity",
            ),
            ("failed", "no_capacity", None),
        ),
        (
            single(run="failed", job_status="failed", reason="job_failed", job_reason="instance_unreachable"),
            ("failed", "unreachable", None),
        ),
        (
            single(run="failed", job_status="failed", reason="job_failed", job_reason="interrupted_by_no_capacity"),
            ("failed", "interrupted", None),
        ),
        (
            single(run="failed", job_status="failed", reason="job_failed", job_reason="creating_container_error"),
            ("failed", "provider_error", None),
        ),
        (
            single(run="failed", job_status="terminated", reason="server_error", job_reason="terminated_by_server"),
            ("failed", "provider_error", None),
        ),
        (
            single(run="failed", job_status="terminated", reason="error", job_reason="terminated_by_server"),
            ("failed", "provider_error", None),
        ),
        (
            single(run="failed", job_status="failed", reason="job_failed", job_reason="error"),
            ("failed", "provider_error", None),
        ),
        # a container that was killed: dstack does not say by whom, so it is not said to have run out of memory
        (
            single(
                run="failed",
                job_status="failed",
                reason="job_failed",
                job_reason="container_exited_with_error",
                exit_status=137,
            ),
            ("failed", "exit_nonzero", 137),
        ),
        (
            single(
                run="failed", job_status="terminated", reason="job_failed", job_reason="inactivity_duration_exceeded"
            ),
            ("failed", "timed_out", None),
        ),
        (
            single(
                run="failed",
                job_status="terminated",
                reason="job_failed",
                job_reason="terminated_due_to_utilization_policy",
            ),
            ("failed", "stopped_by_policy", None),
        ),
        # local: its supervisor is gone
        (
            single(run="failed", job_status="failed", reason="job_failed", job_reason="supervisor_lost"),
            ("failed", "node_failed", None),
        ),
        # first match: exit status 0 of every job comes before the run's reason
        (
            single(run="terminated", job_status="terminated", reason="stopped_by_user", exit_status=0),
            ("succeeded", "exit_zero", 0),
        ),
        (single(run="failed", job_status="done", reason="job_failed", exit_status=0), ("failed", "unknown_reason", 0)),
        (single(run="done", job_status="done", reason="all_jobs_done"), ("succeeded", "exit_zero", None)),
        (single(run="terminated", job_status="terminated"), ("stopped", "unknown_reason", None)),
        (single(run="terminated", job_status="terminated", reason="because"), ("failed", "unknown_reason", None)),
        (single(run="failed", job_status="failed", job_reason="quantum_error"), ("failed", "unknown_reason", None)),
        # an exit status settles while dstack still says running
        (
            single(run="running", job_status="terminating", job_reason="done_by_runner", exit_status=0),
            ("succeeded", "exit_zero", 0),
        ),
        (single(run="running", job_status="terminating", exit_status=3), ("failed", "exit_nonzero", 3)),
        (
            single(run="submitted", job_status="failed", job_reason="failed_to_start_due_to_no_capacity"),
            ("failed", "no_capacity", None),
        ),
        # not ended, or not decisive
        (
            single(run="submitted", job_status="terminating", job_reason="failed_to_start_due_to_no_capacity"),
            "finishing",
        ),
        (single(run="terminating", job_status="running", reason="stopped_by_user"), "finishing"),
        (single(run="running", job_status="terminated", job_reason="terminated_by_server"), "finishing"),
        (single(run="running", job_status="failed", job_reason="quantum_error"), "finishing"),
        (single(run="running", job_status="failed"), "finishing"),
        (single(run="pending", job_status="failed", job_reason="container_exited_with_error", exit_status=1), "queued"),
        (single(run="pending", job_status="done", job_reason="done_by_runner", exit_status=0), "queued"),
        # the retry policy
        (single(run="running", job_status="terminating", exit_status=7, retry=["error"]), "finishing"),
        (
            single(run="running", job_status="terminating", exit_status=7, retry=["no-capacity", "interruption"]),
            ("failed", "exit_nonzero", 7),
        ),
        (
            single(run="running", job_status="terminating", exit_status=0, retry=["error"]),
            ("succeeded", "exit_zero", 0),
        ),
        (
            single(
                run="running",
                job_status="failed",
                job_reason="failed_to_start_due_to_no_capacity",
                retry=["no-capacity"],
            ),
            "finishing",
        ),
        (
            single(
                run="running", job_status="failed", job_reason="failed_to_start_due_to_no_capacity", retry=["error"]
            ),
            ("failed", "no_capacity", None),
        ),
        (
            single(run="running", job_status="failed", job_reason="interrupted_by_no_capacity", retry=["interruption"]),
            "finishing",
        ),
        (
            single(run="running", job_status="failed", job_reason="instance_unreachable", retry=["interruption"]),
            ("failed", "unreachable", None),
        ),
        (
            single(run="running", job_status="terminated", job_reason="max_duration_exceeded", retry=["error"]),
            ("failed", "timed_out", None),
        ),
        (
            single(
                run="terminating",
                job_status="failed",
                job_reason="container_exited_with_error",
                exit_status=7,
                retry=["error"],
                reason="retry_limit_exceeded",
            ),
            ("failed", "exit_nonzero", 7),
        ),
        (
            single(run="running", job_status="failed", job_reason="brand_new", exit_status=1, retry=["interruption"]),
            "finishing",
        ),
        # kinds: only a task is settled by its jobs
        (single(run="running", job_status="terminating", exit_status=0, kind="service"), "finishing"),
        (single(run="running", job_status="terminating", exit_status=0, kind="dev-environment"), "finishing"),
        (single(run="done", job_status="done", exit_status=0, kind="service"), ("succeeded", "exit_zero", 0)),
        # several jobs
        (nodes("running", ("terminating", "done_by_runner", 0), ("running", None, None)), "running"),
        (nodes("running", ("done", "done_by_runner", 0), ("terminating", None, 1)), ("failed", "exit_nonzero", 1)),
        (nodes("running", ("terminating", None, 1), ("running", None, None)), "running"),
        (
            nodes(
                "terminating",
                ("failed", "container_exited_with_error", 1),
                ("terminated", "terminated_by_server", None),
                reason="job_failed",
            ),
            ("failed", "exit_nonzero", 1),
        ),
        (
            nodes(
                "running", ("failed", "container_exited_with_error", 1), ("terminated", "terminated_by_server", None)
            ),
            "finishing",
        ),
        (
            nodes(
                "terminating",
                ("terminated", "terminated_by_server", None),
                ("failed", "instance_unreachable", None),
                reason="job_failed",
            ),
            ("failed", "unreachable", None),
        ),
        (
            nodes(
                "terminating",
                ("terminating", "terminated_by_server", None),
                ("failed", "instance_unreachable", None),
                reason="job_failed",
            ),
            "finishing",
        ),
        (
            nodes(
                "running", ("done", "done_by_runner", 0), ("failed", "container_exited_with_error", 9), retry=["error"]
            ),
            "finishing",
        ),
        (
            nodes(
                "terminating",
                ("done", "done_by_runner", 0),
                ("terminated", "terminated_by_server", None),
                reason="all_jobs_done",
            ),
            ("succeeded", "exit_zero", 0),
        ),
        (nodes("done", ("done", "done_by_runner", 0), ("done", "done_by_runner", 0)), ("succeeded", "exit_zero", 0)),
        # the most advanced job that has not ended, whatever became of the others
        (
            nodes("submitted", ("failed", "failed_to_start_due_to_no_capacity", None), ("submitted", None, None)),
            "queued",
        ),
        (
            nodes("provisioning", ("terminating", "failed_to_start_due_to_no_capacity", None), ("pulling", None, None)),
            "pulling",
        ),
        (nodes("provisioning", ("submitted", None, None), ("pulling", None, None)), "pulling"),
        (nodes("running", ("running", None, None), ("provisioning", None, None)), "running"),
        # answers that leave the jobs out
        ({**single(run="running"), "jobs": []}, "running"),
        ({**single(run="terminating", reason="all_jobs_done"), "jobs": []}, "finishing"),
        ({**single(run="done", reason="all_jobs_done"), "jobs": []}, ("succeeded", "exit_zero", None)),
        ({**single(run="failed", reason="job_failed"), "jobs": []}, ("failed", "unknown_reason", None)),
        ({**single(run="running"), "jobs": None}, "running"),
        (run_item("a", "running", job()), "running"),
        (single(run="hibernating", job_status="thinking"), None),
    ],
)
def test_one_observation_gives_this_verdict(item: Item, wanted: object) -> None:
    """The design's paragraph on when dstack has said enough, sentence by sentence."""
    assert verdict(item) == wanted


def test_the_exit_status_is_the_first_that_is_not_zero_by_replica_and_job() -> None:
    """Whatever the order in the answer."""
    jobs = [
        job(submission("failed", exit_status=3), replica=1, number=0),
        job(submission("done", exit_status=0), replica=0, number=0),
        job(submission("failed", exit_status=2), replica=0, number=1),
    ]
    assert verdict(run_item("a", "failed", *jobs, reason="job_failed")) == ("failed", "exit_nonzero", 2)


def test_only_the_newest_submission_counts_whatever_its_place() -> None:
    """The highest `submission_num`, not the last of the list."""
    newest, older = submission("running", num=1), submission("failed", num=0, exit_status=7)
    assert verdict(run_item("a", "running", job(newest, older))) == "running"


def test_a_stop_by_policy_is_named_so() -> None:
    """If our newest request to stop it was a policy's; abort or not."""
    for reason in ("stopped_by_user", "aborted_by_user"):
        item = single(run="terminated", job_status="terminated", reason=reason)
        assert verdict(item, policy=True) == ("stopped", "stopped_by_policy", None)


def test_every_rule_is_named() -> None:
    """Every verdict carries its rule."""
    move = judge(facts(single(run="done", job_status="done", exit_status=0)), stopped_by_policy=False)
    assert move.rule == "current@1/all-exits-zero"
    live = judge(facts(single(run="running", job_status="running")), stopped_by_policy=False)
    assert isinstance(live, Live)
    assert live.rule == "current@1/most-advanced-job"


def test_the_words_and_retry_events_are_dstacks_own() -> None:
    """Held against the installed package's enums."""
    runs = pytest.importorskip("dstack._internal.core.models.runs")
    ours = {word: event for word, event in RETRY_EVENT_OF.items() if word not in ("supervisor_lost", "error")}
    theirs = {}
    for reason in runs.JobTerminationReason:
        event = reason.to_retry_event()
        theirs[reason.value] = None if event is None else event.value
    assert ours == theirs
    assert {reason.value for reason in runs.RunTerminationReason} == RUN_REASONS - {"error"}


def test_every_reason_is_given_by_some_rule() -> None:
    """A reason nobody gives would be a promise: `out_of_memory` comes with a provider that says so (Slurm)."""
    engine = Path(__file__).parents[3] / "engine"
    given = "".join(file.read_text() for file in engine.rglob("*.py") if "testing" not in file.parts)
    assert [reason.name for reason in Reason if f"Reason.{reason.name}" not in given] == []
