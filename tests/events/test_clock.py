"""Times as text and back."""

import pytest

from steno.events.clock import format_time, parse_time


@pytest.mark.parametrize(
    "text", ["0001-01-01T00:00:00.000000Z", "0999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59.999999Z"]
)
def test_every_year_has_four_digits(text: str) -> None:
    """A server's "never" is the year 1: printed so that any reader can read it."""
    assert format_time(parse_time(text)) == text


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+00:01", "9999-12-31T23:59:59.9-00:01"])
def test_a_time_that_has_no_year_in_utc_is_no_time(text: str) -> None:
    """Nothing could print it; what lies beyond is printed as the nearest moment that has a year."""
    with pytest.raises(ValueError, match="out of range"):
        parse_time(text)
    assert format_time(-(10**30)) == "0001-01-01T00:00:00.000000Z"
    assert format_time(10**30) == "9999-12-31T23:59:59.999999Z"
