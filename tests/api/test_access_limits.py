"""Limits of a request: form, size, duration and rate."""

from __future__ import annotations

import json
import socket
import time
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

import pytest
from stenotest.service import RUN
from stenotest.waiting import LIMIT_S

from steno.events.clock import SECOND
from steno.projections.api.access import limits, protocol
from steno.projections.api.access.limits import RateLimit

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Serve, Served


def asked(service: Served, *pieces: bytes, pause: float = 0.0) -> tuple[int, dict[str, object]]:
    """Status and problem of the answer to raw bytes, sent piece by piece; the connection must be closed after it."""
    with closing(socket.create_connection(("127.0.0.1", service.server.port), timeout=LIMIT_S)) as client:
        for piece in pieces:
            try:
                client.sendall(piece)
            except OSError:  # answered and closed before all of it was sent
                break
            time.sleep(pause)
        answer = b""
        try:
            while piece := client.recv(65536):
                answer += piece
        except ConnectionResetError:
            pass
    head, _, rest = answer.partition(b"\r\n\r\n")
    assert b"application/problem+json" in head, answer
    return int(head.split()[1]), json.loads(rest)


def post(length: str, *more: str) -> bytes:
    """The head of a submission."""
    lines = ["POST /api/runs HTTP/1.1", "Host: localhost", "Content-Type: application/json", "Connection: close", *more]
    return "\r\n".join(
        [*lines, f"Content-Length: {length}" if length else "Transfer-Encoding: chunked", "", ""]
    ).encode()


def test_a_body_may_have_a_mebibyte(here: Served) -> None:
    """To the byte; the field is `body`."""
    whole = json.dumps(RUN).encode()
    fits = whole + b" " * (limits.MAX_BODY - len(whole))
    assert here.client.post("/api/runs", content=fits, headers={"Content-Type": "application/json"}).status_code == 202
    answer = here.client.post("/api/runs", content=fits + b" ")
    assert answer.status_code == 413
    assert answer.json()["field"] == "body"


@pytest.mark.parametrize("length", ["5000", ""])
def test_a_body_of_somebody_unknown_is_short(here: Served, length: str) -> None:
    """Logging in takes a token's length; thousands of connections with a mebibyte each would take all memory."""
    head = post(length).replace(b"/api/runs", b"/api/session")
    status, body = asked(here, head, b"1388\r\n" * (not length) + b" " * 5000)
    assert (status, body["field"]) == (413, "body")
    assert "4096" in str(body["detail"])


def test_a_body_that_is_announced_too_large_is_not_read(here: Served) -> None:
    """The answer comes at once."""
    assert asked(here, post("9999999999999"))[0] in {400, 413}
    status, body = asked(here, post(str(limits.MAX_BODY + 1)))
    assert (status, body["field"]) == (413, "body")


def test_a_body_without_a_length_is_counted(here: Served) -> None:
    """Chunk by chunk, and refused as soon as it is too much."""
    chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    status, body = asked(here, post(""), *[chunk] * 17)
    assert (status, body["field"]) == (413, "body")


@pytest.mark.parametrize("length", ["-1", "1x", "+5", "0x10", "1, 2", "٣"])
def test_a_length_that_is_none_is_no_request(here: Served, length: str) -> None:
    """Two readers of it must not see two bodies."""
    head = post("1").replace(b"Content-Length: 1", b"Content-Length: " + length.encode())
    assert asked(here, head, b"{}")[0] == 400


@pytest.mark.parametrize(
    "more", ["Content-Length: 5", "Transfer-Encoding: chunked", "Transfer-Encoding: chunked, identity"]
)
def test_two_lengths_are_no_request(here: Served, more: str) -> None:
    """Request smuggling begins there."""
    assert asked(here, post("2", more), b"{}\r\n")[0] == 400


