"""The state machines of runs and machines: a declaration, two ways to step through it, the diagrams."""

import re
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steno.engine.state.state_machines import RUN, TERMINAL, VM, StateMachine, Step, Trigger, VmTrigger
from steno.engine.state.states import PROGRESS, State, VmState
from steno.engine.state.vm import BILLED, PHASE_OF

DIAGRAMS = Path(__file__).parents[3] / "docs" / "machines"
MACHINES: dict[str, Any] = {"run": RUN, "vm": VM}
VALUES: dict[str, Any] = {"run": (list(State), list(Trigger)), "vm": (list(VmState), list(VmTrigger))}
LIVES: dict[str, Any] = {name: machine.live() for name, machine in MACHINES.items()}


@pytest.mark.parametrize("name", MACHINES)
@given(data=st.data())
def test_the_compiled_table_and_the_transitions_machine_are_equal(name: str, data: st.DataObject) -> None:
    """Law: for every pair of state and trigger, and through any triggers, step by step."""
    live, table, states, triggers = LIVES[name], MACHINES[name].table, *VALUES[name]
    for state, trigger in product(states, triggers):
        assert live(state, trigger) is table(state, trigger)
    state = data.draw(st.sampled_from(states))
    for trigger in data.draw(st.lists(st.sampled_from(triggers), max_size=20)):
        after = table(state, trigger)
        assert live(state, trigger) is after
        state = after if after is not None else state


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    """Threads that take turns as often as possible."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("hasty_threads")
def test_two_live_worlds_in_one_process_do_not_disturb_each_other() -> None:
    """Each of several threads walks its own states."""
    walks = [(first, trigger) for first in State for trigger in Trigger] * 20

    def walked(live: Step[State, Trigger]) -> list[State | None]:
        return [live(state, trigger) for state, trigger in walks]

    with ThreadPoolExecutor(4) as threads:
        walked_states = list(threads.map(walked, [RUN.live() for _ in range(4)]))
    assert walked_states == [[RUN.table(state, trigger) for state, trigger in walks]] * 4


def test_a_run_never_moves_backwards_without_a_retry() -> None:
    """In the same attempt only forward, skipping what no poll happened to show."""
    for source, trigger, dest in RUN.moves():
        if source in PROGRESS and dest in PROGRESS and trigger not in (Trigger.RETRY, Trigger.REOPEN):
            assert PROGRESS.index(source) < PROGRESS.index(dest)


def test_an_end_is_left_only_by_contradiction() -> None:
    """To another end, or back to the queue."""
    for source, trigger, dest in RUN.moves():
        if source in TERMINAL:
            assert dest in (*TERMINAL, State.QUEUED)
            assert trigger in (Trigger.SUCCEED, Trigger.FAIL, Trigger.STOP, Trigger.REOPEN)


def test_every_state_is_reached_and_left() -> None:
    """No dead end but the three ends; nothing unreachable."""
    moves = list(RUN.moves())
    assert {dest for _, _, dest in moves} | {State.REQUESTED} == set(State)
    assert {source for source, _, _ in moves} == set(State)


@pytest.mark.parametrize("name", MACHINES)
def test_the_diagrams_in_the_docs_are_current(name: str) -> None:
    """`steno states run --format mermaid > docs/machines/run.mmd` makes it."""
    assert (DIAGRAMS / f"{name}.mmd").read_text(encoding="utf-8") == MACHINES[name].diagram("mermaid")


@pytest.mark.parametrize("machine", [RUN, VM])
def test_both_diagrams_show_every_move_and_every_end(
    machine: StateMachine[State, Trigger] | StateMachine[VmState, VmTrigger],
) -> None:
    """Mermaid and Graphviz read the same machine."""
    mermaid, dot = machine.diagram("mermaid"), machine.diagram("dot")
    assert "\nstateDiagram-v2\n" in mermaid
    assert "  [*] --> requested\n" in mermaid
    for source, trigger, dest in machine.moves():
        assert re.search(rf"^  {source} --> {dest}: .*\b{trigger}\b", mermaid, re.MULTILINE)
        assert re.search(rf'^    {source} -> {dest} \[label=".*\b{trigger}\b', dot, re.MULTILINE)
    for state in machine.machine.states.values():
        assert (f"{state.name} --> [*]" in mermaid) == (f"{state.name} [shape=doublecircle]" in dot) == state.final


def test_the_end_is_reached_by_evidence_alone_and_left_by_contradiction_alone() -> None:
    """A single trigger leads there, from everywhere; one leads away, to a machine that is billed again."""
    end, moves = VmState.TERMINATED, list(VM.moves())
    into = [(source, trigger) for source, trigger, dest in moves if dest is end]
    assert sorted(into) == sorted((state, VmTrigger.TERMINATED) for state in VmState if state is not end)
    out = [(trigger, dest) for source, trigger, dest in moves if source is end]
    assert out == [(VmTrigger.REAPPEAR, VmState.UNCONFIRMED)]


def test_only_an_idle_machine_is_drained() -> None:
    """Never a machine that a run is on."""
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
        (VmState.TERMINATING, VmTrigger.IDLE, None),
        (VmState.BUSY, VmTrigger.DRAIN, None),
    ):
        assert VM.table(before, trigger) is after


def test_every_state_that_may_be_billed_has_its_phase() -> None:
    """Draining is billed as idle; what was never made and what is gone are not billed."""
    assert set(PHASE_OF) == BILLED == set(VmState) - {VmState.REQUESTED, VmState.TERMINATED}
    assert PHASE_OF[VmState.DRAINING] == "idle"
