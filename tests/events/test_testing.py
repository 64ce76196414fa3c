"""The helpers we give to others' tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from stenotest.records import START, Case, StandingClock, poll_of, temporary_record

from events import types
from events.store.record import Batch

if TYPE_CHECKING:
    from pathlib import Path

INTENDED = types.SubmitIntended(run_id="1", provider="local", name="a")
DONE = types.StopSucceeded(run_id="1", provider="local")


def test_a_case_compares_what_was_recorded_since(tmp_path: Path) -> None:
    """Given is the past, then is what came after it, in order and nothing else."""
    with temporary_record(tmp_path) as record:
        case = Case(record).given_polls(poll_of(b"[]")).given("run/1", INTENDED)
        assert case.when(lambda: record.append_many([Batch("run/1", [DONE])])) == (3,)
        case.then("run/1", DONE)
        with pytest.raises(AssertionError, match="run/1"):
            case.then("run/1", INTENDED)


def test_a_standing_clock_moves_when_told() -> None:
    """No test waits for the time it is about."""
    clock = StandingClock()
    clock.sleep(5)
    clock.sleep(-5)
    assert clock.now() == START + 5
