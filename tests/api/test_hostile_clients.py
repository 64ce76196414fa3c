"""Clients that misuse a connection: they smuggle, flood, stall or leave; others are served as before."""

from __future__ import annotations

import select
import socket
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

import pytest
from stenotest.waiting import LIMIT_S, wait

from steno.engine.providers.registry import READINGS
from steno.events.clock import SystemClock
from steno.events.store.record import Record
from steno.projections.api.access import protocol
from steno.projections.api.feed import listener

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Serve, Served

HOST = b"Host: localhost\r\n"
GET = b"GET /healthz HTTP/1.1\r\n" + HOST + b"\r\n"
POST = b"POST /api/runs HTTP/1.1\r\n" + HOST + b"Content-Type: application/json\r\n"


def connected(service: Served) -> socket.socket:
    """A connection."""
    return socket.create_connection(("127.0.0.1", service.server.port), timeout=LIMIT_S)


def rest(client: socket.socket) -> bytes:
    """All that still comes until the service closes the connection."""
    pieces = b""
    try:
        while piece := client.recv(1 << 16):
            pieces += piece
    except ConnectionResetError:
        pass
    return pieces


def answers(service: Served, *pieces: bytes) -> list[int]:
    """The statuses of all answers to raw bytes, on a connection that the service closes."""
    with closing(connected(service)) as client:
        for piece in pieces:
            client.sendall(piece)
        return statuses(rest(client))


def statuses(come: bytes) -> list[int]:
    """The statuses of answers."""
    return [int(head[:3]) for head in come.split(b"HTTP/1.1 ")[1:]]


def runs(service: Served) -> int:
    """How many runs were ever asked for."""
    with Record.open(service.record, shapes=READINGS.shape, clock=SystemClock()) as record:
        return sum(1 for _ in record.read(types=frozenset({"RunRequested"})))


# -- what a request is


@pytest.mark.parametrize(
    "target", [b"http://localhost/api/runs", b"http://evil.example/api/runs", b"*", b"/api/runs#x", b"evil.example:80"]
)
def test_a_request_line_holds_a_path(here: Served, target: bytes) -> None:
    """An absolute target names a second host beside `Host`; a fragment is never sent."""
    for method in (b"GET ", b"OPTIONS "):
        assert answers(here, method + target + b" HTTP/1.1\r\n" + HOST + b"\r\n") == [400]


@pytest.mark.parametrize("version", [b"2.0", b"0.9", b"1.2", b"3.0"])
def test_a_request_is_http_1_0_or_1_1(here: Served, version: bytes) -> None:
    """Other versions are framed in other ways."""
    assert answers(here, b"GET /healthz HTTP/" + version + b"\r\n" + HOST + b"\r\n") == [400]


@pytest.mark.parametrize("coding", [b"gzip, chunked", b"chunked, chunked", b"identity, chunked", b"Chunked, chunked"])
def test_a_body_has_no_other_coding_than_chunked(here: Served, coding: bytes) -> None:
    """A proxy that decodes it would see another body."""
    head = POST + b"Transfer-Encoding: " + coding + b"\r\nConnection: close\r\n\r\n"
    assert answers(here, head + b"2\r\n{}\r\n0\r\n\r\n")[0] in {400, 501}


def test_a_trailer_is_not_a_header(here: Served) -> None:
    """A proxy that removes headers does not see it; the same trailer twice is not the same key."""
    body = b'{"configuration": {"type": "task", "commands": ["true"]}}'
    request = POST + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    request += b"%x\r\n%b\r\n0\r\nIdempotency-Key: 1\r\n\r\n" % (len(body), body)
    before = runs(here)
    assert [answers(here, request), answers(here, request)] == [[202], [202]]
    assert runs(here) == before + 2


