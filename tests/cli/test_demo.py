"""The tour: two genuine runs on one machine, its end and its bill, then the incident, told in a few seconds."""

import json
import os
import signal
from decimal import Decimal
from pathlib import Path

import pytest
from stenotest.command_line import Steno, refused
from stenotest.waiting import wait

from steno.engine.providers.local.durable import is_locked

pytestmark = pytest.mark.slow


def test_the_tour_shows_a_machine_from_its_cold_start_to_its_bill_and_settles_the_incident(steno: Steno) -> None:
    """A single machine: cold for the first run, warm for the second, ended by us for idling, paid for from end to end;
    whatever the user's own settings are. The recording is failed under the old rules and succeeded under ours.
    """
    own = {"STENO_IDLE_TIMEOUT": "off", "STENO_LOCAL_PRICE": "0", "STENO_BUDGET": "0.01", "STENO_VMS_MODE": "pool"}
    done = steno("demo", "--json", **own)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    (vm,) = answer["machines"]
    assert [run["start"] for run in answer["runs"]] == ["cold", "warm"]
    assert vm["runs"] == [run["run_id"] for run in answer["runs"]]
    assert (vm["state"], vm["reason"], vm["price_usd_per_hour"]) == ("terminated", "idle_timeout", "1.990000")
    phases = [interval["phase"] for interval in vm["intervals"]]
    assert (phases[0], phases[-1] in {"idle", "terminating"}, phases.count("busy")) == ("provisioning", True, 2)
    assert sum(Decimal(interval["cost_usd"]) for interval in vm["intervals"]) == Decimal(vm["cost_usd"])
    assert Decimal("0.001") < Decimal(vm["cost_usd"]) < Decimal("1.99")  # seconds of it; an hour on no machine
    stops = [
        json.loads(line)["type"]
        for line in steno("events", "--json", "--record", answer["record"]).stdout.splitlines()
        if json.loads(line)["type"].startswith(("VmDrain", "VmStop"))
    ]
    assert stops == ["VmDrainStarted", "VmStopIntended", "VmStopSucceeded"]
    assert list(answer) == ["record", "runs", "machines", "incident"]
    assert [(run["state"], run["exit_status"]) for run in answer["runs"]] == [("succeeded", 0), ("failed", 3)]
    (difference,) = answer["incident"]["diff"]["differences"]
    assert (difference["left"]["state"], difference["right"]["state"]) == ("failed", "succeeded")
    assert difference["right"]["evidence"] == [answer["incident"]["settled_by"]["position"]]
    fields = {field["path"].rsplit(".", 1)[-1]: field["value"] for field in answer["incident"]["settled_by"]["fields"]}
    assert fields["exit_status"] == 0


def test_the_tour_keeps_its_record_and_says_where(steno: Steno) -> None:
    """Its record can be read afterwards."""
    page = steno("demo").stdout
    record = page.split("STENO_RECORD=")[1].split()[0]
    assert "decides it" in page
    assert "draining (idle), no new run is placed on it" in page
    assert "$ steno costs --by run" in page
    assert steno("explain", "demo-fails", "--record", record).stdout.startswith("demo-fails  ● failed")
    assert steno("verify", "--record", record).returncode == 0


PRICED = {"STENO_LOCAL_PRICE": "1.99", "STENO_LOCAL_GPU": "MI300X:1"}


def test_a_machine_that_went_unseen_is_seen_gone_at_the_next_look(steno: Steno, record_file: Path) -> None:
    """Nobody records: two runs share a machine, and it dies meanwhile; the list then says so, and bills it."""
    for name, start in (("first", "cold"), ("second", "warm")):
        done = steno("submit", "--wait", "--json", "--name", name, "--idle-duration", "2h", "--", "true", **PRICED)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["start"] == start
    (started,) = Path(f"{record_file}.local", ".machines").glob("*/started.json")
    os.kill(json.loads(started.read_text())["pid"], signal.SIGKILL)
    wait(lambda: not is_locked(started.parent))
    (vm,) = json.loads(steno("vms", "--all", "--json", **PRICED).stdout)["vms"]
    assert (vm["state"], vm["reason"], vm["price_usd_per_hour"]) == ("terminated", "unreachable", "1.990000")
    assert len(vm["runs"]) == 2
    assert float(vm["cost_usd"]) > 0


def test_a_label_that_is_none_is_one_line(steno: Steno) -> None:
    """The error, the place of the setting, and the expected form."""
    error = refused(steno("submit", "--", "true", STENO_LOCAL_GPU="2x"), 2)
    assert "local.gpu is '2x' (STENO_LOCAL_GPU); it must be a GPU model with its number" in error
