"""Times, durations and positions on the command line; invalid text raises `click.BadParameter`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from cli.wiring.app import App
    from events.store.record import Record
    from projections.models.position_at import Beyond

_AGO = re.compile(r"(\d+\s*(?:s|m|h|d|w))(?:\s*ago)?")


def moment(text: str, now: int) -> int:
    """Microseconds UTC of an ISO time (UTC without a zone), or of `90s`, `15m`, `2h`, `3d` before now."""
    from events.clock import parse_duration, parse_time

    text = text.strip()
    try:
        ago = _AGO.fullmatch(text)
        return parse_time(text) if ago is None else now - parse_duration(ago[1])
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is not a time; use 2026-11-20T15:00:00Z, or 15m for 15 minutes ago"
        ) from None


def length(text: str) -> int:
    """A duration in microseconds: `90s`, `0.5s`, `200ms`, `15m`, `2h`, `3d`, or plain seconds."""
    from engine.settings.values import positive_duration

    try:
        return positive_duration(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a duration; write 90s, 15m, 2h or plain seconds") from None


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
    return head, time


def at_position(app: App, record: Record, text: str) -> int:
    from projections.models.position_at import last_before

    position, time = _position_or_time(app, record, text)
    return position if time is None else last_before(record, time, position)


def at_moment(app: App, record: Record, text: str) -> tuple[int, Beyond]:
    """The moment of `--at`: a position, or a time; archives use the time of their own clock."""
    from projections.models.position_at import NOTHING, moment_at
    from projections.models.projector import caught_up
    from projections.models.view import View

    position, time = _position_or_time(app, record, text)
    if time is None:
        return position, NOTHING
    with caught_up(record) as store:
        return moment_at(record, time, position, View(store).state)


def between(app: App, record: Record, start: str | None, end: str | None) -> tuple[int, int]:
    """(after, until) of `--from` and `--to`, as positions: a position includes itself, a time starts after it."""
    after = 0 if start is None else at_position(app, record, start)
    if start is not None and start.strip().isdecimal():
        after -= 1
    return after, record.head().position if end is None else at_position(app, record, end)
