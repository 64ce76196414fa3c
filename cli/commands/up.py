"""`steno up`: recorder, controller and HTTP service in one process."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import click

from cli.wiring.app import App
from cli.wiring.options import common, host_option, pass_app, port_option, project_option, provider_option

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from engine.live.live_world import LiveWorld
    from events.store.store import Store


@click.command("up")
@click.option("--idle-timeout", metavar="DURATION", help="Stop a machine after this much idle time: 600, 10m, 0, off.")
@click.option("--max-vms", metavar="N", help="Run at most this many machines of Steno's; off: no limit.")
@click.option("--mode", type=click.Choice(["provider", "pool"]), help="Who chooses a run's machine.")
@click.option("--api/--no-api", default=True, help="Serve the dashboard and the API.")
@host_option
@port_option
@click.option("--open", "show", is_flag=True, help="Show the dashboard in your browser.")
@provider_option
@project_option
@common
@pass_app
def command(
    app: App, idle_timeout: str | None, max_vms: str | None, mode: str | None, *, api: bool, show: bool
) -> None:
    """Record a provider, control its machines and serve the dashboard, until interrupted.

    Every answer is recorded. Queued runs start in order, on at most vms.max machines. A machine that is idle for too
    long is drained, polled once more and stopped. The budget is checked. After a crash, `steno up` continues from the
    record. If another process holds the provider's lease, this one stands by. Log lines below ERROR go to stdout, the
    others to stderr; with --json each is {"at", "level", "message"}.

    It serves dashboard, API, live stream and metrics like `steno serve`, by default on loopback. Exits 5 if the port is
    in use, 70 if the server fails; recording then ends in order.

    Ctrl-C exits 130, SIGTERM 0. Machines keep running then. dstack stops an idle one itself: 30 s after
    vms.idle_timeout, or after the task's idle_duration if that is shorter. Until then nothing else limits the cost.

    \b
    Examples:
      steno up --provider dstack
      steno up --provider dstack --mode pool --max-vms 2 --idle-timeout 5m
      steno up --port 9000 --open
      steno up --no-api
    """
    for name, value in (("vms.idle_timeout", idle_timeout), ("vms.max", max_vms), ("vms.mode", mode)):
        if value is not None:
            app.set_flag(name, value)
    import signal

    from cli.wiring.logging_setup import log_for_daemon
    from cli.wiring.record_loop import Terminated
    from cli.wiring.signals import stoppable

    log_for_daemon(json=app.json)
    with stoppable(signal.SIGTERM, Terminated) as ended, contextlib.suppress(Terminated):
        _up(app, ended, api=api, show=show)


def _up(app: App, ended: Callable[[], None], *, api: bool, show: bool) -> None:
    from cli.wiring.providers import named
    from cli.wiring.record_loop import record_forever
    from cli.wiring.recorder import watching
    from cli.wiring.stores import writing
    from engine.live.live_world import LiveWorld
    from engine.providers.readings import READINGS

    with contextlib.ExitStack() as stack:
        record = stack.enter_context(writing(app))
        provider = stack.enter_context(contextlib.closing(named(app, app.settings.provider, record.store)))
        provider.expect_project()
        live = LiveWorld(READINGS, keep=True)
        checks = [stack.enter_context(_serving(app, record.store, live, show=show))] if api else []
        recorder = stack.enter_context(
            watching(app, record, provider, live=live, progress=lambda _done, _total: ended())
        )
        record_forever(recorder, ended, *checks)


@contextlib.contextmanager
def _serving(app: App, record: Store, live: LiveWorld, *, show: bool) -> Iterator[Callable[[], None]]:
    """The HTTP service, running; yields a function that raises if the service has failed.

    Raises:
        Conflict: another process has the port.
        NotConfigured: it cannot or may not listen on that address.
    """
    from cli.wiring.http_service import announced, serving
    from cli.wiring.record_loop import PartFailed
    from engine.errors import Conflict
    from projections.api.server import ServerFailed

    with contextlib.ExitStack() as stack:
        try:
            server = stack.enter_context(serving(app, record, live))
        except Conflict as error:
            raise Conflict(f"{error}; use --no-api to record without it") from None
        announced(server, record, show=show)

        def check() -> None:
            try:
                server.check()
            except ServerFailed as error:
                raise PartFailed(str(error)) from error

        yield check
