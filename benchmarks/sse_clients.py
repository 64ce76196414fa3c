"""How long it takes from an append to a thousand listeners, and what a few that do not listen cost.

    python benchmarks/sse_clients.py [CLIENTS] [SECONDS] [STUCK]

One real `steno serve`, one process of clients with raw sockets, this process as the writer: 10 events a second, each
with the object of its run. The clock of all three is this machine's; the time begins before the append.
"""

import asyncio
import multiprocessing
import os
import re
import resource
import socket
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from urllib.request import urlopen

from benchmarks.support import SIZE, Measured, measured, report, say

from steno.events import types
from steno.events.clock import SystemClock
from steno.events.store.record import Batch, Record

RATE = 10
SETTLED = SIZE.pick(1, 8, 8)
"""Seconds that the server has to settle before anything is measured."""
BEFORE = SIZE.pick(500, 6000, 6000)
"""Events in the record beforehand: what a stuck client is sent and does not read."""
_READY = re.compile(r"serving http://([\w.]+):(\d+)")
_STATS = re.compile(r'steno_stream_clients_dropped_total\{reason="(\w+)"\} (\S+)')


class Listener(asyncio.Protocol):
    """Takes down when which position arrived, and nothing else."""

    def __init__(self, ask: bytes, delays: array, began: asyncio.Event | None) -> None:
        self.ask, self.found, self.began, self.rest = ask, delays, began, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(self.ask)

    def data_received(self, data: bytes) -> None:
        now = time.time_ns()
        if self.began is not None:
            self.began.set()
            self.began = None
        text = self.rest + data
        at = text.find(b"id: ")
        while at >= 0:
            end = text.find(b"\n", at)
            if end < 0:
                break
            self.found.extend((int(text[at + 4 : end].partition(b"-")[0]), now))  # <position>-<hash>
            at = text.find(b"id: ", end)
        self.rest = text[-32:] if at < 0 and text[-1:] != b"\n" else text[at:] if at >= 0 else b""


def listen(pipe: Connection, host: str, port: int, clients: int, stuck: int) -> None:
    """The process of the clients: connect, say so, listen until told to stop, send what was found."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    delays = array("q")

    async def run() -> None:
        loop = asyncio.get_running_loop()
        ask = f"GET /api/stream HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode()
        for _ in range(clients):
            began = asyncio.Event()
            await loop.create_connection(lambda began=began: Listener(ask, delays, began), host, port)
            await began.wait()
        sockets = []
        for _ in range(stuck):
            connection = socket.socket()
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect((host, port))
            connection.send(ask.replace(b"/api/stream", b"/api/stream?after=0"))
            sockets.append(connection)
        pipe.send("ready")
        await asyncio.to_thread(pipe.recv)
        for connection in sockets:
            connection.close()

    asyncio.run(run())
    pipe.send(delays.tobytes())


def usage(pid: int) -> tuple[float, int, int]:
    """(CPU seconds, bytes in memory now, at most) of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ticks = os.sysconf("SC_CLK_TCK")
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    now, most = (int(status[name].split()[0]) * 1024 for name in ("VmRSS", "VmHWM"))
    return (int(fields[11]) + int(fields[12])) / ticks, now, most


def requested(number: int) -> types.RunRequested:
    """A run as it is asked for."""
    return types.RunRequested(
        run_id=f"run-{number}",
        provider="dstack",
        project="main",
        name=f"matmul-{number}",
        configuration=b'{"type":"task","commands":["python matmul.py"]}',
        submitter="ada",
    )


def main(clients: int, seconds: int, stuck: int) -> Iterator[Measured]:
    """Start the server over a record, and measure."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "record.db"
        with Record.open(path, clock=SystemClock(), write=True, create=True) as record:
            for start in range(0, BEFORE, 500):
                record.append_many([Batch(f"run/run-{n}", [requested(n)]) for n in range(start, start + 500)])
            log = Path(folder) / "log"
            server = subprocess.Popen(
                [sys.executable, "-m", "steno.cli.main", "serve", "--record", str(path), "--port", "0"],
                cwd=Path(__file__).resolve().parents[1],
                env={**os.environ, "HOME": folder},
                stdout=log.open("wb"),
            )
            try:
                yield from _measured(server, log, record, clients, seconds, stuck)
            finally:
                server.terminate()
                server.wait()


def _measured(
    server: "subprocess.Popen[bytes]", log: Path, record: Record, clients: int, seconds: int, stuck: int
) -> Iterator[Measured]:
    while (ready := _READY.search(log.read_text())) is None:
        time.sleep(0.1)
    host, port = ready[1], int(ready[2])
    here, there = multiprocessing.Pipe()
    process = multiprocessing.Process(target=listen, args=(there, host, port, clients, stuck))
    process.start()
    assert here.recv() == "ready"
    time.sleep(SETTLED)
    cpu_before, memory_before, _ = usage(server.pid)
    began, appended, took = time.time(), dict[int, int](), list[float]()
    for number in range(seconds * RATE):
        time.sleep(max(0, began + number / RATE - time.time()))
        run_id, at = f"run-{number % BEFORE}", time.time_ns()
        fact = types.StopRequested(run_id=run_id, provider="dstack", name="matmul", submitter="ada")
        (position,) = record.append_many([Batch(f"run/{run_id}", [fact])])
        appended[position] = at
        took.append((time.time_ns() - at) / 1e6)
    wall = time.time() - began
    cpu, memory, most = usage(server.pid)
    time.sleep(2)
    with urlopen(f"http://{host}:{port}/metrics") as answer:
        dropped = dict(_STATS.findall(answer.read().decode()))
    here.send("stop")
    delays = array("q")
    delays.frombytes(here.recv())
    process.join()
    latencies = sorted(
        (delays[index + 1] - appended[delays[index]]) / 1e6
        for index in range(0, len(delays), 2)
        if delays[index] in appended
    )
    count = len(latencies)
    took.sort()
    of = f"{clients:,} clients for {wall:.0f} s, {stuck} stuck"
    say(f"received {count} of {clients * len(appended)}; dropped {dropped}")
    say(f"append to receipt, ms: p50 {latencies[count // 2]:.1f}  max {latencies[-1]:.1f}")
    say(f"of which the append itself, ms: p50 {took[len(took) // 2]:.1f}  p99 {took[len(took) * 99 // 100]:.1f}")
    say(f"memory {memory_before >> 20} MB before, {memory >> 20} MB after")
    yield measured("sse-p99", of, latencies, value=latencies[count * 99 // 100])
    yield measured("sse-cpu", of, [100 * (cpu - cpu_before) / wall])
    yield measured("sse-memory", of, [most / (1 << 20)])


if __name__ == "__main__":
    given = [int(word) for word in SIZE.words]
    usual = (SIZE.pick(20, 1000, 1000), SIZE.pick(2, 20, 60), 0)
    report(main(*given, *usual[len(given) :]))
