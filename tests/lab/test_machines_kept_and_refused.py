"""Machines that Steno must not end, or cannot; runs that wait for theirs; an engine that was away."""

from typing import Any

import pytest
from stenolab.lab import Gate, Lab
from stenolab.ledger import bills_of, micros, of_kind, seconds
from stenolab.plugin import StenoAt
from stenolab.steno import Steno

pytestmark = pytest.mark.slow

IDLE_S = 4
POOL = {"STENO_VMS_MODE": "pool", "STENO_IDLE_TIMEOUT": f"{IDLE_S}s", "STENO_BUDGET": "off"}


def machine_of(steno: Steno, run: str, *states: str) -> dict[str, Any]:
    """The machine that run is or was on, once it is in one of these states."""

    def known() -> dict[str, Any] | None:
        vm = steno.world().machine_of(run)
        return vm if vm is not None and vm["state"] in states else None

    return steno.until(known, what=f"the machine of {run} to be {' or '.join(states)}")


def events_of(steno: Steno, vm: dict[str, Any]) -> list[str]:
    """Steno's decisions and actions about that machine, in order."""
    kinds = ("VmDrainStarted", "VmDrainCancelled", "VmStopIntended", "VmStopSucceeded", "VmStopFailed")
    return [event["type"] for event in steno.events(*kinds) if event["data"]["vm_id"] == vm["vm_id"]]


def explained(steno: Steno, what: str) -> str:
    """The words of `steno explain`, line ends taken out."""
    return " ".join(steno("explain", what).out.split())


@pytest.mark.ci
def test_each_gets_the_machine_it_asked_for_and_strangers_keep_theirs(dstack_19: Lab, steno_at: StenoAt) -> None:
    """`reuse` waits for a warm machine, `create` gets one of its own that goes at once, a stranger's is never ended."""
    project = dstack_19.project()
    dstack_19.fleet(project, "theirs", idle_duration="off")
    dstack_19.submit(project, "stranger", ["true"], fleets=["theirs"])
    steno = steno_at(dstack_19, project, **POOL)
    steno.up("--no-api")
    gate = Gate(dstack_19, project)
    steno.submit("waits", ["true"], "--creation-policy", "reuse")
    steno.wait("waits", "queued")
    assert "creation_policy is `reuse`" in explained(steno, "waits")
    steno.submit("maker", [gate.passed])
    machine_of(steno, "maker", "busy")
    own_gate = Gate(dstack_19, f"{project}-own")  # its machine goes with it: a poll must have shown it
    steno.submit("alone", [own_gate.passed], "--creation-policy", "create")
    gate.open()
    machine_of(steno, "alone", "busy")
    own_gate.open()

    assert steno.wait("alone", "succeeded")["start"] == "cold"
    assert steno.wait("waits", "succeeded")["start"] == "warm"
    shared, own = machine_of(steno, "maker", "terminated"), machine_of(steno, "alone", "terminated")

    runs = steno.world().runs
    assert shared["runs"] == [runs["maker"]["run_id"], runs["waits"]["run_id"]]
    assert own["runs"] == [runs["alone"]["run_id"]]
    drains = {event["data"]["vm_id"]: event["data"]["by"] for event in steno.events("VmDrainStarted")}
    # dstack is told to end the one of `create` at once itself, and may come first.
    assert {own["vm_id"]: "create"} | drains == {shared["vm_id"]: "idle", own["vm_id"]: "create"}
    assert dstack_19.run(project, "alone")["run_spec"]["configuration"]["idle_duration"] == 0
    theirs = machine_of(steno, "stranger", "idle")
    steno("vms", "stop", theirs["vm_id"], code=5)
    assert events_of(steno, theirs) == []
    assert steno.json("vms", theirs["vm_id"])["ours"] is False
    assert micros(theirs["cost_usd"]) > 0
    assert [row["status"] for row in dstack_19.instances(project) if row["fleet_name"] == "theirs"] == ["idle"]


