"""The HTTP server: uvicorn in its own thread, on sockets that are bound before it starts."""

import asyncio
import contextlib
import errno
import logging
import os
import resource
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import uvicorn
import uvloop
from starlette.types import ASGIApp

from steno.engine.errors import Conflict, NotConfigured
from steno.projections.api.access.protocol import Protocol

SHUTDOWN_TIMEOUT: Final = 5  # seconds that requests in flight may still take once the server is told to stop
_BACKLOG: Final = 2048  # pending connections: 1,000 clients reconnect at once after a restart
_GLANCE: Final = 0.25  # seconds between looks at whether the server has ended
_FILES: Final = 65_536  # open files asked for, if that many are allowed
_POLICY: Final = (
    "default-src 'self'; img-src 'self' data:; style-src 'self'; script-src 'self'; connect-src 'self'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
)

SECURITY_HEADERS: Final[tuple[tuple[bytes, bytes], ...]] = (  # uvicorn adds them, to errors too
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), microphone=(), geolocation=()"),
)


class ServerFailed(RuntimeError):
    """The HTTP server ended by itself: a bug in Steno."""


def bound(host: str, port: int) -> tuple[socket.socket, ...]:
    """Listening sockets at every address of `host` on this machine, with one shared port, also if `port` is 0. One
    usable address is enough: `localhost` may name an IPv6 address that a container lacks. Raises `Conflict` (port in
    use) or `NotConfigured` (no such address, or not allowed to listen there).
    """
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise NotConfigured(f"api.host is {host}, which names no address ({error.strerror}): give another") from None
    sockets: list[socket.socket] = []
    refused: NotConfigured | None = None
    with contextlib.ExitStack() as stack:
        for family, address in dict.fromkeys((entry[0], entry[4]) for entry in addresses):
            at = (address[0], sockets[0].getsockname()[1], *address[2:]) if sockets else address
            try:
                sockets.append(stack.enter_context(_bound(family, at, host)))
            except NotConfigured as error:
                refused = error
        if refused is not None and not sockets:
            raise refused
        stack.pop_all()
    return tuple(sockets)


def allow_many_connections() -> None:
    """Raise the limit of open files as far as the system allows: each client needs one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, _FILES)), hard))


def _bound(family: int, address: tuple[Any, ...], host: str) -> socket.socket:
    try:
        return socket.create_server(address, family=family, backlog=_BACKLOG)
    except OSError as error:
        where, why = f"port {address[1]}", os.strerror(error.errno or 0).lower()
        if error.errno == errno.EADDRINUSE:
            detail = f"{where} of {host} is in use: stop what listens there, or choose another with --port"
            raise Conflict(detail) from None
        raise NotConfigured(
            f"cannot listen at {host}, {where} ({why}): choose another with --host and --port"
        ) from None


class Server:
    """An ASGI application on `sockets`. In the server's loop, it calls `starting` before the first connection is
    accepted and `stopping` once no more are accepted, to end streams.
    """

    def __init__(
        self,
        app: ASGIApp,
        sockets: Sequence[socket.socket],
        *,
        starting: Callable[[asyncio.AbstractEventLoop], None] = lambda _loop: None,
        stopping: Callable[[], None] = lambda: None,
    ) -> None:
        address, self.port = sockets[0].getsockname()[:2]
        self.url = f"http://{_bracketed(address)}:{self.port}"  # where it listens
        here = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address, address)  # noqa: S104 - nothing is bound here
        self.url_here = f"http://{_bracketed(here)}:{self.port}"  # the URL on this machine
        self._sockets = list(sockets)
        config = uvicorn.Config(
            app,
            http=Protocol,
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            headers=[(name.decode(), value.decode()) for name, value in SECURITY_HEADERS],
            proxy_headers=False,
            backlog=_BACKLOG,
            timeout_graceful_shutdown=SHUTDOWN_TIMEOUT,
        )
        logging.getLogger("uvicorn.error").addFilter(_reworded)
        self._uvicorn = _Uvicorn(config)
        self._uvicorn.starting, self._uvicorn.stopping = starting, stopping
        self._thread = threading.Thread(target=self._run, name="steno-http", daemon=True)
        self._over = False  # its thread has ended
        self._failure: BaseException | None = None
        self._told = False  # `stop` was called

    def start(self) -> None:
        """Serve in a thread; returns when connections are accepted, or raises `ServerFailed`."""
        self._thread.start()
        self._uvicorn.ready.wait()
        self.check()

    def check(self) -> None:
        """Raise `ServerFailed` if the server ended by itself."""
        if self._failure is not None:
            why = f"{type(self._failure).__name__}: {self._failure}"
            raise ServerFailed(f"the HTTP server ended: {why}") from self._failure
        if self._over and not self._told:
            raise ServerFailed("the HTTP server ended by itself, without a word")

    def wait(self) -> None:
        """Wait for the end; a signal's exception passes through. Raises `ServerFailed` if it ended by itself."""
        # Without locks: a signal just before a thread sleeps in one does not wake it; inside Python's code for one, its
        # exception leaves the lock held, and the server cannot end.
        while not self._over:
            time.sleep(_GLANCE)
        self.check()

    def stop(self) -> None:
        """Stop accepting, give open requests `SHUTDOWN_TIMEOUT` seconds, and end; idempotent."""
        self._told = True
        self._uvicorn.should_exit = True
        if self._thread.ident is not None:
            self._thread.join()
        for listening in self._sockets:
            listening.close()

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._uvicorn.serve(sockets=self._sockets))
        except BaseException as error:  # noqa: BLE001 - raised by `check`
            self._failure = error
        finally:
            self._over = True
            self._uvicorn.ready.set()


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def _reworded(record: logging.LogRecord) -> bool:
    """Reword uvicorn's message about requests that are cut off at shutdown: not an error."""
    if str(record.msg).startswith("Cancel %s running task"):
        record.levelno, record.levelname = logging.WARNING, "WARNING"
        record.msg = f"%s requests did not end within {SHUTDOWN_TIMEOUT} s and are cut off"
    return True


class _Uvicorn(uvicorn.Server):
    """uvicorn with callbacks before the first connection and before it waits for the last."""

    starting: Callable[[asyncio.AbstractEventLoop], None]
    stopping: Callable[[], None]
    _ending = False

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = threading.Event()

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().serve(sockets)
        except Exception:
            if not self._ending:  # what fails ends in order too: streams, requests under way, what was begun with it
                await self.shutdown(sockets)
            raise

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self.starting(asyncio.get_running_loop())
        await super().startup(sockets)
        self.ready.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._ending = True
        self.stopping()
        if self.started:
            await super().shutdown(sockets)
