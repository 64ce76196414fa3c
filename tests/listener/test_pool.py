"""The pool of containers with an engine that fails in the worst moments; the real one is in test_server.py."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from types import SimpleNamespace
from typing import Any, cast

import pytest
from stenotest.waiting import wait

from steno.engine.listener.daemon import SandboxUnavailable
from steno.engine.listener.pool import ContainerPool


class Engine:
    """It has the containers `there`. The calls of `start` whose numbers are `lost` make one and do not say so, and the
    first removals after them fail too.
    """

    def __init__(self, lost: tuple[int, ...]) -> None:
        self.lost, self.calls, self.there = set(lost), count(1), set[str]()
        self.refuses = False

    def make(self) -> Any:
        number = next(self.calls)
        return SimpleNamespace(name=f"c{number}", start=lambda: self.start(number), close=lambda: None)

    def start(self, number: int) -> None:
        self.there.add(f"c{number}")
        if number in self.lost:
            self.refuses = True
            raise SandboxUnavailable("The Docker engine died.")

    def remove(self, name: str) -> None:
        if self.refuses:
            self.refuses = False
            raise SandboxUnavailable("The Docker engine died.")
        self.there.discard(name)


@contextmanager
def pool_of(engine: Engine, size: int) -> Iterator[ContainerPool]:
    pool = ContainerPool(engine.make, engine.remove, size)
    try:
        yield pool
    finally:
        pool.close()


@pytest.mark.parametrize("size", [0, 3])
@pytest.mark.parametrize("lost", [(1,), (2,), (3,), (1, 2, 3), (1, 2, 3, 4)])
def test_a_container_whose_answer_was_lost_is_removed(lost: tuple[int, ...], size: int) -> None:
    """Seen once in eight kills of a real engine: nobody knew of it, so it stayed until the listener's end."""
    engine, taken = Engine(lost), list[Any]()
    with pool_of(engine, size) as pool:
        while len(taken) < 3:
            with suppress(SandboxUnavailable):
                taken.append(pool.take())
        assert not {f"c{number}" for number in lost} & {container.name for container in taken}
        pool.give_back(taken.pop())
        pool.quiet()
        assert engine.there == {container.name for container in (*taken, *pool.ready)}
        for container in taken:
            pool.give_back(container)
    assert engine.there == set()


@pytest.mark.parametrize("lost", [(1,), (2, 3), (4,), (1, 2, 3)])
def test_it_is_full_again_by_itself_when_the_engine_is_back(
    lost: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody takes a container meanwhile; and none is left of the starts that failed."""
    monkeypatch.setattr("steno.engine.listener.pool._PAUSE", 0.01)
    engine = Engine(lost)
    with pool_of(engine, 3) as pool:
        if 4 in lost:
            pool.give_back(pool.take())

        def full() -> bool:
            return len(pool.ready) == 3 and engine.there == {container.name for container in pool.ready}

        wait(full, what="a full pool and nothing else")
    assert engine.there == set()


def test_its_end_waits_for_no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("steno.engine.listener.pool._PAUSE", 600.0)
    began = threading.active_count()
    with pool_of(Engine(tuple(range(1, 100))), 3) as pool:
        wait(lambda: pool.trouble is not None, what="a pause")
    wait(lambda: threading.active_count() == began, what="its end")


def test_after_its_end_there_is_none() -> None:
    with pool_of(Engine(()), 1) as pool:
        pool.give_back(cast(Any, pool.take()))
    with pytest.raises(SandboxUnavailable, match="closed"):
        pool.take()
