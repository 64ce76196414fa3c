"""The VM machine: one declaration, two ways to step through it, the diagrams."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.fold.state_machines import VM, VmTrigger
from engine.fold.vm import BILLED, PHASE_OF
from engine.states import VmState

DIAGRAM = Path(__file__).parents[3] / "docs" / "machines" / "vm.mmd"
LIVE, TABLE = VM.live(), VM.table


@given(st.sampled_from(VmState), st.lists(st.sampled_from(VmTrigger), max_size=20))
def test_the_compiled_table_and_the_transitions_machine_are_equal(start: VmState, triggers: list[VmTrigger]) -> None:
    """Law: from any state, through any triggers, step by step."""
    state = start
    for trigger in triggers:
        live, table = LIVE(state, trigger), TABLE(state, trigger)
        assert live is table
        state = table if table is not None else state


@pytest.mark.parametrize("state", list(VmState))
@pytest.mark.parametrize("trigger", list(VmTrigger))
def test_every_pair_of_state_and_trigger_agrees(state: VmState, trigger: VmTrigger) -> None:
    """Exhaustively, too: there are not many."""
    assert LIVE(state, trigger) is TABLE(state, trigger)


def test_the_end_is_reached_by_evidence_alone_and_left_by_contradiction_alone() -> None:
    """One trigger leads there, from everywhere; one leads away, to a machine that is billed again."""
    end, moves = VmState.TERMINATED, list(VM.moves())
    into = [(source, trigger) for source, trigger, dest in moves if dest is end]
    assert sorted(into) == sorted((state, VmTrigger.TERMINATED) for state in VmState if state is not end)
    out = [(trigger, dest) for source, trigger, dest in moves if source is end]
    assert out == [(VmTrigger.REAPPEAR, VmState.UNCONFIRMED)]


def test_only_an_idle_machine_is_drained() -> None:
    """Never one that a run is on."""
    assert [source for source, trigger, _ in VM.moves() if trigger is VmTrigger.DRAIN] == [VmState.IDLE]


def test_what_the_design_calls_legal_is_legal() -> None:
    """provisioning → busy, busy → terminating, any → terminated, idle ⇄ busy."""
    for before, trigger, after in (
        (VmState.PROVISIONING, VmTrigger.BUSY, VmState.BUSY),
        (VmState.BUSY, VmTrigger.TERMINATE, VmState.TERMINATING),
        (VmState.IDLE, VmTrigger.BUSY, VmState.BUSY),
        (VmState.BUSY, VmTrigger.IDLE, VmState.IDLE),
        (VmState.DRAINING, VmTrigger.BUSY, VmState.BUSY),
        (VmState.TERMINATING, VmTrigger.DOUBT, VmState.UNCONFIRMED),
    ):
        assert TABLE(before, trigger) is after
    assert TABLE(VmState.TERMINATING, VmTrigger.IDLE) is None
    assert TABLE(VmState.BUSY, VmTrigger.DRAIN) is None


def test_every_state_that_may_be_billed_has_its_phase() -> None:
    """Draining is billed as idle; what was never made and what is gone are not billed."""
    assert set(PHASE_OF) == BILLED == set(VmState) - {VmState.REQUESTED, VmState.TERMINATED}
    assert PHASE_OF[VmState.DRAINING] == "idle"


def test_the_diagram_in_the_docs_is_current() -> None:
    """`steno states vm --format mermaid > docs/machines/vm.mmd` makes it."""
    assert DIAGRAM.read_text(encoding="utf-8") == VM.diagram("mermaid")
