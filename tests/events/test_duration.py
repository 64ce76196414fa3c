"""Durations: what is read, how they are written, and how a back-off grows."""

import pytest

from steno.events.clock import SECOND, backoff, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("600", 600),
        ("0", 0),
        ("200ms", 0.2),
        (" 90S ", 90),
        ("1.5m", 90),
        ("2 h", 7200),
        ("1d", 86_400),
        ("1w", 604_800),
    ],
)
def test_a_duration_is_a_number_with_a_unit(text, seconds):
    """Without a unit it is seconds."""
    assert parse_duration(text) == seconds * SECOND


@pytest.mark.parametrize("text", ["", "x", "-1s", "1e3", "1 y", "53w", "0.0000001s", "1m30s", "٣s"])
def test_what_is_not_a_duration_is_refused(text):
    """Longer than a year, finer than a microsecond, two units."""
    with pytest.raises(ValueError, match="a duration up to a year"):
        parse_duration(text)


def test_a_back_off_doubles_up_to_its_limit():
    """Also after many failures."""
    pauses = [backoff(failures, first=SECOND, most=30 * SECOND) // SECOND for failures in (1, 2, 3, 4, 5, 6, 7, 500)]
    assert pauses == [1, 2, 4, 8, 16, 30, 30, 30]
