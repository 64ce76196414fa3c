"""Tasks with a schedule through the genuine commands: what is shown of the schedule, and of its firings."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from stenotest.command_line import Steno, refused
from stenotest.dstack_api import DstackApi
from stenotest.dstack_history import DstackHistory, job, nightly, submission

from steno.events.clock import SECOND, SystemClock, format_time

TRACE = Path(__file__).parents[1] / "engine/fold/traces/schedule.jsonl.zst"
TASK = """type: task
name: nightly
image: x
commands: ["true"]
resources: {gpu: "MI300X:1"}
schedule: {cron: "0 3 * * *"}
"""


def shown(steno: Steno) -> dict[str, Any]:
    """The run objects by the part of their id behind the schedule's."""
    runs = json.loads(steno("ps", "--all", "--json").stdout)["runs"]
    return {run["provider_id"][36:]: run for run in runs}


def test_a_schedule_is_shown_with_its_next_time_and_its_firings(steno: Steno) -> None:
    """In lists each firing is a run; `show` of the schedule lists them."""
    assert steno("import", TRACE).returncode == 0
    lines = steno("ps", "--all").stdout.splitlines()[1:]
    verdicts = (
        "● failed · exit_nonzero · exit 1",
        "● succeeded · exit_zero",
        "● queued · next at 2026-07-23 03:45:00Z",
    )
    assert all(verdict in line for verdict, line in zip(verdicts, lines, strict=True))
    page = steno("show", "nightly").stdout
    assert "dstack starts it by its schedule, next at 2026-07-23T03:45:00Z" in page
    assert [line.split()[0] for line in page.splitlines() if line.startswith("#")] == ["#1", "#0"]
    screen = shown(steno)
    schedule, firing = screen[""], screen["#1"]
    assert (schedule["kind"], schedule["next_at"]) == ("schedule", "2026-07-23T03:45:00.000000Z")
    assert (firing["schedule"], firing.get("kind")) == (schedule["run_id"], None)
    assert firing["ran"]["command"] == "x"


def test_a_firing_is_explained_by_its_own_answers(steno: Steno) -> None:
    """With commands that name it: its name means the schedule."""
    assert steno("import", TRACE).returncode == 0
    run_id = shown(steno)["#1"]["run_id"]
    answer = json.loads(steno("explain", run_id, "--json").stdout)
    assert answer["why"] == f"It exited 1; read its output: `steno logs {run_id[:13]} --tail 50`."
    quoted = {field["path"]: field["value"] for field in answer["evidence"][0]["fields"]}
    assert quoted[".[0].jobs[0].job_submissions[1].exit_status"] == 1
    assert any("exited 0" in flip for flip in answer["flips"])


def test_a_firing_that_no_answer_showed_is_called_not_seen(steno: Steno, home: Path) -> None:
    """So is a firing whose end no answer showed."""
    story = DstackHistory()
    for num in (0, 2):
        story.wait(QUARTER).listed(nightly("running", job(submission("running", num=num, submitted=story.now - 1))))
    assert steno("import", story.write(home / "gap.jsonl")).returncode == 0
    assert sum("● lost · not seen" in line for line in steno("ps", "--all").stdout.splitlines()) == 2
    assert "Not seen: dstack no longer shows this firing" in steno("show", shown(steno)["#1"]["run_id"]).stdout


QUARTER = 900


class Scheduling(DstackApi):
    """Says when a task with a schedule is due next, as dstack does."""

    def answer(self, path: str, body: dict[str, Any]) -> Any:
        answer = super().answer(path, body)
        if path.endswith("runs/stop"):
            self.runs[-1] |= {"status": "terminated", "termination_reason": "stopped_by_user"}
        if path.endswith("runs/apply") and answer["run_spec"]["run_name"] == "nightly":
            due = format_time(SystemClock().now() + 3600 * SECOND)
            answer |= {"status": "pending", "jobs": [], "latest_job_submission": None, "next_triggered_at": due}
        return answer


@pytest.fixture
def server() -> Iterator[Scheduling]:
    made = Scheduling()
    yield made
    made.close()


@pytest.mark.slow
def test_wait_ends_once_the_schedule_is_accepted_and_stop_ends_it_whole(
    steno: Steno, home: Path, server: Scheduling
) -> None:
    """Exit 0, with the next time. A firing is not stopped alone: the message says how to stop it."""
    (home / ".dstack.yml").write_text(TASK)
    names = {"STENO_DSTACK_URL": server.url, "DSTACK_TOKEN": "t", "STENO_PROJECT": "main", "STENO_BUDGET": "off"}
    done = steno("submit", "--provider", "dstack", "--wait", **names)
    assert (done.returncode, "queued · next at " in done.stdout) == (0, True), done.stderr
    at = SystemClock().now() - 5 * SECOND
    row = nightly("running", job(submission("running", start=at)))
    server.runs[0] |= {"status": "running", "jobs": row["jobs"]}
    other = ("submit", "--provider", "dstack", "--name", "other", "--image", "x", "--gpu", "MI300X:1", "--", "true")
    assert steno(*other, **names).returncode == 0  # it polls once
    firing = shown(steno)["#0"]
    assert firing["state"] == "running"
    error = refused(steno("stop", firing["run_id"], **names), 5)
    assert f"dstack stops a schedule as a whole: `steno stop {firing['schedule'][:13]}`" in error
    assert steno("stop", "nightly", **names).returncode == 0
    assert shown(steno)[""]["state"] == "stopped"
