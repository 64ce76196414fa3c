"""Names collide between people, and between Stenos in one project, on genuine servers: all keep their own runs."""

import pytest
from stenolab.lab import Gate, Lab
from stenolab.plugin import StenoAt
from stenolab.steno import Steno
from stenolab.versions import NEWEST

from steno.engine.fold.fold import Fold
from steno.engine.fold.record_fold import RecordFold
from steno.engine.providers.registry import READINGS
from steno.engine.state.world import World
from steno.events.clock import SystemClock
from steno.events.store.record import Record

pytestmark = pytest.mark.slow

POOL = {"STENO_VMS_MODE": "pool", "STENO_MAX_VMS": "1", "STENO_IDLE_TIMEOUT": "20s", "STENO_BUDGET": "off"}


def folded(steno: Steno) -> World:
    """The world of Steno's own fold of its record."""
    with Record.open(steno.record, write=False, shapes=READINGS.shape, clock=SystemClock()) as record:
        world = Fold(READINGS)
        RecordFold(record, world).run()
        return world.state


def held(steno: Steno, name: str) -> bool:
    """True if the run of that name waits in Steno's queue."""
    return any(run.name == name and run.held is not None for run in folded(steno).runs.all())


@pytest.mark.ci  # `tests/engine/control/test_ownership.py` holds it without a server
@pytest.mark.suffices(NEWEST)
def test_a_strangers_run_of_our_queued_requests_name_ends_as_theirs_and_ours_runs(
    dstack: Lab, steno_at: StenoAt
) -> None:
    """Ours waits under the cap while somebody submits the same name straight to the server; a stop of ours, too."""
    both_run(dstack, steno_at)


@pytest.mark.long
def test_a_strangers_run_ends_as_theirs_and_ours_runs_at_real_pace(real_lab: Lab, steno_at: StenoAt) -> None:
    """The same at dstack's own pace."""
    both_run(real_lab, steno_at)


def both_run(dstack: Lab, steno_at: StenoAt) -> None:
    """A stranger takes the names of two waiting requests; one of ours is stopped, the other runs."""
    project = dstack.project()
    dstack.fleet(project, "theirs")
    steno = steno_at(dstack, project, **POOL)
    steno.follow("0.3")
    gate, other = Gate(dstack, project), Gate(dstack, f"{project}-theirs")
    steno.submit("first", [gate.passed])
    for name in ("train", "stopped"):
        steno.submit(name, [f"echo ours of {name}"])
        steno.until(lambda name=name: held(steno, name), what=f"{name} waiting")
    theirs = {
        name: dstack.submit(project, name, [other.passed], fleets=["theirs"])["id"] for name in ("train", "stopped")
    }
    steno.until(
        lambda: set(theirs.values()) <= {run.provider_id for run in folded(steno).runs.all()}, what="their runs seen"
    )

    stopped = steno("stop", "stopped", "--json").json()
    assert (stopped["state"], stopped["asked"]) == ("stopped", True)
    assert dstack.run(project, "stopped")["status"] not in ("terminating", "terminated")
    assert held(steno, "train")

    other.open()
    ended = dstack.wait_status(project, "train", "done", "failed")
    assert (ended["id"], ended["status"]) == (theirs["train"], "done")
    dstack.wait_status(project, "stopped", "done")
    dstack.delete_run(project, "train")
    gate.open()

    def ours() -> dict[str, object] | None:
        runs = steno("ps", "--all", "--json").json()["runs"]
        ours = [run for run in runs if run["name"] == "train" and run["provider_id"] != theirs["train"]]
        return next((run for run in ours if run["state"] == "succeeded"), None)

    run = steno.until(ours, what="our run succeeded")
    assert steno("logs", str(run["run_id"])).out.split() == ["ours", "of", "train"]
    rows = {row["id"]: row for row in dstack.runs(project)}
    assert rows[str(run["provider_id"])]["run_spec"]["configuration"]["tags"]["steno-run"] == run["run_id"]
    states = {run.provider_id: run.state.value for run in folded(steno).runs.all()}
    assert [states[provider_id] for provider_id in theirs.values()] == ["succeeded", "succeeded"]
    assert folded(steno).anomalies == []


@pytest.mark.ci
def test_two_stenos_in_one_project_each_adopt_their_own_runs_only(dstack_22: Lab, steno_at: StenoAt) -> None:
    """Both are asked for a run of the same name; the error of the second says who has the name."""
    project = dstack_22.project()
    first, second = steno_at(dstack_22, project), steno_at(dstack_22, project)
    first.follow("0.3")
    second.follow("0.3")
    gate = Gate(dstack_22, project)
    first.submit("train", [gate.passed])
    dstack_22.wait_status(project, "train", "running")
    (row,) = dstack_22.runs(project)
    second.until(lambda: row["id"] in {run.provider_id for run in folded(second).runs.all()}, what="the other's run")

    refusal = second.submit("train", ["echo never"], code=5)
    (theirs,) = (run.run_id for run in folded(second).runs.all() if run.provider_id == row["id"])
    assert f"steno stop {theirs}" in refusal.err
    other = second.submit("other", ["echo fine"], "--wait", "--json").json()
    assert other["state"] == "succeeded"
    gate.open()
    assert first.wait("train", "succeeded")["provider_id"] == row["id"]
    dstack_22.wait_status(project, "train")  # Steno knows of the success before the server has ended the run

    # finished now, and still not the second one's to replace
    refusal = second.submit("train", ["echo never"], code=5)
    assert "dstack delete train" in refusal.err
    first.submit("train", ["echo again"], "--wait")
    assert len(dstack_22.runs(project)) == 3
    for steno, ours in ((first, {"train": 2, "other": 0}), (second, {"train": 0, "other": 1})):
        state = folded(steno)
        submitted = [run.name for run in state.runs.all() if run.requested_at is not None and run.provider_id]
        assert {name: submitted.count(name) for name in ours} == ours
        assert state.anomalies == []
