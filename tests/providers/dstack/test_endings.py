"""The first sentence about a run of dstack: true, with dstack's own words first, and with what helps."""

from __future__ import annotations

import json
from typing import Any

import pytest
from dstack._internal.core.models.runs import JobTerminationReason, RunTerminationReason

from engine.decide.why_ended import why
from engine.fold.run import Run
from engine.providers.dstack.endings import GENERAL, REASONS
from engine.providers.dstack.words import NO_FAILURE, RETRY_EVENT_OF
from engine.replay.trace import replay_polls
from events.poll import Poll

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


DRIVER = "Docker exited with status 125: could not select device driver"
FLEETS = "No matching fleet found. Possible reasons: https://dstack.ai/docs/guides/troubleshooting/#no-fleets"
CREDIT = '{"error":"insufficient_credit"}: 429 Too Many Requests'
FULL = "Failed to provision in fleet 'f': tried 3 of 3 offers, all failed."
REUSE = "Could not reuse any instance for this job"


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        (
            ended("executor_error", DRIVER, 125),
            (
                f"The machine's GPU driver does not work with containers (`executor_error`): {DRIVER}; end that "
                "machine (`steno machines` names it), or use another backend or image."
            ),
        ),
        (
            ended("executor_error", "failed to acquire GPUs: none is free"),
            (
                "dstack put it on a machine whose GPUs were in use (`executor_error`): failed to acquire GPUs: none "
                "is free; run it again."
            ),
        ),
        (
            ended("gateway_error"),
            (
                "dstack could not set up the service at its gateway (`gateway_error`); check that the gateway runs: "
                "`dstack gateway list`."
            ),
        ),
        (
            ended("instance_access_revoked"),
            (
                "Its project may no longer use the machine: the fleet is not imported into the project any more "
                "(`instance_access_revoked`); have the fleet imported again, or name another in the task (`fleets`)."
            ),
        ),
        (
            ended("instance_unreachable"),
            (
                "dstack lost the connection to its machine for more than two minutes (`instance_unreachable`); run it"
                " again."
            ),
        ),
        (
            ended("log_quota_exceeded"),
            (
                "It wrote more output than dstack allows in an hour (`log_quota_exceeded`); print less, or write the "
                "output to a file."
            ),
        ),
        (
            ended("ports_binding_failed"),
            (
                "A port that it asks for is in use on its machine (`ports_binding_failed`); map another port in the "
                "task (`ports`), or end what uses it."
            ),
        ),
        (
            ended("volume_error", "Failed to attach volume: wrong AZ"),
            (
                "A volume of it could not be attached (`volume_error`): Failed to attach volume: wrong AZ; check that"
                " the volume exists, is free and is in the machine's region: `dstack volume list`."
            ),
        ),
        (
            ended("waiting_instance_limit_exceeded"),
            (
                "Its machine did not start in time, or ended before the run did (`waiting_instance_limit_exceeded`); "
                "run it again."
            ),
        ),
        (
            ended("waiting_runner_limit_exceeded"),
            (
                "Its machine started, but dstack's agent on it did not answer in time "
                "(`waiting_runner_limit_exceeded`); run it again."
            ),
        ),
        (
            ended("failed_to_start_due_to_no_capacity", CREDIT, jobs=False),
            (
                f"The cloud account has no credit left (`failed_to_start_due_to_no_capacity`): {CREDIT}; add credit at"
                " the cloud."
            ),
        ),
        (
            ended("failed_to_start_due_to_no_capacity", FLEETS),
            (
                f"No fleet of the project may run it (`failed_to_start_due_to_no_capacity`): {FLEETS}; compare what "
                "the task asks for (GPU, backend, `fleets`) with `dstack fleet list`, and change one of them."
            ),
        ),
        (
            ended("failed_to_start_due_to_no_capacity", REUSE),
            (
                f"The machine that it was to use was taken or gone (`failed_to_start_due_to_no_capacity`): {REUSE}; "
                "run it again."
            ),
        ),
        (
            ended("failed_to_start_due_to_no_capacity", FULL),
            (
                f"dstack had no machine of the kind it asks for (`failed_to_start_due_to_no_capacity`): {FULL[:-1]}; "
                "name other GPUs and submit it again, or try later."
            ),
        ),
        (
            ended("creating_container_error", "pull access denied for x/y"),
            (
                "Its image may not be pulled: it does not exist, or needs a login (`creating_container_error`): pull "
                "access denied for x/y; name another in `image` and submit it again, or give `registry_auth` in the "
                "task."
            ),
        ),
        (
            ended("terminated_due_to_utilization_policy", "The job GPU utilization below 50% for 600 seconds"),
            (
                "dstack ended it by its utilization policy: a GPU was used too little for too long "
                "(`terminated_due_to_utilization_policy`): The job GPU utilization below 50% for 600 seconds; use "
                "every GPU that it asks for, or change `utilization_policy` in the task."
            ),
        ),
        (
            ended("container_exited_with_error", "Failed to set up the repo"),
            (
                "Its repository could not be fetched on the machine (`container_exited_with_error`): Failed to set up"
                " the repo; check its address, its branch and that dstack may read it."
            ),
        ),
        (
            ended("container_exited_with_error", exit_status=0),
            (
                "dstack calls it failed, though every job exited 0 (`container_exited_with_error`); `steno explain r` "
                "shows its last answers."
            ),
        ),
        (
            ended("container_exited_with_error", exit_status=3),
            "It exited 3; read its output: `steno logs r --tail 50`.",
        ),
        (
            ended("container_exited_with_error"),
            (
                "Its command never ran, or ended without an exit status (`container_exited_with_error`); check that "
                "the image has the task's shell, and read its output: `steno logs r --tail 50`."
            ),
        ),
        (
            ended("container_exited_with_error", exit_status=-1),
            (
                "It exited -1: its command was ended by a signal, in most cases because memory ran out; give it more "
                "memory and submit it again."
            ),
        ),
        (
            ended("terminated_by_server", run_reason="server_error"),
            "dstack's server failed on it (`server_error`); read the server's log.",
        ),
        (
            ended("terminated_by_server", "Secrets interpolation error: x"),
            (
                "It names a secret that the project does not have (`terminated_by_server`): Secrets interpolation "
                "error: x; add it: `dstack secret set`."
            ),
        ),
        (
            ended("cosmic_ray", "{name} hit `bit 7`\nmore"),
            (
                "dstack reported a failure and no cause (`cosmic_ray`): {name} hit `bit 7`; read its output: `steno "
                "logs r --tail 50`."
            ),
        ),
    ],
    ids=lambda value: "" if isinstance(value, Run) else value[:40],
)
def test_the_jobs_own_words_come_first(found: Run, sentence: str) -> None:
    """Never `job_failed`, which dstack says of every failure."""
    assert why(found) == sentence


@pytest.mark.parametrize("word", sorted(one.value for one in JobTerminationReason))
def test_every_word_of_a_job_has_a_row(word: str) -> None:
    """Of dstack 0.22.5, and of 0.19.37, whose words are the same."""
    assert word in REASONS
    assert word in RETRY_EVENT_OF
    run = ended(word)
    if word not in NO_FAILURE:
        assert "job_failed" not in why(run)
        assert "no cause" not in why(run)


def test_every_word_of_a_run_has_a_row_or_repeats_its_jobs() -> None:
    assert {one.value for one in RunTerminationReason} <= REASONS.keys() | GENERAL
    assert "retry" in why(ended("done_by_runner", run_reason="retry_limit_exceeded"))
