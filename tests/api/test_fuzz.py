"""Whatever a stranger sends: an answer below 500, a problem that names what is wrong, and a service that goes on.

Raw sockets, because a decent client refuses to send most of this.
"""

from __future__ import annotations

import json
import re
import socket
import time
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from steno.projections.app import PARTS

if TYPE_CHECKING:
    from conftest import Served

LONG = 1
"""Times as many examples; twenty times as many in `test_all_of_it_for_longer`."""
SECONDS = 6.0
"""Time of one law; on a slow machine fewer examples are tried."""
IDS = ("lab-task", "none", "0d9f7a00-7b3c-4a1d-9a3e-57e000000003")
OPERATIONS = tuple(operation for part in PARTS for operation in part.OPERATIONS)
READS = (
    *(read.path for read in OPERATIONS if read.method == "GET"),
    "/openapi.json",
    "/",
    "/runs",
    "/runs/{id}",
    "/assets/{id}",
)
COMMANDS = ("/api/runs", "/api/runs/{id}/stop", "/api/vms/{id}/stop", "/api/amd/submit", "/api/session")
ELSEWHERE = ("/readyz", "/api/runs/{id}/logs")
"""Routes that may fail: they need a provider that nobody here is configured for."""
PARAMETERS = {
    read.path: tuple(parameter["name"] for parameter in read.parameters if parameter["in"] == "query")
    for read in OPERATIONS
    if read.method == "GET"
}
"""The query parameters of each route."""


@dataclass
class Answer:
    """An answer as it came."""

    status: int
    headers: dict[str, str]
    body: bytes


def sent(here: Served, request: bytes, *, wait: float = 10.0) -> Answer | None:
    """The answer to raw bytes; of a stream, its head. None: the connection was closed without one."""
    with closing(socket.create_connection(("127.0.0.1", here.server.port), timeout=wait)) as client:
        data = b""
        with suppress(ConnectionError, TimeoutError):
            client.sendall(request)
        with suppress(ConnectionError, TimeoutError):
            while b"\r\n\r\n" not in data and (piece := client.recv(65536)):
                data = (data + piece).removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n")
            if not data:
                return None
            head, _, body = data.partition(b"\r\n\r\n")
            headers = read_head(head)
            length = int(headers.get("content-length", "0"))
            while len(body) < length and (piece := client.recv(65536)):
                body += piece
            return Answer(int(head.split()[1]), headers, body[:length])
    return None


def read_head(head: bytes) -> dict[str, str]:
    """Headers by name."""
    pairs = (line.partition(b":") for line in head.split(b"\r\n")[1:])
    return {name.decode("latin-1").lower(): value.strip().decode("latin-1") for name, _, value in pairs}


def request(method: str, target: str, headers: dict[str, bytes], body: bytes = b"") -> bytes:
    """Raw bytes of a request that says where it ends."""
    lines = [f"{method} {target} HTTP/1.1".encode("utf-8", "surrogatepass"), b"Host: localhost", b"Connection: close"]
    lines += [name.encode() + b": " + value for name, value in headers.items()]
    if method not in {"GET", "HEAD"} or body:
        lines.append(b"Content-Length: %d" % len(body))
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def check(here: Served, answer: Answer | None, *, field: str | None = None, head: bool = False) -> None:
    """Below 500, and if it is a refusal then a problem, which names `field`."""
    if answer is None:
        return
    assert 100 <= answer.status < 500, (answer.status, answer.body[:500])
    assert "content-security-policy" in answer.headers
    if answer.status >= 400 and not head:
        assert answer.headers["content-type"] == "application/problem+json", answer
        body = json.loads(answer.body)
        assert body["status"] == answer.status
        assert body["title"]
        assert body["detail"]
        assert "Traceback" not in body["detail"]
        assert "\n" not in body["detail"]
        if field is not None:
            assert str(body.get("field", "")).lower().startswith(field.lower()), (field, body)


class Bounded:
    """Looks whether a law may try another example."""

    def __init__(self) -> None:
        self.end = time.monotonic() + (SECONDS if LONG == 1 else 10 * SECONDS)

    def over(self) -> bool:
        """No more."""
        return time.monotonic() > self.end


