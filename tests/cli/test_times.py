"""Times as people write them, on the command line."""

import os
import time
from collections.abc import Iterator

import click
import pytest
from stenotest.command_line import Steno

from steno.cli.wiring.time_arguments import both_zones, coming, moment
from steno.events.clock import parse_time

NOW = parse_time("2026-11-23T13:30:00Z")  # 14:30 in Berlin, and so in these tests


@pytest.fixture(autouse=True)
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("text", "utc"),
    [
        ("14:05", "2026-11-23T13:05:00Z"),
        ("14:05:30", "2026-11-23T13:05:30Z"),
        ("today 9:00", "2026-11-23T08:00:00Z"),
        ("yesterday 9:00", "2026-11-22T08:00:00Z"),
        ("yesterday", "2026-11-21T23:00:00Z"),
        ("today", "2026-11-22T23:00:00Z"),
        ("monday", "2026-11-22T23:00:00Z"),  # today
        ("monday 15:00", "2026-11-16T14:00:00Z"),
        ("sunday 9:00", "2026-11-22T08:00:00Z"),
        ("tuesday 9:00 UTC", "2026-11-17T09:00:00Z"),
        ("15:00", "2026-11-22T14:00:00Z"),  # not yet today
        ("today 15:00", "2026-11-23T14:00:00Z"),
        ("13:05 UTC", "2026-11-23T13:05:00Z"),
        ("8:05 America/New_York", "2026-11-23T13:05:00Z"),
        ("1h ago", "2026-11-23T12:30:00Z"),
        ("15m", "2026-11-23T13:15:00Z"),
        ("2026-11-20T15:00:00Z", "2026-11-20T15:00:00Z"),
        ("2026-11-20 15:00", "2026-11-20T15:00:00Z"),
    ],
)
def test_a_time_is_read_as_it_is_written(text: str, utc: str) -> None:
    """A time of day is the newest such time of the local zone, or of the zone that is named."""
    assert moment(text, NOW) == parse_time(utc)


def test_a_time_to_come_is_the_next() -> None:
    """A time of day is today's or tomorrow's; a time that is past is refused."""
    assert coming("18:00", NOW) == parse_time("2026-11-23T17:00:00Z")
    assert coming("14:00", NOW) == parse_time("2026-11-24T13:00:00Z")
    assert coming("2026-11-30T09:00:00Z", NOW) == parse_time("2026-11-30T09:00:00Z")
    for past in ("15m", "monday 9:00", "2026-11-20T15:00:00Z"):
        with pytest.raises(click.BadParameter, match="is past; name a time to come"):
            coming(past, NOW)


def test_a_day_when_the_clock_changes_keeps_its_own_offset() -> None:
    """Berlin's clock went back in the night of 25 October 2026."""
    after = parse_time("2026-10-25T12:00:00Z")
    assert moment("yesterday 12:00", after) == parse_time("2026-10-24T10:00:00Z")
    assert moment("12:00", after) == parse_time("2026-10-25T11:00:00Z")


@pytest.mark.parametrize(
    "text", ["25:00", "14:05 Mars/Phobos", "14:05 ../../etc/passwd", "noon", "tomorrow", "", "14:5"]
)
def test_what_is_no_time_is_one_line(text: str) -> None:
    with pytest.raises(click.BadParameter, match=r"not a time; use 14:05|no time zone"):
        moment(text, NOW)


def test_a_time_is_shown_in_both_zones() -> None:
    """Local first; UTC alone where it is the local zone."""
    assert both_zones(NOW) == "2026-11-23 14:30:00 CET (13:30:00Z)"
    os.environ["TZ"] = "UTC"
    time.tzset()
    assert both_zones(NOW) == "2026-11-23 13:30:00 UTC"


@pytest.mark.slow
def test_at_says_which_moment_it_took(steno: Steno) -> None:
    steno("submit", "--wait", "--", "true")
    done = steno("ps", "--at", "0:00", TZ="Asia/Tokyo")
    assert "0:00 is 20" in done.stderr
    assert "JST (15:00:00Z)" in done.stderr
    assert "future" in steno("ps", "--at", "2999-01-01T00:00:00Z").stderr


def test_a_wrong_zone_of_the_shell_is_no_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    """The C library takes an unknown name for UTC in silence; a rule, `CET-1CEST`, is not a name."""
    monkeypatch.setenv("TZ", "Mars/Phobos")
    with pytest.raises(click.BadParameter, match=r"no time zone Mars/Phobos \(TZ of this shell\)"):
        moment("14:05", NOW)
    assert moment("14:05 UTC", NOW) == parse_time("2026-11-22T14:05:00Z")
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    assert moment("14:05", NOW) == parse_time("2026-11-23T13:05:00Z")
