"""Servers that answer nonsense, slowly or not at all: every call ends, a round is failed polls, nothing is raised."""

import datetime
import gzip
import ipaddress
import json
import socket
import ssl
import threading
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from stenolab.faulty_server import LOADED_S, TOKEN, Answers, FaultyServer, reset, respond

from steno.engine.errors import ProviderError, ProviderRefused, ProviderUnreachable
from steno.engine.providers.base import StopTarget, Submission
from steno.engine.providers.dstack.provider import DstackProvider
from steno.engine.providers.dstack.settings import address
from steno.events.clock import RandomIds, SystemClock
from steno.events.errors import StenoError
from steno.events.poll import Poll

WANTED = Submission(run_id="r", name="a-run", project="main", configuration={"type": "task", "commands": ["x"]})
NONSENSE = {
    "html": (200, b"<html>Bad gateway</html>", "text/html"),
    "half a json": (200, b'[{"id":', "application/json"),
    "an object for a list": (200, b'{"detail":"hello"}', "application/json"),
    "a list without ids": (200, b'[{"status":"done"}]', "application/json"),
    "a list of numbers": (200, b"[1,2,3]", "application/json"),
    "nothing": (200, b"", "application/json"),
    "null": (200, b"null", "application/json"),
    "no text at all": (200, b"\xff\xfe\x00[", "application/octet-stream"),
    "a redirect": (302, b"", "text/plain"),
    "too many requests": (429, b'{"detail":"slow down"}', "application/json"),
    "unauthorized": (401, b'{"detail":"Not authenticated"}', "application/json"),
    "a failure": (500, b"Internal Server Error", "text/plain"),
    "deep": (200, b"[" * 100_000, "application/json"),
    "gone": (404, b'{"detail":{"msg":"Not found","code":null}}', "application/json"),
}


@pytest.mark.parametrize("case", NONSENSE)
def test_nonsense_is_a_failed_poll_that_keeps_it(bad: Callable[[Answers], FaultyServer], case: str) -> None:
    """An answer that is not a list of things with an id says nothing; status and body are kept as they came."""
    status, body, kind = NONSENSE[case]
    provider = bad(respond(status, body, kind)).provider()

    polls = list(provider.poll(["some-run"], since=None))

    first = polls[0]
    assert (first.status, first.answered, first.complete) == (status, False, False)
    assert first.body is not None
    kept = json.loads(first.body) if first.text or case != "deep" else None
    assert kept == body.decode("utf-8", "replace") if first.text else first.body == body
    assert not any(poll.answered for poll in polls)


@pytest.mark.parametrize("case", NONSENSE)
def test_nonsense_is_one_line_for_whoever_asked(bad: Callable[[Answers], FaultyServer], case: str) -> None:
    """Every call that needs an answer says in one line what came instead."""
    provider = bad(respond(*NONSENSE[case])).provider()

    for call in (
        lambda: provider.find("name", 0),
        lambda: provider.stop(StopTarget(provider_id="id", name="name")),
        lambda: list(provider.logs("id", "name", follow=True)),
        lambda: provider.plan(WANTED),
    ):
        with pytest.raises(StenoError) as error:
            call()
        assert "\n" not in str(error.value)


def test_a_connection_reset_under_a_question_is_tried_once_more(bad: Callable[[Answers], FaultyServer]) -> None:
    """After a 500 dstack resets the next request on that connection; the second try is on a fresh one."""

    def answers(connection: socket.socket, request: bytes, before: int) -> bool:
        return reset(connection) if before == 0 else respond(200, b"[]")(connection, request, before)

    server = bad(answers)
    first = next(server.provider().poll([], since=None))

    assert first.answered
    assert len(server.requests) == 2


def test_a_submission_is_put_once(bad: Callable[[Answers], FaultyServer]) -> None:
    """A connection cut under `runs/apply` leaves it open whether the task runs: who repeats it must look first."""
    server = bad(lambda connection, request, before: reset(connection))

    answer = server.provider().client.ask("/api/project/main/runs/apply", {}, again=False)

    assert (answer.status, len(server.requests)) == (None, 1)


def test_a_silent_server_is_given_up(bad: Callable[[Answers], FaultyServer]) -> None:
    """A server that takes the question and says nothing costs the read timeout, once, not once an endpoint."""

    answered: list[bool] = []

    def silent(connection: socket.socket, request: bytes, before: int) -> bool:
        answered.append(not server.over.wait(LOADED_S))
        return False

    server = bad(silent)
    polls = list(server.provider(read_timeout=0.3).poll(["a"], since=None))

    assert (len(server.requests), answered) == (1, [])  # it waits still
    assert [(poll.status, poll.body) for poll in polls] == [(None, None)]
    assert polls[0].error is not None
    assert "Timeout" in polls[0].error


