"""The log of the cases that the rules saw of a run."""

from hypothesis import given
from hypothesis import strategies as st
from stenotest.dstack_history import DstackHistory, single
from stenotest.histories import History, histories

from steno.engine.fold.fold import Fold
from steno.engine.fold.poll_reader import PollReader
from steno.engine.providers.registry import READINGS
from steno.engine.replay.replay import NumberedPoll
from steno.engine.rules.cases import case_of, decode_case
from steno.engine.rules.sets import CURRENT
from steno.engine.state.case_log import cases_seen, logged
from steno.engine.state.world import dump, load


def fold(polls: list[NumberedPoll]) -> Fold:
    world, reader = Fold(READINGS), PollReader(READINGS)
    for number, poll in polls:
        if poll is not None:
            world.apply(reader.read(number, poll))
    return world


@given(st.lists(st.tuples(st.integers(0, 2**40), st.integers(1, 2**21)), max_size=30, unique_by=lambda entry: entry[0]))
def test_a_log_gives_back_what_was_written_but_repetitions(entries: list[tuple[int, int]]) -> None:
    """Law."""
    log, kept = b"", list[tuple[int, int]]()
    for position, case in sorted(entries):
        log = logged(log, position, case)
        if not kept or kept[-1][1] != case:
            kept.append((position, case))
    assert list(cases_seen(log)) == kept


def test_an_entry_takes_three_bytes_in_a_long_record() -> None:
    """Ten million events, a case of the first hundred, and the next change within ten minutes of polls."""
    log = b""
    for number in range(8):
        log = logged(log, 9_999_000 + 120 * number, 1 + number)
    assert len(log) <= 3 * 8 + 3


@given(histories())
def test_a_run_keeps_each_case_that_the_rules_saw(history: History) -> None:
    """Law: in order, each at the poll that showed it; the world that is loaded again knows the same."""
    story = DstackHistory()
    for item in history.items:
        story.listed(item).wait(5)
    polls, reader = list(story.polls()), PollReader(READINGS)
    world = fold(polls)
    expected = list[tuple[int, object]]()
    for number, poll in polls:
        assert poll is not None
        case = case_of(reader.read(number, poll).runs[0].facts)
        if not expected or expected[-1][1] != case:
            expected.append((number, case))
    state = load(dump(world.state))
    (run,) = state.runs.all()
    cases = {number: decode_case(text) for text, number in state.cases.items()}
    assert [(position, cases[number]) for position, number in cases_seen(run.cases)] == expected
    assert all(CURRENT.judge is not None and CURRENT.judge(case) for case in cases.values())


def test_a_run_that_an_answer_repeats_keeps_one_entry() -> None:
    story = DstackHistory()
    for _ in range(5):
        story.listed(single("a", "running", "running")).wait(5)
    (run,) = fold(list(story.polls())).state.runs.all()
    assert list(cases_seen(run.cases)) == [(1, 1)]
