"""The tour: two genuine runs on one machine, its end and its bill, then the incident, told in a few seconds."""

import json
from decimal import Decimal

import pytest
from stenotest.command_line import Steno

pytestmark = pytest.mark.slow


def test_the_tour_shows_a_machine_from_its_cold_start_to_its_bill(steno: Steno) -> None:
    """One machine: cold for the first run, warm for the second, ended by us for idling, paid for from end to end;
    whatever the user's own settings are.
    """
    own = {"STENO_IDLE_TIMEOUT": "off", "STENO_LOCAL_PRICE": "0", "STENO_BUDGET": "0.01", "STENO_VMS_MODE": "pool"}
    done = steno("demo", "--json", **own)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    (vm,) = told["machines"]
    assert [run["start"] for run in told["runs"]] == ["cold", "warm"]
    assert vm["runs"] == [run["run_id"] for run in told["runs"]]
    assert (vm["state"], vm["reason"], vm["price_usd_per_hour"]) == ("terminated", "idle_timeout", "1.990000")
    phases = [interval["phase"] for interval in vm["intervals"]]
    assert (phases[0], phases[-1] in {"idle", "terminating"}, phases.count("busy")) == ("provisioning", True, 2)
    assert sum(Decimal(interval["cost_usd"]) for interval in vm["intervals"]) == Decimal(vm["cost_usd"])
    assert Decimal("0.001") < Decimal(vm["cost_usd"]) < Decimal("1.99")  # seconds of it; an hour on no machine
    stops = [
        json.loads(line)["type"]
        for line in steno("events", "--json", "--record", told["record"]).stdout.splitlines()
        if json.loads(line)["type"].startswith(("VmDrain", "VmStop"))
    ]
    assert stops == ["VmDrainStarted", "VmStopIntended", "VmStopSucceeded"]


def test_the_tour_runs_two_commands_and_settles_the_incident(steno: Steno) -> None:
    """One succeeds, one fails; the recording is failed under the old rules and succeeded under ours."""
    done = steno("demo", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert list(told) == ["record", "runs", "machines", "incident"]
    assert [(run["state"], run["exit_status"]) for run in told["runs"]] == [("succeeded", 0), ("failed", 3)]
    (difference,) = told["incident"]["diff"]["differences"]
    assert difference["left"]["state"] == "failed"
    assert difference["right"]["state"] == "succeeded"
    assert difference["right"]["evidence"] == [told["incident"]["settled_by"]["position"]]
    said = {field["path"].rsplit(".", 1)[-1]: field["value"] for field in told["incident"]["settled_by"]["fields"]}
    assert said["exit_status"] == 0


def test_the_tour_keeps_its_record_and_says_where(steno: Steno) -> None:
    """What it shows can be looked at afterwards."""
    told = steno("demo").stdout
    record = told.split("STENO_RECORD=")[1].split()[0]
    assert "decides it" in told
    assert "draining (idle), no new run is placed on it" in told
    assert "$ steno costs --by run" in told
    assert steno("explain", "demo-fails", "--record", record).stdout.startswith("demo-fails  ● failed")
    assert steno("verify", "--record", record).returncode == 0
