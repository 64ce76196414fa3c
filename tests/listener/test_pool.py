"""The pool of containers with an engine that fails in the worst moments; the real one is in test_server.py."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from types import SimpleNamespace
from typing import Any, cast

import pytest
from stenolab.waiting import wait

from engine.listener.daemon import SandboxUnavailable, StartedContainer
from engine.listener.pool import ContainerPool


class Engine:
    """It has the containers `there`. The calls of `start` whose numbers are `lost` make one and do not say so."""

    def __init__(self, lost: tuple[int, ...]) -> None:
        self.lost, self.calls, self.there = set(lost), count(1), set[str]()
        self.slow: Callable[[int], None] = lambda _number: None

    def start(self) -> StartedContainer:
        number = next(self.calls)
        self.there.add(f"c{number}")
        self.slow(number)
        if number in self.lost:
            raise SandboxUnavailable("The Docker engine died.")
        return StartedContainer(f"c{number}", cast(Any, SimpleNamespace(close=lambda: None)), number)

    def remove(self, container: str) -> None:
        self.there.discard(container)


@contextmanager
def pool_of(engine: Engine, size: int) -> Iterator[ContainerPool]:
    pool = ContainerPool(engine.start, engine.remove, lambda: set(engine.there), size)
    try:
        yield pool
    finally:
        pool.close()


@pytest.mark.parametrize("lost", [(1,), (2,), (3,), (1, 2, 3)])
def test_a_container_whose_answer_was_lost_is_removed(lost: tuple[int, ...]) -> None:
    """Seen once in eight kills of a real engine: nobody knew of it, so it stayed until the listener's end."""
    engine = Engine(lost)
    with pool_of(engine, 3) as pool:
        ready = {f"c{number}" for number in range(1, 4 + len(lost))} - {f"c{number}" for number in lost}
        wait(lambda: engine.there == ready, seconds=60, what="the strays' end")
        assert {pool.take().container for _ in range(3)} == ready
    assert engine.there <= ready


def test_one_that_is_just_being_started_is_no_stray() -> None:
    """Without containers ahead of need `take` starts its own: one is on its way while another one's answer is lost."""
    engine, reached, go_on, found = Engine((2,)), threading.Event(), threading.Event(), list[str]()

    def slow(number: int) -> None:
        if number == 1:
            reached.set()
            go_on.wait(60)

    engine.slow = slow
    with pool_of(engine, 0) as pool:
        first = threading.Thread(target=lambda: found.append(pool.take().container))
        first.start()
        reached.wait(60)
        with pytest.raises(SandboxUnavailable):
            pool.take()
        wait(lambda: bool(pool._change._waiters), seconds=60, what="the thread has seen that a start goes on")
        go_on.set()
        first.join(60)
        wait(lambda: engine.there == {"c1"}, seconds=60, what="the stray's end")
    assert found == ["c1"]
