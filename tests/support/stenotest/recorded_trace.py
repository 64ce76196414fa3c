"""The recordings of genuine servers, and a record of one of them, with its read models."""

from pathlib import Path
from typing import Final

import pytest

from steno.engine.providers.registry import READINGS
from steno.engine.replay.replay import open_trace
from steno.events.clock import SystemClock
from steno.events.store.record import Record
from steno.projections.read_models.projector import caught_up

TRACES: Final = Path(__file__).parents[2] / "traces"
RECORDINGS: Final = sorted(str(path.relative_to(TRACES)) for path in TRACES.rglob("*.zst"))
"""All of them, by name."""
_LONGEST: Final = ("/several.", "/unreachable.", "/name_reuse.", "/timeout.", "/checkpoint.")
FOR_LAWS: Final = [
    pytest.param(name, marks=pytest.mark.ci if any(word in name for word in _LONGEST) else ()) for name in RECORDINGS
]
"""The same for a law of any recording: the five longest, half of the work, in `make test-ci` only."""


def recorded_trace(folder: Path, trace: Path) -> Path:
    """The folder, with the record `record.db` and what stands beside it."""
    polls = [poll for _, poll in open_trace(trace) if poll is not None]
    with Record.open(
        folder / "record.db", write=True, create=True, shapes=READINGS.shape, clock=SystemClock()
    ) as record:
        record.append_polls(polls)
        caught_up(record).close()
    return folder
