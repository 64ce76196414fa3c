"""`steno serve` and `steno up` as processes: they are ready, they answer, they end in order."""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import socket
import threading
import time
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest
from stenotest import steno_process
from stenotest.waiting import LIMIT_S, wait

from steno.engine.errors import NotConfigured

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import Serve, Starts, StartSteno


PATIENT = (
    "-c",
    """
from steno.cli.main import main
from steno.projections.api import server
from steno.projections.api.access import limits
server.SHUTDOWN_TIMEOUT = limits.BODY_SECONDS = 3600
main()
""",
)
"""Steno with an hour for requests under way."""


@pytest.fixture
def listened(served: Serve, town: Path) -> str:
    """Where a service of this process serves a record."""
    return served(town).url


def listener(url: str) -> tuple[httpx.Response, Iterator[bytes], ExitStack]:
    """A stream of everything, begun: the answer, its pieces, and what closes it."""
    stack = ExitStack()
    with stack:
        client = stack.enter_context(httpx.Client(timeout=LIMIT_S, trust_env=False))
        answer = stack.enter_context(client.stream("GET", f"{url}/api/stream"))
        return answer, answer.iter_raw(), stack.pop_all()
    raise AssertionError


@contextmanager
def waiting(url: str, length: int) -> Iterator[socket.socket]:
    """A connection with a submission under way: its head was taken, and `length` bytes of its body are waited for."""
    host, port = url.removeprefix("http://").split(":")
    with closing(socket.create_connection((host, int(port)), timeout=LIMIT_S)) as client:
        head = f"POST /api/runs HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\n"
        client.sendall(f"{head}Expect: 100-continue\r\nContent-Length: {length}\r\n\r\n".encode())
        interim = b""
        while not interim.endswith(b"\r\n\r\n"):
            interim += client.recv(1)
        assert interim == b"HTTP/1.1 100 Continue\r\n\r\n"  # sent once the body is asked for
        yield client


def takes_no_more(url: str) -> bool:
    """True if nobody listens there any more."""
    host, port = url.removeprefix("http://").split(":")
    try:
        socket.create_connection((host, int(port)), timeout=LIMIT_S).close()
    except ConnectionError:
        return True
    return False


def test_it_says_where_it_serves_and_answers_there(steno_served: StartSteno, town: Path) -> None:
    """The line a script waits for: `serving http://… (record …)`, on stdout."""
    process = steno_served(town)
    assert process.get("/healthz").json() == {"status": "ok"}
    assert process.get("/api/runs").json()["runs"]
    line = next(line for line in process.out if "serving" in line)
    assert re.fullmatch(r"\S+Z INFO    serving http://127\.0\.0\.1:[0-9]+ \(record .*/record\.db\)", line)
    assert process.err == []


@pytest.mark.slow
@pytest.mark.parametrize(("provider", "runs_commands"), [("local", True), ("dstack", False)])
def test_it_says_at_its_start_who_may_do_what(
    steno_served: StartSteno, town: Path, provider: str, runs_commands: bool
) -> None:
    """In one line, with the setting that closes it; once it is closed there is no such line."""
    user = "root" if os.geteuid() == 0 else "this user"
    process = steno_served(town, STENO_PROVIDER=provider)
    process.says("serving")
    [line] = [line for line in process.out if "no token is needed" in line]
    assert "api.loopback = token" in line
    assert (f"run commands as {user}" in line) == runs_commands
    assert (" WARNING " in line) == (runs_commands and user == "root")
    create = ["token", "create", "--role", "read", "--record", str(town)]
    steno_process.run(create, env={"PATH": os.environ["PATH"], "HOME": str(town.parent)}, cwd=town.parent, check=True)
    closed = steno_served(town, STENO_PROVIDER=provider, STENO_API_LOOPBACK="token")
    closed.says("serving")
    assert not [line for line in closed.out if "no token is needed" in line]


