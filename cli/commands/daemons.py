"""Commands that run until they are stopped: `up`, `record`, `serve`, and `listener` on a GPU machine."""

from __future__ import annotations

import contextlib
import logging
import shlex
import signal
import subprocess
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steno.cli.wiring.app import App, steno_command
from steno.cli.wiring.logging_setup import log_for_daemon
from steno.cli.wiring.options import (
    host_option,
    port_option,
    project_option,
    provider_option,
    setting_option,
    sources_option,
)
from steno.cli.wiring.time_arguments import length, moment
from steno.engine.errors import Conflict, NotConfigured
from steno.engine.runtime.signals import Terminated, stoppable
from steno.events.clock import SECOND
from steno.events.errors import StenoError
from steno.events.installation import installing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from steno.engine.live.live_world import LiveWorld
    from steno.engine.providers.base import Provider
    from steno.events.store.record import Record
    from steno.events.store.store import Store

    Check = Callable[[], None]

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
    """It runs until it is interrupted. Every answer is recorded. Queued runs start in order, on at most vms.max
    machines. A machine that is idle for too long is drained, polled once more and stopped. The budget is checked. After
    a crash, `steno up` continues from the record. If another process holds the provider's lease, this one stands by.
    Log lines below ERROR go to stdout, the others to stderr; with --json each is {"at", "level", "message"}.

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
    from steno.projections.answers.decision_audit import BackgroundAudit

    log_for_daemon(json=app.json)
    with stoppable(signal.SIGTERM, Terminated) as ended, contextlib.suppress(Terminated), app.writing() as record:

        def serve(live: LiveWorld) -> Iterator[AbstractContextManager[Check]]:
            yield contextlib.nullcontext(ended)
            if api:
                yield _serving(app, record.store, live, show=show)

        with BackgroundAudit(record.store, app.clock):  # its failure ends no recording
            _record(app, record, sources, serve, progress=lambda _done, _total: ended())


def _record(
    app: App,
    record: Record,
    sources: Sequence[str],
    serve: Callable[[LiveWorld], Iterable[AbstractContextManager[Check]]] = lambda _live: (),
    **options: Any,
) -> None:
    """Record the sources, or else the provider of the settings, until stopped. What `serve` gives is open meanwhile,
    and its checks run between rounds; `options` as of `watching`.
    """
    from steno.engine.live.live_world import LiveWorld
    from steno.engine.providers.registry import READINGS
    from steno.engine.runtime.controllers import watching
    from steno.engine.runtime.record_loop import record_forever
    from steno.engine.runtime.shared_sources import SharedSources
    from steno.engine.runtime.warm_machines import WarmMachines

    live = LiveWorld(READINGS, keep=True)
    with contextlib.ExitStack() as stack:
        if sources:
            checks = [stack.enter_context(part) for part in serve(live)]
            shared = SharedSources(app, record, live, sources, partial(_opened, app, record.store), **options)
            stack.enter_context(contextlib.closing(shared)).record_forever(*checks)
            return
        provider = stack.enter_context(contextlib.closing(app.provider(app.settings.provider, record.store)))
        provider.expect_project()
        checks = [stack.enter_context(part) for part in serve(live)]
        machines = stack.enter_context(contextlib.closing(WarmMachines(app, record, live)))
        controller = stack.enter_context(watching(app, record, provider, live=live, beside=machines.step, **options))
        machines.wake = controller.effects.wake
        record_forever(controller, machines.step, *checks)


def _opened(app: App, record: Store, name: str) -> tuple[App, Provider]:
    """The provider of a source `PROVIDER` or `PROVIDER/PROJECT`, and the app with its settings."""
    provider, _, project = name.partition("/")
    own = app.copied(app.clock)
    own.set_flag("provider", provider)
    if project:
        own.set_flag("project", project)
    return own, own.provider(provider, record)


@contextlib.contextmanager
def _serving(app: App, record: Store, live: LiveWorld, *, show: bool) -> Iterator[Callable[[], None]]:
    """The HTTP service, running; yields a function that raises if the service has failed."""
    from steno.cli.wiring.http_service import announced, serving
    from steno.engine.runtime.record_loop import PartFailed
    from steno.projections.api.server import ServerFailed

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
    """Failed polls are recorded and retried. The recorder also acts: it starts queued runs, stops idle machines,
    carries out stop requests and sends alerts. If another process records the provider already, this one stands by and
    takes over when that one ends. Log lines below ERROR go to stdout, the others to stderr; with --json each is {"at",
    "level", "message"}.

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
    from steno.cli.wiring.files import TraceFile
    from steno.engine.control.poll_interval import Pace

    log_for_daemon(json=app.json)
    beginning = None if since is None else moment(since, app.clock.now())
    pace = None if interval is None else Pace(fast=length(interval), slow=length(interval))
    with contextlib.ExitStack() as stack:
        sink = None if trace is None else stack.enter_context(contextlib.closing(TraceFile(trace)))
        record = stack.enter_context(app.writing())
        _record(app, record, sources, since=beginning, pace=pace, trace=sink)


