"""`steno up`, `steno record` and `steno serve`: recorder, controller and HTTP service, in one process or in two."""

from __future__ import annotations

import contextlib
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli.wiring.app import App, steno_command
from cli.wiring.logging_setup import log_for_daemon
from cli.wiring.options import (
    host_option,
    port_option,
    project_option,
    provider_option,
    setting_option,
    sources_option,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from engine.live.live_world import LiveWorld
    from events.store.store import Store

_open_option = click.option("--open", "show", is_flag=True, help="Show the dashboard in your browser.")


@steno_command("up")
@setting_option(
    "--idle-timeout",
    "vms.idle_timeout",
    metavar="DURATION",
    help="Stop a machine after this much idle time: 600, 10m, 0, off.",
)
@setting_option("--max-vms", "vms.max", metavar="N", help="Run at most this many machines of Steno's; off: no limit.")
@setting_option("--mode", "vms.mode", type=click.Choice(["provider", "pool"]), help="Who chooses a run's machine.")
@click.option("--api/--no-api", default=True, help="Serve the dashboard and the API.")
@host_option
@port_option
@_open_option
@provider_option
@project_option
@sources_option
def up_command(app: App, *, api: bool, show: bool, sources: tuple[str, ...]) -> None:
    """Record a provider, control its machines and serve the dashboard, until interrupted.

    Every answer is recorded. Queued runs start in order, on at most vms.max machines. A machine that is idle for too
    long is drained, polled once more and stopped. The budget is checked. After a crash, `steno up` continues from the
    record. If another process holds the provider's lease, this one stands by. Log lines below ERROR go to stdout, the
    others to stderr; with --json each is {"at", "level", "message"}.

    With --source, several times, it records several sources. Recorders of one record that name the same sources share
    them evenly; if one ends or dies, the others take over its sources within 10 s. `steno workers` shows who has which.

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
      steno up --source dstack/main --source dstack/lab --source slurm
    """
    from cli.wiring.record_loop import record_forever
    from cli.wiring.recorder import watching
    from cli.wiring.shared_sources import SharedSources
    from cli.wiring.signals import Terminated, stoppable
    from cli.wiring.warm_machines import WarmMachines
    from engine.live.live_world import LiveWorld
    from engine.providers.readings import READINGS

    log_for_daemon(json=app.json)
    with (
        stoppable(signal.SIGTERM, Terminated) as ended,
        contextlib.suppress(Terminated),
        app.writing() as record,
        contextlib.ExitStack() as stack,
    ):
        live = LiveWorld(READINGS, keep=True)
        if sources:
            checks = [stack.enter_context(_serving(app, record.store, live, show=show))] if api else []
            shared = SharedSources(app, record, live, sources, progress=lambda _done, _total: ended())
            stack.enter_context(contextlib.closing(shared)).record_forever(ended, *checks)
            return
        provider = stack.enter_context(contextlib.closing(app.provider(app.settings.provider, record.store)))
        provider.expect_project()
        checks = [stack.enter_context(_serving(app, record.store, live, show=show))] if api else []
        machines = stack.enter_context(contextlib.closing(WarmMachines(app, record, live)))
        recorder = stack.enter_context(
            watching(app, record, provider, live=live, progress=lambda _done, _total: ended(), beside=machines.step)
        )
        machines.wake = recorder.effects.wake
        record_forever(recorder, ended, machines.step, *checks)


@contextlib.contextmanager
def _serving(app: App, record: Store, live: LiveWorld, *, show: bool) -> Iterator[Callable[[], None]]:
    """The HTTP service, running; yields a function that raises if the service has failed."""
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


@steno_command("record")
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
@sources_option
def record_command(
    app: App, trace: Path | None, since: str | None, interval: str | None, sources: tuple[str, ...]
) -> None:
    """Poll a provider and record every answer, until interrupted.

    Failed polls are recorded and retried. The recorder also acts: it starts queued runs, stops idle machines, carries
    out stop requests and sends alerts. If another process records the provider already, this one stands by and takes
    over when that one ends. Log lines below ERROR go to stdout, the others to stderr; with --json each is
    {"at", "level", "message"}.

    With --source, several times, it records several sources. Recorders of one record that name the same sources share
    them evenly; if one ends or dies, the others take over its sources within 10 s. `steno workers` shows who has which.

    Ctrl-C exits 130, SIGTERM 0.

    \b
    Examples:
      steno record --provider dstack
      steno record --provider dstack --project main --since 7d
      steno record --provider dstack --trace incident.jsonl
      steno record --source dstack/main --source dstack/lab --source slurm
    """
    from cli.wiring.record_loop import record_forever
    from cli.wiring.recorder import watching
    from cli.wiring.shared_sources import SharedSources
    from cli.wiring.time_arguments import length, moment
    from cli.wiring.trace_files import TraceFile
    from cli.wiring.warm_machines import WarmMachines
    from engine.live.live_world import LiveWorld
    from engine.providers.readings import READINGS
    from engine.recorder.interval import Pace

    log_for_daemon(json=app.json)
    beginning = None if since is None else moment(since, app.clock.now())
    pace = None if interval is None else Pace(fast=length(interval), slow=length(interval))
    with contextlib.ExitStack() as stack:
        sink = None if trace is None else stack.enter_context(contextlib.closing(TraceFile(trace)))
        record = stack.enter_context(app.writing())
        if sources:
            live = LiveWorld(READINGS, keep=True)
            shared = SharedSources(app, record, live, sources, since=beginning, pace=pace, trace=sink)
            stack.enter_context(contextlib.closing(shared)).record_forever()
            return
        provider = stack.enter_context(contextlib.closing(app.provider(app.settings.provider, record.store)))
        provider.expect_project()
        live = LiveWorld(READINGS, keep=True)
        machines = stack.enter_context(contextlib.closing(WarmMachines(app, record, live)))
        recorder = stack.enter_context(
            watching(app, record, provider, since=beginning, pace=pace, trace=sink, live=live, beside=machines.step)
        )
        record_forever(recorder, machines.step)


@steno_command("serve")
@host_option
@port_option
@_open_option
@provider_option
@project_option
def serve_command(app: App, *, show: bool) -> None:
    """Serve the record over HTTP: dashboard, API, live stream and metrics.

    This process does not poll and decides nothing; run `steno record` or `steno up` beside it. Requests made over HTTP
    (a run, a stop) are recorded, and the process that records the provider acts on them.

    On loopback, the default, no token is needed. On any other address each request needs one: `steno token create`.
    Log lines below ERROR go to stdout, the others to stderr; with --json each is {"at", "level", "message"}.

    Ctrl-C exits 130, SIGTERM 0; open requests get 5 seconds to finish. Exits 5 if the port is in use, 70 if the
    server fails.

    \b
    Examples:
      steno serve --open
      steno serve --port 9000
      steno token create --role read --name grafana
      steno serve --host 0.0.0.0
    """
    from cli.wiring.http_service import serve_until_stopped

    log_for_daemon(json=app.json)
    with app.writing() as record:  # create it if missing; fail before serving if damaged
        store = record.store
    serve_until_stopped(app, store, show=show)
