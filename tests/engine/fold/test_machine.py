"""The Run machine: one table, two steppers, one picture."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.fold.run_diagram import diagram
from engine.fold.run_states import EDGES, PROGRESS, TERMINAL, State, Trigger
from engine.fold.run_stepper import TableStepper, TransitionsStepper

DIAGRAM = Path(__file__).parents[3] / "docs" / "machines" / "run.mmd"
LIVE, TABLE = TransitionsStepper(), TableStepper()


@given(st.sampled_from(State), st.lists(st.sampled_from(Trigger), max_size=20))
def test_the_compiled_table_and_the_transitions_machine_are_equal(start: State, triggers: list[Trigger]) -> None:
    """Law: from any state, through any triggers, step by step."""
    state = start
    for trigger in triggers:
        live, table = LIVE.step(state, trigger), TABLE.step(state, trigger)
        assert live is table
        state = table if table is not None else state


@pytest.mark.parametrize("state", list(State))
@pytest.mark.parametrize("trigger", list(Trigger))
def test_every_pair_of_state_and_trigger_agrees(state: State, trigger: Trigger) -> None:
    """Exhaustively, too: there are not many."""
    assert LIVE.step(state, trigger) is TABLE.step(state, trigger)


def test_a_run_never_moves_backwards_without_a_retry() -> None:
    """In the same attempt only forward, skipping what no poll happened to show."""
    for edge in EDGES:
        if edge.dest in PROGRESS and edge.trigger not in (Trigger.RETRY, Trigger.REOPEN):
            live = [source for source in edge.sources if source in PROGRESS]
            assert all(PROGRESS.index(source) < PROGRESS.index(edge.dest) for source in live)


def test_an_end_is_left_only_by_contradiction() -> None:
    """To another end, or back to the queue."""
    for edge in EDGES:
        if set(edge.sources) & set(TERMINAL):
            assert edge.dest in (*TERMINAL, State.QUEUED)
            assert edge.trigger in (Trigger.SUCCEED, Trigger.FAIL, Trigger.STOP, Trigger.REOPEN)


def test_every_state_is_reached_and_left() -> None:
    """No dead end but the three ends; nothing unreachable."""
    assert {edge.dest for edge in EDGES} | {State.REQUESTED} == set(State)
    assert {source for edge in EDGES for source in edge.sources} == set(State)


def test_the_diagram_in_the_docs_is_current() -> None:
    """`steno machine run --format mermaid > docs/machines/run.mmd` makes it."""
    assert DIAGRAM.read_text(encoding="utf-8") == diagram("mermaid")


def test_both_pictures_show_every_move() -> None:
    """Mermaid and Graphviz from the same table."""
    mermaid, dot = diagram("mermaid"), diagram("dot")
    for edge in EDGES:
        for source in edge.sources:
            assert f"{source.value} --> {edge.dest.value}: " in mermaid
            assert f"{source.value} -> {edge.dest.value} [" in dot
