"""The HTTP service wired from the settings, and its life inside a process."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
import threading
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING

from cli.wiring.errors import INTERRUPTED
from cli.wiring.record_loop import Terminated
from cli.wiring.signals import ending, stoppable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cli.wiring.app import App
    from engine.live.live_world import LiveWorld
    from events.store.store import Store, Where
    from projections.api.server import Server
    from projections.api.service import Service

_log = logging.getLogger("steno.api")
_WARM_UP = 3.0
"""Seconds that the end of a process waits for an import that is under way."""


@contextmanager
def serving(app: App, record: Where, live: LiveWorld | None = None) -> Iterator[Server]:
    """A server of the record at this path, taking requests; afterwards it has ended in order.

    Args:
        live: the world that another thread of this process keeps up to date; None: the server follows the record.

    Raises:
        NotConfigured: it would listen beyond loopback and there is no token, or it cannot listen there at all.
        Conflict: another process has the port.
        ServerFailed: it could not begin.
    """
    from engine.settings.values import host, port
    from projections.api.app import build_app
    from projections.api.server import Server as Serving
    from projections.api.server import allow_many_connections, bound

    at = host(app.settings.value("api.host") or "")
    service = assembled(app, record, live)
    expect_guarded(service, at)
    warn_of_local(service, at)
    allow_many_connections()
    sockets = bound(at, port(app.settings.value("api.port") or ""))
    stack = ExitStack()
    for one in sockets:
        stack.callback(one.close)
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
        stack.callback(_warming_up(service.outside.provider).join, _WARM_UP)
        server = Serving(application, sockets, starting=service.feed.start, stopping=stop_streams)
        stack.callback(server.stop)
        server.start()
        yield server
    finally:
        with ending(INTERRUPTED):
            stack.close()


def announced(server: Server, record: Store, *, show: bool = False) -> None:
    """Say where it serves, and show it in a browser if so wished; nothing waits for that."""
    _log.info("serving %s (record %s)", server.url, record)
    if show:
        threading.Thread(target=_show, args=(server.url_here,), name="steno-browser", daemon=True).start()


def _show(url: str) -> None:
    """Start a browser, or say that there is none. One that is the process started is waited for until it ends."""
    import webbrowser

    if not (_has_windows() and webbrowser.open(url)):
        _log.warning("no browser could be started; open %s yourself", url)


def _has_windows() -> bool:
    """Whether a browser would have a window: one of text would take the terminal from the log."""
    return sys.platform == "darwin" or any(os.environ.get(one) for one in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY"))


def serve_until_stopped(app: App, record: Store, *, show: bool) -> None:
    """Serve until SIGTERM (returns) or Ctrl-C; what `serving` raises comes through.

    Raises:
        ServerFailed: it ended by itself.
        KeyboardInterrupt: Ctrl-C.
    """
    # A further SIGTERM, wherever it comes, says nothing new.
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
    """Everything the service stands on, nothing of it started."""
    from cli.wiring.provider_calls import Provided
    from events.store.store import store_at
    from projections.api.access.tokens import Tokens
    from projections.api.feed.feed import Feed
    from projections.api.service import Service as Parts
    from projections.models.live_projector import Projector
    from projections.store.reader_pool import Pool

    store = store_at(record)
    feed = Feed(store, clock=app.clock, live=live)
    projector = Projector(store, clock=app.clock, live=feed.live)
    feed.listen(lambda _position: projector.wake())
    return Parts(
        clock=app.clock,
        ids=app.ids,
        settings=app.settings,
        store=store,
        pool=Pool(store, clock=app.clock, wake=projector.wake, building=lambda: projector.building),
        projector=projector,
        feed=feed,
        tokens=Tokens(store, app.clock),
        outside=Provided(app, store),
    )


def expect_guarded(service: Service, host: str) -> None:
    """Look that who can reach the service from elsewhere needs a token, and that there is one.

    Raises:
        NotConfigured: there is none, or the file they are in cannot be read.
    """
    from engine.errors import NotConfigured
    from projections.api.access.hosts import listens_on_loopback, trusts_loopback

    usable = service.tokens.usable()
    if service.tokens.trouble is not None:
        raise NotConfigured(f"{service.tokens.trouble}: correct the file, or move it away and create the tokens again")
    if usable or trusts_loopback(service.settings):
        return
    name = "api.loopback" if listens_on_loopback(host) else "api.host"
    found = service.settings.find(name)
    why = "so every request needs a token, and there is none"
    if name == "api.host":
        why = "which other machines can reach, and without a token anybody there could run things"
    raise NotConfigured(
        f"{name} is {found.value} ({found.source}), {why}: make one with `steno token create --role read|submit|admin`"
        ", or listen on 127.0.0.1 with api.loopback = open"
    )


def warn_of_local(service: Service, host: str) -> None:
    """Say who else may run commands as this user: on `local` every token that may submit."""
    from engine.commands.tokens import Role
    from projections.api.access.hosts import listens_on_loopback

    if service.outside.provider != "local":
        return
    if service.tokens.usable(Role.SUBMIT) or not listens_on_loopback(host):
        kernels = "kernels too" if service.settings.value("kernel.unsafe_local") == "true" else "but no kernels"
        _log.warning(
            "the provider is local: whoever has a token of the role submit or admin runs commands as this user, "
            "not isolated (%s: kernel.unsafe_local)",
            kernels,
        )


def _warming_up(provider: str) -> threading.Thread:
    """Import meanwhile what the first submission needs."""
    thread = threading.Thread(target=_warm_up, args=(provider,), name="steno-warm-up", daemon=True)
    thread.start()
    return thread


def _warm_up(provider: str) -> None:
    from engine.providers import registry

    with suppress(ImportError):  # the first submission says what is missing
        registry.kind(provider).warm_up()
    # What is imported stays. Looking through it for garbage again and again stops every stream for a tenth of a second.
    gc.collect()
    gc.freeze()
