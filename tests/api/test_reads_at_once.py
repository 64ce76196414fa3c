"""The hot read in one piece, past ASGI: the same bytes, the same checks, counted and logged as every other answer."""

from __future__ import annotations

import gc
import socket
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from engine.commands.tokens import Issuer, Role
from engine.providers.readings import READINGS
from events.clock import RandomIds, SystemClock
from events.store.record import Record
from projections.api.access.authentication import Authentication
from projections.api.access.middleware import AccessMiddleware

if TYPE_CHECKING:
    from pathlib import Path

    import httpx
    from conftest import Serve


class Line:
    """One connection, and the answers that come on it in turn."""

    def __init__(self, one: socket.socket) -> None:
        self._socket = one
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


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths that were answered in one piece."""
    paths: list[str] = []
    real = AccessMiddleware._answer_at_once

    def seen(gate: AccessMiddleware, scope: Any) -> bool:
        paths.append(scope["path"])  # before the answer goes out, as a test counts when it has it
        done = real(gate, scope)
        if not done:
            paths.pop()
        return done

    monkeypatch.setattr(AccessMiddleware, "_answer_at_once", seen)
    return paths


def warm(client: httpx.Client, at_once: list[str]) -> list[str]:
    """The paths of all runs, once the service answers them in one piece."""
    paths = [f"/api/runs/{run['run_id']}" for run in client.get("/api/runs").json()["runs"]]
    end = time.monotonic() + 600
    while not at_once:
        assert client.get(paths[0]).status_code == 200
        assert time.monotonic() < end
        time.sleep(0.01)
    at_once.clear()
    return paths


def test_an_answer_in_one_piece_is_the_one_that_is_sent_otherwise(
    served: Serve, town: Path, at_once: list[str]
) -> None:
    """Byte for byte, with a tag and without one; a connection that is to be closed is answered the long way."""
    here = served(town)
    (path, *_), host = warm(here.client, at_once), f"Host: 127.0.0.1:{here.server.port}"
    tag = here.client.get(path).headers["etag"]
    at_once.clear()
    for more in ("", f"\r\nIf-None-Match: {tag}", '\r\nIf-None-Match: "other", W/"another"'):
        with closing(socket.create_connection(("127.0.0.1", here.server.port), timeout=120)) as one:
            line = Line(one)
            line.send(f"GET {path} HTTP/1.1\r\n{host}{more}")
            lines, body = line.answer()
            assert at_once == [path]
            line.send(f"GET {path} HTTP/1.1\r\n{host}{more}\r\nConnection: close")
            assert line.answer() == ([*lines, b"connection: close"], body)
            assert at_once == [path]
            assert lines[0] == (b"HTTP/1.1 304 Not Modified" if tag in more else b"HTTP/1.1 200 OK")
            assert bool(body) is (tag not in more)
        at_once.clear()


def test_answers_come_in_the_order_of_the_questions(served: Serve, town: Path, at_once: list[str]) -> None:
    """Sent in one piece, with others between them that take the long way."""
    here = served(town)
    paths, host = warm(here.client, at_once), f"Host: 127.0.0.1:{here.server.port}"
    asked = [path for run in paths for path in (run, f"{run}/timeline", run, "/api/record", "/nothing", run)]
    right = {path: here.client.get(path).content for path in set(asked)}
    at_once.clear()
    with closing(socket.create_connection(("127.0.0.1", here.server.port), timeout=120)) as one:
        line = Line(one)
        line.send(*(f"GET {path} HTTP/1.1\r\n{host}" for path in asked))
        for path in asked:
            assert line.answer()[1] == right[path]
    assert at_once == [path for path in asked if path in paths]


def test_who_may_not_read_is_answered_nothing_at_once(served: Serve, town: Path, at_once: list[str]) -> None:
    """A wrong token, a proxy's header, another's name for this machine, a header sent twice; a token that holds is."""
    reader = token(town)
    here = served(town)
    (path, *_) = warm(here.client, at_once)
    for status, headers in (
        (401, [("Authorization", "Bearer steno_" + "A" * 43)]),
        (401, [("X-Forwarded-For", "198.51.100.7")]),
        (421, [("Host", "elsewhere.example")]),
        (400, [("Origin", "http://a.example"), ("Origin", "http://b.example")]),
    ):
        refused = here.client.get(path, headers=headers)
        assert (refused.status_code, refused.headers["content-type"]) == (status, "application/problem+json")
    assert at_once == []
    with_token = {"Authorization": f"Bearer {reader}", "X-Forwarded-For": "198.51.100.7"}
    assert here.client.get(path, headers=with_token).status_code == 200
    assert at_once == [path]


def test_what_is_answered_at_once_is_counted_and_logged(
    served: Serve, town: Path, at_once: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """As every other answer is."""
    with caplog.at_level("INFO", logger="steno.access"):
        here = served(town)
        (path, *_) = warm(here.client, at_once)
        before = requests(here.client)
        for _ in range(3):
            here.client.get(path)
        assert at_once == [path] * 3
        assert requests(here.client) == before + 3
        here.stop()
    told = [record.getMessage() for record in caplog.records if record.name == "steno.access"]
    assert sum(line.startswith(f"GET {path} 200 ") for line in told) >= 4


def test_a_request_that_is_over_is_let_go_of(served: Serve, town: Path, at_once: list[str]) -> None:
    """Without the garbage collector: what each request left behind would wait for a collection, which holds all up."""
    client = served(town).client
    (path, *_) = warm(client, at_once)
    gc.collect()
    gc.disable()
    try:
        for _ in range(50):
            client.get(path)
            client.get("/api/record")
        left = sum(isinstance(one, RequestResponseCycle) for one in gc.get_objects())
    finally:
        gc.enable()
    assert len(at_once) == 50
    assert left <= 5


def test_what_fails_on_the_way_is_told_by_the_long_way(
    served: Serve, town: Path, at_once: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error nobody thought of is a problem here too, and the connection goes on."""
    client = served(town).client
    (path, *_) = warm(client, at_once)
    right = client.get(path).content

    def broken(*_: object) -> None:
        raise RuntimeError("nobody thought of this")

    with monkeypatch.context() as patch:
        patch.setattr(Authentication, "local_caller", broken)
        failed = client.get(path)
    assert (failed.status_code, failed.headers["content-type"]) == (500, "application/problem+json")
    assert client.get(path).content == right


def requests(client: httpx.Client) -> int:
    """How many reads of one run the service counted."""
    (line,) = [
        line
        for line in client.get("/metrics").text.splitlines()
        if line.startswith("steno_http_requests_total{") and 'route="/api/runs/{id}"' in line and "200" in line
    ]
    return int(float(line.split()[-1]))


def token(record: Path) -> str:
    """A new token that may read."""
    clock = SystemClock()
    with Record.open(record, write=True, shapes=READINGS.shape, clock=clock) as opened:
        return Issuer(opened, clock, RandomIds()).create(role=Role.READ, name="reader", expires_at=None, by="tester")[1]
