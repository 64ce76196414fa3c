"""`steno record`: the recorder as a separate process."""

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
@click.option(
    "--since", metavar="TIME", help="How far back to read the provider's history at first contact; default: all."
)
@click.option(
    "--interval",
    metavar="DURATION",
    help="Poll this often; default: fast while something changes, else slow.",
)
@provider_option
@project_option
@common
@pass_app
def command(app: App, trace: Path | None, since: str | None, interval: str | None) -> None:
    """Poll a provider and record every answer, until interrupted.

    Failed polls are recorded and retried. The recorder also acts: it starts queued runs, stops idle machines, carries
    out stop requests and sends alerts. If another process records the provider already, this one stands by and takes
    over when that one ends. Log lines below ERROR go to stdout, the others to stderr; with --json each is
    {"at", "level", "message"}.

    Ctrl-C exits 130, SIGTERM 0.

    \b
    Examples:
      steno record --provider dstack
      steno record --provider dstack --project main --since 7d
      steno record --provider dstack --trace incident.jsonl
    """
    from cli.wiring.logging_setup import log_for_daemon
    from cli.wiring.providers import named
    from cli.wiring.record_loop import record_forever
    from cli.wiring.recorder import watching
    from cli.wiring.stores import writing
    from cli.wiring.time_arguments import length, moment
    from cli.wiring.trace_files import TraceFile
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
        with watching(app, record, provider, since=beginning, pace=pace, trace=sink) as recorder:
            record_forever(recorder)
