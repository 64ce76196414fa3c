"""A run over HTTP beside a raw ASGI reply of the same bytes, by the same server (uvicorn, h11, uvloop): as it
comes out of its box, and with what ours adds to every connection (limits of heads, security headers).

With everything in front that stands there in production: gate, access log, tag, position; many runs in turn, of a
record that rests. Measured by the wall's clock and by the CPU time
of the process; where other processes want the CPU too, only the latter says anything. Loaded by wrk where it
is installed (`apt-get install wrk`), else by this file's own generator.
"""

import asyncio
import contextlib
import json
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.support import SIZE, Measured, compared, report, say

EVENTS = SIZE.count(2_000, 50_000, 200_000)
SECONDS, ROUNDS, CONNECTIONS = SIZE.pick(1, 3, 5), SIZE.pick(1, 5, 7), 32
IDS = 200
"""Different runs asked for, in random order."""


class Raw:
    """The least an ASGI application can do: the same bytes, the same number of headers."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._headers = [
            (b"cache-control", b"no-cache"),
            (b"etag", b'"000000000000000000000000"'),
            (b"steno-position", b"1000000"),
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
        ]

    async def __call__(self, scope: Any, _: Any, send: Any) -> None:
        """Answer, whatever was asked."""
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 200, "headers": self._headers})
            await send({"type": "http.response.body", "body": self._body})


def serve(kind: str, record: str, body: str) -> None:
    """Serve one application for ever, in a process of its own; print its port."""
    if kind == "raw":
        plainly(Raw(Path(body).read_bytes()))
    if kind == "ours":
        from steno.projections.api.server import Server, bound

        bare = Server(Raw(Path(body).read_bytes()), bound("127.0.0.1", 0))
        bare.start()
        print(bare.port, flush=True)
        bare.wait()
    from steno.cli.wiring.app import App
    from steno.cli.wiring.http_service import serving
    from steno.cli.wiring.logging_setup import log_for_daemon
    from steno.engine.providers.registry import load_settings

    log_for_daemon()
    app, nobody = App(), Path(record).parent
    app.flags = {"record": record, "api.port": "0", "api.loopback": "open"}
    app.settings = load_settings(flags=app.flags, environ={}, cwd=nobody, home=nobody, config=nobody, data=nobody)
    with serving(app, Path(record)) as server:
        print(server.port, flush=True)
        # The access log is written as under a supervisor, but nobody reads it here.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        threading.Event().wait()


def plainly(app: Raw) -> None:
    """Serve by uvicorn as it is, for ever."""
    import socket

    import uvicorn

    with socket.create_server(("127.0.0.1", 0), backlog=2048) as bound:
        print(bound.getsockname()[1], flush=True)
        settings = uvicorn.Config(app, http="h11", loop="uvloop", lifespan="off", access_log=False, log_level="error")
        uvicorn.Server(settings).run(sockets=[bound])


@contextlib.contextmanager
def server(kind: str, record: Path, body: Path) -> Iterator[tuple[int, int]]:
    """The port of an application that is served, and its process."""
    command = [sys.executable, __file__, "--serve", kind, str(record), str(body)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield int(next(line for line in process.stdout if line.strip().isdigit())), process.pid
    finally:
        process.kill()
        process.wait()


def cpu_seconds(pid: int) -> dict[int, float]:
    """CPU time of each thread of a process so far."""
    seconds = {}
    for thread in Path(f"/proc/{pid}/task").iterdir():
        fields = (thread / "stat").read_text().rpartition(")")[2].split()
        seconds[int(thread.name)] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return seconds


def between(before: dict[int, float], after: dict[int, float]) -> float:
    """CPU time that all threads took in between: a read is made in a worker thread."""
    return sum(time - before.get(thread, 0.0) for thread, time in after.items())


def with_wrk(port: int, paths: list[str], folder: Path) -> float:
    """Requests a second, by wrk."""
    script = folder / "paths.lua"
    listed = ", ".join(f'"{path}"' for path in paths)
    script.write_text(
        f"local paths = {{{listed}}}\nlocal n = 0\n"
        "request = function() n = n + 1; return wrk.format('GET', paths[n % #paths + 1]) end\n"
    )
    command = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{SECONDS}s", "-s", str(script), f"http://127.0.0.1:{port}"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    if "Non-2xx" in printed:
        raise SystemExit(printed)
    match = re.search(r"Requests/sec:\s+([\d.]+)", printed)
    assert match is not None, printed
    return float(match[1])


class Asking(asyncio.Protocol):
    """A connection that asks again as soon as it has an answer."""

    def __init__(self, requests: list[bytes]) -> None:
        self.answers = 0
        self._requests = requests
        self._left = 0
        self._head = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask."""
        self._transport: Any = transport
        self._ask()

    def data_received(self, data: bytes) -> None:
        """Count an answer once all of it is here."""
        if self._left:
            self._left -= len(data)
        else:
            self._head += data
            head, end, rest = self._head.partition(b"\r\n\r\n")
            if not end:
                return
            assert head.startswith(b"HTTP/1.1 200"), head
            length = re.search(rb"(?i)content-length: (\d+)", head)
            assert length is not None
            self._left, self._head = int(length[1]) - len(rest), b""
        if not self._left:
            self.answers += 1
            self._ask()

    def _ask(self) -> None:
        self._transport.write(self._requests[self.answers % len(self._requests)])


