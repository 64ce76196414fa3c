"""`steno events`, `steno polls` and `steno poll`: the record, unchanged."""

import sys

import click

from cli.render import paint
from cli.render.words import moment
from cli.wiring.app import App, steno_command
from cli.wiring.options import from_option, last_option, to_option
from cli.wiring.output import emit, emit_json, hint
from cli.wiring.time_arguments import between

_WAIT = 1_000_000  # how long one look for new events waits, microseconds


@steno_command("events")
@click.option("--stream", metavar="NAME", help="Only this stream: run/ID, vm/ID, source/NAME.")
@from_option
@click.option("--type", "types", metavar="NAME", multiple=True, help="Only events of this type; may be repeated.")
@last_option
@click.option("-f", "--follow", is_flag=True, help="Print new events as they come, until interrupted.")
def events_command(
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
    from cli.catalogue import near
    from events.store.record import Stored
    from events.types import NAMES
    from projections.models.record_pages import event_row

    def printed(stored: Stored) -> None:
        if app.json:
            emit_json(event_row(stored), lines=True)
            return
        place = paint.dim(f"{stored.stream} v{stored.version}")
        emit(f"{stored.position:>8}  {moment(stored.observed_at)}  {stored.type:<17} {place}")

    with app.reading() as record:
        if sys.stdout.isatty() and not app.json:
            emit(paint.dim(f"{'POSITION':>8}  {'OBSERVED':<20}  {'TYPE':<17} STREAM"))
        known = sorted(NAMES)
        for name in types:
            if name not in known:
                raise click.BadParameter(f"there is no event type {name}{near(name, known)}", param_hint="--type")
        after, until = between(app, record, start, None)
        if last is not None:
            newest = record.read(after=after, stream=stream, types=types or None, limit=last, backwards=True)
            for stored in reversed(list(newest)):
                printed(stored)
            after = record.head().position
        while True:
            for stored in record.read(after=after, until=until, stream=stream, types=types or None):
                printed(stored)
            after = max(after, until)
            if not follow:
                return
            record.wait(after, _WAIT)
            until = record.head().position


@steno_command("polls")
@from_option
@to_option
@click.option("--failed", is_flag=True, help="Only polls without a usable answer.")
@click.option("--source", metavar="NAME", help="Only this source (dstack/main).")
@last_option
def polls_command(
    app: App, start: str | None, end: str | None, failed: bool, source: str | None, last: int | None
) -> None:
    """List the record's polls: position, time, HTTP status or exit code, milliseconds, source, path, and what changed.

    With --json, JSON Lines: {"position", "t", "source", "path", "req", "status", "ms", "changed",
    "answered", "asked"}; "changed" lists the streams of the runs and machines whose answer changed, "asked" is the path
    as the list prints it.

    \b
    Examples:
      steno polls -n 20
      steno polls --failed --from 2h
      steno polls --json | jq -r 'select(.changed != []) | .position'
    """
    from projections.models.record_pages import poll_rows

    with app.reading() as record:
        if sys.stdout.isatty() and not app.json:
            emit(paint.dim(f"{'POSITION':>8}  {'ASKED':<20}  {'CODE':>4}  {'TOOK':>10}  SOURCE  PATH  CHANGED"))
        after, until = between(app, record, start, end)
        for row in poll_rows(record, after=after, until=until, failed=failed, source=source, last=last):
            if app.json:
                emit_json(row, lines=True)
                continue
            status, changed = row["status"], row["changed"]
            assert isinstance(changed, list)  # noqa: S101 - made above
            answer = click.style(f"{'none' if status is None else status:>4}", fg="green" if row["answered"] else "red")
            what = paint.dim(f"  changed {', '.join(changed)}") if changed else ""
            front = f"{row['position']:>8}  {moment(str(row['t']))}  {answer}  {row['ms']:>7} ms"
            emit(f"{front}  {row['source']}  {row['asked']}{what}")


@steno_command("poll")
@click.argument("position", type=click.IntRange(min=1))
def poll_command(app: App, position: int) -> None:
    """Print a provider's answer as it was received.

    The answer is rebuilt from the record, equal as JSON to what was sent; secrets were replaced before it was stored.
    `steno polls` and the evidence of a verdict print the POSITION of a poll. With --json, the poll as a line of a
    trace: {"t", "ep", "path", "req", "status", "ms", "body"}.

    \b
    Examples:
      steno poll 1204
      steno poll 1204 | jq '.[0].status'
      steno poll 1204 --json >> incident.jsonl
    """
    import msgspec

    from events.traces.trace import write_trace_line

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
