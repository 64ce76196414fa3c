"""The contracts of a store run over every store; a new store is another entry of `STORES`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from stenotest.memory_store import MemoryStore
from stenotest.records import StandingClock

from steno.events.store.record import Record
from steno.events.store.store import Store, new_identity, store_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from steno.events.shape.shape import Router

    Opener = Callable[..., Record]

STORES = ("memory", "postgres", "sqlite")


@pytest.fixture
def clock() -> StandingClock:
    return StandingClock()


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path, clock: StandingClock) -> Iterator[Store]:
    """A store; its record is there already, except for who opens it (`opener`)."""
    made: Store
    match request.param:
        case "memory":
            made = MemoryStore()
        case "postgres":
            made = store_at(request.getfixturevalue("postgres_url"))
        case _:
            made = store_at(f"sqlite:///{tmp_path}/record.db")
    if "opener" not in request.fixturenames:
        made.create(new_identity(clock))
    yield made
    if isinstance(made, MemoryStore):
        made.close()


@pytest.fixture
def opener(store: Store, clock: StandingClock) -> Iterator[Opener]:
    """Opens the one record of the test, as often as wanted."""
    opened: list[Record] = []

    def open_it(shapes: Router | None = None, *, write: bool = True) -> Record:
        given = {} if shapes is None else {"shapes": shapes}
        opened.append(Record.open(store, clock=clock, write=write, create=write, **given))
        return opened[-1]

    yield open_it
    for record in opened:
        record.close()
