"""The record of a genuine server that restarts, forgets names, and serves other people too."""

from typing import Any

import pytest
from stenolab.lab import Gate, Lab
from stenolab.plugin import StenoAt
from stenolab.steno import Steno
from stenolab.versions import OLDEST

pytestmark = pytest.mark.slow


def history(steno: Steno) -> dict[str, Any]:
    """The whole record, folded."""
    replay = steno("replay", steno.record, "--json").json()
    assert isinstance(replay, dict)
    return replay


@pytest.mark.ci
@pytest.mark.suffices(OLDEST)
def test_a_run_outlives_a_restart_of_its_server(dstack: Lab, steno_at: StenoAt) -> None:
    """The server is stopped and started in mid-run: the gap is recorded, and no verdict comes of it."""
    project = dstack.project()
    steno = steno_at(dstack, project)
    steno.follow()
    gate = Gate(dstack, project)
    steno.submit("survivor", ["echo start", gate.passed, "echo end"])
    steno.wait("survivor", "running")

    dstack.stop()
    steno.until(lambda: steno.seen("PollFailed"), what="the server to be seen down")
    dstack.start()
    gate.open()
    run = steno.wait("survivor", "succeeded", "failed", "stopped", "lost")

    assert (run["state"], run["reason"], run["exit_status"]) == ("succeeded", "exit_zero", 0)
    assert [poll for poll in steno("polls", "--json").lines() if poll["status"] is None]
    recorded = history(steno)
    # A crowded machine may make a second gap.
    assert {gap["source"] for gap in recorded["blind"]} == {f"dstack/{project}"}
    assert recorded["anomalies"] == []
    assert "start" in steno("logs", "survivor").out
    steno("verify")


@pytest.mark.long  # `name_reuse` is among the recordings of both versions
def test_a_name_used_again_is_another_run(dstack: Lab, steno_at: StenoAt) -> None:
    """Both keep their own verdict; the name means the newest; and deleting a run at dstack changes no verdict."""
    project = dstack.project()
    steno = steno_at(dstack, project)
    steno.follow()
    steno.submit("again", ["exit 4"])
    first = steno.wait("again", "failed")
    dstack.wait_status(project, "again")
    steno.submit("again", ["true"])
    second = steno.wait("again", "succeeded")
    dstack.wait_status(project, "again")
    dstack.delete_run(project, "again")
    steno.until(lambda: deleted(dstack, project), what="dstack to have forgotten both")

    assert first["provider_id"] != second["provider_id"]
    runs = {run["provider_id"]: run for run in history(steno)["runs"]}
    assert (runs[first["provider_id"]]["reason"], runs[first["provider_id"]]["exit_status"]) == ("exit_nonzero", 4)
    assert (runs[second["provider_id"]]["reason"], runs[second["provider_id"]]["exit_status"]) == ("exit_zero", 0)
    assert steno.shown("again")["provider_id"] == second["provider_id"]


def deleted(lab: Lab, project: str) -> bool:
    return all(run.get("deleted") for run in lab.runs(project) if run["run_spec"]["run_name"] == "again")


@pytest.mark.suffices(OLDEST)
def test_runs_of_others_are_recorded_too(dstack: Lab, steno_at: StenoAt) -> None:
    """First contact reads what ended before we came, with verdict and cost, and then follows what others submit."""
    project = dstack.project()
    dstack.fleet(project)
    dstack.submit(project, "before-us", ["exit 5"])
    before = dstack.wait_status(project, "before-us")

    steno = steno_at(dstack, project)
    steno.follow()
    run = steno.wait("before-us", "failed")
    dstack.submit(project, "beside-us", ["true"])

    assert (run["provider_id"], run["exit_status"]) == (before["id"], 5)
    assert float(run["provider_cost_usd"]) == before["cost"]
    assert steno.wait("beside-us", "succeeded")["exit_status"] == 0
