"""The job that decides how a run of several ended, and a provider that calls it done all the same."""

import json
from typing import Any

import pytest
from stenotest.dstack_history import Item, nodes, read_run, single

from steno.engine.rules.sets import CURRENT, Verdict


def judged(item: Item) -> Verdict | None:
    """The verdict; None: none yet."""
    move = CURRENT.move(read_run(json.dumps(item).encode()), stopped_by_policy=False)
    return move if isinstance(move, Verdict) else None


def verdict(item: Item) -> tuple[str, int | None] | None:
    """(state/reason, exit status) of a verdict; None: none yet."""
    move = judged(item)
    return None if move is None else (str(move), move.exit_status)


def test_the_exit_status_of_a_failure_is_that_of_the_job_that_decided() -> None:
    """Not of a job that dstack stopped because another failed."""
    ends = ("terminated", "terminated_by_server", 143), ("failed", "container_exited_with_error", 1)
    assert verdict(nodes("failed", *ends, reason="job_failed")) == ("failed/exit_nonzero", 1)
    ends = ("failed", "instance_unreachable", None), ("terminated", "terminated_by_server", 143)
    assert verdict(nodes("failed", *ends, reason="job_failed")) == ("failed/unreachable", None)


def with_master(item: Item, where: str = "configuration") -> Item:
    """The run of a task that ends with its master."""
    spec = item["run_spec"]
    return {**item, "run_spec": {**spec, where: {**spec.get(where, {}), "stop_criteria": "master-done"}}}


DONE = ("done", "done_by_runner", 0)
STOPPED = ("done", "done_by_runner", 143)
FAILED = ("failed", "container_exited_with_error", 143)


@pytest.mark.parametrize("where", ["configuration", "profile"])
@pytest.mark.parametrize("ends", [(DONE, STOPPED), (DONE, STOPPED, DONE), (DONE, FAILED)])
def test_a_worker_stopped_after_its_master_is_no_failure(where: str, ends: Any) -> None:
    """dstack stops the workers of a `master-done` task with its master; the rule says so."""
    item = with_master(nodes("done", *ends, reason="all_jobs_done"), where)
    move = judged(item)
    assert move is not None
    assert (str(move), move.exit_status, move.rule) == ("succeeded/exit_zero", 0, "current@1/master-done")
    assert verdict(nodes("done", *ends, reason="all_jobs_done")) == ("failed/exit_nonzero", 143)


@pytest.mark.parametrize(
    ("item", "wanted"),
    [
        (nodes("running", ("done", "done_by_runner", 3), STOPPED), ("failed/exit_nonzero", 3)),
        (nodes("done", ("done", "done_by_runner", 3), STOPPED, reason="all_jobs_done"), ("failed/exit_nonzero", 3)),
        (nodes("running", DONE, ("terminating", "done_by_runner", 143)), ("succeeded/exit_zero", 0)),
        (nodes("running", DONE, ("running", None, None)), None),
        # a worker's own failure: before its master was done it fails the run, after that it does not
        (nodes("running", DONE, FAILED), None),
        (nodes("failed", DONE, FAILED, reason="job_failed"), ("failed/exit_nonzero", 143)),
        (
            nodes("terminated", ("terminated", None, None), STOPPED, reason="stopped_by_user"),
            ("stopped/stopped_by_user", None),
        ),
    ],
)
def test_the_end_of_a_task_that_ends_with_its_master(item: Item, wanted: Any) -> None:
    """The master's exit status is the run's, unless a worker failed first."""
    assert verdict(with_master(item)) == wanted


@pytest.mark.parametrize("run", ["running", "terminating", "done"])
@pytest.mark.parametrize("job_reason", ["done_by_runner", "container_exited_with_error"])
@pytest.mark.parametrize("exit_status", [1, 137, 143, -1])
def test_a_nonzero_exit_fails_the_run_whatever_its_own_status_says(run: str, job_reason: str, exit_status: int) -> None:
    """The verdict is the same in every poll; `done` beside it is a contradiction of dstack's."""
    reason = None if run == "running" else "all_jobs_done"
    item = single(run=run, job_status="terminating", reason=reason, job_reason=job_reason, exit_status=exit_status)
    assert verdict(item) == ("failed/exit_nonzero", exit_status)