@pytest.mark.slow
def test_a_body_that_does_not_come_is_waited_for_so_long(here: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """408, however often another byte comes."""
    monkeypatch.setattr(limits, "BODY_SECONDS", 1)
    status, body = asked(here, post("1000"), *[b" "] * 4, pause=0.4)
    assert (status, body["field"]) == (408, "body")
    assert "over 1 seconds" in str(body["detail"])


@pytest.mark.slow
def test_a_head_that_does_not_come_is_waited_for_so_long(here: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """408 once something was sent; a connection on which nothing is sent is only closed."""
    monkeypatch.setattr(protocol, "HEAD_SECONDS", 1)
    assert asked(here, b"GET /api/runs HTTP/1.1\r\n", b"Host: l", b"ocalhost\r\n", b"X", pause=0.4)[0] == 408
    with closing(socket.create_connection(("127.0.0.1", here.server.port), timeout=LIMIT_S)) as client:
        assert client.recv(1) == b""


def test_a_kept_connection_may_rest_between_requests(here: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time for a head begins with its first byte."""
    request = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with closing(socket.create_connection(("127.0.0.1", here.server.port), timeout=LIMIT_S)) as client:
        for _ in range(2):
            client.sendall(request)
            answer = b""
            while not answer.endswith(b'{"status":"ok"}'):
                piece = client.recv(65536)
                assert piece, answer
                answer += piece
            assert answer.startswith(b"HTTP/1.1 200")
            monkeypatch.setattr(protocol, "HEAD_SECONDS", 0.2)  # the connection's own first head had ten seconds
            time.sleep(0.5)


@pytest.mark.parametrize("size", [40_000, 200_000, 3_000_000])
def test_headers_have_a_limit(here: Served, size: int) -> None:
    """In one or in pieces; memory does not grow with what a stranger sends."""
    head = b"GET /api/runs HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX-Long: " + b"x" * size + b"\r\n\r\n"
    assert asked(here, head)[0] == 431


def test_the_number_of_headers_has_a_limit_too(here: Served) -> None:
    """A hundred."""
    head = "GET /api/runs HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    assert asked(here, (head + "".join(f"X-{n}: 1\r\n" for n in range(120)) + "\r\n").encode())[0] == 431


@pytest.mark.parametrize("target", ["/" + "a" * 9000, "/api/runs?name=" + "a" * 9000])
def test_an_address_has_a_limit(here: Served, target: str) -> None:
    """414."""
    answer = here.client.get(target)
    assert answer.status_code == 414
    assert answer.json()["field"] == "path"


@pytest.mark.parametrize(
    "target",
    [
        "//api/runs", "/api//runs", "/api/../api/runs", "/api/./runs", "/api/runs/..", "/assets/../../etc/passwd",
        "/api%2fruns", "/assets/%2e%2e/%2e%2e/etc/passwd", "/assets/..%2f..%2fetc%2fpasswd", "/api/runs/a%00b",
        "/api/runs/a%0d%0aX: y", "/api\\runs", "/api%5cruns", "/api/runs/%ff", "/api/runs/%c0%ae", "/%",
        "/api/runs/%e2%80%ae",
    ],
)  # fmt: skip
def test_a_path_has_one_spelling(here: Served, target: str) -> None:
    """A path that stands for another, or hides something, is looked up nowhere."""
    request = f"GET {target.replace(' ', '%20')} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
    status, body = asked(here, request)
    assert status in {400, 404}
    if status == 400:
        assert body.get("field") in {"path", None}


@pytest.mark.parametrize("name", ["token", "access_token", "api_key", "Token", "%74oken", "to%6ben"])
@pytest.mark.parametrize("target", ["/api/runs", "/", "/healthz", "/api/stream"])
def test_a_token_in_an_address_is_refused(here: Served, name: str, target: str) -> None:
    """However it is spelled, and wherever: addresses end in histories and logs."""
    answer = here.client.get(f"{target}?limit=1&{name}=steno_0123456789ab_secret")
    assert answer.status_code == 400
    assert answer.json()["field"].lower() in {"token", "access_token", "api_key"}
    assert "Authorization" in answer.json()["detail"]
    assert "secret" not in answer.text


@pytest.mark.parametrize("text", [b"\xff{}", b'{"a": "\xc3"}', b"\xef\xbb\xbf\xff", b'{"configuration": "\x80"}'])
def test_a_body_is_utf_8(here: Served, text: bytes) -> None:
    """400, and the byte."""
    answer = here.client.post("/api/runs", content=text)
    assert answer.status_code == 400
    assert answer.json()["field"] == "body"
    assert "UTF-8" in answer.json()["detail"]


@pytest.mark.parametrize(
    "text",
    [b"[" * 100_000, b'{"a":' * 5000 + b"1" + b"}" * 5000, b"[" * 500 + b"]" * 500],
    ids=["arrays", "objects", "closed"],
)
def test_a_body_nests_only_so_deep(here: Served, text: bytes) -> None:
    """Before anything that recurses sees it."""
    answer = here.client.post("/api/runs", content=text)
    assert answer.status_code == 400
    assert answer.json()["field"] == "body"


@pytest.mark.parametrize(
    "injected", ["%0d%0aSet-Cookie:%20x=y", "%0aLocation:%20http://evil.example", "%e5%98%8a%e5%98%8dX:%20y"]
)
def test_nothing_that_was_sent_becomes_a_header(here: Served, injected: str) -> None:
    """Whatever an answer repeats of a request."""
    for target in (f"/api/runs/{injected}", f"/api/runs?name={injected}", f"/{injected}", f"/runs/{injected}"):
        answer = here.client.get(target)
        assert answer.status_code < 500
        assert not {"set-cookie", "location", "x"} & answer.headers.keys()
        assert "evil" not in str(answer.headers)


def test_one_caller_asks_for_so_many_runs(served: Serve, town: Path) -> None:
    """429 with the time to wait; stops and reads go on."""
    here = served(town, api__submit_rate="3/h")
    statuses = [here.client.post("/api/runs", json=RUN).status_code for _ in range(4)]
    assert statuses == [202, 202, 202, 429]
    answer = here.client.post("/api/amd/submit", json={})
    assert answer.status_code == 429
    assert 0 < int(answer.headers["retry-after"]) <= 1200
    assert here.client.get("/api/runs").status_code == 200
    assert here.client.post("/api/runs/none/stop", json={}).status_code == 404


@pytest.mark.parametrize("coding", ["gzip", "x-unknown", "identity, br"])
def test_an_encoded_body_is_refused_before_it_is_read(here: Served, coding: str) -> None:
    """Read as plain JSON it would be another request than its sender's."""
    status, body = asked(here, post("2", f"Content-Encoding: {coding}") + b"{}")
    assert (status, body["field"]) == (415, "Content-Encoding")


def test_a_plain_body_may_say_so(here: Served) -> None:
    """`identity` means none."""
    assert asked(here, post("2", "Content-Encoding: Identity") + b"{}")[0] == 422


def test_a_submission_counts_once_its_body_is_there(served: Serve, town: Path) -> None:
    """Heads without a body use up no rate."""
    here = served(town, api__submit_rate="3/h")
    with ExitStack() as stack:
        for _ in range(4):
            client = stack.enter_context(
                closing(socket.create_connection(("127.0.0.1", here.server.port), timeout=LIMIT_S))
            )
            client.sendall(post("100", "Expect: 100-continue"))
            assert client.recv(65536).startswith(b"HTTP/1.1 100"), "the service now waits for the body"
            client.sendall(b"{")
        assert here.client.post("/api/runs", json=RUN).status_code == 202


def test_without_a_rate_everybody_may_ask_as_often_as_they_like(served: Serve, town: Path) -> None:
    """`off`."""
    here = served(town, api__submit_rate="off")
    assert {here.client.post("/api/runs", json=RUN).status_code for _ in range(40)} == {202}


def test_allowances_come_back_with_time() -> None:
    """A token every third of a minute of 3 a minute; never more than three at once; each caller has its own."""
    rate, minute = RateLimit(3, 60 * SECOND), 60 * SECOND
    assert [rate.take("a", 0) for _ in range(3)] == [0, 0, 0]
    assert rate.take("a", 0) == minute // 3
    assert rate.take("b", 0) == 0
    assert rate.take("a", minute // 3 - SECOND) == SECOND
    assert rate.take("a", minute // 3) == 0
    assert rate.take("a", minute // 3) > 0
    assert [rate.take("a", 10 * minute) for _ in range(4)][:3] == [0, 0, 0]
    assert rate.take("a", 10 * minute) > 0
    assert rate.take("a", 9 * minute) > 0, "a clock that steps back gives nothing away"


def test_callers_without_number_cost_no_memory() -> None:
    """The caller who asked longest ago is forgotten."""
    rate = RateLimit(1, SECOND)
    for number in range(5000):
        rate.take(str(number), 0)
    assert len(rate._spent) <= 1000
