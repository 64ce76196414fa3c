"""`steno events`: the events of the record."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cli.wiring.app import App
from cli.wiring.options import common, pass_app
from cli.wiring.output import emit, emit_json_line

if TYPE_CHECKING:
    from events.store.record import Record, Stored

_WAIT = 1_000_000
"""How long one look for new events waits, microseconds."""


@click.command("events")
@click.option("--stream", metavar="NAME", help="Only this stream: run/ID, vm/ID, source/NAME.")
@click.option("--from", "start", metavar="TIME|POSITION", help="Start here.")
@click.option("--type", "types", metavar="NAME", multiple=True, help="Only events of this type; may be repeated.")
@click.option("-n", "--last", type=click.IntRange(min=1), metavar="N", help="Only the newest N.")
@click.option("-f", "--follow", is_flag=True, help="Print new events as they come, until interrupted.")
@common
@pass_app
def command(
    app: App, stream: str | None, start: str | None, types: tuple[str, ...], last: int | None, follow: bool
) -> None:
    """List the record's events.

    With --json, JSON Lines: {"position", "stream", "version", "type", "type_version", "id", "observed_at",
    "recorded_at", "data", "hash"}.

    \b
    Examples:
      steno events -n 20
      steno events --stream run/5f0c… --json
      steno events --type RunRequested --type SubmitSucceeded -f
    """
    from cli.wiring.stores import reading
    from cli.wiring.time_arguments import after_position

    with reading(app) as record:
        _check_types(types)
        after = after_position(app, record, start)
        if last is not None:
            for stored in reversed(_newest(record, after, stream, types, last)):
                _print(app, stored)
            position = record.head().position
        else:
            position = _print_new(app, record, after, stream, types)
        while follow:
            record.wait(position, _WAIT)
            position = _print_new(app, record, position, stream, types)


def _newest(record: Record, after: int, stream: str | None, types: tuple[str, ...], last: int) -> list[Stored]:
    return list(record.read(after=after, stream=stream, types=types or None, limit=last, backwards=True))


def _print_new(app: App, record: Record, after: int, stream: str | None, types: tuple[str, ...]) -> int:
    """Print what came after that position; how far the record was read."""
    head = record.head().position
    for stored in record.read(after=after, until=head, stream=stream, types=types or None):
        _print(app, stored)
    return max(after, head)


def _check_types(types: tuple[str, ...]) -> None:
    from cli.catalogue import near
    from events.kinds import KINDS

    known = sorted({name for name, _ in KINDS.values()})
    for name in types:
        if name not in known:
            raise click.BadParameter(f"there is no event type {name}{near(name, known)}", param_hint="--type")


def _print(app: App, stored: Stored) -> None:
    from projections.models.record_rows import event_row

    row = event_row(stored)
    if app.json:
        emit_json_line(row)
        return
    from cli.render import paint
    from cli.render.words import moment

    emit(
        f"{stored.position:>8}  {moment(stored.observed_at)}  {stored.type:<17} "
        f"{paint.dim(f'{stored.stream} v{stored.version}')}"
    )
