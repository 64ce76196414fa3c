"""Machines of this host with a price: cold, warm, queued, refused and ended, by the genuine command."""

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from stenotest.command_line import Background, Steno, refused
from stenotest.gated_run import holding
from stenotest.waiting import wait

pytestmark = pytest.mark.slow

PRICED = {
    "STENO_LOCAL_PRICE": "1.99",
    "STENO_LOCAL_GPU": "MI300X",
    "STENO_VMS_MODE": "pool",
    "STENO_IDLE_TIMEOUT": "1h",
    "STENO_BUDGET": "1400",
}


@pytest.fixture
def priced(steno: Steno) -> Iterator[Steno]:
    """The command on a host whose machines cost $1.99 an hour; none of them is left behind."""

    def call(*words: object, stdin: str | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
        return steno(*words, stdin=stdin, **(PRICED | variables))

    yield call
    for vm in told(call, "vms")["vms"]:
        if vm["state"] != "terminated":
            assert call("vms", "stop", vm["vm_id"]).returncode == 0


@pytest.fixture
def up(background: Background) -> Callable[..., AbstractContextManager[None]]:
    """`with up("--max-vms", "1"):` runs `steno up` meanwhile, and ends it in order."""

    @contextmanager
    def running(*flags: str) -> Iterator[None]:
        process = background("up", *flags, **PRICED)
        yield
        process.terminate()
        assert process.wait() == 0

    return running


Up = Callable[..., AbstractContextManager[None]]


def told(call: Steno, *words: object, **variables: str) -> Any:
    """The JSON a command prints."""
    done = call("--json", *words, **variables)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_second_run_is_warm_and_the_bill_names_both(priced: Steno) -> None:
    """A machine, one cold and one warm start; a user ends it, and what it cost is the sum of its lines."""
    first = told(priced, "submit", "--wait", "--name", "first", "--", "true")
    second = told(priced, "submit", "--wait", "--name", "second", "--", "true")
    assert (first["start"], second["start"]) == ("cold", "warm")
    assert first["vm_id"] == second["vm_id"]
    assert "It has been idle since" in priced("explain", first["vm_id"]).stdout
    assert told(priced, "metrics")["active_vms"] == 1

    ended = told(priced, "vms", "stop", first["vm_id"])
    assert (ended["asked"], ended["told"]) == (True, True)
    wait(lambda: told(priced, "vms", first["vm_id"])["state"] == "terminated")
    vm = told(priced, "vms", first["vm_id"])
    assert (vm["reason"], vm["ours"], vm["gpu"]) == ("stopped_by_user", True, "MI300X")
    assert vm["runs"] == [first["run_id"], second["run_id"]]
    report = told(priced, "costs")
    assert report["total"]["total_usd"] == vm["cost_usd"]
    assert told(priced, "metrics") | {"total_cost_usd": 0, "remaining_credits_usd": 0} == {
        "total_cost_usd": 0,
        "remaining_credits_usd": 0,
        "credits_used_pct": 0.0,
        "tasks_completed": 2,
        "cold_starts": 1,
        "warm_reuses": 1,
        "active_vms": 0,
    }


def test_a_run_that_may_overrun_the_budget_is_refused_with_the_arithmetic(priced: Steno) -> None:
    """Exit 6, nothing requested; a bound that fits is let through."""
    line = refused(priced("submit", "--max-duration", "2h", "--", "true", STENO_BUDGET="2"), 6)
    assert "2 h" in line
    assert "$3.98" in line
    assert told(priced, "ps")["runs"] == []
    bound = ("--max-duration", "10m", "--profile", "no-reuse")
    assert priced("submit", "--wait", *bound, "--", "true", STENO_BUDGET="2").returncode == 0


def test_a_run_more_than_machines_waits_in_the_queue(priced: Steno, up: Up, gate: Path) -> None:
    """Its place, why, and when it may start; then it gets the machine."""
    holder = priced("submit", "--name", "holder", "--max-duration", "2h", "--", holding(gate), STENO_MAX_VMS="1")
    assert holder.returncode == 0
    told_of = told(priced, "submit", "--name", "waiter", "--", "true", STENO_MAX_VMS="1")
    assert told_of["state"] == "queued"
    (waiting,) = told(priced, "ps")["queue"]
    assert (waiting["run_id"], waiting["position"], waiting["why"]) == (told_of["run_id"], 1, "cap")
    assert "#1 in the queue" in priced("ps", COLUMNS="140").stdout
    assert told(priced, "show", "waiter")["queued"]["position"] == 1
    assert "waits" in priced("show", "waiter").stdout
    gate.touch()
    with up("--max-vms", "1"):
        wait(lambda: told(priced, "show", "waiter")["state"] == "succeeded")
    assert told(priced, "show", "waiter")["start"] == "warm"


def test_up_ends_a_machine_that_idled_too_long(priced: Steno, up: Up) -> None:
    """And explains it afterwards."""
    run = told(priced, "submit", "--wait", "--", "true", STENO_IDLE_TIMEOUT="2s")
    with up("--idle-timeout", "2s"):
        wait(lambda: told(priced, "vms", run["vm_id"])["state"] == "terminated")
    assert told(priced, "vms", run["vm_id"])["reason"] == "idle_timeout"


def test_a_machine_that_is_seen_alive_is_not_gone(priced: Steno) -> None:
    """Nobody's word stands against the newest answer."""
    run = told(priced, "submit", "--wait", "--", "true")
    assert "vms stop" in refused(priced("vms", "gone", run["vm_id"], "--at", "1s"), 5)


def test_a_machine_with_a_run_on_it_goes_when_that_has_ended(priced: Steno) -> None:
    """--when-idle waits; without it the run is stopped first."""
    run = told(priced, "submit", "--name", "long-run", "--", "sleep 3600")
    wait(lambda: told(priced, "show", "long-run")["vm_id"] is not None)
    vm = told(priced, "show", "long-run")["vm_id"]
    kept = told(priced, "vms", "stop", vm, "--when-idle")
    assert (kept["state"], kept["told"]) == ("busy", False)
    assert "A user requested its stop" in priced("explain", vm).stdout
    assert told(priced, "vms", "stop", vm)["told"]
    wait(lambda: told(priced, "vms", vm)["state"] == "terminated")
    answer = told(priced, "show", run["run_id"])
    assert (answer["state"], answer["reason"]) == ("stopped", "stopped_by_policy")


def test_ending_something_leaves_the_policy_in_force(priced: Steno) -> None:
    """A stop typed in a shell with other settings does not change how machines are kept."""
    priced("submit", "--wait", "--name", "kept", "--", "true", STENO_IDLE_TIMEOUT="2h")
    (vm,) = told(priced, "vms")["vms"]
    priced("submit", "--name", "ended", "--", "sleep 3600", STENO_IDLE_TIMEOUT="2h")
    priced("stop", "ended", STENO_IDLE_TIMEOUT="3h")
    assert priced("vms", "stop", vm["vm_id"], STENO_IDLE_TIMEOUT="3h").returncode == 0
    adopted = priced("events", "--type", "PolicyAdopted", "--json").stdout.splitlines()
    assert len(adopted) == 1


def test_a_run_that_found_no_capacity_can_be_stopped_from_being_asked_for_again(priced: Steno) -> None:
    """Nobody acts at that moment: it has ended, and whoever comes next would ask again."""
    priced("submit", "--name", "elsewhere", "--gpu", "MI210", "--image", "any", "--", "true")
    stopped = json.loads(priced("stop", "elsewhere", "--json").stdout)
    assert stopped["state"] in ("failed", "stopped")
    assert stopped["asked"]
    priced("submit", "--wait", "--name", "other", "--", "true")  # acts for everybody
    runs = {run["name"]: run["state"] for run in told(priced, "ps", "--all")["runs"]}
    assert runs == {"elsewhere": stopped["state"], "other": "succeeded"}


def test_a_run_that_found_no_capacity_names_the_tries_and_the_limit(priced: Steno) -> None:
    """A sentence after the verdict's own."""
    done = priced(
        "submit", "--wait", "--name", "elsewhere", "--gpu", "MI210", "--image", "any", "--", "true",
        STENO_QUEUE_PATIENCE="0",
    )  # fmt: skip
    assert done.returncode == 1
    assert told(priced, "explain", "elsewhere")["sentence"].endswith(
        "Steno submitted it once; it is not submitted again, because `queue.patience` is 0."
    )
