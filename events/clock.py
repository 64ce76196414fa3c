"""Time and identity as arguments: only the edge reads the machine's clock and makes ids.

A moment is an `int`: microseconds since 1970-01-01T00:00:00Z. A duration is an `int` of microseconds.

Of a cron expression, days of the week count from Monday = 0, and day of month and day of week must both fit: that is
how the parser that providers use reads it.
"""

import os
import re
import time
import uuid
from contextlib import suppress
from copy import copy
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from apscheduler.triggers.cron import CronTrigger

SECOND = 1_000_000  # microseconds in a second
UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}  # seconds of each unit of a duration

SKEW: Final = 2 * SECOND  # clocks that differ by no more are equal

BOOT_BITS: Final = 40  # of a packed stamp
BOOT: Final = (1 << BOOT_BITS) - 1  # milliseconds: 34 years

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_OF_BOOT: Final = sha256(_BOOT_ID.read_bytes()).digest()[:2] if _BOOT_ID.exists() else os.urandom(2)
EPOCH: Final = int.from_bytes(_OF_BOOT + os.urandom(2))
"""The epoch of this process: random, but processes of one boot of a machine share its upper half."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NAIVE_EPOCH: Final = _EPOCH.replace(tzinfo=None)
_MICROSECOND = timedelta(microseconds=1)
_FIRST = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
_LAST = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
_DURATION = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,6})?)\s*(ms|s|m|h|d|w)?")
_LONGEST = 366 * UNITS["d"] * SECOND
_STENO_NAMESPACE = uuid.UUID("b3a1c5f2-6c0e-5e0b-9a3e-57e000000001")


class Clock(Protocol):
    """Where `now` comes from; constructed at the edge (`cli/`) and passed down."""

    def now(self) -> int:
        """The present moment, microseconds since the epoch, UTC."""

    def sleep(self, duration: int) -> None:
        """Wait `duration` microseconds."""


class Stamp(NamedTuple):
    """The machine's clocks at one moment, in microseconds, and the start of a process that read them."""

    epoch: int  # 32 bits: 16 of the machine's boot, 16 of the process
    boot: int  # since the machine started, in whole milliseconds; it goes on while the machine sleeps
    wall: int

    def packed(self) -> bytes:
        """The 9 bytes of epoch and boot time that an event keeps: 4 and 5."""
        return (self.epoch << BOOT_BITS | self.boot // 1000).to_bytes(9)

    @staticmethod
    def unpacked(packed: bytes, wall: int) -> "Stamp":
        number = int.from_bytes(packed)
        return Stamp(number >> BOOT_BITS, (number & BOOT) * 1000, wall)


class Ids(Protocol):
    """Where new ids come from; constructed at the edge and passed down."""

    def new(self) -> str:
        """A new id: the 36 characters of a UUID."""


class SystemClock:
    def now(self) -> int:
        return time.time_ns() // 1000

    def sleep(self, duration: int) -> None:
        time.sleep(max(0, duration) / SECOND)


class SteadyClock:
    """Another clock's time (plus `ahead`) when this was made, counted on by boot time: nobody can set it."""

    def __init__(self, own: Clock, ahead: int = 0) -> None:
        self.own, self._ahead = own, ahead
        self._offset = own.now() + ahead - boot_time()

    def now(self) -> int:
        return boot_time() + self._offset

    def sleep(self, duration: int) -> None:
        self.own.sleep(duration)

    def stamp(self, moment: int) -> Stamp:
        """The readings of the machine's clocks at a moment of this clock."""
        apart = self.own.now() + self._ahead - self.now()
        return Stamp(EPOCH, max(0, moment - self._offset), moment if abs(apart) <= SKEW else moment + apart)

    def follow(self, offset: int) -> None:
        """From now on show boot time plus `offset`, unless that is what it shows."""
        if abs(offset - self._offset) > SKEW:
            self._offset = offset


class RandomIds:
    def new(self) -> str:
        return str(uuid.uuid4())


def boot_time() -> int:
    """Microseconds since the machine started, those in which it slept included."""
    return time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)) // 1000


