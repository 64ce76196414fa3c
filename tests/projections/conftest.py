"""Records made of genuine recordings."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import cache
from pathlib import Path

import pytest
from stenotest.growing_record import CLOCK, Growing

from steno.engine.providers.registry import READINGS
from steno.engine.replay.replay import open_trace
from steno.events.clock import SECOND, SystemClock
from steno.events.poll import Poll
from steno.events.store.record import Record
from steno.projections.read_models.projector import Projector
from steno.projections.read_models.reader_pool import Pool

TRACES = Path(__file__).parent.parent / "traces"


@cache
def polls_of(name: str) -> tuple[Poll, ...]:
    """The polls of a recording."""
    return tuple(poll for _, poll in open_trace(TRACES / f"{name}.jsonl.zst") if poll is not None)


MakeRecord = Callable[[Path, Sequence[Poll]], Record]


@pytest.fixture(scope="session")
def recording() -> Callable[[str], tuple[Poll, ...]]:
    """`recording("dstack-0.22.5/success")`: the polls of a genuine server."""
    return polls_of


@pytest.fixture(scope="session")
def recorded() -> MakeRecord:
    """`recorded(path, polls)`: the record at `path`, with these polls appended."""

    def make(path: Path, polls: Sequence[Poll]) -> Record:
        record = Record.open(path, write=True, create=True, shapes=READINGS.shape, clock=SystemClock())
        for start in range(0, len(polls), 200):
            record.append_polls(polls[start : start + 200])
        return record

    return make


@pytest.fixture
def growing(tmp_path: Path) -> Iterator[Growing]:
    """A record of some hundred polls."""
    made = Growing(tmp_path / "record.db")
    made.grow(300)
    yield made
    made.record.close()


@pytest.fixture
def live(growing: Growing, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Projector, Pool]]:
    """Its projector, running, and a pool of readers, who wait as long as a crowded machine needs, not two seconds."""
    monkeypatch.setattr("steno.projections.read_models.reader_pool.PATIENCE", 120 * SECOND)
    monkeypatch.setattr("steno.projections.read_models.projector._TIMEOUT", 120)
    projector = Projector(growing.path, clock=CLOCK)
    with closing(Pool(growing.path, clock=CLOCK, wake=projector.wake)) as pool:
        projector.start()
        yield projector, pool
        projector.stop()