@pytest.mark.parametrize("hanging", [b"/runs/list", b"/instances/list", b"/fleets/list"])
def test_an_endpoint_that_hangs_does_not_silence_the_others(
    bad: Callable[[Answers], FaultyServer], hanging: bytes
) -> None:
    """Each round used to end at it, so that what comes behind it was never asked; now the next begins there."""

    def answers(connection: socket.socket, request: bytes, before: int) -> bool:
        if hanging in request.partition(b"\r\n")[0]:
            server.over.wait(LOADED_S)
            return False
        body = b'{"project_id":"p"}' if b"/get" in request.partition(b"\r\n")[0] else b"[]"
        return respond(200, body)(connection, request, before)

    server = bad(answers)
    provider = server.provider(read_timeout=2)

    first, second = (list(provider.poll([], since=None)) for _ in range(2))

    assert not first[-1].answered
    assert [poll.answered for poll in second] == [True, True, True, False]
    assert len({poll.path for poll in second}) == 4


def flood(connection: socket.socket, over: threading.Event, head: bytes, piece: bytes) -> bool:
    """Send `piece` again and again until nobody listens any more."""
    connection.sendall(head)
    while not over.wait(0.001):
        try:
            connection.sendall(piece)
        except OSError:
            break
    return False


ENDLESS = {
    "headers that drip": (b"HTTP/1.1 200 OK\r\n", b"X: y\r\n"),
    "a status line that drips": (b"", b"H"),
    "interim answers": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "early hints": (b"", b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"),
    "chunks": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
    "a body without a length": (b"HTTP/1.0 200 OK\r\n\r\n", b" "),
    "a body of a length": (b"HTTP/1.1 200 OK\r\nContent-Length: 9999999\r\n\r\n", b" "),
}


@pytest.mark.parametrize("case", ENDLESS)
def test_an_answer_has_a_total_time_wherever_it_hangs(
    bad: Callable[[Answers], FaultyServer], monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    """Each read is short, so no read times out; the second try that a cut connection gets is within the same time."""
    monkeypatch.setattr("steno.engine.providers.dstack.client.TOTAL_TIMEOUT", 0.5)
    server: list[FaultyServer] = []
    server.append(bad(lambda connection, request, before: flood(connection, server[0].over, *ENDLESS[case])))

    poll = next(server[0].provider().poll([], since=None))

    assert (poll.status, poll.answered) == (None, False)
    # a status line and headers have a size of their own, which a fast machine reaches first
    assert "not whole after 0.5 s" in (poll.error or "") or "Protocol" in (poll.error or "")
    assert len(server[0].requests) <= 2


def packed(coding: str) -> bytes:
    """60 MB of blanks; a few kB as they are sent."""
    blanks = b" " * 1_000_000
    if coding == "zstd":
        pack = zstandard.ZstdCompressor().compressobj()
        return b"".join(pack.compress(blanks) for _ in range(60)) + pack.flush()
    packer = zlib.compressobj(9, zlib.DEFLATED, 31 if "gzip" in coding else 15)
    once = b"".join(packer.compress(blanks) for _ in range(60)) + packer.flush()
    return gzip.compress(once, 9) if coding == "gzip, gzip" else once


@pytest.mark.parametrize("coding", ["gzip", "gzip, gzip", "deflate", "zstd", "br", "GZIP", "identity, zstd"])
def test_a_packed_answer_is_refused_without_unpacking_it(bad: Callable[[Answers], FaultyServer], coding: str) -> None:
    """18 kB of zstd unpacked to 600 MB in one piece. We ask for plain answers: a packed one is a mistake or a bomb."""
    server = bad(respond(200, packed(coding), extra=f"Content-Encoding: {coding}\r\n"))

    poll = next(server.provider().poll([], since=None))

    assert b"accept-encoding: identity" in server.requests[0].lower()
    assert (poll.status, poll.body, poll.answered) == (None, None, False)
    assert "packed" in (poll.error or "")


def test_a_redirect_is_not_followed(bad: Callable[[Answers], FaultyServer]) -> None:
    """The token would go to whom the server names."""
    thief = bad(respond(200, b"[]"))
    for status in (301, 302, 303, 307, 308):
        server = bad(respond(status, b"", extra=f"Location: {thief.url}/api/runs/list\r\n"))
        assert not any(poll.answered for poll in server.provider().poll([], since=None))
    assert thief.requests == []


def test_cookies_are_not_kept(bad: Callable[[Answers], FaultyServer]) -> None:
    """A server could make every request of ours as large as it likes."""
    server = bad(respond(200, b"[]", extra="Set-Cookie: a=b\r\nSet-Cookie: c=d; Path=/; Max-Age=99999\r\n"))

    assert len(list(server.provider().poll([], since=None))) > 1
    assert not any(b"cookie" in request.lower() for request in server.requests)


FALSE_LENGTHS = {
    "shorter than the body": b"Content-Length: 1\r\n\r\n[]",
    "longer than the body": b"Content-Length: 99\r\n\r\n[]",
    "two of them": b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n[] ",
    "below zero": b"Content-Length: -2\r\n\r\n[]",
    "beyond any disk": b"Content-Length: 99999999999999999999\r\n\r\n[]",
    "beside chunks": b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n[]",
    "a chunk of no size": b"Transfer-Encoding: chunked\r\n\r\nzz\r\n[]\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("case", FALSE_LENGTHS)
def test_a_false_length_is_a_failed_poll(bad: Callable[[Answers], FaultyServer], case: str) -> None:
    """Half an answer is none."""

    def answer(connection: socket.socket, request: bytes, before: int) -> bool:
        connection.sendall(b"HTTP/1.1 200 OK\r\n" + FALSE_LENGTHS[case])
        return False

    assert not any(poll.answered for poll in bad(answer).provider().poll([], since=None))


def test_a_false_certificate_gets_no_token(tmp_path: Path) -> None:
    """A certificate nobody vouches for ends the connection before anything is said."""
    received: list[bytes] = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            try:
                with context.wrap_socket(connection, server_side=True) as inside:
                    received.append(inside.recv(65536))
            except OSError:
                pass

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        where = address(f"https://127.0.0.1:{listening.getsockname()[1]}", TOKEN, "main")
        provider = DstackProvider(where, clock=SystemClock(), ids=RandomIds())
        poll = next(provider.poll([], since=None))
        thread.join(LOADED_S)

    assert "CERTIFICATE_VERIFY_FAILED" in (poll.error or "")
    assert received in ([], [b""])


def certificate(folder: Path) -> Path:
    """A self-signed certificate of 127.0.0.1 and its key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    file = folder / "server.pem"
    file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + made.public_bytes(serialization.Encoding.PEM)
    )
    return file


WIDE = {
    "a million lists": b"[" + b"[]," * 1_000_000 + b"[]]",
    "a million objects": b"[" + b"{}," * 1_000_000 + b"{}]",
    "a million numbers": b'[{"id":"a","x":[' + b"0," * 1_000_000 + b"0]}]",
    "ten thousand and one runs": json.dumps([{"id": str(number)} for number in range(10_001)]).encode(),
}


@pytest.mark.parametrize("case", WIDE)
def test_a_wide_answer_is_a_failed_poll(bad: Callable[[Answers], FaultyServer], case: str) -> None:
    """Decoded, 32 MB of lists take 700 MB; and each run of an answer becomes a stream of the record."""
    polls = list(bad(respond(200, WIDE[case])).provider().poll([], since=None))
    assert not any(poll.answered for poll in polls)
    assert polls[0].body is not None


def test_the_token_is_in_no_poll_and_no_error(bad: Callable[[Answers], FaultyServer]) -> None:
    """Not even where the server repeats the request, as debug pages do."""

    def echo(connection: socket.socket, request: bytes, before: int) -> bool:
        return respond(200, json.dumps({"detail": request.decode("latin-1")}).encode())(connection, request, before)

    server = bad(echo)
    provider = server.provider()
    polls: list[Poll] = list(provider.poll([], since=None))
    with pytest.raises(ProviderError) as error:
        provider.find("x", 0)

    assert TOKEN.encode() in server.requests[0]
    assert all(TOKEN not in repr(poll) for poll in polls)
    assert TOKEN not in repr(error.value)
    assert TOKEN not in repr(provider.client.address)


def test_no_version_header_and_no_proxy_on_loopback(
    bad: Callable[[Answers], FaultyServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older server refuses a newer client that names its version; a proxy of the environment is not for loopback."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    server = bad(respond(200, b"[]"))

    assert next(server.provider().poll([], since=None)).answered
    head = server.requests[0].partition(b"\r\n\r\n")[0].lower()
    assert b"x-api-version" not in head
    assert b"authorization: bearer" in head


def test_no_server_is_unreachable(bad: Callable[[Answers], FaultyServer], nobody: str) -> None:
    """A refused connection is told as such; a refusal of the token is another thing."""
    server = bad(respond(401, b'{"detail":"Not authenticated"}'))
    with pytest.raises(ProviderUnreachable, match="is the dstack server up"):
        server.provider(url=nobody).find("x", 0)
    with pytest.raises(ProviderRefused):
        server.provider().find("x", 0)