def many(number: int) -> settings:
    """So many examples, or as many as the time allows; a failure is shown as it was found."""
    return settings(
        max_examples=number * LONG,
        deadline=None,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
        database=None,
    )


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=12,
)
names = st.sampled_from(
    ["configuration", "name", "project", "abort", "when_idle", "token", "type", "commands", "env", "image", "resources",
     "problem", "problem_def", "hip_code", "code", "source", "gpu", "gpu_type", "dtype", "endpoint", "language"]
)  # fmt: skip
bodies = st.dictionaries(names, json_values, max_size=5) | json_values
tasks = st.fixed_dictionaries(
    {"configuration": st.fixed_dictionaries({"type": st.just("task"), "commands": st.just(["true"])}, optional={
        "env": json_values | st.dictionaries(st.text(max_size=6), st.text(max_size=6), max_size=2),
        "image": json_values | st.just("a/b:c"), "resources": json_values, "name": st.text(max_size=60),
        "nodes": json_values, "max_duration": json_values | st.just("1h"), "working_dir": json_values,
        "files": json_values, "ports": json_values | st.just([8000]), "entrypoint": json_values | st.text(max_size=9),
        "shell": json_values,
    })},
    optional={"name": json_values},
)  # fmt: skip
odd_texts = st.text(max_size=40) | st.sampled_from(
    ["-1", "0", "1", "99999999999999999999", "1e5", "0x1", "٣", "2999-01-01T00:00:00Z", "0001-01-01", "now", "null",
     "2026-11-20T15:00:00+99:99", "9999-12-31T23:59:59.999999Z", "../..", "a\x00b", "\r\nX: y", "%", "𝟙", "\u202e",
     "'; --", "true"]
)  # fmt: skip
positions = st.integers(min_value=1, max_value=60).map(str)
FAIR = {
    "at": positions, "min_position": positions, "after": positions, "limit": positions,
    "live": st.sampled_from(["true", "false"]), "backwards": st.just("true"), "follow": st.just("false"),
    "by": st.sampled_from(["vm", "run", "day", "user", "gpu"]), "order": st.sampled_from(["newest", "oldest"]),
    "state": st.sampled_from(["failed", "running"]), "name": st.just("lab-task"), "stream": st.just("source/x"),
    "type": st.sampled_from(["PollRecorded", "RunObserved"]),
}  # fmt: skip
"""Values of a decent client."""


@st.composite
def queries(draw: st.DrawFn, path: str) -> dict[str, str]:
    """Parameters that the route takes, fair and odd, and now and then another."""
    known = ("at", "min_position", *PARAMETERS.get(path, ()))
    names = draw(st.lists(st.sampled_from((*known, *known, "nonsense")), max_size=2, unique=True))
    fair = draw(st.integers(min_value=0, max_value=2)) > 0
    return {name: draw(FAIR.get(name, odd_texts) if fair else odd_texts) for name in names}


ids = st.sampled_from(IDS) | st.text(min_size=1, max_size=20) | odd_texts.filter(bool)


@pytest.mark.slow
def test_any_path_and_query_is_answered(here: Served) -> None:
    """Every route, with ids and parameters of every kind."""
    bounded = Bounded()

    targets = st.sampled_from(READS).flatmap(lambda path: st.tuples(st.just(path), queries(path)))
    known = tuple(run["run_id"] for run in here.client.get("/api/runs").json()["runs"])
    known += tuple(vm["vm_id"] for vm in here.client.get("/api/vms").json()["vms"])

    @many(300)
    @given(targets, st.sampled_from(known) | st.sampled_from(known) | st.sampled_from(known) | ids)
    @example(("/api/runs", {"at": "2999-01-01T00:00:00Z"}), "x")
    @example(("/api/runs/{id}", {"at": "99999999999999999999"}), known[0])
    @example(("/api/costs", {"by": "nothing"}), "x")
    def law(target_of: tuple[str, dict[str, str]], word: str) -> None:
        if bounded.over():
            return
        path, parameters = target_of
        query = "&".join(f"{name}={quote(value, safe='')}" for name, value in parameters.items())
        target = re.sub(r"\{\w+\}", quote(word, safe=""), path) + (f"?{query}" if query else "")
        answer = sent(here, request("GET", target, {}))
        if path not in ELSEWHERE or answer is None or answer.status not in {502, 503}:
            check(here, answer)

    law()
    well(here)