@pytest.mark.slow
def test_it_makes_a_record_where_there_is_none(steno_served: StartSteno, tmp_path: Path) -> None:
    """Whoever takes requests for runs writes: like every writer it begins a record."""
    process = steno_served(tmp_path / "new.db")
    assert process.get("/api/runs").json()["runs"] == []


def test_sigterm_ends_it_in_order_while_streams_are_open(started: Starts, town: Path) -> None:
    """Exit code 0 and no grace waited for, streams ended where one message ends, nothing on stderr."""
    process = started("serve", "--record", town, program=PATIENT)
    answer, pieces, stack = listener(process.url)
    with stack:
        assert answer.status_code == 200
        assert next(pieces)
        process.signal(signal.SIGTERM)
        rest = b"".join(pieces)  # httpx raises if the stream is cut and not ended
        assert rest == b"" or rest.endswith(b"\n\n")
        assert process.ended() == 0
    assert process.err == []
    assert process.out[-1].endswith("stopped by SIGTERM")


@pytest.mark.slow
def test_a_request_under_way_is_answered_before_the_end(started: Starts, town: Path) -> None:
    """A body that is still being sent when SIGTERM comes: the answer comes all the same."""
    process = started("serve", "--record", town, program=PATIENT)
    body = b'{"configuration": {"type": "service"}}'
    with waiting(process.url, len(body)) as client:
        client.sendall(body[:10])
        process.signal(signal.SIGTERM)
        wait(lambda: takes_no_more(process.url))
        client.sendall(body[10:])
        answer = b""
        while piece := client.recv(65536):
            answer += piece
    assert answer.startswith(b"HTTP/1.1 422 ")
    assert process.ended() == 0
    assert process.err == []


@pytest.mark.slow
def test_a_request_that_never_ends_is_left_after_the_grace(steno_served: StartSteno, town: Path) -> None:
    """Five seconds, not for ever."""
    process = steno_served(town)
    with waiting(process.url, 9) as client:
        began = time.monotonic()
        process.signal(signal.SIGTERM)
        assert process.ended() == 0
        assert time.monotonic() - began > 4
        assert client.recv(65536).startswith(b"HTTP/1.1 503 ")
    assert process.err == []
    assert any("WARNING 1 requests did not end within 5 s and are cut off" in line for line in process.out)


@pytest.mark.slow
def test_ctrl_c_exits_130_and_says_so_in_one_line(steno_served: StartSteno, town: Path) -> None:
    """As every command does."""
    process = steno_served(town)
    process.signal(signal.SIGINT)
    assert process.ended() == 130
    assert [line for line in process.err if line] == ["steno: interrupted"]


@pytest.mark.slow
def test_a_second_ctrl_c_ends_it_at_once(started: Starts, town: Path) -> None:
    """Whoever presses it twice does not wait for anybody; here the grace would last for an hour."""
    process = started("serve", "--record", town, program=PATIENT)
    with waiting(process.url, 9):
        process.signal(signal.SIGINT)
        wait(lambda: takes_no_more(process.url))
        process.signal(signal.SIGINT)
        assert process.ended() == 130
    assert not any("Traceback" in line for line in process.err)


def test_a_port_in_use_is_one_line_and_exit_5(started: Starts, listened: str, town: Path) -> None:
    """It says whose place it is and what to do."""
    port = listened.rpartition(":")[2]
    process = started("serve", "--record", town, "--port", port)
    assert process.ended() == 5
    assert process.err == [
        f"steno: port {port} of 127.0.0.1 is in use: stop what listens there, or choose another with --port"
    ]


@pytest.mark.slow
def test_up_says_how_to_record_without_the_service(started: Starts, listened: str, tmp_path: Path) -> None:
    """A second recorder that stands by needs no port."""
    port = listened.rpartition(":")[2]
    process = started("up", "--record", tmp_path / "r.db", "--port", port)
    assert process.ended() == 5
    assert process.err[0].endswith("; use --no-api to record without it")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "localhost.invalid.example"])
