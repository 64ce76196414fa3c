"""`steno up`: recorder and controller in one process."""

import contextlib

import click

from cli.app import App
from cli.options import common, pass_app, project_option, provider_option


@click.command("up")
@click.option("--idle-timeout", metavar="DURATION", help="End a machine that idled this long: 600, 10m, 0, off.")
@click.option("--max-vms", metavar="N", help="The most machines of ours at once; off: no limit.")
@click.option("--mode", type=click.Choice(["provider", "pool"]), help="Who chooses a run's machine.")
@provider_option
@project_option
@common
@pass_app
def command(app: App, idle_timeout: str | None, max_vms: str | None, mode: str | None) -> None:
    """Record a provider and control its machines, until interrupted.

    Every answer is recorded; runs that wait get their machine in order, never more machines than vms.max; a machine
    that idled too long is drained, looked at once more and ended; the budget is watched. It goes on where a process
    that was killed stopped: what it finds is in the record. If another process holds the provider's lease already,
    this one stands by. Log lines below ERROR go to stdout, the others to stderr; with --json each is
    {"at", "level", "message"}.

    Ctrl-C exits 130, SIGTERM 0. Machines stay as they are then; dstack's own idle_duration ends them.

    \b
    Examples:
      steno up --provider dstack
      steno up --provider dstack --mode pool --max-vms 2 --idle-timeout 5m
    """
    for name, value in (("vms.idle_timeout", idle_timeout), ("vms.max", max_vms), ("vms.mode", mode)):
        if value is not None:
            app.set_flag(name, value)
    from cli.logs import log_for_daemon
    from cli.providers import named
    from cli.recording import record_forever
    from cli.stores import writing
    from cli.watching import watching
    from engine.providers.local.provider import LocalProvider

    log_for_daemon(json=app.json)
    with contextlib.ExitStack() as stack:
        record = stack.enter_context(writing(app))
        provider = stack.enter_context(contextlib.closing(named(app, app.settings.provider, record.path)))
        if not isinstance(provider, LocalProvider):
            provider.expect_project()
        watch, recorder = stack.enter_context(watching(app, record, provider))
        record_forever(record, watch, recorder, provider, app.clock)
