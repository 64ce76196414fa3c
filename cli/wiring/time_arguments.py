"""Parsing times, durations and positions that a person types."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from cli.wiring.app import App
    from events.store.record import Record
    from projections.models.position_at import Beyond
    from projections.models.view import View

_AGO = re.compile(r"(\d+\s*(?:s|m|h|d|w))(?:\s*ago)?")


def moment(text: str, now: int) -> int:
    """The moment a person means: an ISO time (UTC without a zone), or `90s`, `15m`, `2h`, `3d` before now.

    Raises:
        click.BadParameter: it is neither.
    """
    from events.clock import parse_time
    from events.duration import parse_duration

    try:
        ago = _AGO.fullmatch(text.strip())
        if ago is not None:
            return now - parse_duration(ago[1])
        return parse_time(text.strip())
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is not a time; use 2026-11-20T15:00:00Z, or 15m for 15 minutes ago"
        ) from None


def length(text: str) -> int:
    """A duration in microseconds: `90s`, `0.5s`, `200ms`, `15m`, `2h`, `3d`, or plain seconds.

    Raises:
        click.BadParameter: it is none.
    """
    from engine.settings.values import positive_duration

    try:
        return positive_duration(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a duration; write 90s, 15m, 2h or plain seconds") from None


def position_or_time(text: str, now: int) -> tuple[int | None, int | None]:
    """(position, None) or (None, time): what `--at` and `--until` take.

    Raises:
        click.BadParameter: neither, or a time to come, or a position below 1.
    """
    if text.strip().isdecimal():
        position = int(text)
        if position < 1:
            raise click.BadParameter("positions start at 1")
        return position, None
    time = moment(text, now)
    if time > now:
        raise click.BadParameter(f"{text} is in the future")
    return None, time


def at_position(app: App, record: Record, text: str) -> int:
    """The last position of the record at that time or position.

    Raises:
        click.BadParameter: it is neither, or lies beyond the record's end.
    """
    position, time = position_or_time(text, app.clock.now())
    head = record.head().position
    if position is not None:
        if position > head:
            raise click.BadParameter(f"the record ends at position {head}; {position} is beyond it")
        return position
    assert time is not None  # noqa: S101 - one of the two is set
    from projections.models.position_at import last_before

    return last_before(record, time, head)


def at_moment(app: App, record: Record, text: str) -> tuple[int, Beyond]:
    """The moment of `--at`: a position, or a time; for archives a time of their own clock.

    Raises:
        click.BadParameter: it is neither, or lies beyond the record's end.
    """
    from projections.models.position_at import NOTHING, moment_at
    from projections.models.projector import caught_up
    from projections.models.view import View

    time = position_or_time(text, app.clock.now())[1]
    if time is None:
        return at_position(app, record, text), NOTHING
    with caught_up(record) as store:
        archives = View(store).imported_at()
    return moment_at(record, time, record.head().position, archives)


def after_position(app: App, record: Record, text: str | None) -> int:
    """The position before the first one of `--from`: a position includes itself, a time starts after it."""
    if text is None:
        return 0
    found = at_position(app, record, text)
    return found - 1 if text.strip().isdecimal() else found


def seen_from(app: App, view: View, at: str | None) -> int:
    """The moment a view is looked at: now, or with `--at` the last moment it knows."""
    return app.clock.now() if at is None else view.last_at or app.clock.now()
