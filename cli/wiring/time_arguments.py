"""Times, durations and positions on the command line; invalid text raises `click.BadParameter`."""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import click

from steno.cli.wiring.output import hint
from steno.engine.state.policy import DAY
from steno.events.clock import SECOND, parse_duration, parse_time

if TYPE_CHECKING:
    from steno.cli.wiring.app import App
    from steno.events.store.record import Record
    from steno.projections.read_models.known_worlds import Knowledge
    from steno.projections.read_models.past_worlds import Beyond

_AGO = re.compile(r"(\d+\s*(?:s|m|h|d|w))(?:\s*ago)?")
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_DAYS = ("today", "yesterday", *_WEEKDAYS)
_OF_DAY = re.compile(rf"(?:({'|'.join(_DAYS)})\s+)?(\d{{1,2}}):(\d\d)(?::(\d\d))?(?:\s+([A-Za-z][\w+/-]*))?")


def moment(text: str, now: int) -> int:
    """Microseconds UTC of an ISO time (UTC without a zone), of `90s`, `15m`, `2h ago` before now, or of `14:05`,
    `yesterday`, `monday 9:00`, `9:00 Europe/Berlin`: the newest such time of the local zone, or of a named one.
    """
    text = text.strip()
    text = f"{text} 0:00" if text in _DAYS else text
    if text == "now":
        return now
    try:
        if (ago := _AGO.fullmatch(text)) is not None:
            return now - parse_duration(ago[1])
        of_day = _OF_DAY.fullmatch(text)
        return parse_time(text) if of_day is None else _newest(now, *of_day.groups())
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is not a time; use 14:05, yesterday 9:00, 15m ago or 2026-11-20T15:00:00Z"
        ) from None


def _newest(now: int, day: str | None, hour: str, minute: str, second: str | None, zone: str | None) -> int:
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        where = UTC if zone == "UTC" else None if zone is None else ZoneInfo(zone)
        own = os.environ.get("TZ", "").removeprefix(":")
        if zone is None and own and not any(map(str.isdigit, own)):  # `CET-1CEST` is a rule and not a name
            zone = f"{own} (TZ of this shell)"
            ZoneInfo(own)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise click.BadParameter(f"there is no time zone {zone}; use a name such as Europe/Berlin, or UTC") from None
    here = datetime.fromtimestamp(now / SECOND, UTC).astimezone(where).replace(tzinfo=where)
    moment = here.replace(hour=int(hour), minute=int(minute), second=int(second or 0), microsecond=0)
    if day == "yesterday" or (day is None and moment > here):
        moment -= timedelta(days=1)
    if day in _WEEKDAYS:
        moment -= timedelta(days=(here.weekday() - _WEEKDAYS.index(day)) % 7)
        moment -= timedelta(days=7) if moment > here else timedelta()
    return int(moment.timestamp()) * SECOND


def length(text: str) -> int:
    """A duration in microseconds: `90s`, `0.5s`, `200ms`, `15m`, `2h`, `3d`, or plain seconds."""
    from steno.engine.settings.values import positive_duration

    try:
        return positive_duration(text)
    except ValueError:
        expected = "write 90s, 15m, 2h or plain seconds, above 0 and up to a year"
        raise click.BadParameter(f"{text!r} is not a duration here; {expected}") from None


def coming(text: str, now: int) -> int:
    """A time to come: of `18:00` the next; raises `click.BadParameter` if it is past."""
    of_day = _OF_DAY.fullmatch(text.strip())
    time = moment(text, now if of_day is None or of_day[1] else now + DAY)
    if time <= now:
        raise click.BadParameter(f"{text} is past; name a time to come, as 18:00", param_hint="--until")
    return time


def begin(text: str, now: int) -> int:
    """The time of `--since`; raises `click.BadParameter` if it is not before `now`, the end of what is shown."""
    time = moment(text, now)
    if time >= now:
        raise click.BadParameter(f"{text} is in the future, or after --at; name an earlier time", param_hint="--since")
    return time


def _position_or_time(app: App, record: Record, text: str) -> tuple[int, int | None]:
    """(position, None), or (the record's last position, time): the values of `--at` and `--from`."""
    head = record.head().position
    if text.strip().isdecimal():
        position = int(text)
        if position < 1:
            raise click.BadParameter("positions start at 1")
        if position > head:
            raise click.BadParameter(f"the record ends at position {head}; {position} is beyond it")
        return position, None
    now = app.clock.now()
    time = moment(text, now)
    if time > now:
        raise click.BadParameter(f"{text} is in the future")
    if _OF_DAY.fullmatch(text.strip()) is not None:
        hint(f"{text} is {both_zones(time)}")
    return head, time


def both_zones(time: int) -> str:
    """`2026-11-23 14:05:00 CET (13:05:00Z)`; of the local zone."""
    local = datetime.fromtimestamp(time / SECOND, UTC).astimezone()
    utc = "" if not local.utcoffset() else f" ({local.astimezone(UTC):%H:%M:%SZ})"
    return f"{local:%Y-%m-%d %H:%M:%S %Z}{utc}"


def time_of(app: App, record: Record, text: str) -> int:
    """The moment of a time, or of a position (microseconds UTC)."""
    position, time = _position_or_time(app, record, text)
    return next(record.read(after=position - 1, limit=1)).observed_at if time is None else time


def at_position(app: App, record: Record, text: str) -> int:
    from steno.projections.read_models.past_worlds import last_before
    from steno.projections.read_models.projector import caught_up
    from steno.projections.read_models.view import View

    position, time = _position_or_time(app, record, text)
    if time is None:
        return position
    with caught_up(record) as store:
        return last_before(record, time, position, View(store).state)


def both_times(app: App, record: Record, at: str) -> tuple[int, Beyond, Knowledge | None]:
    """The moment of `--at`: a position, or a time, of archives by their own clock; and what is known of it by
    `--known`, else by now; None: no more than then. Raises `NotKnown`.
    """
    from steno.projections.read_models.known_worlds import known_by
    from steno.projections.read_models.past_worlds import NOTHING, moment_at
    from steno.projections.read_models.projector import caught_up
    from steno.projections.read_models.view import View

    position, time = _position_or_time(app, record, at)
    with caught_up(record) as store:
        state = View(store).state
        there = (position, NOTHING) if time is None else moment_at(record, time, position, state)
        last = record.head().position if app.known is None else at_position(app, record, app.known)
        return *there, known_by(record, there[0], time, last, state) if app.known or last else None


def between(app: App, record: Record, start: str | None, end: str | None) -> tuple[int, int]:
    """(after, until) of `--from` and `--to`, as positions: a position includes itself, a time starts after it."""
    after = 0 if start is None else at_position(app, record, start)
    if start is not None and start.strip().isdecimal():
        after -= 1
    return after, record.head().position if end is None else at_position(app, record, end)
