"""The log of a daemon's decisions: one line each, with the names people know."""

import fcntl
import logging
import os
import re
import signal
from pathlib import Path

import pytest
from stenotest import steno_process
from stenotest.waiting import LIMIT_S, wait

from steno.engine.decide.decisions import Decision
from steno.engine.providers.registry import READINGS
from steno.engine.runtime.record_loop import said
from steno.engine.state.facts import VmFacts
from steno.engine.state.inventory import Inventory
from steno.engine.state.run import Run
from steno.engine.state.vm import Vm
from steno.engine.state.world import World
from steno.events import types
from steno.events.clock import SystemClock
from steno.events.store.record import Record

SEEN = {"first_position": 1, "first_at": 0, "last_position": 1, "last_at": 0}
STATE = World(
    rules="current",
    runs=Inventory({"r1": Run(run_id="r1", provider="dstack", name="matmul", **SEEN)}),
    vms=Inventory(
        {
            "v1": Vm(
                vm_id="v1",
                provider="dstack",
                provider_id="i1",
                source="dstack/main",
                facts=VmFacts(provider_id="i1", name="lab-fleet-0"),
                created=0,
                **SEEN,
            )
        }
    ),
)
PLACE = {"run_id": "r1", "slot": None, "creation": "reuse-or-create", "idle": None}
IN_SLOT = PLACE | {"slot": "steno-slot-1"}


@pytest.mark.parametrize(
    ("decision", "level", "line"),
    [
        (
            types.RunPlaced(provider="dstack", **IN_SLOT, vm_id="v1", gpu=None),
            logging.INFO,
            "matmul: goes to machine lab-fleet-0",
        ),
        (
            types.RunPlaced(provider="dstack", **IN_SLOT, vm_id=None, gpu=None),
            logging.INFO,
            "matmul: gets a new machine in steno-slot-1",
        ),
        (
            types.RunPlaced(provider="dstack", **PLACE, vm_id="v1", gpu=None),
            logging.INFO,
            "matmul: the provider chooses an idle machine, probably machine lab-fleet-0",
        ),
        (
            types.RunPlaced(provider="dstack", **PLACE, vm_id=None, gpu="MI210"),
            logging.INFO,
            "matmul: the provider chooses an idle machine or starts one, asking for MI210",
        ),
        (
            types.RunHeld(provider="dstack", run_id="r1", why="cap", detail="3 of 3"),
            logging.INFO,
            "matmul: waits in the queue: 3 of 3",
        ),
        (
            types.RunRequeued(provider="dstack", run_id="r1", provider_id="p1", attempt=2, gpu="MI210", not_before=0),
            logging.WARNING,
            "matmul: no capacity; attempt 2 for MI210 follows",
        ),
        (
            types.IntentAbandoned(provider="dstack", intent="submit", policy=True, run_id="r1", why="too dear"),
            logging.WARNING,
            "matmul: refused: too dear",
        ),
        (
            types.VmDrainStarted(provider="dstack", vm_id="v1", by="idle", detail="seen idle for 600 s"),
            logging.INFO,
            "machine lab-fleet-0: draining (idle), no new run is placed on it: seen idle for 600 s",
        ),
        (
            types.VmDrainCancelled(provider="dstack", vm_id="v1", why="a run is on it"),
            logging.INFO,
            "machine lab-fleet-0: stays: a run is on it",
        ),
        (
            types.StopRequested(run_id="r1", provider="dstack", name="matmul", by="policy", submitter="steno"),
            logging.WARNING,
            "matmul: stopped, because its machine is to be stopped",
        ),
        (
            types.VmStopIntended(provider="dstack", vm_id="v1", provider_id="i1", by="idle"),
            logging.INFO,
            "machine lab-fleet-0: stop requested (idle)",
        ),
        (
            types.VmStopIntended(provider="dstack", vm_id="v9", provider_id="i9", by="user"),
            logging.INFO,
            "machine v9: stop requested (user)",
        ),
        (
            types.BudgetCrossed(threshold=805, spent=1_127_000_000, total=1_400_000_000),
            logging.WARNING,
            "Steno: $1127.00 of $1400.00 are spent: the alert at 80.5 % of the budget",
        ),
    ],
    ids=[
        "slot",
        "slot-new",
        "probable",
        "provider",
        "hold",
        "requeue",
        "refuse",
        "drain",
        "keep",
        "stop-run",
        "stop",
        "stop-unknown",
        "alert",
    ],
)
def test_a_decision_is_one_line(decision: Decision, level: int, line: str) -> None:
    """A decision that costs money or ends something is a warning."""
    assert said(decision, STATE) == (level, line)


@pytest.mark.slow
def test_a_log_that_nobody_reads_stops_no_recorder(tmp_path):
    """It looks at its provider and ends as asked, though its log was full before it began; who reads on is told."""
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    full = os.write(writing, b"x" * 4096)
    record = tmp_path / "r.db"
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "STENO_PROVIDER": "local",
        "STENO_RECORD": str(record),
    }
    with os.fdopen(reading, "rb", buffering=0) as log:
        with steno_process.Popen(["record", "--interval=1"], env=environ, stdout=writing, stderr=writing) as controller:
            wait(lambda: record.exists() and head_of(record) >= 2, what="events")
            assert len(log.read(full)) == full
            wait(lambda: head_of(record) >= 4, what="more events")
            controller.send_signal(signal.SIGTERM)
            assert controller.wait(LIMIT_S) == 0
        os.close(writing)
        text = log.read(4096).decode()
    assert re.search(r"WARNING lines missing here, as nobody read the log: [1-9]\d*\n", text), text


def head_of(path: Path) -> int:
    with Record.open(path, shapes=READINGS.shape, clock=SystemClock()) as record:
        return record.head().position