@pytest.mark.slow
@pytest.mark.parametrize("parameter", ["at", "min_position", "cursor", "limit", "order", "state", "nonsense"])
def test_a_wrong_parameter_is_named(here: Served, parameter: str) -> None:
    """The answer names it."""
    bounded = Bounded()

    @many(15)
    @given(odd_texts)
    def law(value: str) -> None:
        if bounded.over():
            return
        answer = sent(here, request("GET", f"/api/runs?{parameter}={quote(value, safe='')}", {}))
        check(here, answer, field=None if b"\xed" in value.encode("utf-8", "surrogatepass") else parameter)

    law()
    well(here)


@pytest.mark.slow
def test_any_json_is_answered(here: Served) -> None:
    """At every command: wrongly typed, missing, too much; nothing is done for an invalid order."""
    bounded = Bounded()

    @many(150)
    @given(st.sampled_from(COMMANDS), st.sampled_from(IDS), bodies | tasks)
    @example("/api/runs", "x", {"configuration": {"type": "task", "commands": ["\ud800"]}})
    @example("/api/runs", "x", {"configuration": {"type": "task", "commands": ["true"], "name": "\ud800"}})
    @example("/api/runs", "x", {"configuration": {"type": "task", "commands": ["true"], "env": {"A": 10**400}}})
    @example("/api/amd/submit", "x", {"hip_code": "\ud800"})
    def law(path: str, word: str, value: object) -> None:
        if bounded.over():
            return
        body = json.dumps(value).encode()
        target = path.replace("{id}", word)
        check(here, sent(here, request("POST", target, {"Content-Type": b"application/json"}, body)))

    law()
    well(here)


@pytest.mark.slow
def test_any_bytes_as_a_body_are_answered(here: Served) -> None:
    """No JSON, no UTF-8, cut, doubled, endless; under any content type."""
    bounded = Bounded()
    pieces = st.sampled_from(
        [b"{", b"}", b"[", b"]", b'"', b"\\u", b"\\ud800", b"\xff", b"\xc3", b"null", b"1e999", b"-", b":", b",",
         b'"configuration"', b'"type":"task"', b"NaN", b"Infinity", b"\x00", b"\xef\xbb\xbf", b"9" * 5000, b"[" * 150]
    )  # fmt: skip
    types = st.sampled_from(
        [b"application/json", b"text/plain", b"application/json; charset=utf-16", b"", b"multipart/form-data", b"\xff"]
    )

    @many(120)
    @given(st.sampled_from(COMMANDS), st.lists(pieces | st.binary(max_size=10), max_size=12).map(b"".join), types)
    @example("/api/runs", b'{"configuration":' * 10 + b"1" + b"}" * 10, b"application/json")
    @example("/api/runs", b'{"a":1,"a":2}', b"application/json")
    @example(
        "/api/runs",
        b'{"configuration": {"type": "task", "commands": ["' + b"x" * 900_000 + b'"]}}',
        b"application/json",
    )
    @example("/api/amd/submit", b"[" * 500_000, b"application/json")
    def law(path: str, body: bytes, kind: bytes) -> None:
        if bounded.over():
            return
        target = path.replace("{id}", "none")
        check(here, sent(here, request("POST", target, {"Content-Type": kind}, body)))

    law()
    well(here)


@pytest.mark.slow
def test_any_header_is_answered(here: Served) -> None:
    """Headers as a browser, a proxy or somebody between them may have made them."""
    bounded = Bounded()
    name = st.sampled_from(
        ["Last-Event-ID", "If-None-Match", "Idempotency-Key", "Authorization", "Cookie", "Accept", "Origin", "Range",
         "Sec-Fetch-Site", "Content-Encoding", "Accept-Encoding", "Expect", "Upgrade", "X-Forwarded-For", "TE", "Via"]
    )  # fmt: skip
    value = st.binary(max_size=40) | st.sampled_from(
        [b"-1", b"99999999999999999999", b"abc", b"*", b'"', b"\r\nX: y", b"\n", b"\x00", b"\xff" * 20, b"a" * 3000,
         b"Bearer steno_000000000000_" + b"x" * 43, b"bytes=0-1", b"gzip", b"100-continue", b"websocket", b"=;=;"]
    )  # fmt: skip

    @many(150)
    @given(st.sampled_from(READS + COMMANDS), st.dictionaries(name, value, min_size=1, max_size=3), st.booleans())
    @example("/api/stream", {"Last-Event-ID": b"999999999"}, False)
    @example("/api/runs", {"Idempotency-Key": b"\xff\x00"}, True)
    @example("/api/runs", {"Idempotency-Key": b"k" * 5000}, True)
    def law(path: str, headers: dict[str, bytes], posts: bool) -> None:
        if bounded.over():
            return
        body = b'{"configuration": {"type": "task", "commands": ["true"]}}' if posts else b""
        method = "POST" if posts else "GET"
        answer = sent(here, request(method, path.replace("{id}", "none"), headers, body))
        if path not in ELSEWHERE or answer is None or answer.status not in {502, 503}:
            check(here, answer)

    law()
    well(here)


