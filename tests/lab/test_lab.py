"""The lab keeps its promises, before anything is tested with it."""

import base64
from typing import Any

import pytest
from stenolab.lab import Lab

pytestmark = pytest.mark.slow


def log_of(lab: Lab, project: str, run: dict[str, Any]) -> str:
    body = {"run_name": run["run_spec"]["run_name"], "job_submission_id": run["latest_job_submission"]["id"]}
    lines = lab.api(f"/api/project/{project}/logs/poll", {**body, "limit": 1000})["logs"]
    return "".join(base64.b64decode(line["message"]).decode() for line in lines)


def test_a_task_really_runs_and_its_machine_is_charged(dstack: Lab) -> None:
    """Commands are executed, their output is in the log, their exit status in the run, the machine's life in a bill."""
    project = dstack.project()
    dstack.fleet(project)
    dstack.submit(project, "works", ["echo hello $((6*7))", "exit 3"])

    run = dstack.wait_status(project, "works")

    assert (run["status"], run["latest_job_submission"]["exit_status"]) == ("failed", 3)
    assert "hello 42" in log_of(dstack, project, run)
    (bill,) = [bill for bill in dstack.cloud.bills() if project in bill["name"]]
    assert bill["ip"] == dstack.hostname(project, "works")
    assert bill["micro_dollars"] == pytest.approx(bill["seconds"] / 3600 * 1_990_000, abs=1)
