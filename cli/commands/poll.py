"""`steno poll N`: what the provider answered, rebuilt from the record."""

import sys

import click

from cli.wiring.app import App
from cli.wiring.options import common, pass_app
from cli.wiring.output import emit, hint


@click.command("poll")
@click.argument("position", type=click.IntRange(min=1))
@common
@pass_app
def command(app: App, position: int) -> None:
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
    from cli.wiring.stores import reading

    with reading(app) as record:
        poll = record.poll(position)
    if app.json:
        from events.traces.trace import write_trace_line

        click.echo(write_trace_line(poll).decode().rstrip("\n"))
        return
    if poll.body is None:
        hint(f"poll {position} got no answer: {poll.error or 'unknown error'}")
        return
    import msgspec

    if poll.text:
        emit(msgspec.json.decode(poll.body, type=str))
    elif sys.stdout.isatty():
        emit(msgspec.json.format(poll.body, indent=2).decode())
    else:
        click.echo(poll.body.decode())
