"""The pace of polling: fast while something moves, slow when quiet, patient with a server that is down."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.recorder.interval import Pace, Rhythm, after_round
from events.clock import SECOND

PACE = Pace()

rounds = st.lists(
    st.fixed_dictionaries(
        {"answered": st.booleans(), "moving": st.booleans(), "took": st.integers(min_value=0, max_value=60 * SECOND)}
    ),
    max_size=60,
)


@given(rounds)
def test_the_interval_never_leaves_its_bounds(history):
    """However the rounds went: a pause of at least `fast`, and never longer than `slow` from start to start."""
    rhythm = Rhythm()
    for one in history:
        rhythm = after_round(rhythm, PACE, **one)
        assert PACE.fast <= rhythm.interval <= PACE.slow
        if one["answered"]:
            assert rhythm.interval + one["took"] <= max(PACE.slow, one["took"] + PACE.fast)


@given(rounds)
def test_something_moving_is_polled_fast_at_once(history):
    """However slow it was, the round in which something moves brings the fast interval back."""
    rhythm = Rhythm()
    for one in history:
        rhythm = after_round(rhythm, PACE, **one)
    assert after_round(rhythm, PACE, answered=True, moving=True, took=1000).interval == PACE.fast


def test_a_quiet_source_slows_down_and_stays_fresh():
    """Quiet rounds grow the interval to its bound, which is under the 30 s after which a source is stale."""
    rhythm, seen = Rhythm(), []
    for _ in range(12):
        rhythm = after_round(rhythm, PACE, answered=True, moving=False, took=1000)
        seen.append(rhythm.interval)
    assert seen == sorted(seen)
    assert seen[-1] + 1000 == PACE.slow < 30 * SECOND


def test_a_server_that_is_down_is_asked_less_and_less_and_found_again_at_once():
    """1, 2, 4, 8 s … while it fails; the first answer brings back the fast interval."""
    rhythm, seen = Rhythm(), []
    for _ in range(6):
        rhythm = after_round(rhythm, PACE, answered=False, moving=True, took=5 * SECOND)
        seen.append(rhythm.interval // SECOND)
    assert seen == [1, 2, 4, 8, 15, 15]
    assert after_round(rhythm, PACE, answered=True, moving=False, took=1000) == Rhythm(interval=PACE.fast)


def test_a_large_project_is_not_polled_without_a_pause():
    """A round that takes 2 s is followed by at least 8 s of rest."""
    assert after_round(Rhythm(), PACE, answered=True, moving=True, took=2 * SECOND).interval == 8 * SECOND


@pytest.mark.parametrize("took", [4, 10, 15, 40])
def test_a_slow_server_does_not_make_us_silent(took):
    """A round of 15 s used to be followed by 60 s of silence, in which the source counted as blind."""
    found = after_round(Rhythm(), PACE, answered=True, moving=True, took=took * SECOND).interval
    assert found == max(PACE.fast, PACE.slow - took * SECOND)