def test_beyond_loopback_it_needs_a_token(started: Starts, town: Path, host: str) -> None:
    """It refuses to listen, and says why and what to do."""
    process = started("serve", "--record", town, "--host", host)
    assert process.ended() == 2
    assert len(process.err) == 1
    assert f"api.host is {host} (flag)" in process.err[0]
    assert "steno token create" in process.err[0]


@pytest.mark.parametrize("words", [("--port", "seven"), ("--port", "70000"), ("--host", "http://x"), ("--host", "a b")])
def test_an_address_that_is_none_is_a_usage_error(started: Starts, town: Path, words: tuple[str, str]) -> None:
    """A single line names the setting."""
    process = started("serve", "--record", town, *words)
    assert process.ended() == 2
    assert len(process.err) == 1
    assert f"api.{words[0][2:]}" in process.err[0]


@pytest.mark.slow
def test_with_a_token_it_listens_everywhere_and_asks_everybody_for_one(
    started: Starts, steno_served: StartSteno, town: Path
) -> None:
    """On this machine too: the server cannot know through what a request came."""
    made = started("token", "create", "--role", "read", "--record", town)
    assert made.ended() == 0
    process = steno_served(town, "--host", "0.0.0.0")
    assert process.get("/api/runs").status_code == 401
    assert process.get("/api/runs", headers={"Authorization": f"Bearer {made.out[0]}"}).status_code == 200
    assert process.get("/healthz").status_code == 200


@pytest.mark.slow
def test_two_services_of_one_record_live_side_by_side(steno_served: StartSteno, town: Path) -> None:
    """Neither polls, neither holds a lease."""
    first, second = steno_served(town), steno_served(town)
    assert first.get("/api/runs").json() == second.get("/api/runs").json()
    assert not list(town.parent.glob("*.lease-*"))


@pytest.mark.slow
def test_up_records_and_serves_in_one_process(started: Starts, tmp_path: Path) -> None:
    """A request over HTTP is carried out by the recorder beside it."""
    process = started("up", "--record", tmp_path / "r.db")
    answer = process.post(
        "/api/runs",
        json={"configuration": {"type": "task", "commands": ["echo hello"]}},
        headers={"Idempotency-Key": "one"},
    )
    assert answer.status_code == 202, answer.text
    run_id = answer.json()["run_id"]
    wait(lambda: process.get(f"/api/runs/{run_id}").json().get("state") == "succeeded")
    process.signal(signal.SIGTERM)
    assert process.ended() == 0
    assert process.err == []


@pytest.mark.slow
def test_up_without_the_service_opens_no_port(started: Starts, tmp_path: Path) -> None:
    """`--no-api`."""
    process = started("up", "--no-api", "--record", tmp_path / "r.db")
    process.says("recording")
    process.signal(signal.SIGTERM)
    assert process.ended() == 0
    assert not any("serving" in line for line in process.out)


@pytest.mark.slow
def test_every_answer_leaves_a_line_without_what_it_carried(steno_served: StartSteno, town: Path) -> None:
    """Method, path, status, time, who; no query, no header, no cookie, no body."""
    process = steno_served(town)
    secret = "steno_0123456789ab_" + "s" * 43
    process.get("/api/runs", params={"name": "hidden-query"}, headers={"Cookie": "steno_x=hidden-cookie"})
    process.get(f"/api/runs/{secret}", headers={"Authorization": "Bearer hidden-header"})
    process.get(f"/api/runs/{secret.replace('_', '%5F')}")
    process.get("/api/runs", params={"token": secret})
    process.post("/api/session", json={"token": secret})
    process.post("/api/runs", json={"configuration": {"env": {"KEY": "hidden-body"}}})
    process.signal(signal.SIGTERM)
    assert process.ended() == 0
    log = "\n".join(process.out + process.err)
    assert re.search(r"INFO    GET /api/runs 200 [0-9.]+ ms loopback$", log, re.MULTILINE)
    assert re.search(r"INFO    GET /api/runs/steno_0123456789ab_… 401 [0-9.]+ ms -$", log, re.MULTILINE)
    assert "hidden" not in log
    assert "sssss" not in log