@pytest.mark.slow
def test_what_is_no_http_is_answered_or_closed(here: Served) -> None:
    """Methods, targets, versions and heads that nobody sends by mistake."""
    bounded = Bounded()
    method = st.sampled_from(["GET", "POST", "BREW", "get", "", "G\x00T", "CONNECT", "TRACE", "M-SEARCH", "A" * 300])
    target = st.sampled_from(
        ["/", "*", "", "api/runs", "http://evil.example/api/runs", "//evil.example/", "/../../etc/passwd", "/%00",
         "/%zz", "/api/runs?%ff", "/api/runs?a=%ff", "/api/runs#x", "/\x80", "/" + "a/" * 3000, "/api/runs?token=x",
         "localhost:1"]
    )  # fmt: skip
    version = st.sampled_from(["HTTP/1.1", "HTTP/1.0", "HTTP/2.0", "HTTP/9.9", "", "http/1.1", "HTTP/1.1 x"])
    rest = st.lists(
        st.sampled_from(
            [b"Host: localhost", b"Host: evil.example", b"Host:", b"Host: a b", b": x", b"X", b" folded", b"X\x00: y",
             b"X: \x00", b"Content-Length: -1", b"Content-Length: 5", b"Transfer-Encoding: chunked", b"X : y",
             b"Transfer-Encoding: xchunked", b"Connection: Upgrade", b"Upgrade: h2c", b"Upgrade: websocket"]
        ),
        max_size=4,
    )  # fmt: skip
    tail = st.sampled_from([b"\r\n\r\n", b"\n\n", b"\r\n\r\nzz\r\n", b"\r\n\r\n5\r\nab", b"\r\n\r\n0\r\n\r\n", b"\r\n"])

    @many(200)
    @given(method, target, version, rest, tail, st.binary(max_size=20))
    def law(verb: str, where: str, kind: str, lines: list[bytes], end: bytes, more: bytes) -> None:
        if bounded.over():
            return
        first = f"{verb} {where} {kind}".encode("latin-1")
        closing_line = b"Connection: close"
        raw = b"\r\n".join([first, closing_line, *lines]) + end + more
        answer = sent(here, raw, wait=0.3)
        check(here, answer, head=verb == "HEAD")

    law()
    well(here)


@pytest.mark.slow
def test_bytes_that_are_nothing_are_answered_or_closed(here: Served) -> None:
    """Noise, TLS, HTTP/2."""
    bounded = Bounded()

    @many(60)
    @given(st.binary(min_size=1, max_size=200))
    @example(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 200)
    @example(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    @example(b"\r\n" * 1000)
    def law(raw: bytes) -> None:
        if bounded.over():
            return
        check(here, sent(here, raw, wait=0.2))

    law()
    well(here)


def well(here: Served) -> None:
    """It still answers, from its projections too."""
    assert here.client.get("/healthz").json() == {"status": "ok"}
    assert here.client.get("/api/runs").status_code == 200


@pytest.mark.long
def test_all_of_it_for_longer(here: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty times as many examples, a minute a law at most."""
    monkeypatch.setitem(globals(), "LONG", 20)
    for law in (
        test_any_path_and_query_is_answered,
        test_any_json_is_answered,
        test_any_bytes_as_a_body_are_answered,
        test_any_header_is_answered,
        test_what_is_no_http_is_answered_or_closed,
        test_bytes_that_are_nothing_are_answered_or_closed,
    ):
        law(here)
