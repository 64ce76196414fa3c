"""The Run machine: one declaration, two ways to step through it, the diagrams."""

import re
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.fold.state_machines import RUN, TERMINAL, VM, StateMachine, Step, Trigger, VmTrigger
from engine.states import PROGRESS, State, VmState

DIAGRAM = Path(__file__).parents[3] / "docs" / "machines" / "run.mmd"
LIVE, TABLE = RUN.live(), RUN.table


@given(st.sampled_from(State), st.lists(st.sampled_from(Trigger), max_size=20))
def test_the_compiled_table_and_the_transitions_machine_are_equal(start: State, triggers: list[Trigger]) -> None:
    """Law: from any state, through any triggers, step by step."""
    state = start
    for trigger in triggers:
        live, table = LIVE(state, trigger), TABLE(state, trigger)
        assert live is table
        state = table if table is not None else state


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    """Threads that take turns as often as they can."""
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
        told = list(threads.map(walked, [RUN.live() for _ in range(4)]))
    assert told == [[TABLE(state, trigger) for state, trigger in walks]] * 4


@pytest.mark.parametrize("state", list(State))
@pytest.mark.parametrize("trigger", list(Trigger))
def test_every_pair_of_state_and_trigger_agrees(state: State, trigger: Trigger) -> None:
    """Exhaustively, too: there are not many."""
    assert LIVE(state, trigger) is TABLE(state, trigger)


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


def test_the_diagram_in_the_docs_is_current() -> None:
    """`steno states run --format mermaid > docs/machines/run.mmd` makes it."""
    assert DIAGRAM.read_text(encoding="utf-8") == RUN.diagram("mermaid")


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