@steno_command("serve")
@host_option
@port_option
@_open_option
@provider_option
@project_option
def serve_command(app: App, *, show: bool) -> None:
    """This process does not poll and decides nothing; run `steno record` or `steno up` beside it. Requests made over
    HTTP (a run, a stop) are recorded, and the process that records the provider acts on them.

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
    from steno.cli.wiring.http_service import serve_until_stopped

    log_for_daemon(json=app.json)
    with app.writing() as record:  # create it if missing; fail before serving if damaged
        store = record.store
    serve_until_stopped(app, store, show=show)


_SHORTEST = 32


@steno_command("listener")
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Where to listen.")
@click.option("--port", default=8000, show_default=True, type=click.IntRange(0, 65535), metavar="N", help="0: any.")
@setting_option("--image", "kernel.image", metavar="IMAGE", help="Container image with compiler and Python.")
@setting_option("--memory", "container.memory_limit", metavar="SIZE", help="Memory of a container: 16GB.")
@setting_option("--cpus", "container.cpu_limit", metavar="N", help="Processors of a container: 4.")
@click.option("--device", "devices", multiple=True, metavar="PATH", help="GPU device; default: /dev/kfd, /dev/dri.")
@click.option("--tls", type=click.Path(path_type=Path), metavar="FILE", help="PEM file with certificate and key.")
@click.option(
    "--forgotten-after", default="15m", show_default=True, metavar="DURATION", help="Silence after which to end."
)
@click.option("--at-end", metavar="COMMAND", help="Command that then stops this machine: poweroff.")
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("/var/lib/steno-listener"),
    show_default=True,
    metavar="FOLDER",
    help="Where results wait until the engine has them.",
)
def listener_command(
    app: App,
    *,
    host: str,
    port: int,
    devices: tuple[str, ...],
    tls: Path | None,
    forgotten_after: str,
    at_end: str | None,
    folder: Path,
) -> None:
    """Each program has a container of its own. It runs until it is told to stop. POST /execute takes a task. GET
    /tasks/ID returns its output and its result, DELETE /tasks/ID confirms that the result was read, POST /cancel/ID
    stops the task. GET /health reports what is missing (503). Every request needs the token in STENO_LISTENER_TOKEN.
    One task runs at a time.

    If its engine is silent for --forgotten-after and no task runs, the listener runs --at-end and exits 0: so the
    machine stops even if no recorder runs. It refuses to start without a token (exit 2). Without a container engine it
    refuses tasks: strangers' code never runs outside a container.

    \b
    Examples:
      STENO_LISTENER_TOKEN=$(openssl rand -hex 32) steno listener
      steno listener --image my/rocm:6.4 --memory 32GB
      steno listener --forgotten-after 10m30s --at-end poweroff
    """

    from steno.engine.settings.values import positive_duration

    try:
        from steno.engine.listener.service import CannotListen, listen
    except ModuleNotFoundError as error:
        raise StenoError(f"{error.name} is not installed: `{installing('listener')}`.") from error

    log_for_daemon(json=app.json)
    log = logging.getLogger("steno.listener")
    token = app.settings.value("listener.token") or ""
    if len(token) < _SHORTEST:
        raise NotConfigured(f"set a token of {_SHORTEST} characters: STENO_LISTENER_TOKEN=$(openssl rand -hex 32)")
    try:
        limit = positive_duration(forgotten_after) / SECOND
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--forgotten-after") from None
    try:
        forgotten = listen(
            name=folder.name,
            folder=folder,
            token=token,
            image=app.settings.parsed("kernel.image"),
            memory=app.settings.parsed("container.memory_limit"),
            cpus=app.settings.parsed("container.cpu_limit"),
            devices=devices or None,
            host=host,
            port=port,
            certificate=tls,
            forgotten_after=limit,
        )
    except CannotListen as error:
        raise NotConfigured(str(error)) from None
    if forgotten:
        log.warning("the engine has been silent for %s: stopping this machine", forgotten_after)
        if at_end is not None:
            subprocess.run(shlex.split(at_end), check=False)
