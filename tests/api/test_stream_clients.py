"""Clients that are too slow, and a feed whose record cannot be read for a while."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from stenotest.waiting import wait

from steno.engine.fold.fold import Fold
from steno.engine.fold.record_fold import RecordFold
from steno.engine.providers.registry import READINGS
from steno.engine.replay.replay import replay_record
from steno.events import types
from steno.events.clock import SystemClock
from steno.events.store.append import Batch
from steno.events.store.record import Record
from steno.projections.api.feed import backfill
from steno.projections.api.feed.feed import Feed
from steno.projections.api.feed.framer import Frame, Framer
from steno.projections.api.feed.listener import Dropped, Ring

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from conftest import Serve

    from steno.engine.live.live_world import ChangeSet


def frame(position: int, size: int = 10) -> Frame:
    """A message of a size."""
    return Frame(position, frozenset(), b"x" * size)


def tell(path: Path, count: int, size: int = 10) -> None:
    """Append `count` events."""
    with Record.open(path, clock=SystemClock(), shapes=READINGS.shape, write=True) as record:
        batches = []
        for number in range(record.head().position, record.head().position + count):
            fact = types.RunRequested(
                run_id=f"r{number}",
                provider="local",
                project="here",
                name="x" * size,
                configuration=b"{}",
                submitter="ada",
            )
            batches.append(Batch(f"run/{fact.run_id}", [fact]))
        record.append_many(batches)


def test_a_ring_is_bounded_in_number_and_bytes() -> None:
    """And knows behind which position it has everything."""
    ring = Ring(7, frames=3, size=100)
    ring.add([frame(8), frame(10), frame(11)], 12)
    assert (len(ring), ring.after, ring.position) == (3, 7, 12)
    ring.add([frame(15)], 15)
    assert (len(ring), ring.after, ring.size) == (3, 8, 30)
    ring.add([frame(16, 80)], 16)
    assert (len(ring), ring.after, ring.size) == (3, 10, 100)
    ring.add([frame(17, 500)], 17)
    assert (len(ring), ring.after, ring.size) == (1, 16, 500)
    assert [[frame.position for frame in ring.behind(position)] for position in (15, 16, 17)] == [[17], [17], []]


@pytest.mark.slow
def test_a_client_that_reads_nothing_is_dropped(served: Serve, town: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its connection is cut, whatever was still to be sent; the others notice nothing."""
    tell(town, 300, size=30_000)
    monkeypatch.setattr("steno.projections.api.feed.feed._CHECK", 0.2)
    here = served(town)
    wait(lambda: here.client.get("/readyz").is_success, "the first fold: before it, a stream is answered with 503")
    monkeypatch.setattr("steno.projections.api.feed.listener.STUCK", 0.5)
    where = urlsplit(here.url)
    with socket.socket() as stuck:
        stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stuck.connect((where.hostname, where.port))
        stuck.send(f"GET /api/stream?after=0 HTTP/1.1\r\nHost: {where.netloc}\r\n\r\n".encode())
        metric = 'steno_stream_clients_dropped_total{reason="stuck"} 1.0'
        wait(lambda: metric in here.client.get("/metrics").text)
        wait(lambda: "steno_stream_clients 0.0" in here.client.get("/metrics").text)
        with pytest.raises(ConnectionResetError):
            list(iter(lambda: stuck.recv(1 << 20), b""))
    monkeypatch.setattr("steno.projections.api.feed.listener.STUCK", 600)  # a slow reader here must not be dropped
    with here.client.stream("GET", "/api/stream?after=0") as response:
        assert sum(line.startswith("id: ") for line, _ in zip(response.iter_lines(), range(300), strict=False)) > 90


def framed(path: Path) -> bytes:
    """Everything a stream sends from the beginning, heartbeats apart."""
    with Record.open(path, clock=SystemClock(), shapes=READINGS.shape) as record:
        return b"".join(message.data for message in Framer(record, Fold(READINGS), 0).advance(record.head().position))


async def pieces(feed: Feed, after: int) -> AsyncGenerator[bytes]:
    """The pieces for a client that was at a position."""
    with feed.listening(after, lambda: None) as listener:
        async for piece in feed.pieces(listener):
            yield piece


async def received(feed: Feed, after: int, size: int) -> bytes:
    """The first bytes behind a position."""
    received_bytes = b""
    async for piece in pieces(feed, after):
        received_bytes += piece
        if len(received_bytes) >= size:
            break
    return received_bytes


def playing(path: Path, play: Callable[[Feed], Awaitable[None]]) -> None:
    """A feed of its own, at the head of its record, in a loop of its own."""

    async def run() -> None:
        feed = Feed(path, clock=SystemClock())
        feed.start(asyncio.get_running_loop())
        try:
            async with asyncio.timeout(600):
                assert await feed.ready(120)
                assert await feed.beyond(feed.head(), 120)  # it is ready a thousand positions before
                await play(feed)
        finally:
            feed.stop()

    asyncio.run(run())


