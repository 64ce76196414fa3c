"""The HTTP service wired from the settings, and its life inside a process."""

import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from steno.cli.wiring.app import SERVING, App
from steno.engine.errors import NotConfigured
from steno.engine.live.live_world import LiveWorld
from steno.engine.runtime.signals import INTERRUPTED, Terminated, ending, stoppable
from steno.engine.settings.values import host, port
from steno.engine.submit.kernel_orders import goes_to
from steno.events.store.store import Store, Where, store_at
from steno.projections.answers.output_cause import OutputCauses
from steno.projections.api.access.authentication import listens_on_loopback, trusts_loopback
from steno.projections.api.feed.feed import Feed
from steno.projections.api.server import Server, allow_many_connections, bound
from steno.projections.api.service import Service
from steno.projections.api.token_store import Role
from steno.projections.api.tokens import Tokens
from steno.projections.app import build_app
from steno.projections.read_models.projector import Projector
from steno.projections.read_models.reader_pool import Pool

_log = logging.getLogger("steno.api")


@contextmanager
def serving(app: App, record: Where, live: LiveWorld | None = None) -> Iterator[Server]:
    """A running server of this record; shut down in order at the end of the block. `live` is the world that another
    thread of this process keeps up to date; None: the server follows the record. Raises `NotConfigured` (no token
    beyond loopback, or the address cannot be used), `Conflict` (port in use), `ServerFailed` (did not start).
    """
    at = host(app.settings.value("api.host") or "")
    service = assembled(app, record, live)
    _expect_guarded(service, at)
    allow_many_connections()
    stack = ExitStack()
    sockets = [stack.enter_context(socket) for socket in bound(at, port(app.settings.value("api.port") or ""))]
    try:
        application = build_app(service)

        def stop_streams() -> None:
            application.close()
            service.feed.stop()

        stack.callback(service.pool.close)
        stack.push(service.closing)
        stack.callback(application.log.stop)
        application.log.start()
        stack.callback(service.projector.stop)
        service.projector.start()
        server = Server(application, sockets, starting=service.feed.start, stopping=stop_streams)
        stack.callback(server.stop)
        server.start()
        stack.enter_context(_noted(service.store.folder(SERVING), server.url_here))
        # Freeze loaded objects: a garbage collection over them would stop every stream for 0.1 s.
        gc.collect()
        gc.freeze()
        _log_open_access(service)
        yield server
    finally:
        with ending(INTERRUPTED):
            stack.close()


@contextmanager
def _noted(file: Path, url: str) -> Iterator[None]:
    """The address of a running server in a file, which goes with it; without one where it cannot be written."""
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(url, encoding="utf-8")
    yield
    with suppress(OSError):
        if file.read_text(encoding="utf-8") == url:
            file.unlink()


def announced(server: Server, record: Store, *, show: bool = False) -> None:
    """Print the address and, with `show`, open it in a browser without waiting."""
    _log.info("serving %s (record %s)", server.url, record)
    if show:
        threading.Thread(target=_show, args=(server.url_here,), name="steno-browser", daemon=True).start()


def _show(url: str) -> None:
    """Start a graphical browser or say that there is none; a text browser would take the terminal from the log."""
    import webbrowser

    windows = sys.platform == "darwin" or any(map(os.environ.get, ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")))
    if not (windows and webbrowser.open(url)):
        _log.warning("no browser could be started; open %s yourself", url)


def serve_until_stopped(app: App, record: Store, *, show: bool) -> None:
    """Serve until SIGTERM (returns) or Ctrl-C (KeyboardInterrupt). Raises as `serving`, later also `ServerFailed`."""
    # Ignore further SIGTERMs.
    stopped = stoppable(signal.SIGTERM, Terminated), stoppable(signal.SIGINT, KeyboardInterrupt)
    with suppress(Terminated), stopped[0] as ended, stopped[1] as interrupted:
        try:
            with serving(app, record) as server:
                announced(server, record, show=show)
                ended()
                interrupted()
                server.wait()
        except Terminated:
            _log.info("stopped by SIGTERM")


def assembled(app: App, record: Where, live: LiveWorld | None = None) -> Service:
    """Everything the service needs, not started."""
    store = store_at(record)
    app.share_clock(store)
    feed = Feed(store, clock=app.clock, live=live)
    projector = Projector(store, clock=app.clock, live=feed.live)
    feed.live.subscribe(lambda _changes: projector.wake())
    return Service(
        clock=app.clock,
        ids=app.ids,
        settings=app.settings,
        store=store,
        pool=Pool(store, clock=app.clock, wake=projector.hurry, building=lambda: projector.building),
        projector=projector,
        feed=feed,
        tokens=Tokens(store, app.clock),
        provider=app.settings.provider,
        kernels=goes_to(app.settings),
        output_causes=OutputCauses(app.settings.value("causes.rules")),
        opened=lambda run, clock: app.copied(clock).provider_of(run, store),
    )


def _expect_guarded(service: Service, host: str) -> None:
    """Refuse to serve beyond loopback without a token, and to run any local user's commands as root unless a setting
    says so; on `local`, warn that submit tokens run commands as the user.
    """
    tokens, settings = service.tokens, service.settings
    usable, loopback = tokens.usable(), listens_on_loopback(host)
    local, open_ = service.provider == "local", trusts_loopback(settings)
    if tokens.trouble is not None:
        raise NotConfigured(tokens.trouble)
    if local and open_ and os.geteuid() == 0 and not settings.find("api.loopback").given:
        raise NotConfigured(
            "as root with the provider local, every user of this machine could run commands as root: set "
            "STENO_API_LOOPBACK=open (api.loopback) if nobody else uses it, as in a container; else "
            "STENO_API_LOOPBACK=token, and make a token with `steno token create --role admin`"
        )
    if not usable and not open_:
        setting = settings.find("api.loopback" if loopback else "api.host")
        why = "so every request needs a token, and there is none"
        if not loopback:
            why = "which other machines can reach, and without a token anybody there could run things"
        raise NotConfigured(
            f"{setting.name} is {setting.value} ({setting.source}), {why}: make one with `steno token create --role "
            "read|submit|admin`, or listen on 127.0.0.1 with api.loopback = open"
        )
    if local and (tokens.usable(Role.SUBMIT) or not loopback):
        kernels = "kernels too" if settings.value("kernel.unsafe_local") == "true" else "but kernels in containers"
        _log.warning(
            "the provider is local: whoever has a token of the role submit or admin runs commands as this user, "
            "not isolated (%s: kernel.unsafe_local)",
            kernels,
        )


def _log_open_access(service: Service) -> None:
    """Log what callers without a token may do, where loopback is open, and how to close it."""
    if trusts_loopback(service.settings):
        local, root = service.provider == "local", os.geteuid() == 0
        _log.log(
            logging.WARNING if local and root else logging.INFO,
            "no token is needed on this machine: each of its users may read, submit and stop everything%s; "
            "to close it, create a token and set api.loopback = token (STENO_API_LOOPBACK=token)",
            f", and run commands as {'root' if root else 'this user'}" if local else "",
        )
