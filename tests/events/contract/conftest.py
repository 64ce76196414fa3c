"""The contract of a record, run over every backend there is; another one is another entry of `BACKENDS`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from stenotest.records import StandingClock

from events.store.record import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from events.shape.shape import Router

    Opener = Callable[..., Record]


def _sqlite(folder: Path) -> str:
    return f"sqlite:///{folder}/record.db"


BACKENDS = {"sqlite": _sqlite}


@pytest.fixture(params=sorted(BACKENDS))
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a record that is not there yet."""
    return BACKENDS[request.param](tmp_path)


@pytest.fixture
def opener(where: str, clock: StandingClock) -> Iterator[Opener]:
    """Opens the one record of the test, as often as wanted."""
    opened: list[Record] = []

    def open_it(shapes: Router | None = None, *, write: bool = True) -> Record:
        given = {} if shapes is None else {"shapes": shapes}
        opened.append(Record.open(where, clock=clock, write=write, create=write, **given))
        return opened[-1]

    yield open_it
    for one in opened:
        one.close()
