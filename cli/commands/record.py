"""`steno record`: the recorder as a process of its own."""

import contextlib
from pathlib import Path

import click

from cli.wiring.app import App
from cli.wiring.options import common, pass_app, project_option, provider_option


@click.command("record")
@click.option(
    "--trace",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Also append every poll to this trace (.jsonl, .jsonl.zst), secrets replaced.",
)
@click.option("--since", metavar="TIME", help="How far back to read history at first contact; else all of it.")
@click.option(
    "--interval", metavar="DURATION", help="Ask this often; else fast while something moves, slow when quiet."
)
@provider_option
@project_option
@common
@pass_app
def command(app: App, trace: Path | None, since: str | None, interval: str | None) -> None:
    """Poll a provider and record every answer, until interrupted.

    A server that is down, restarting, or answering nonsense is recorded as such and asked again. What the record shows
    is acted on: runs that wait get a machine in their turn, machines that idled too long are ended, stops are carried
    out, alerts are given. If another process records the provider already, this one stands by and takes over when
    that one ends. Log lines below ERROR go to stdout, the others to stderr; with --json each is
    {"at", "level", "message"}.

    Ctrl-C exits 130, SIGTERM 0.

    \b
    Examples:
      steno record --provider dstack
      steno record --provider dstack --project main --since 7d
      steno record --provider dstack --trace incident.jsonl
    """
    from cli.providers import named
    from cli.recording import record_forever
    from cli.stores import writing
    from cli.watching import watching
    from cli.wiring.logging_setup import log_for_daemon
    from cli.wiring.time_arguments import length, moment
    from cli.wiring.trace_file import TraceFile
    from engine.recorder.interval import Pace

    log_for_daemon(json=app.json)
    beginning = None if since is None else moment(since, app.clock.now())
    every = None if interval is None else length(interval)
    pace = None if every is None else Pace(fast=every, slow=every)
    with contextlib.ExitStack() as stack:
        sink = None if trace is None else stack.enter_context(contextlib.closing(TraceFile(trace)))
        record = stack.enter_context(writing(app))
        provider = stack.enter_context(contextlib.closing(named(app, app.settings.provider, record.store)))
        provider.expect_project()
        with watching(app, record, provider, since=beginning, pace=pace, trace=sink) as (watch, recorder):
            record_forever(record, watch, recorder, provider, app.clock)
