"""The record time of events: what a wrong wall clock changes, and what it does not."""

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steno.engine.fold.record_time import RecordTime, record_time
from steno.engine.state.sources import Source
from steno.engine.state.world import World, dump, load
from steno.events.clock import SECOND, SKEW, Stamp, parse_time
from steno.events.store.record import Stored
from steno.events.types import PollRecorded

HOUR = 3600 * SECOND
START = parse_time("2026-11-29T10:00:00Z")
BOOTED = START - 40 * HOUR


class Read(NamedTuple):
    """An event's clocks: `at` is the true time."""

    at: int
    wrong: int = 0  # of the wall clock
    process: int = 0
    machine: int = 0
    poll: bool = True
    server_time: int | None = None

    @property
    def boot(self) -> int:
        return (self.at - BOOTED - self.machine * HOUR) // 1000 * 1000

    @property
    def wall(self) -> int:
        return self.at + self.wrong

    @property
    def packed(self) -> bytes:
        return Stamp(self.machine << 16 | self.process, self.boot, self.wall).packed()


class TimedFold:
    """As the fold of a record uses record time: the newest poll counts."""

    def __init__(self) -> None:
        self.state, self.source, self.news = (World(rules="current"), Source(name="local/a", archive=False), [""][:0])
        self.time, self.position, self.seen = RecordTime(self.state), 0, list[tuple[Read, int]]()

    def read(self, read: Read) -> int:
        self.position += 1
        source = self.source if read.poll else None
        newest = self.state.last_at or 0
        at = self.time.of(self.position, read.wall, read.packed, newest, source, lambda: read.server_time)
        if read.poll:
            self.state.last_at = max(newest, at)
            self.news += self.time.news
            self.time.news.clear()
            if read.server_time is not None:
                self.source.ahead = read.server_time - at
        self.seen.append((read, at))
        return at

    def again(self) -> None:
        """Go on from a snapshot."""
        self.state = load(dump(self.state))
        self.time = RecordTime(self.state)


def every(seconds: int, start: int, stop: int, **given: int) -> list[Read]:
    return [Read(START + at * SECOND, **given) for at in range(start, stop, seconds)]


def stored(position: int, wall: int, packed: bytes | None, event_id: str | None = None) -> Stored:
    kind, data = "PollRecorded", PollRecorded()
    return Stored(position, "source/a", 1, kind, 1, event_id, wall, 0, wall, data, None, None, "", packed)


reads = st.lists(
    st.tuples(
        st.integers(1, 200_000),  # milliseconds since the one before
        st.sampled_from([0, 0, 0, 1, -1, 90, -90, 3600, -3600, 7200]),
        st.integers(0, 2),
        st.integers(0, 1),
        st.booleans(),
    ),
    max_size=40,
)


def histories(readings: list[tuple[int, int, int, int, bool]]) -> list[Read]:
    at, made = START, list[Read]()
    for after, wrong, process, machine, poll in readings:
        at += after * 1000
        made.append(Read(at, wrong * SECOND, process, machine, poll))
    return made


@given(reads, st.integers(0, 40))
def test_a_fold_that_goes_on_from_a_snapshot_dates_alike(
    readings: list[tuple[int, int, int, int, bool]], cut: int
) -> None:
    """Live, replay and read models agree, wherever each of them began; and any event can be dated afterwards."""
    whole, cut_fold = TimedFold(), TimedFold()
    for number, read in enumerate(histories(readings)):
        if number == cut:
            cut_fold.again()
        assert whole.read(read) == cut_fold.read(read)
    assert whole.state == cut_fold.state
    assert whole.news == cut_fold.news
    for position, (read, at) in enumerate(whole.seen, 1):
        assert record_time(whole.state, stored(position, read.wall, read.packed)) == at


@given(st.lists(st.tuples(st.integers(1, 58_000), st.integers(-9 * 3600, 9 * 3600)), max_size=40))
def test_while_somebody_looks_record_time_is_boot_time(readings: list[tuple[int, int]]) -> None:
    """Whatever the wall clock does: no bill and no timer is off by more than two clocks that count as equal."""
    fold, at = TimedFold(), START
    assert fold.read(Read(at)) == at
    for after, wrong in readings:
        at += after * 1000
        assert abs(fold.read(Read(at, wrong * SECOND)) - at) <= SKEW


@given(reads)
def test_a_right_clock_is_record_time(readings: list[tuple[int, int, int, int, bool]]) -> None:
    """To the microsecond, in any number of processes and machines."""
    fold = TimedFold()
    for read in histories(readings):
        assert fold.read(read._replace(wrong=0)) == read.at
    assert fold.news == []


@pytest.mark.parametrize("wrong", [2 * HOUR, -2 * HOUR])
def test_a_clock_that_is_wrong_for_17_seconds_changes_nothing(wrong: int) -> None:
    fold = TimedFold()
    for read in (*every(1, 0, 30), *every(1, 30, 47, wrong=wrong), *every(1, 47, 90)):
        assert abs(fold.read(read) - read.at) < SECOND // 500
    way, back, state = ("forward", "back", "ahead") if wrong > 0 else ("back", "forward", "behind")
    assert fold.news == [f"it jumped {way} by 2 h and is 2 h {state}", f"it jumped {back} by 2 h and is right again"]


@pytest.mark.parametrize("wrong", [HOUR, -HOUR])
def test_a_restart_inside_the_wrong_stretch_changes_nothing(wrong: int) -> None:
    """Even if the process before was killed before it could read the wrong clock."""
    fold = TimedFold()
    begins = Read(START + 40 * SECOND, wrong, process=1, poll=False)
    for read in (*every(5, 0, 30), begins, *every(5, 45, 60, wrong=wrong, process=1), *every(5, 60, 90, process=1)):
        assert abs(fold.read(read) - read.at) < SECOND // 500
    assert len(fold.news) == 2


