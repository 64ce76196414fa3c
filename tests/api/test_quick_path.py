"""Any sequence of requests on one connection gets the same bytes by the quick path as by ASGI, and ends it alike."""

from __future__ import annotations

import itertools
import re
import socket
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, event, given, settings
from hypothesis import strategies as st

from projections.api.access.middleware import AccessMiddleware

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from conftest import Serve, Served

pytestmark = pytest.mark.slow
EXAMPLES = 60
_DATE = re.compile(rb"date: [^\r]*\r\n")
METHODS = ("GET", "HEAD", "POST", "OPTIONS", "TRACE", "DELETE", "PUT", "get", "CONNECT", "PRI", "")
TARGETS = (
    "{run}", "{run}?at=0", "{run}?", "{run}/", "/{run}", "{run}#x", "{upper}",
    "{quoted}", "http://localhost{run}", "http://evil.example{run}", "*", "/api/runs/none", "/healthz", "{run}?token=x",
    "{run}/../{last}", "{run}%00", "{run} ", "",
)  # fmt: skip
VERSIONS = ("HTTP/1.1", "HTTP/1.0", "HTTP/2.0", "HTTP/1.2", "HTP/1.1", "")
HOSTS = ("Host: localhost",
    "Host: evil.example", "Host: localhost:1", "Host:", "host:localhost", "Host : localhost", " Host: localhost",
    "Host: localhost\r\nHost: localhost", "Host: localhost\r\nHost: evil.example", "X: y",
)  # fmt: skip
HEADERS = (
    "If-None-Match: {tag}", "If-None-Match: W/{tag}", 'If-None-Match: "other", {tag}', "If-None-Match: *",
    "If-None-Match: {tag}\r\nIf-None-Match: x", "If-None-Match: é", "Connection: keep-alive", "Connection: close",
    "Connection: Upgrade\r\nUpgrade: websocket", "Connection: upgrade\r\nUpgrade: h2c", "Expect: 100-continue",
    "X-Forwarded-For: 10.0.0.1", "Via: x", "Forwarded:", "Authorization: Bearer x", "Authorization:", "Cookie: a=b; c",
    "Cookie: steno_0=1", "Origin: http://evil.example", "Origin: null", "Sec-Fetch-Site: cross-site",
    "Sec-Fetch-Site: same-origin", "Range: bytes=0-1", "Accept: text/html", "Accept-Encoding: gzip", "X: a\r\n b",
    "X: a\nb", "X: a\0b", "X y: z", "nothing", "X: " + "x" * 3000, "TE: trailers", "Access-Control-Request-Method: GET",
    "\r\n".join(f"X-{n}: y" for n in range(101)), "X-HTTP-Method-Override: DELETE", "Transfer-Encoding: identity",
)  # fmt: skip
BODIES = (
    ("", b""),
    ("Content-Length: 2", b"{}"),
    ("Content-Length: 0", b""),
    ("Content-Length: 5", b"GET /"),
    ("Transfer-Encoding: chunked", b"2\r\n{}\r\n0\r\n\r\n"),
    ("Transfer-Encoding: chunked", b"2;x=y\r\n{}\r\n0\r\nHost: evil.example\r\nAuthorization: x\r\n\r\n"),
    ("Transfer-Encoding: chunked", b"zz\r\n"),
    ("Transfer-Encoding: gzip, chunked", b"0\r\n\r\n"),
    ("Content-Length: 2\r\nContent-Length: 3", b"{} "),
    ("Content-Length: 2\r\nTransfer-Encoding: chunked", b"0\r\n\r\n"),
    ("Content-Length: +2", b"{}"),
)
LAST = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """A request that the quick path answers, with up to two parts of another kind."""
    odd = draw(st.sets(st.sampled_from(["method", "target", "version", "host", "header", "body", "end"]), max_size=2))

    def part(name: str, kinds: Sequence[Any]) -> Any:
        return draw(st.sampled_from(kinds)) if name in odd else kinds[0]

    lines = [f"{part('method', METHODS)} {part('target', TARGETS)} {part('version', VERSIONS)}", part("host", HOSTS)]
    if "header" in odd:
        lines += draw(st.lists(st.sampled_from(HEADERS), min_size=1, max_size=3))
    length, body = part("body", BODIES)
    end = part("end", ("\r\n", "\n", "\r"))
    head: str = end.join([*lines, *([length] if length else []), "", ""])
    return head.encode("latin-1") + bytes(body)


