"""Fixtures that the tests of the record share."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from stenotest.records import StandingClock, temporary_record

from steno.engine.providers.registry import READINGS
from steno.events.store.record import Record
from steno.events.traces.trace import TraceReading


@pytest.fixture
def clock() -> StandingClock:
    return StandingClock()


@pytest.fixture
def record(tmp_path: Path, clock: StandingClock) -> Iterator[Record]:
    """A writable record that knows the shapes of dstack's answers."""
    with temporary_record(tmp_path, shapes=READINGS.shape, clock=clock) as opened:
        yield opened


@pytest.fixture(scope="session")
def reading() -> TraceReading:
    return TraceReading(source_of=READINGS.source, answered=READINGS.answered)
