"""A record of a trace, with its read models."""

from pathlib import Path

from steno.engine.providers.registry import READINGS
from steno.engine.replay.replay import open_trace
from steno.events.clock import SystemClock
from steno.events.store.record import Record
from steno.projections.read_models.projector import caught_up


def recorded_trace(folder: Path, trace: Path) -> Path:
    """The folder, with the record `record.db` and what stands beside it."""
    polls = [poll for _, poll in open_trace(trace) if poll is not None]
    with Record.open(
        folder / "record.db", write=True, create=True, shapes=READINGS.shape, clock=SystemClock()
    ) as record:
        record.append_polls(polls)
        caught_up(record).close()
    return folder