@pytest.fixture(scope="module")
def here(served_on: Serve, towns: Path) -> Served:
    """A service whose record stands still."""
    return served_on(towns)


def answered(service: Served, pieces: Sequence[bytes]) -> tuple[bytes, bool]:
    """All that comes on one connection until the service closes it, without the dates; whether some may be lost."""
    with closing(socket.create_connection(("127.0.0.1", service.server.port), timeout=60)) as client:
        come, cut = b"", False
        try:
            for piece in pieces:
                client.sendall(piece)
            while got := client.recv(1 << 16):
                come += got
        except (ConnectionResetError, BrokenPipeError):
            cut = True
        return _DATE.sub(b"", come), cut


def alike(one: tuple[bytes, bool], other: tuple[bytes, bool]) -> bool:
    """Whether two answers are the same as far as they came."""
    if one[0] == other[0]:
        return True
    return (one[1] and other[0].startswith(one[0])) or (other[1] and one[0].startswith(other[0]))


def law(service: Served, examples: int) -> None:
    """Look that the law holds for so many sequences."""
    ran: list[bool] = []
    real = AccessMiddleware._answer_at_once

    def seen(gate: AccessMiddleware, scope: Any) -> bool:
        done = real(gate, scope)
        ran.append(done)
        return done

    def never(_: AccessMiddleware, scope: Any) -> bool:
        scope.pop("steno.whole", None)
        return False

    run = service.client.get("/api/runs?limit=1").json()["runs"][0]["run_id"]
    words = {
        b"{run}": f"/api/runs/{run}".encode(),
        b"{upper}": f"/api/runs/{run.upper()}".encode(),
        b"{quoted}": b"/api/runs/%" + f"{ord(run[0]):x}{run[1:]}".encode(),
        b"{last}": run.encode(),
        b"{tag}": service.client.get(f"/api/runs/{run}").headers["etag"].encode(),
    }

    @settings(
        max_examples=examples, deadline=None, database=None, phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(st.lists(requests(), min_size=1, max_size=6), st.lists(st.integers(1, 2000), max_size=4))
    def same(sequence: list[bytes], cuts: list[int]) -> None:
        whole = b"".join(sequence) + LAST
        for word, text in words.items():
            whole = whole.replace(word, text)
        places = sorted({0, *(cut % len(whole) for cut in cuts), len(whole)})
        pieces = [whole[start:end] for start, end in itertools.pairwise(places)]
        for _ in range(5):  # what comes too late to be refused is answered: where bytes are cut is not ours alone
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(AccessMiddleware, "_answer_at_once", seen)
                quick = answered(service, pieces)
                patch.setattr(AccessMiddleware, "_answer_at_once", never)
                long = answered(service, pieces)
            if quick == long:
                break
        event(f"{quick[0].count(b'HTTP/1.1 ')} answers")
        assert alike(quick, long), (whole, quick, long)

    end = time.monotonic() + 60
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AccessMiddleware, "_answer_at_once", seen)
        while True not in ran:  # the file is opened in a thread
            service.client.get(f"/api/runs/{run}")
            assert time.monotonic() < end
    ran.clear()
    same()
    assert sum(ran) > examples // 4, (sum(ran), len(ran))


def test_the_quick_path_answers_as_the_ordinary_one(here: Served) -> None:
    """Methods, targets, versions, hosts, headers, bodies, and where the bytes are cut."""
    law(here, EXAMPLES)


@pytest.mark.long
def test_the_quick_path_answers_as_the_ordinary_one_for_longer(here: Served) -> None:
    """Two thousand sequences."""
    law(here, 2000)