def test_whoever_falls_behind_the_ring_is_dropped_and_goes_on_where_it_was(
    town: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Frames that the ring evicted are made again when it comes back."""
    monkeypatch.setattr(Ring.__init__, "__kwdefaults__", {"frames": 8, "size": 1 << 20})

    async def play(feed: Feed) -> None:
        before = feed.position
        slow = pieces(feed, before)
        tell(town, 1)
        first = await anext(slow)
        tell(town, 20)
        assert await feed.beyond(before + 21, 120)
        assert [piece async for piece in slow] == []
        assert feed.dropped == {Dropped.BEHIND: 1, Dropped.STUCK: 0}
        wanted = framed(town)
        wanted = wanted[wanted.index(first) + len(first) :]
        assert await received(feed, before + 1, len(wanted)) == wanted

    playing(town, play)


def test_a_loop_that_is_slower_than_the_fold_loses_nothing(town: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its queue overflows and is emptied: every client is dropped, comes back, and is sent each frame once."""
    monkeypatch.setattr("steno.projections.api.feed.listener.FRAMES", 8)

    async def play(feed: Feed) -> None:
        before = feed.position
        slow = pieces(feed, before)
        tell(town, 1)
        first = await anext(slow)
        for _ in range(6):  # the loop does nothing else meanwhile, as a busy one
            tell(town, 5)
            wait(lambda: feed.live.position == feed.head())
        assert len(feed._publisher._queue) < 8
        assert feed.position == before + 1
        assert await feed.beyond(before + 31, 120)
        assert [piece async for piece in slow] == []
        assert feed.dropped == {Dropped.BEHIND: 1, Dropped.STUCK: 0}
        whole = framed(town)
        wanted = whole[whole.index(first) + len(first) :]
        assert await received(feed, before + 1, len(wanted)) == wanted
        tell(town, 1)  # the ring goes on behind the gap
        assert await feed.beyond(before + 32, 120)
        assert await received(feed, before + 31, 1) == framed(town)[len(whole) :]

    playing(town, play)


def test_many_who_come_back_share_what_is_made_again(town: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page is made once, however many want it, and no more than so many folds are kept."""
    made: list[tuple[int, int]] = []
    make = backfill.Backfill._make
    monkeypatch.setattr(backfill.Backfill, "_make", lambda self, *key: (made.append(key), make(self, *key))[1])

    async def play(feed: Feed) -> None:
        wanted = framed(town)
        streams = await asyncio.gather(*(received(feed, 0, len(wanted)) for _ in range(50)))
        assert set(streams) == {wanted}
        assert len(made) == len(set(made)) <= feed.position // backfill.PAGE + 1

    playing(town, play)


def test_the_state_is_the_fold_up_to_the_position_told(town: Path) -> None:
    """Listeners in the feed's thread hear of every position; whoever waits for one gets it."""

    async def play(feed: Feed) -> None:
        heard: list[int] = []

        def listener(changes: ChangeSet) -> None:
            return heard.append(changes.until)

        feed.live.subscribe(listener)
        before = feed.position
        tell(town, 3)
        assert await feed.beyond(before + 3, 120)
        assert not await feed.beyond(before + 4, 0.1)
        while not heard or heard[-1] < before + 3:  # in the feed's thread, behind what the loop is told
            await asyncio.sleep(0.01)
        assert heard[-1] == before + 3
        with Record.open(town, clock=SystemClock(), shapes=READINGS.shape) as record:
            replay = replay_record(record)
        with feed.state() as state:
            assert {run.run_id: run.state for run in state.runs.all()} == {run.run_id: run.state for run in replay.runs}

    playing(town, play)


def test_a_record_that_cannot_be_read_for_a_while_is_gone_on_with(town: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told, tried again once a second, and nothing is lost or doubled."""
    from steno.events.errors import RecordDamaged

    async def play(feed: Feed) -> None:
        before = feed.position
        listening = asyncio.ensure_future(received(feed, before, 1))
        await asyncio.sleep(0.1)
        run = RecordFold.run

        def broken(self: RecordFold, *words: Any, **named: Any) -> None:
            run(self, *words, **named)
            raise RecordDamaged("The record is damaged: run `steno verify`.")

        monkeypatch.setattr(RecordFold, "run", broken)
        tell(town, 2)
        while feed.trouble is None:
            await asyncio.sleep(0.05)
        assert "steno verify" in feed.trouble
        assert feed.alive
        monkeypatch.setattr(RecordFold, "run", run)
        assert await feed.beyond(before + 2, 120)
        while feed.trouble is not None:
            await asyncio.sleep(0.05)
        rest = await listening
        wanted = framed(town)
        assert rest == wanted[wanted.index(rest) :]

    playing(town, play)
