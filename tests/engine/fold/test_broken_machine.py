"""A wrong declaration is wrong everywhere: live path, replay, projections and diagrams read the same Machine object."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from steno.engine.fold.fold import Fold
from steno.engine.fold.record_fold import RecordFold
from steno.engine.providers.registry import READINGS
from steno.engine.replay.replay import open_trace, replay_record
from steno.engine.rules.sets import CURRENT
from steno.engine.state.state_machines import RUN, VM, StateMachine, Trigger, VmTrigger
from steno.engine.state.states import State, VmState
from steno.events.clock import SystemClock
from steno.events.store.record import Record
from steno.projections.read_models.projector import caught_up, rebuilt

RECORDING = Path(__file__).parents[2] / "traces" / "dstack-0.22.5" / "success.jsonl.zst"


@pytest.fixture
def record(tmp_path: Path) -> Iterator[Record]:
    """A run that succeeds on a machine that ends."""
    with Record.open(
        tmp_path / "record.db", write=True, create=True, shapes=READINGS.shape, clock=SystemClock()
    ) as made:
        made.append_polls([poll for _, poll in open_trace(RECORDING) if poll is not None])
        yield made


@pytest.fixture
def machines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Machine objects of the test's own, built from the same declarations."""
    for declared in (RUN, VM):
        assert declared.table is not None  # kept, so that it comes back when the test is over
        monkeypatch.delitem(vars(declared), "table")
        monkeypatch.setitem(vars(declared), "machine", StateMachine.machine.func(declared))


def folded(record: Record) -> list[tuple[list[str], list[str], list[str]]]:
    """The states of runs and machines and the kinds of anomalies: by the live path, replay and projections."""
    world = Fold(READINGS, CURRENT, live=True)
    RecordFold(record, world).run()
    state = world.state
    live = (
        [run.state.value for run in state.runs.all()],
        [vm.state.value for vm in state.vms.all()],
        [anomaly.kind.value for anomaly in state.anomalies],
    )
    replayed = replay_record(record).to_json()
    rebuilt(record)
    with caught_up(record) as store:
        rows = ([row.public for row in store.runs.all()], [row.public for row in store.vms.all()], store.anomalies())
    runs, vms, anomalies = map(msgspec.to_builtins, rows)
    return [live, _named(replayed["runs"], replayed["vms"], replayed["anomalies"]), _named(runs, vms, anomalies)]


def _named(runs: Any, vms: Any, anomalies: Any) -> tuple[list[str], list[str], list[str]]:
    return [run["state"] for run in runs], [vm["state"] for vm in vms], [anomaly["kind"] for anomaly in anomalies]


def test_the_table_as_declared_has_no_anomaly(record: Record) -> None:
    """The record that the tests below break."""
    assert folded(record) == [(["succeeded"], ["terminated"], [])] * 3


@pytest.mark.usefixtures("machines")
def test_a_run_machine_without_a_move_is_wrong_everywhere(record: Record) -> None:
    """Without `succeed` from running the run never ends."""
    RUN.machine.remove_transition(Trigger.SUCCEED.value, source=State.RUNNING.value)
    assert folded(record) == [(["running"], ["terminated"], [])] * 3
    assert "running --> succeeded" not in RUN.diagram("mermaid")
    assert "running -> succeeded" not in RUN.diagram("dot")


@pytest.mark.usefixtures("machines")
def test_a_run_machine_with_a_wrong_move_is_wrong_everywhere(record: Record) -> None:
    """Where `succeed` leads to `failed`, every path says failed, against what the provider goes on to say."""
    RUN.machine.remove_transition(Trigger.SUCCEED.value)
    RUN.machine.add_transition(Trigger.SUCCEED.value, State.RUNNING.value, State.FAILED.value)
    assert folded(record) == [(["failed"], ["terminated"], ["contradiction"] * 3)] * 3
    assert "running --> failed: succeed" in RUN.diagram("mermaid")


@pytest.mark.usefixtures("machines")
def test_a_vm_machine_without_a_move_is_wrong_everywhere(record: Record) -> None:
    """Without its last move no machine ever ends."""
    VM.machine.remove_transition(VmTrigger.TERMINATED.value, source=VmState.TERMINATING.value)
    assert folded(record) == [(["succeeded"], ["terminating"], [])] * 3
    assert "terminating --> terminated" not in VM.diagram("mermaid")
