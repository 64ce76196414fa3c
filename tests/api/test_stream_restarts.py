"""A hundred clients, a server that is ended and started again under them, and a writer that does not care."""

from __future__ import annotations

import asyncio
import re
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from stenotest.waiting import wait

from steno.engine.fold.fold import Fold
from steno.engine.providers.registry import READINGS
from steno.events import types
from steno.events.clock import SystemClock
from steno.events.store.append import Batch
from steno.events.store.record import Record
from steno.projections.api.feed.framer import Framer

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from conftest import Process, StartSteno

pytestmark = pytest.mark.slow

_MESSAGE = re.compile(rb"id: (\d+)-[0-9a-f]{8}\ndata: (.*)\n\n")
_HINT = re.compile(rb"^retry: \d+\n\n")


class Client:
    """A client that comes back with its last position, as a browser does."""

    def __init__(self, after: int) -> None:
        self.last = after
        self.got: list[tuple[int, bytes]] = []
        self.connected = 0

    async def run(self, address: dict[str, str], until: asyncio.Event) -> None:
        """Listen at whatever address there is until told to stop."""
        while not until.is_set():
            try:
                await self._listen(address["url"], until)
            except OSError:
                await asyncio.sleep(0.05)

    async def _listen(self, url: str, until: asyncio.Event) -> None:
        where = urlsplit(url)
        reader, writer = await asyncio.open_connection(where.hostname, where.port)
        try:
            ask = f"GET /api/stream HTTP/1.1\r\nHost: {where.netloc}\r\nLast-Event-ID: {self.last}\r\n\r\n"
            writer.write(ask.encode())
            head = await _read(reader.readuntil(b"\r\n\r\n"), until)
            if head is None:
                return
            if head.startswith(b"HTTP/1.1 503"):  # it is just ending: come back
                raise ConnectionResetError
            assert head.startswith(b"HTTP/1.1 200"), head
            self.connected += 1
            text = b""
            while (size := await _read(reader.readline(), until)) and int(size, 16):
                chunk = await _read(reader.readexactly(int(size, 16) + 2), until)
                if chunk is None:
                    return
                text = self._take(_HINT.sub(b"", text + chunk[:-2]))
        except (asyncio.IncompleteReadError, ValueError):
            pass  # it was killed in the middle of a chunk: what is not whole was not received
        finally:
            writer.close()

    def _take(self, text: bytes) -> bytes:
        end = 0
        for match in _MESSAGE.finditer(text):
            self.last = int(match[1])
            self.got.append((self.last, match[2]))
            end = match.end()
        return text[end:]


async def _read(wanted: Coroutine[object, object, bytes], until: asyncio.Event) -> bytes | None:
    reading = asyncio.ensure_future(wanted)
    stopping = asyncio.ensure_future(until.wait())
    try:
        await asyncio.wait({reading, stopping}, return_when=asyncio.FIRST_COMPLETED)
        return reading.result() if reading.done() else None
    finally:
        stopping.cancel()
        reading.cancel()


def write(path: Path, stop: threading.Event) -> None:
    """Something happens fifty times a second."""
    with Record.open(path, clock=SystemClock(), shapes=READINGS.shape, write=True) as record:
        number = 0
        while not stop.wait(0.02):
            number += 1
            facts = [types.RecorderStarted(source="dstack", software=f"{number}-{n}") for n in range(number % 3 + 1)]
            record.append_many([Batch("source/dstack", facts)])


@pytest.mark.parametrize(
    ("how", "many", "turns"),
    [
        (signal.SIGKILL, 16, 1),
        pytest.param(signal.SIGTERM, 100, 3, marks=pytest.mark.long),
        pytest.param(signal.SIGKILL, 100, 3, marks=pytest.mark.long),
    ],
)
def test_a_restart_under_many_clients_loses_and_doubles_nothing(
    how: signal.Signals, many: int, turns: int, steno_served: StartSteno, town: Path
) -> None:
    """Law: every client gets every position exactly once, whatever happens to the server, however often."""
    with Record.open(town, clock=SystemClock()) as record:
        head = record.head().position
    starts = [0, head // 2, head - 5, head]
    clients = [Client(starts[number % 4]) for number in range(many)]
    began_at = {id(client): client.last for client in clients}
    stop = threading.Event()
    writer = threading.Thread(target=write, args=(town, stop))
    address = {"url": ""}

    def restart(process: Process) -> None:
        process.signal(how)
        code = process.ended()
        assert code == (0 if how is signal.SIGTERM else -how)

    async def play() -> None:
        until = asyncio.Event()
        process = await asyncio.to_thread(steno_served, town)
        address["url"] = process.url
        tasks = [asyncio.ensure_future(client.run(address, until)) for client in clients]
        for turn in range(turns):
            await asyncio.to_thread(wait, lambda turn=turn: all(client.connected > turn for client in clients))
            await asyncio.sleep(1.5)
            await asyncio.to_thread(restart, process)
            process = await asyncio.to_thread(steno_served, town)
            address["url"] = process.url
        await asyncio.to_thread(wait, lambda: all(client.connected > turns for client in clients))
        await asyncio.sleep(1)
        stop.set()
        await asyncio.to_thread(writer.join)
        with Record.open(town, clock=SystemClock()) as record:
            end = record.head().position
        await asyncio.to_thread(wait, lambda: all(client.last == end for client in clients))
        until.set()
        await asyncio.gather(*tasks)

    writer.start()
    try:
        asyncio.run(play())
    finally:
        stop.set()
        writer.join()
    with Record.open(town, clock=SystemClock(), shapes=READINGS.shape) as record:
        frames = Framer(record, Fold(READINGS), 0).advance(record.head().position)
    wanted = [(frame.position, frame.data.split(b"\ndata: ")[1].rstrip()) for frame in frames]
    for client in clients:
        assert client.got == [message for message in wanted if message[0] > began_at[id(client)]]
        assert client.connected > turns