@pytest.mark.parametrize("unit", [b"X: a\r\n", b"a"], ids=["many", "one long"])
@pytest.mark.parametrize("chunks", [b"2\r\n{}\r\n0\r\nX: ", b"2;"], ids=["trailers", "extension"])
def test_what_surrounds_a_body_is_bounded(here: Served, chunks: bytes, unit: bytes) -> None:
    """Trailers and chunk extensions without an end are refused before they take memory."""
    with closing(connected(here)) as client:
        client.sendall(POST + b"Transfer-Encoding: chunked\r\n\r\n" + chunks)
        sent, piece = 0, unit * (8192 // len(unit))
        try:
            while sent < 64 << 20:
                sent += client.send(piece)
        except OSError:
            pass
    assert sent < 64 << 20


def test_an_upgrade_is_not_taken_and_ends_the_connection(here: Served) -> None:
    """Bytes that follow may be another protocol: they are not read as requests."""
    upgrade = GET[:-2] + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    assert answers(here, upgrade + GET) == [200]
    assert answers(here, POST + b"Connection: upgrade\r\nUpgrade: h2c\r\nContent-Length: 2\r\n\r\n{}" + GET) == [422]


# -- many requests on one connection


@pytest.mark.parametrize(
    "bad", [b"BAD\r\n\r\n", b"GET / HTTP/1.1\r\nHost : x\r\n\r\n", POST + b"Content-Length: x\r\n\r\n"]
)
def test_a_malformed_request_does_not_swallow_the_ones_before_it(here: Served, bad: bytes) -> None:
    """Each is answered as itself: a 400 in their place would say that a run was not accepted."""
    body = b'{"configuration": {"type": "task", "commands": ["true"]}}'
    before = runs(here)
    assert answers(here, POST + b"Content-Length: %d\r\n\r\n" % len(body) + body + bad) == [202, 400]
    assert runs(here) == before + 1
    assert answers(here, GET * 3 + bad) == [200] * 3 + [400]


def test_a_broken_body_behind_other_requests_is_not_answered_in_their_place(here: Served) -> None:
    """The requests before it are answered, and it is not acted on."""
    before = runs(here)
    broken = (
        POST
        + b"Transfer-Encoding: chunked\r\n\r\n3c\r\n"
        + b'{"configuration": {"type": "task", "commands": ["true"]}}   \r\nzz\r\n'
    )
    assert answers(here, GET * 2 + broken) == [200] * 2 + [400]
    assert runs(here) == before


def test_requests_that_wait_on_a_connection_are_bounded(here: Served) -> None:
    """`WAITING` of them are answered, in order; then the connection ends and its client asks the rest again."""
    with closing(connected(here)) as client:
        client.sendall(GET * 1500)
        codes = statuses(rest(client))
    assert codes == [200] * len(codes)
    assert 0 < len(codes) <= 2 * protocol.WAITING


def test_many_requests_in_one_piece_are_each_within_their_bounds(here: Served) -> None:
    """The bound of a head does not count what came before it."""
    long = GET[:-2] + b"X-Long: " + b"x" * 20_000 + b"\r\n\r\n"
    whole = long * 6 + GET[:-2] + b"Connection: close\r\n\r\n"
    assert answers(here, whole[:100_000], whole[100_000:]) == [200] * 7


# -- clients that do not read, or leave


def test_a_stream_with_a_request_behind_it_ends_with_its_client(
    here: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The stream is told that its client has gone, as if nothing waited behind it; nothing is logged as an error."""
    monkeypatch.setattr(listener, "HEARTBEAT", 0.3)
    with closing(connected(here)) as client:
        client.sendall(b"GET /api/stream HTTP/1.1\r\n" + HOST + b"\r\n")
        assert client.recv(1 << 16).startswith(b"HTTP/1.1 200")
        client.sendall(GET)
        until(here, "steno_stream_clients 1.0")
    until(here, "steno_stream_clients 0.0")
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


def test_who_does_not_read_an_answer_is_cut_off(here: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the answer is, not streams alone."""
    monkeypatch.setattr(protocol, "WRITE_SECONDS", 0.3)
    with closing(socket.socket()) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", here.server.port))
        client.sendall((b"GET /openapi.json HTTP/1.1\r\n" + HOST + b"\r\n") * 90)
        ended = select.poll()
        ended.register(client, select.POLLHUP | select.POLLERR)
        assert ended.poll(LIMIT_S * 1000)


def test_connections_are_bounded(served: Serve, town: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection too many is told to come back; the recorder keeps the files it needs. Who left makes room."""
    service = served(town)
    monkeypatch.setattr(protocol, "most_connections", lambda: 8)
    with ExitStack() as stack:
        for _ in range(8):
            stack.enter_context(closing(connected(service)))
        with closing(connected(service)) as one_too_many:
            come = rest(one_too_many)
        assert statuses(come) == [503]
        assert b"retry-after: " in come.lower()
    wait(lambda: not service.server._uvicorn.server_state.connections)
    assert service.client.get("/healthz").status_code == 200


@pytest.mark.long
def test_two_thousand_streams_keep_nobody_from_an_answer(here: Served) -> None:
    """Half of them do not read. The others get every event, and who asks something else is answered."""
    with ExitStack() as stack:
        streams = [stack.enter_context(closing(connected(here))) for _ in range(2000)]
        for stream in streams:
            stream.sendall(b"GET /api/stream HTTP/1.1\r\n" + HOST + b"\r\n")
        until(here, "steno_stream_clients 2000.0")
        positions = []
        for _ in range(10):
            made = here.client.post("/api/runs", json={"configuration": {"type": "task", "commands": ["true"]}})
            positions.append(made.json()["position"])
            assert here.client.get("/api/runs", params={"min_position": positions[-1]}).status_code == 200
        for stream in streams[::2]:
            come = b""
            while b"id: %d-" % positions[-1] not in come:
                come += stream.recv(1 << 16)
            assert [number for number in positions if b"id: %d-" % number not in come] == []
    until(here, "steno_stream_clients 0.0")


def until(service: Served, line: str) -> None:
    """Wait until the metrics have that line."""
    wait(lambda: line in service.client.get("/metrics").text.splitlines())