@pytest.mark.slow
def test_with_json_every_line_is_an_object(steno_served: StartSteno, town: Path) -> None:
    """`{"at", "level", "message"}`, the access log too."""
    process = steno_served(town, "--json")
    process.get("/api/runs")
    process.signal(signal.SIGTERM)
    assert process.ended() == 0
    lines = [json.loads(line) for line in process.out]
    assert all(set(line) == {"at", "level", "message"} for line in lines)
    assert any(line["message"].startswith("GET /api/runs 200 ") for line in lines)


@pytest.mark.slow
def test_a_log_that_nobody_reads_holds_no_request_up(started: Starts, town: Path) -> None:
    """A terminal that stands still: answers come all the same, and so does the end."""
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    with os.fdopen(reading, "rb", buffering=0) as log:
        try:
            process = started("serve", "--record", town, stdout=writing)
        finally:
            os.close(writing)
        output = b""
        while (match := re.search(rb"serving (http://\S+) ", output)) is None:
            more = log.read(4096)
            assert more, (output, process.err)
            output += more
        with httpx.Client(base_url=match[1].decode(), timeout=LIMIT_S, trust_env=False) as client:
            for number in range(300):  # 100 bytes a line: more than the pipe holds
                assert client.get("/api/session").status_code == 200, number
        process.signal(signal.SIGTERM)
        assert process.ended() == 0
    assert process.err == []


@pytest.mark.slow
@pytest.mark.parametrize("command", ["serve", "up"])
def test_an_impatient_supervisor_changes_nothing(command: str, started: Starts, town: Path) -> None:
    """Several SIGTERMs, the second while the first is being logged: it ends in order, and says so once
    at most (not before it has begun).
    """
    process = started(command, "--record", town)
    assert process.url
    for _ in range(4):
        process.signal(signal.SIGTERM)
        time.sleep(0.002)
    assert process.ended() == 0, process.err
    assert process.err == []
    assert sum("stopped by SIGTERM" in line for line in process.out) <= 1


def has_ipv6() -> bool:
    """True if this machine's IPv6 loopback is up; in some containers it is down."""
    try:
        with closing(socket.socket(socket.AF_INET6)) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


def test_ipv6_loopback_is_loopback(served: Serve, town: Path) -> None:
    """`[::1]`, without a token; where there is none, one line says so."""
    if not has_ipv6():
        with pytest.raises(NotConfigured, match="::1"):
            served(town, api__host="::1")
        return
    here = served(town, api__host="::1")
    assert here.url.startswith("http://[::1]:")
    assert here.client.get("/api/session").json()["via"] == "loopback"


def test_localhost_listens_at_both_loopbacks_on_one_port(served: Serve, town: Path) -> None:
    """Whichever a client's resolver prefers."""
    here = served(town, api__host="localhost")
    addresses = {entry[4][0] for entry in socket.getaddrinfo("localhost", 0, type=socket.SOCK_STREAM)}
    for address in addresses:
        if ":" in address and not has_ipv6():
            continue
        host = f"[{address}]" if ":" in address else address
        assert here.client.get(f"http://{host}:{here.server.port}/healthz").status_code == 200


def test_the_end_of_a_service_leaves_no_thread(served: Serve, town: Path) -> None:
    """It can be started and stopped as often as one likes."""
    here = served(town)
    before = {thread.name for thread in threading.enumerate()}
    assert "steno-http" in before
    here.stop()
    left = {thread.name for thread in threading.enumerate()}
    assert not {"steno-http", "feed", "projector", "steno-access-log"} & left