def with_python(port: int, paths: list[str]) -> float:
    """Requests a second, by this process."""
    import uvloop

    async def load() -> float:
        loop = asyncio.get_running_loop()
        requests = [f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode() for path in paths]
        asking = [Asking(requests[n:] + requests[:n]) for n in range(CONNECTIONS)]
        made = [await loop.create_connection(lambda client=client: client, "127.0.0.1", port) for client in asking]
        before, began = sum(client.answers for client in asking), time.perf_counter()
        await asyncio.sleep(SECONDS)
        rate = (sum(client.answers for client in asking) - before) / (time.perf_counter() - began)
        for transport, _ in made:
            transport.abort()
        return rate

    return uvloop.run(load())


def main() -> Iterator[Measured]:
    """Requests a second and CPU of each, in turns."""
    import httpx
    from stenotest.big import big_record

    wrk = shutil.which("wrk") is not None
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        record, body = folder / "record.db", folder / "body"
        of = f"{big_record(record, events=EVENTS):,} events, load by {'wrk' if wrk else 'Python'}"
        body.write_bytes(b"{}")
        steno = stack.enter_context(server("steno", record, body))
        with httpx.Client(base_url=f"http://127.0.0.1:{steno[0]}", timeout=60, trust_env=False) as client:
            while (answer := client.get("/api/record")).status_code != 200:  # the read models are being built
                time.sleep(0.5)
            head = answer.json()["position"]
            listed = client.get("/api/runs", params={"limit": IDS, "min_position": head}).json()["runs"]
            paths = [f"/api/runs/{run['run_id']}" for run in listed]
            random.Random(1).shuffle(paths)
            body.write_bytes(client.get(paths[0]).content)
        servers = {kind: stack.enter_context(server(kind, record, body)) for kind in ("raw", "ours")} | {"steno": steno}
        rates: dict[str, list[float]] = {which: [] for which in servers}
        costs: dict[str, list[float]] = {which: [] for which in servers}
        for _ in range(ROUNDS):
            for which, (port, pid) in servers.items():
                before = cpu_seconds(pid)
                rate = with_wrk(port, paths, folder) if wrk else with_python(port, paths)
                rates[which].append(rate)
                costs[which].append(between(before, cpu_seconds(pid)) / (rate * SECONDS) * 1_000_000)
    for which, answer in rates.items():
        cost = statistics.median(costs[which])
        say(f"{which:6} {statistics.median(answer):8,.0f}/s {cost:6.1f} µs of CPU, {body_size(listed)} bytes")
    by_cpu = {which: [1e6 / measured for measured in value] for which, value in costs.items()}
    yield compared("http-read", of, rates["steno"], rates["ours"], "requests/s")
    yield compared("http-read-cpu", of, by_cpu["steno"], by_cpu["ours"], "requests/cpu-s")
    yield compared("http-read-uvicorn", of, rates["steno"], rates["raw"], "requests/s")


def body_size(runs: list[dict[str, Any]]) -> int:
    """Bytes of a run object, at the median."""
    return int(statistics.median(len(json.dumps(run, separators=(",", ":"))) for run in runs))


if __name__ == "__main__":
    if "--serve" in sys.argv:
        serve(*sys.argv[2:5])
    else:
        report(main())
