"""The main thread waits for the HTTP server, and a signal wakes it whenever it comes."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from steno.engine.runtime.signals import stoppable
from steno.projections.api.server import Server, bound

TRIES = 2000
LOST = 10.0  # seconds after which a signal counts as lost


class Stop(Exception):
    """Raised by the signal."""


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Starts and ends."""
    while scope["type"] == "lifespan":
        kind = (await receive())["type"]
        await send({"type": f"{kind}.complete"})
        if kind == "lifespan.shutdown":
            return


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr("steno.projections.api.server._GLANCE", 0.01)  # what a lost signal costs here
    made = Server(app, bound("127.0.0.1", 0))
    made.start()
    yield made
    made.stop()


@pytest.mark.slow
def test_no_signal_is_lost_on_the_way_into_the_wait(server: Server) -> None:
    """A signal just before a thread sleeps in a lock does not wake it, as CPython looked for signals before; and
    a signal in the lock's own code must not leave it held, or the server never ends. Here it comes at any time in
    the first 60 µs; a second one frees a thread that missed the first.
    """
    main, missed = threading.main_thread().ident or 0, []
    for number in range(TRIES):
        go, woken = threading.Lock(), threading.Event()
        go.acquire()

        def send(go: threading.Lock = go, woken: threading.Event = woken, after: float = number % 60 * 1e-6) -> None:
            go.acquire()
            end = time.perf_counter() + after
            while time.perf_counter() < end:
                pass
            signal.pthread_kill(main, signal.SIGUSR1)
            if not woken.wait(LOST):
                missed.append(after)
                signal.pthread_kill(main, signal.SIGUSR1)

        sender = threading.Thread(target=send)
        sender.start()
        with suppress(Stop), stoppable(signal.SIGUSR1, Stop) as check:
            try:
                go.release()
                server.wait()
            finally:
                woken.set()
                sender.join()
                check()
        assert not missed