def parse_time(text: str) -> int:
    """The moment of an ISO 8601 text (without an offset: UTC). ValueError: not one, or outside the years 1 to 9999."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    microseconds = (moment - _EPOCH) // _MICROSECOND
    if not _FIRST <= microseconds <= _LAST:
        raise ValueError(f"{text!r} is out of range")
    return microseconds


def format_time(moment: int) -> str:
    """`YYYY-MM-DDTHH:MM:SS.ffffffZ`, the one form Steno prints; the nearest moment of the years 1 to 9999."""
    moment = min(max(moment, _FIRST), _LAST)
    # Not strftime: its %Y drops leading zeros.
    return (_NAIVE_EPOCH + timedelta(microseconds=moment)).isoformat(timespec="microseconds") + "Z"


def format_second(moment: int) -> str:
    """`YYYY-MM-DDTHH:MM:SSZ`, cut to the second: for sentences."""
    return f"{format_time(moment)[:19]}Z"


def parse_duration(text: str) -> int:
    """`600` (seconds), `200ms`, `90s`, `10m`, `2h`, `1d`, `1w` or 0. Raises ValueError for others, or over a year."""
    match = _DURATION.fullmatch(text.strip().lower())
    if match is not None:
        unit = SECOND // 1000 if match[2] == "ms" else UNITS[match[2] or "s"] * SECOND
        duration = Decimal(match[1]) * unit
        if duration == int(duration) and duration <= _LONGEST:
            return int(duration)
    raise ValueError("a duration up to a year: 600 (seconds), 90s, 10m, 2h")


def backoff(failures: int, *, first: int, most: int) -> int:
    """The pause after `failures` in a row (1 or more): doubles from `first` up to `most`."""
    return min(most, first << min(failures - 1, 20))


def foreign_run_id(provider: str, provider_id: str) -> str:
    """The run id of a run Steno did not request: uuid5 of provider and provider id, so equal everywhere."""
    return str(uuid.uuid5(_STENO_NAMESPACE, f"{provider}/{provider_id}"))


def duration(span: int) -> str:
    """Microseconds as `40 ms`, `2.5 s`, `42 s`, `7 m 06 s`, `24 h`, `2 d 04 h`: two units at most, none that is 0."""
    if span < 0:
        return f"-{duration(-span)}"
    if 0 < span < SECOND // 10:
        return f"{round(span / 1000)} ms"
    tenths, seconds = round(span * 10 / SECOND), round(span / SECOND)
    if tenths < 600:
        return f"{tenths / 10:g} s"
    minutes, hours = seconds // 60, seconds // 3600
    if hours < 1:
        whole, part = f"{minutes} m", (seconds % 60, "s")
    elif hours < 48:
        whole, part = f"{hours} h", (minutes % 60, "m")
    else:
        whole, part = f"{hours // 24} d", (hours % 24, "h")
    return f"{whole} {part[0]:02} {part[1]}" if part[0] else whole


_DAY: Final = 86_400 * SECOND
_YEARS: Final = 40  # within which each weekday falls on a 29 February; a 30 February would be searched to the year 9999


@lru_cache(maxsize=256)
def _trigger(cron: str) -> "CronTrigger | None":
    from apscheduler.triggers.cron import CronTrigger  # 20 ms: only records with a schedule need it

    with suppress(ValueError):
        return CronTrigger.from_crontab(cron, timezone=UTC)
    return None


@lru_cache(maxsize=1024)
def next_due(crons: tuple[str, ...], since: int) -> int | None:
    """The first moment at or after `since` (microseconds) at which one of them is due; None: never, or unreadable."""
    now, moments = datetime.fromtimestamp(since / SECOND, UTC), list[int]()
    for trigger in map(copy, map(_trigger, crons)):  # a copy: other threads have it too
        if trigger is None:
            continue
        trigger.end_date = now.replace(year=min(now.year + _YEARS, 9999), day=1)
        if (due := trigger.get_next_fire_time(None, now)) is not None:
            moments.append(round(due.timestamp()) * SECOND)
    return min(moments, default=None)


def count_due(crons: tuple[str, ...], since: int, until: int, most: int) -> int:
    """How often they are due from `since` on, before `until` (microseconds); of more than `most`, `most`."""
    total = 0
    while since < until and total < most:
        end = min(until, since - since % _DAY + _DAY)
        total += _due_within(crons, since, end)
        since = end
    return min(total, most)


@lru_cache(maxsize=1024)
def _due_within(crons: tuple[str, ...], since: int, until: int) -> int:
    number = 0
    while (due := next_due(crons, since)) is not None and due < until:
        number, since = number + 1, due + SECOND
    return number