@pytest.mark.ci
def test_an_end_that_dstack_refuses_is_told_and_tried_again(dstack_22: Lab, steno_at: StenoAt) -> None:
    """The server's own words are in the record and in the explanation; the machine is billed until it goes."""
    project = dstack_22.project()
    steno = steno_at(dstack_22, project, **POOL)
    steno.up("--no-api")
    gate = Gate(dstack_22, project)
    steno.submit("only", [gate.passed])
    machine_of(steno, "only", "busy")
    dstack_22.hold_fleet(project, "steno-slot-1")
    gate.open()
    steno.until(lambda: steno.seen("VmStopFailed"), what="the refusal")

    (refusal, *_) = steno.events("VmStopFailed")
    words = "being processed currently. Try again later"
    assert words in refusal["data"]["error"]
    (vm,) = steno.world().vms
    then = steno.json("vms", vm["vm_id"], "--at", str(refusal["position"]))
    assert then["state"] != "terminated"
    assert words in explained(steno, vm["vm_id"])

    dstack_22.release_fleet(project, "steno-slot-1")
    vm = machine_of(steno, "only", "terminated")
    done = events_of(steno, vm)
    assert done[:3] == ["VmDrainStarted", "VmStopIntended", "VmStopFailed"]
    # On a crowded machine dstack's own timer, 30 s behind ours, may come before the next try.
    assert done.count("VmStopSucceeded") == (done[-1] == "VmStopSucceeded")
    (bill,) = bills_of(dstack_22, project)
    assert seconds(vm["intervals"][-1]["to"]) >= bill["deleted"]


@pytest.mark.long
def test_without_capacity_a_run_waits_or_goes_to_the_next_gpu(dstack_19: Lab, steno_at: StenoAt) -> None:
    """Asked again later, and cancellable meanwhile; with a list of GPUs the next one at once, at its own price; and a
    machine somebody wants gone goes when its run is over, long before its timeout.
    """
    project = dstack_19.project()
    dstack_19.cloud.rule(f"-{project}-.*mi300x", no_capacity=True)
    steno = steno_at(dstack_19, project, **{**POOL, "STENO_IDLE_TIMEOUT": "1h"})
    steno.up("--no-api")
    steno.submit("patient", ["true"])
    gate = Gate(dstack_19, project)
    steno.submit("flexible", [gate.passed], "--fallback", "MI210")

    busy = machine_of(steno, "flexible", "busy")
    assert busy["price_usd_per_hour"] == "0.990000"
    ending = steno.start("vms", "stop", busy["vm_id"], "--when-idle", "--json")
    steno.until(lambda: steno.seen("VmStopRequested"), what="the request to be recorded")
    gate.open()
    assert steno.wait("flexible", "succeeded")["vm_id"] == busy["vm_id"]
    vm = machine_of(steno, "flexible", "terminated")
    assert (vm["reason"], events_of(steno, vm)[-1]) == ("stopped_by_user", "VmStopSucceeded")
    ending.finish()
    assert [bill["size"] for bill in bills_of(dstack_19, project)] == ["gpu-mi210x1-64gb-devcloud"]

    steno.until(lambda: steno.world().runs["patient"]["state"] == "queued", what="patient to wait")
    assert "capacity" in explained(steno, "patient")
    steno("stop", "patient")
    ended = steno.wait("patient", "stopped", "failed")
    # A stop may cross an attempt that is under way, and that attempt's end is then the run's.
    assert (ended["state"], ended["reason"]) in {("stopped", "stopped_by_user"), ("failed", "no_capacity")}
    assert len(bills_of(dstack_19, project)) == 1


@pytest.mark.ci
def test_an_engine_that_was_killed_finds_what_it_owns(dstack_19: Lab, steno_at: StenoAt) -> None:
    """Two machines were idle while it was away: it stops its own machine and reports the other as an orphan."""
    project = dstack_19.project()
    steno = steno_at(dstack_19, project, **{**POOL, "STENO_IDLE_TIMEOUT": "1h"})  # dstack's own timer is to be later
    engine = steno.up("--no-api")
    gate = Gate(dstack_19, project)
    steno.submit("before", [gate.passed])
    owned = machine_of(steno, "before", "busy")
    engine.kill()
    gate.open()
    dstack_19.wait_status(project, "before", "done")
    dstack_19.fleet(project, "theirs", nodes=(1, 1), idle_duration="off")
    dstack_19.wait(
        lambda: [row["status"] for row in dstack_19.instances(project) if row["fleet_name"] == "theirs"] == ["idle"],
        what="a machine of somebody else",
    )

    steno.up("--no-api", "--idle-timeout", f"{IDLE_S}s")
    assert steno.wait("before", "succeeded")["vm_id"] == owned["vm_id"]
    ended = machine_of(steno, "before", "terminated")
    done = events_of(steno, ended)
    assert (done[0], done[-2:]) == ("VmDrainStarted", ["VmStopIntended", "VmStopSucceeded"])
    assert of_kind(ended, "unconfirmed") == []
    world = steno.world()
    (other,) = [vm for vm in world.vms if vm["vm_id"] != owned["vm_id"]]
    orphans = {anomaly["subject"] for anomaly in world.anomalies if anomaly["kind"] == "orphan"}
    assert orphans == {f"vm/{other['vm_id']}"}
    assert (other["state"], events_of(steno, other)) == ("idle", [])
