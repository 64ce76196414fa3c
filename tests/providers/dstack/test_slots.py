"""Slots and machines on the genuine servers: where a run goes, what ending a machine does, what the list shows then."""

from collections.abc import Callable
from typing import Any

import pytest
from stenolab.lab import Gate, Lab
from stenolab.versions import NEWEST, OLDEST

from steno.engine.errors import VmInUse
from steno.engine.providers.base import Submission
from steno.engine.providers.dstack.provider import DstackProvider
from steno.events.clock import SECOND

pytestmark = pytest.mark.slow

Connect = Callable[..., DstackProvider]
SLOT = "steno-slot-1"
TASK: dict[str, object] = {"type": "task", "image": "rocm/dev-ubuntu-24.04", "resources": {"gpu": "MI300X:1"}}


def start(provider: DstackProvider, name: str, command: str, **decided: Any) -> None:
    """As the engine does it: the slot where it is not there, then the task."""
    configuration = {**TASK, "commands": [command]}
    wanted = Submission(
        run_id="r", name=name, project=provider.project, configuration=configuration, slot=SLOT, **decided
    )
    plan = provider.plan(wanted)
    if plan is not None:
        assert provider.prepare(plan) is False
    provider.submit(wanted)


def living(lab: Lab, project: str) -> list[dict[str, Any]]:
    return [row for row in lab.instances(project) if row["status"] not in ("terminating", "terminated")]


def an_idle_machine(lab: Lab, project: str) -> str:
    """The id of the one machine, once it is idle."""

    def idle() -> str | None:
        machines = living(lab, project)
        return machines[0]["id"] if [row["status"] for row in machines] == ["idle"] else None

    return lab.wait(idle, what="one idle machine")


def gone(lab: Lab, project: str, identity: str) -> dict[str, Any]:
    """The machine's row, once it is terminated."""

    def terminated() -> dict[str, Any] | None:
        machine = next(row for row in lab.instances(project) if row["id"] == identity)
        return machine if machine["status"] == "terminated" else None

    return lab.wait(terminated, what="the machine to be terminated")


def end(lab: Lab, provider: DstackProvider, identity: str) -> None:
    """Ended as soon as dstack lets us: a machine may be shown idle while its run is not over."""

    def let() -> bool:
        try:
            provider.stop_vm(identity)
        except VmInUse:
            return False
        return True

    lab.wait(let, what="dstack to take the stop")


@pytest.mark.suffices(OLDEST)
def test_a_slot_is_one_machine_from_first_run_to_last(dstack: Lab, connect: Connect) -> None:
    """Cold, in use, warm, ended, forgotten by no list; the next machine has its number and is not taken for it."""
    project = dstack.project()
    provider = connect(dstack, project)
    gate = Gate(dstack, project)
    start(provider, "cold", gate.passed, idle=600 * SECOND)
    dstack.wait_status(project, "cold", "running")
    (busy,) = living(dstack, project)
    with pytest.raises(VmInUse):
        provider.stop_vm(busy["id"])
    gate.open()
    assert dstack.wait_status(project, "cold")["status"] == "done"
    first = an_idle_machine(dstack, project)

    start(provider, "warm", "true", creation="reuse", idle=600 * SECOND)
    assert dstack.wait_status(project, "warm")["status"] == "done"
    assert an_idle_machine(dstack, project) == first == busy["id"]
    assert len(dstack.instances(project)) == 1

    end(dstack, provider, first)
    ended = gone(dstack, project, first)
    assert {"0.22.5": "terminated_by_user", "0.19.37": None}[dstack.version] == ended["termination_reason"]
    provider.stop_vm(first)  # gone is gone

    start(provider, "next", "true", idle=0)
    assert dstack.wait_status(project, "next")["status"] == "done"
    second = next(row for row in dstack.instances(project) if row["id"] != first)
    assert (second["name"], second["instance_num"]) == (ended["name"], ended["instance_num"])
    provider.stop_vm(first)  # its number is another's now
    # dstack's own end, by the idle time it was told; Steno's stop did not touch it
    by_itself = gone(dstack, project, second["id"])
    assert by_itself["termination_reason"] in ("idle_timeout", "Idle timeout")

    dstack.api(f"/api/project/{project}/fleets/delete", {"names": [SLOT]})
    dstack.wait(lambda: not dstack.api(f"/api/project/{project}/fleets/list"), what="the slot to be gone")
    assert {row["id"] for row in dstack.instances(project)} == {first, second["id"]}


@pytest.mark.ci
@pytest.mark.suffices(OLDEST)
def test_a_full_slot_takes_nobody(dstack: Lab, connect: Connect) -> None:
    """A second run for a busy slot, and a run that may only reuse where nothing is warm: no capacity."""
    project = dstack.project()
    provider = connect(dstack, project)
    start(provider, "nothing-warm", "true", creation="reuse")
    start(provider, "holder", "sleep 600", idle=0)
    dstack.wait_status(project, "holder", "running")
    start(provider, "second", "true")
    for name in ("nothing-warm", "second"):
        run = dstack.wait_status(project, name)
        reason = run["latest_job_submission"]["termination_reason"]
        assert (run["status"], reason) == ("failed", "failed_to_start_due_to_no_capacity")
    assert len([row for row in dstack.instances(project) if row["price"] is not None]) == 1
    dstack.stop_run(project, "holder")


@pytest.mark.suffices(NEWEST)
def test_no_capacity_leaves_no_machine(dstack: Lab, connect: Connect) -> None:
    """The next GPU of a list is asked for; where the cloud has none, no row with a price is left, or none at all."""
    project = dstack.project()
    provider = connect(dstack, project)
    start(provider, "elsewhere", "true", gpu="H100")
    run = dstack.wait_status(project, "elsewhere")
    assert run["run_spec"]["configuration"]["resources"]["gpu"]["name"] == ["H100"]
    assert run["latest_job_submission"]["termination_reason"] == "failed_to_start_due_to_no_capacity"
    assert [row for row in dstack.instances(project) if row["price"] is not None] == []