def test_a_clock_set_forward_for_ever_is_followed_where_nobody_looked() -> None:
    """Not before: a timer that ran would jump."""
    fold = TimedFold()
    for read in (*every(5, 0, 30), *every(5, 30, 60, wrong=HOUR)):
        assert abs(fold.read(read) - read.at) < SECOND // 500
    later = Read(START + 300 * SECOND, wrong=HOUR)
    assert fold.read(later) == later.wall
    assert fold.read(Read(later.at + SECOND, wrong=HOUR)) == later.wall + SECOND


def test_a_clock_set_back_for_ever_is_followed_by_the_next_process_that_starts_after_a_gap() -> None:
    """It begins at its wall clock, but not before what was seen already."""
    fold = TimedFold()
    for read in (*every(5, 0, 30), *every(5, 30, 60, wrong=-HOUR), Read(START + 300 * SECOND, -HOUR)):
        assert abs(fold.read(read) - read.at) < SECOND // 500
    newest = fold.state.last_at
    assert fold.read(Read(START + 600 * SECOND, -HOUR, process=1)) == newest
    after = Read(START + 3 * HOUR, -HOUR, process=2)
    assert fold.read(after) == after.wall


def test_a_sleep_of_eight_hours_is_no_jump() -> None:
    fold = TimedFold()
    for read in (*every(5, 0, 30), *every(5, 8 * 3600, 8 * 3600 + 30)):
        assert fold.read(read) == read.wall
    assert fold.news == []


def test_two_recorders_an_hour_apart_on_one_machine_tell_one_time() -> None:
    """Each jump gives one anomaly."""
    fold = TimedFold()
    for read in (every(1, 0, 60, process=at % 2, wrong=at % 2 * HOUR)[at] for at in range(60)):
        assert abs(fold.read(read) - read.at) < SECOND // 500
    assert fold.news == ["it jumped forward by 1 h and is 1 h ahead"]


def test_two_recorders_an_hour_apart_on_two_machines_go_on_from_the_later_one() -> None:
    """It is unknown which of them is right; neither stands still."""
    fold = TimedFold()
    times = [fold.read(Read(START + at * SECOND, at % 2 * HOUR, machine=at % 2)) for at in range(60)]
    assert times[2:] == sorted(times[2:])
    assert times[-1] - times[1] == 58 * SECOND


def test_another_boot_begins_at_its_wall_clock_but_never_before_what_was_seen() -> None:
    """With a clock behind, dates from then on are uncertain, and say so."""
    fold = TimedFold()
    for read in every(5, 0, 30):
        fold.read(read)
    boot = Read(START + 600 * SECOND, machine=1)
    assert fold.read(boot) == boot.at
    behind = Read(START + 900 * SECOND, -HOUR, machine=2)
    assert fold.read(behind) == boot.at
    assert fold.news[0] == "it began 55 m before the newest answer: dates from here on are uncertain"


@pytest.mark.parametrize("wrong", [HOUR, -HOUR])
def test_a_provider_that_dates_its_answers_shows_that_a_boot_begins_with_a_wrong_clock(wrong: int) -> None:
    """Its clock is 7 s ahead of ours, now as before: ours was set."""
    fold = TimedFold()
    for read in every(5, 0, 30):
        fold.read(read._replace(server_time=read.at + 7 * SECOND))
    for read in every(5, 300, 330, wrong=wrong, machine=1):
        assert fold.read(read._replace(server_time=read.at + 7 * SECOND)) == read.at


@given(reads, reads)
def test_what_is_imported_sets_no_clock_of_ours(
    readings: list[tuple[int, int, int, int, bool]], other: list[tuple[int, int, int, int, bool]]
) -> None:
    """Whatever epochs a trace names: it was written elsewhere, or by somebody who means harm."""
    alone, beside, archive = TimedFold(), TimedFold(), Source(name="local/b", archive=True)
    strange = [read._replace(wrong=read.wrong + 900 * 24 * HOUR, poll=True) for read in histories(other)]
    for read in histories(readings):
        for number, odd in enumerate(strange[:3]):
            at = beside.time.of(900 + number, odd.wall, odd.packed, archive.imported_to, archive)
            archive.imported_to = max(at, archive.imported_to or 0)
            beside.time.news.clear()
        strange = strange[3:]
        assert beside.read(read) == alone.read(read)


@pytest.mark.parametrize(
    ("before", "at", "after", "dated"),
    [
        (0, 7200, 5, 5),  # an outlier
        (None, 7200, 5, 5),  # the first of its source
        (0, 7200, 7205, 7200),  # nobody looked for two hours
        (7195, 7200, 5, 7200),  # the clock was set back, or an older trace was imported
        (7000, 7200, 5, 7200),
        (0, 7200, None, 7200),  # the newest
        (0, 61, 2, 61),  # a late answer
    ],
)
def test_a_poll_without_boot_time_far_ahead_of_both_its_neighbours_gets_the_time_of_the_next(
    before: int | None, at: int, after: int | None, dated: int
) -> None:
    state = World(rules="current")
    later = iter(() if after is None else (after * SECOND,))
    time = RecordTime(state).of_old(9, at * SECOND, None if before is None else before * SECOND, lambda: later)
    assert time == dated * SECOND
    assert record_time(load(dump(state)), stored(9, at * SECOND, None)) == time
