"""The doctor on the genuine servers, and the fleet a submission makes there."""

from collections.abc import Callable

import pytest
from stenolab.lab import Lab

from steno.engine.providers.base import Submission
from steno.engine.providers.dstack.doctor import Diagnosis, worst_case
from steno.engine.providers.dstack.fleet import IdleSetting
from steno.engine.providers.dstack.provider import DstackProvider
from steno.engine.providers.kind import CheckState
from steno.events.clock import SECOND

pytestmark = pytest.mark.slow

Connect = Callable[..., DstackProvider]
TASK: dict[str, object] = {
    "type": "task",
    "commands": ["true"],
    "image": "rocm/dev-ubuntu-24.04",
    "resources": {"gpu": "MI300X:1"},
}


def states(diagnosis: Diagnosis) -> dict[str, CheckState]:
    return {check.name: check.state for check in diagnosis.checks}


def look(provider: DstackProvider, **more: object) -> Diagnosis:
    return Diagnosis(provider.client, {**TASK, **more}, 2).look()


def test_a_good_set_up_is_ok_throughout(dstack: Lab, connect: Connect) -> None:
    """Every check passes, offers carry their price, and nothing was made by looking."""
    project = dstack.project()

    diagnosis = look(connect(dstack, project))

    assert set(states(diagnosis).values()) == {CheckState.OK}
    assert diagnosis.ok
    assert diagnosis.server_version == dstack.version
    assert diagnosis.user == "admin"
    assert diagnosis.backends == ("amddevcloud",)
    assert {(offer.price, offer.gpu, offer.spot) for offer in diagnosis.offers} == {
        (1_990_000, "1 × MI300X 192GB", False)
    }
    assert dstack.runs(project) == []
    assert dstack.instances(project) == []
    assert dstack.token not in repr(diagnosis)


def test_the_first_failure_is_named_and_the_rest_left_out(dstack: Lab, connect: Connect, nobody: str) -> None:
    """Each step that can go wrong is told apart from the others."""
    project = dstack.project()
    cases = {
        "server": look(connect(None, project, url=nobody)),
        "token": look(connect(dstack, project, token="wrong")),
        "project": look(connect(dstack, "nowhere")),
        "backend": look(connect(dstack, project), backends=["hotaisle"]),
        "offers": look(connect(dstack, project), resources={"gpu": "H100:8"}),
    }
    order = ["server", "token", "project", "backend", "fleet", "offers"]
    for failed, diagnosis in cases.items():
        by_name = states(diagnosis)
        assert not diagnosis.ok
        assert [by_name[name] for name in order[: order.index(failed)]] == [CheckState.OK] * order.index(failed)
        assert by_name[failed] is CheckState.FAILED
        assert {by_name[name] for name in order[order.index(failed) + 1 :]} <= {CheckState.SKIPPED}
        assert all("\n" not in check.message for check in diagnosis.checks)


def test_who_ends_an_idle_machine_is_told(dstack: Lab, connect: Connect) -> None:
    """The effective timeout with its origin; then the fleets that end machines earlier, or keep them longer."""
    project = dstack.project()
    dstack.fleet(project, "hasty", idle_duration="20s")
    dstack.fleet(project, "patient", idle_duration="1h")
    provider = connect(dstack, project)
    wanted = Submission(run_id="r", name="a-run", project=project, configuration=TASK, slot="steno-slot-1")
    slot = provider.plan(wanted)
    assert slot is not None
    assert provider.prepare(slot) is False
    assert provider.plan(wanted) is None

    timeout = IdleSetting(limit=600 * SECOND, origin="AMD_VM_IDLE_TIMEOUT in .env")
    task = {**TASK, "creation_policy": "create"}
    diagnosis = Diagnosis(provider.client, task, None, timeout).look()

    idle, *warnings = (check for check in diagnosis.checks if check.name == "idle")
    assert idle.message.startswith("Steno ends an idle machine after 0 s (the task's creation_policy: create)")
    assert {warning.message.split(":")[0] for warning in warnings} == {"fleet hasty", "fleet patient"}
    assert {warning.state for warning in warnings} == {CheckState.WARNING}
    assert diagnosis.ok
    assert diagnosis.offers


def test_something_that_is_no_dstack_server(dstack: Lab, connect: Connect) -> None:
    """An address that answers otherwise is told as such, not as a missing project."""
    provider = connect(None, "main", url=f"http://127.0.0.1:{dstack.cloud.port}")

    (server, *_) = look(provider).checks

    assert server.state is CheckState.FAILED
    assert "not as a dstack server" in server.message


@pytest.mark.ci
def test_no_task_fails_for_want_of_a_fleet(dstack_22: Lab, connect: Connect) -> None:
    """With a fleet for other machines, with a full one, with a burst that outruns the listing: all are placed."""
    project = dstack_22.project()
    dstack_22.fleet(project, "other", backends=["amddevcloud"], resources={"gpu": "H100"})
    provider = connect(dstack_22, project, fleet_nodes=1)
    task: dict[str, object] = {**TASK, "commands": ["sleep 900"], "idle_duration": "20s"}
    names = ("first", "second", "third")
    made = []
    for name in names:
        wanted = Submission(run_id="r", name=name, project=project, configuration=task)
        plan = provider.plan(wanted)
        if plan is not None:
            made.append(plan.name)
            assert provider.prepare(plan) is False
            assert provider.prepare(plan) is True
        provider.submit(wanted)

    for name in names:
        assert dstack_22.wait_status(project, name, "running", "failed")["status"] == "running"
    stem = f"steno-{project[:16].strip('-')}"
    assert made == [stem, f"{stem}-2", f"{stem}-3"]
    for name in names:
        dstack_22.stop_run(project, name, abort=True)


def test_the_worst_case_counts_boot_run_idle_and_end() -> None:
    """At $1.99: half an hour of boot and end, ten minutes of task, five of idle; never rounded down."""
    assert worst_case(1_990_000, run=600 * SECOND, idle=300 * SECOND) == 1_492_500
    assert worst_case(1, run=0, idle=0) == 1
