"""`steno events`, `steno polls` and `steno poll`: the record, unchanged."""

import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import click
import msgspec

from steno.cli.catalogue import near
from steno.cli.render import paint
from steno.cli.render.words import moment
from steno.cli.wiring.app import App, steno_command
from steno.cli.wiring.options import from_option, last_option, to_option
from steno.cli.wiring.output import emit, emit_json, hint, paged
from steno.cli.wiring.time_arguments import between

if TYPE_CHECKING:
    from steno.events.store.record import Record

_WAIT = 1_000_000  # how long one look for new events waits, microseconds
_follow_option = click.option(
    "-f",
    "--follow",
    is_flag=True,
    help="Print new rows as they are recorded (from now, without --from or -n), until stopped.",
)


@steno_command("events")
@click.option("--stream", metavar="NAME", help="Only this stream: run/ID, vm/ID, source/NAME.")
@from_option
@click.option("--type", "types", metavar="NAME", multiple=True, help="Only events of this type; may be repeated.")
@last_option
@_follow_option
def events_command(
    app: App, stream: str | None, start: str | None, types: tuple[str, ...], last: int | None, follow: bool
) -> None:
    """With --json, JSON Lines: {"position", "stream", "version", "type", "type_version", "id", "observed_at",
    "recorded_at", "data", "hash"}.

    \b
    Examples:
      steno events -n 20
      steno events --stream run/5f0c… --json
      steno events --type RunRequested --type SubmitSucceeded -f
    """
    from steno.events.store.record import Stored
    from steno.events.types import NAMES
    from steno.projections.answers.record_pages import event_row

    def line(stored: Stored) -> str:
        place = paint.dim(f"{stored.stream} v{stored.version}")
        return f"{stored.position:>8}  {moment(stored.observed_at)}  {stored.type:<17} {place}"

    with app.reading() as record:
        known = sorted(NAMES)
        for name in types:
            if name not in known:
                raise click.BadParameter(f"there is no event type {name}{near(name, known)}", param_hint="--type")

        def found() -> Iterator[Stored]:
            for number, (after, until) in enumerate(_ranges(app, record, start, None, follow=follow, last=last)):
                if last is not None and number == 0:
                    newest = record.read(
                        after=after, until=until, stream=stream, types=types or None, limit=last, backwards=True
                    )
                    yield from reversed(list(newest))
                else:
                    yield from record.read(after=after, until=until, stream=stream, types=types or None)

        if app.json:
            _lines_of_json(map(event_row, found()))
        else:
            paged(f"{'POSITION':>8}  {'OBSERVED':<20}  {'TYPE':<17} STREAM", map(line, found()), whole=not follow)


@steno_command("polls")
@from_option
@to_option
@click.option("--failed", is_flag=True, help="Only polls without a usable answer.")
@click.option("--source", metavar="NAME", help="Only this source (PROVIDER/PROJECT).")
@last_option
@_follow_option
def polls_command(
    app: App,
    start: str | None,
    end: str | None,
    failed: bool,
    source: str | None,
    last: int | None,
    follow: bool,
) -> None:
    """Each has position, time, HTTP status or exit code, milliseconds, source, path, and what changed. With --json,
    JSON Lines: {"position", "t", "source", "path", "req", "status", "ms", "changed", "answered", "asked"}; "changed"
    lists the streams of the runs and machines whose answer changed, "asked" is the path as the list prints it.

    \b
    Examples:
      steno polls -n 20
      steno polls --failed --from 2h
      steno polls -n 10 -f
      steno polls --json | jq -r 'select(.changed != []) | .position'
    """
    from steno.projections.answers.record_pages import poll_rows

    def line(row: dict[str, object]) -> str:
        status, changed = row["status"], row["changed"]
        assert isinstance(changed, list)  # noqa: S101 - made there
        answer = click.style(f"{'none' if status is None else status:>4}", fg="green" if row["answered"] else "red")
        what = paint.dim(f"  changed {', '.join(changed)}") if changed else ""
        front = f"{row['position']:>8}  {moment(str(row['t']))}  {answer}  {row['ms']:>7} ms"
        return f"{front}  {row['source']}  {row['asked']}{what}"

    if follow and end is not None:
        raise click.UsageError("--follow has no end: leave --to out")
    with app.reading() as record:

        def found() -> Iterator[dict[str, object]]:
            for number, (after, until) in enumerate(_ranges(app, record, start, end, follow=follow, last=last)):
                newest = last if number == 0 else None
                yield from poll_rows(record, after=after, until=until, failed=failed, source=source, last=newest)

        if app.json:
            _lines_of_json(found())
        else:
            header = f"{'POSITION':>8}  {'ASKED':<20}  {'CODE':>4}  {'TOOK':>10}  SOURCE  PATH  CHANGED"
            paged(header, map(line, found()), whole=not follow)


def _lines_of_json(rows: Iterable[object]) -> None:
    for row in rows:
        emit_json(row, lines=True)


def _ranges(
    app: App, record: "Record", start: str | None, end: str | None, *, follow: bool, last: int | None
) -> Iterator[tuple[int, int]]:
    """The positions to print, as (after, until]: those asked for, and with `follow` every new stretch for ever."""
    after, until = between(app, record, start, end)
    if follow and start is None and last is None:
        after = until
    while True:
        yield after, until
        if not follow:
            return
        after = max(after, until)
        record.wait(after, _WAIT)
        until = record.head().position


@steno_command("poll")
@click.argument("position", type=click.IntRange(min=1))
def poll_command(app: App, position: int) -> None:
    """The answer is rebuilt from the record, equal as JSON to what was sent; secrets were replaced before it was
    stored. `steno polls` and the evidence of a verdict print the POSITION of a poll. With --json, the poll as a line of
    a trace: {"t", "ep", "path", "req", "status", "ms", "body"}.

    \b
    Examples:
      steno poll 1204
      steno poll 1204 | jq '.[0].status'
      steno poll 1204 --json >> incident.jsonl
    """

    from steno.events.traces.trace import write_trace_line

    with app.reading() as record:
        poll = record.poll(position)
    if app.json:
        click.echo(write_trace_line(poll).decode().rstrip("\n"))
    elif poll.body is None:
        hint(f"poll {position} got no answer: {poll.error or 'unknown error'}")
    elif poll.text:
        emit(msgspec.json.decode(poll.body, type=str))
    elif sys.stdout.isatty():
        emit(msgspec.json.format(poll.body, indent=2).decode())
    else:
        click.echo(poll.body.decode())
