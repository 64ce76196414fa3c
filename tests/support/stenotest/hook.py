"""A webhook on this machine that takes, refuses, redirects, hangs or hangs up, for tests of what is told."""

import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Literal, Self

Conduct = int | Literal["hang", "close"]
"""The status it answers, or what it does instead."""


_PATIENCE = 600.0
"""Seconds for what no test waits for."""


class Hook:
    """Gives these answers in turn, then 200. `taken` has (headers, body) of every request that came.

    It listens inside its `with` block, at `url`; a redirect leads to `elsewhere`, at the same server.
    """

    def __init__(self, answers: list[Conduct] | None = None) -> None:
        self.answers: list[Conduct] = answers if answers is not None else []
        self.taken: list[tuple[dict[str, str], bytes]] = []
        self.paths: list[str] = []
        """Of every request that came."""
        self.elsewhere = 0
        """How many requests came to where a redirect leads."""
        self.free = threading.Event()
        """Set: what hangs goes on."""

    def __enter__(self) -> Self:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = False  # so that closing waits for them: none outlives the block
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.free.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        """Its address, which is a key to itself."""
        return f"http://127.0.0.1:{self._server.server_port}/services/T0/secret-path"


def _handler(hook: Hook) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = _PATIENCE  # of a client that was killed and whose request never comes

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.path == "/elsewhere":
                hook.elsewhere += 1
            answer = hook.answers.pop(0) if hook.answers else 200
            hook.taken.append((dict(self.headers), body))
            hook.paths.append(self.path)
            if answer == "hang":
                hook.free.wait(_PATIENCE)
                return
            if answer == "close":
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            self.send_response(answer)
            if 300 <= answer < 400:
                self.send_header("Location", "/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    return Handler
