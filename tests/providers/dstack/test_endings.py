"""The first sentence about a run of dstack: true, with dstack's own words first, and with what helps."""

import json
from typing import Any

import pytest
from dstack._internal.core.models.runs import JobTerminationReason, RunTerminationReason

from steno.engine.providers.dstack.endings import GENERAL, REASONS
from steno.engine.providers.dstack.words import NO_FAILURE, RETRY_EVENT_OF
from steno.engine.replay.replay import replay_polls
from steno.engine.rules.why_ended import why
from steno.engine.state.run import Run
from steno.events.poll import Poll

AT = "2026-07-23T03:00:00.000000+00:00"


def ended(
    reason: str | None,
    message: str | None = None,
    exit_status: int | None = None,
    *,
    run_reason: str = "job_failed",
    jobs: bool = True,
) -> Run:
    """A run that dstack shows as failed, with these words of its job; `jobs`: the answer has the job itself."""
    submission: dict[str, Any] = {
        "submission_num": 0,
        "status": "failed",
        "termination_reason": reason,
        "termination_reason_message": message,
        "exit_status": exit_status,
        "submitted_at": AT,
        "finished_at": AT,
    }
    item = {
        "id": "00000000-0000-4000-8000-000000000001",
        "project_name": "main",
        "submitted_at": AT,
        "status": "failed",
        "termination_reason": run_reason,
        "run_spec": {"run_name": "r", "configuration": {"type": "task"}},
        "jobs": [{"job_spec": {"replica_num": 0, "job_num": 0}, "job_submissions": [submission]}] if jobs else [],
        "latest_job_submission": submission,
    }
    poll = Poll(
        source="dstack/main",
        path="/api/runs/list",
        req=b'{"project_name": "main", "limit": 100}',
        started_at=1,
        observed_at=2,
        status=200,
        body=json.dumps([item]).encode(),
        text=True,
        answered=True,
    )
    (run,) = replay_polls([(1, poll)]).runs
    return run


NO_CAPACITY, EXITED = "failed_to_start_due_to_no_capacity", "container_exited_with_error"
READ = "read its output: `steno logs r --tail 50`"
CAUSES = [  # reason and message of the job, why, what to do
    ("executor_error", "could not select device driver", "The machine's GPU driver does not work with containers",
     "end that machine (`steno machines` names it), or use another backend or image"),
    ("executor_error", "failed to acquire GPUs: none", "dstack put it on a machine whose GPUs were in use",
     "run it again"),
    ("instance_unreachable", None, "dstack lost the connection to its machine for more than two minutes",
     "run it again"),
    ("volume_error", "wrong AZ", "A volume of it could not be attached",
     "check that the volume exists, is free and is in the machine's region: `dstack volume list`"),
    (NO_CAPACITY, "all failed", "dstack had no machine of the kind it asks for",
     "name other GPUs and submit it again, or try later"),
    ("creating_container_error", "pull access denied",
     "Its image may not be pulled: it does not exist, or needs a login",
     "name another in `image` and submit it again, or give `registry_auth` in the task"),
    (EXITED, "Failed to set up the repo", "Its repository could not be fetched on the machine",
     "check its address, its branch and that dstack may read it"),
    (EXITED, None, "Its command never ran, or ended without an exit status",
     f"check that the image has the task's shell, and {READ}"),
    ("terminated_by_server", "Secrets interpolation error", "It names a secret that the project does not have",
     "add it: `dstack secret set`"),
    ("cosmic_ray", "{name} hit `bit 7`\nmore", "dstack reported a failure and no cause", READ),
]  # fmt: skip


@pytest.mark.parametrize(("reason", "message", "cause", "remedy"), CAUSES)
def test_the_jobs_own_words_come_first(reason: str, message: str | None, cause: str, remedy: str) -> None:
    """Never `job_failed`, which dstack says of every failure. A message is quoted up to its first line break."""
    quoted = "" if message is None else f": {message.partition(chr(10))[0]}"
    assert why(ended(reason, message)) == f"{cause} (`{reason}`){quoted}; {remedy}."


@pytest.mark.parametrize(
    ("run", "sentence"),
    [
        (ended(EXITED, exit_status=3), f"It exited 3; {READ}."),
        (ended(EXITED, exit_status=0), "though every job exited 0 (`container_exited_with_error`); `steno explain r`"),
        (
            ended(EXITED, exit_status=-1),
            "It exited -1: its command was ended by a signal, in most cases because memory",
        ),
        (
            ended("executor_error", "could not select device driver", 125),
            "does not work with containers (`executor_error`)",
        ),
        (
            ended("terminated_by_server", run_reason="server_error"),
            "dstack's server failed on it (`server_error`); read",
        ),
        (ended(NO_CAPACITY, "insufficient_credit: 429", jobs=False), "The cloud account has no credit left"),
        (ended(NO_CAPACITY, "tried 3 offers."), ": tried 3 offers; name"),
    ],
    ids=lambda value: "" if isinstance(value, Run) else value[:40],
)
def test_exit_statuses_and_words_of_the_run_count_too(run: Run, sentence: str) -> None:
    """Also of an answer that has the newest submission and no jobs."""
    assert sentence in why(run)


@pytest.mark.parametrize("word", sorted(reason.value for reason in JobTerminationReason))
def test_every_word_of_a_job_has_a_row(word: str) -> None:
    """The words of dstack 0.22.5, which are those of 0.19.37."""
    assert word in REASONS
    assert word in RETRY_EVENT_OF
    run = ended(word)
    if word not in NO_FAILURE:
        assert "job_failed" not in why(run)
        assert "no cause" not in why(run)


def test_every_word_of_a_run_has_a_row_or_repeats_its_jobs() -> None:
    assert {reason.value for reason in RunTerminationReason} <= REASONS.keys() | GENERAL
    assert "retry" in why(ended("done_by_runner", run_reason="retry_limit_exceeded"))
