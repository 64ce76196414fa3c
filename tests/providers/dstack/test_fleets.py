"""The fleet a task needs: made where none fits, and then dstack does place the task."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steno.engine.providers.dstack.fleet import fits, needs_fleet, plan_fleet, plan_slot
from steno.engine.providers.dstack.task import normal_task

AMD: dict[str, object] = {
    "type": "task",
    "commands": ["true"],
    "image": "i",
    "resources": {"gpu": "MI300X:1"},
    "backends": ["amddevcloud"],
}


def task(**more: object) -> dict[str, object]:
    return normal_task({**AMD, **more})


def a_fleet(
    *, instances: list[dict[str, object]] | None = None, status: str = "active", **more: object
) -> dict[str, Any]:
    """A fleet as `fleets/list` shows it."""
    configuration = {"nodes": {"min": 0, "max": 2}, "backends": ["amddevcloud"], **more}
    return {"name": "a-fleet", "status": status, "spec": {"configuration": configuration}, "instances": instances or []}


def test_a_task_without_a_fleet_gets_one() -> None:
    """Explicit backend, from no machine to the limit if there is one, idle longer than any usual task, open to spot."""
    endless = plan_fleet(task(), [], project="main", nodes=None)
    assert endless is not None
    assert endless.configuration["nodes"] == {"min": 0}
    plan = plan_fleet(task(idle_duration="2m"), [], project="main", nodes=3)
    assert plan is not None
    assert plan.name == "steno-amddevcloud"
    assert plan.configuration == {
        "type": "fleet",
        "name": "steno-amddevcloud",
        "nodes": {"min": 0, "max": 3},
        "idle_duration": "259200s",
        "backends": ["amddevcloud"],
        "spot_policy": "auto",
    }


@pytest.mark.parametrize(
    ("fleet", "wanted"),
    [
        (a_fleet(), {}),
        (a_fleet(backends=None), {}),
        (a_fleet(), {"backends": None}),
        (a_fleet(nodes={"min": 0, "max": None}, instances=[{"status": "busy"}] * 9), {}),
        (a_fleet(instances=[{"status": "busy"}, {"status": "idle"}]), {}),
        (a_fleet(instances=[{"status": "terminated"}] * 5), {}),
        (a_fleet(spot_policy="auto"), {"spot_policy": "spot"}),
        (a_fleet(), {"spot_policy": "auto"}),
        (a_fleet(resources={"gpu": {"name": ["mi300x"], "count": {"min": 1, "max": 8}}}), {}),
        (a_fleet(regions=["ATL1"]), {"regions": ["atl1"]}),
        (a_fleet(idle_duration=-1), {"idle_duration": "off"}),
        (a_fleet(idle_duration=600), {"idle_duration": "5m"}),
        (a_fleet(placement="cluster"), {"nodes": 2}),
    ],
)
def test_a_fleet_that_fits_is_used(fleet: dict[str, Any], wanted: dict[str, object]) -> None:
    """No second fleet is made beside one dstack can place the task in."""
    assert fits(fleet, task(**wanted))
    assert plan_fleet(task(**wanted), [fleet], project="main", nodes=3) is None


@pytest.mark.parametrize(
    ("fleet", "wanted"),
    [
        (a_fleet(status="terminating"), {}),
        (a_fleet(backends=["hotaisle"]), {}),
        (a_fleet(regions=["tor1"]), {"regions": ["atl1"]}),
        (a_fleet(ssh_config={"hosts": ["h"]}, nodes=None), {}),
        (a_fleet(), {"spot_policy": "spot"}),
        (a_fleet(spot_policy="spot"), {}),
        (a_fleet(resources={"gpu": {"name": ["H100"], "count": {"min": 1, "max": 8}}}), {}),
        (a_fleet(resources={"gpu": {"name": ["MI300X"], "count": {"min": 4, "max": 8}}}), {}),
        (a_fleet(resources={"memory": {"min": None, "max": 4}}), {}),
        (a_fleet(instances=[{"status": "busy"}, {"status": "provisioning"}]), {}),
        (a_fleet(instances=[{"status": "busy"}, {"status": "idle", "unreachable": True}]), {}),
        (a_fleet(idle_duration=60), {"idle_duration": "5m"}),
        (a_fleet(max_price=1.0), {}),
        (a_fleet(), {"nodes": 2}),
        (a_fleet(placement="cluster"), {"nodes": 3}),
    ],
)
def test_a_fleet_that_does_not_fit_gets_one_beside_it(fleet: dict[str, Any], wanted: dict[str, object]) -> None:
    """Full, gone, elsewhere, for other machines: another is made, under a name that is free."""
    fleet = {**fleet, "name": "steno-amddevcloud"}
    plan = plan_fleet(task(**wanted), [fleet], project="main", nodes=2)
    assert plan is not None
    assert plan.name != "steno-amddevcloud"


def test_jobs_that_wait_for_a_machine_count() -> None:
    """Room that others are about to take is none: dstack does not queue for a full fleet, it fails the run."""
    two = a_fleet(nodes={"min": 0, "max": 2})
    assert plan_fleet(task(), [two], project="main", nodes=3, waiting=1) is None
    assert plan_fleet(task(), [two], project="main", nodes=3, waiting=2) is not None
    assert plan_fleet(task(), [two, two], project="main", nodes=3, waiting=3) is None
    endless = a_fleet(nodes={"min": 0, "max": None})
    assert plan_fleet(task(), [endless], project="main", nodes=3, waiting=99) is None


@pytest.mark.parametrize(
    ("wanted", "name", "kept"),
    [
        (None, "steno-amddevcloud", "259200s"),
        ("0s", "steno-amddevcloud", "259200s"),
        ("72h", "steno-amddevcloud", "259200s"),
        ("100h", "steno-amddevcloud-360000s", "360000s"),
        ("off", "steno-amddevcloud-kept", "off"),
    ],
)
def test_a_fleet_never_cuts_the_idle_time_a_task_asks_for(wanted: str | None, name: str, kept: str) -> None:
    """dstack takes the shorter of fleet and task and never changes a fleet's: so the fleet's is the longer time."""
    plan = plan_fleet(task(idle_duration=wanted), [], project="main", nodes=3)
    slot = plan_slot("steno-slot-1", task(idle_duration=wanted), [], project="main")
    assert plan is not None
    assert slot is not None
    assert (plan.name, plan.configuration["idle_duration"]) == (name, kept)
    assert slot.configuration["idle_duration"] == kept


def test_a_slot_holds_one_machine_of_any_kind() -> None:
    """No backend, no size, no policy of one task is written into it: the next task may want another machine."""
    plan = plan_slot("steno-slot-2", task(spot_policy="spot"), [a_fleet()], project="main")
    assert plan is not None
    assert (plan.project, plan.name) == ("main", "steno-slot-2")
    assert plan.configuration == {
        "type": "fleet",
        "name": "steno-slot-2",
        "nodes": {"min": 0, "max": 1},
        "idle_duration": "259200s",
        "spot_policy": "auto",
    }
    assert plan_slot("steno-slot-2", task(), [{**a_fleet(), "name": "steno-slot-2"}], project="main") is None


@pytest.mark.parametrize("own", [{"fleets": ["mine"]}, {"creation_policy": "reuse"}])
def test_a_task_that_names_its_machines_gets_no_fleet(own: dict[str, object]) -> None:
    """The task says where it runs."""
    assert plan_fleet(task(**own), [], project="main", nodes=2) is None


def test_a_task_with_retry_gets_a_fleet_though_it_says_reuse() -> None:
    """A later try may need a new machine."""
    assert plan_fleet(task(creation_policy="reuse", retry=True), [], project="main", nodes=2) is not None


def test_a_fleet_planned_fits_the_task_it_is_planned_for() -> None:
    """The plan, once made, is found to fit: a second submission makes no second fleet."""
    for wanted in ({}, {"spot_policy": "spot"}, {"idle_duration": "off"}, {"nodes": 4}, {"backends": None}):
        plan = plan_fleet(task(**wanted), [], project="a_Project", nodes=2)
        assert plan is not None
        listed = {"idle_duration": {"off": -1}.get(str(plan.configuration["idle_duration"]), 72 * 3600)}
        made = {"name": plan.name, "status": "active", "spec": {"configuration": {**plan.configuration, **listed}}}
        assert fits(made, task(**wanted))


@pytest.mark.parametrize(
    ("version", "needed"),
    [("0.22.5", True), ("0.20.0", True), ("0.19.37", False), ("1.0.0", True), (None, True), ("dev", True)],
)
def test_which_servers_need_a_fleet(version: str | None, needed: bool) -> None:
    """0.19 makes one by itself; what we cannot read counts as new."""
    assert needs_fleet(version) is needed


from_anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["spec", "configuration", "nodes", "min", "max", "gpu", "status"]), inner)
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(["spec", "status", "instances", "name"]), from_anything))
def test_a_fleet_we_cannot_read_does_not_fit(fleet: dict[str, Any]) -> None:
    """A listing of another version never raises."""
    assert fits({**fleet, "status": "terminated"}, AMD) is False
    fits({**fleet, "status": "active"}, AMD)
