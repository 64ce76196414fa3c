"""Several requests on one connection, sent without waiting for answers."""

from __future__ import annotations

import gc
import socket
from contextlib import closing
from typing import TYPE_CHECKING

from stenotest.waiting import LIMIT_S
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Serve


class Line:
    """A connection, and the answers that come on it in turn."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._come = b""

    def send(self, *requests: str) -> None:
        """Send them in one piece."""
        self._socket.sendall("".join(f"{request}\r\n\r\n" for request in requests).encode())

    def answer(self) -> tuple[list[bytes], bytes]:
        """The lines of the next answer's head, without its date, and its body."""
        while b"\r\n\r\n" not in self._come:
            self._more()
        head, _, self._come = self._come.partition(b"\r\n\r\n")
        lines = [line for line in head.split(b"\r\n") if not line.startswith(b"date: ")]
        length = next((int(line[16:]) for line in lines if line.startswith(b"content-length: ")), 0)
        while len(self._come) < length:
            self._more()
        body, self._come = self._come[:length], self._come[length:]
        return lines, body

    def _more(self) -> None:
        come = self._socket.recv(1 << 16)
        assert come, "the connection was closed"
        self._come += come


def test_answers_come_in_the_order_of_the_requests(served: Serve, town: Path) -> None:
    """Sent in one piece; reads of a run have others between them that take longer."""
    here = served(town)
    paths = [f"/api/runs/{run['run_id']}" for run in here.client.get("/api/runs").json()["runs"]]
    order = [path for run in paths for path in (run, f"{run}/timeline", run, "/api/record", "/nothing", run)]
    right = {path: here.client.get(path).content for path in set(order)}
    with closing(socket.create_connection(("127.0.0.1", here.server.port), timeout=LIMIT_S)) as connection:
        line = Line(connection)
        line.send(*(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{here.server.port}" for path in order))
        for path in order:
            assert line.answer()[1] == right[path]


def test_a_request_that_is_over_is_freed(served: Serve, town: Path) -> None:
    """Without the garbage collector: what each request left behind would wait for a collection, which stops all."""
    client = served(town).client
    path = f"/api/runs/{client.get('/api/runs').json()['runs'][0]['run_id']}"
    gc.collect()
    gc.disable()
    try:
        for _ in range(50):
            client.get(path)
            client.get("/api/record")
        left = sum(isinstance(thing, RequestResponseCycle) for thing in gc.get_objects())
    finally:
        gc.enable()
    assert left <= 5
