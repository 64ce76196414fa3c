"""The record against everything genuine servers have said."""

import json
from pathlib import Path

import pytest
from stenotest.recorded_trace import FOR_LAWS, RECORDINGS, TRACES
from stenotest.records import temporary_record

from steno.engine.providers.registry import READINGS
from steno.events.traces.trace import TraceReading, import_trace, read_trace, write_trace_line


@pytest.mark.parametrize("name", FOR_LAWS)
def test_every_poll_of_a_recording_comes_back_equal(name: str, reading: TraceReading, tmp_path: Path) -> None:
    """An answer is rebuilt equal as JSON to what the server sent, but for secrets, and the line of its trace too."""
    with temporary_record(tmp_path, shapes=READINGS.shape) as record:
        imported = import_trace(record, TRACES / name, reading)
        positions = [event.position for event in record.read(types={"PollRecorded", "PollFailed"})]
        polls = [poll for _, poll in read_trace(TRACES / name, reading) if poll is not None]
        assert imported.polls == len(polls) == len(positions)
        for position, poll in zip(positions, polls, strict=True):
            expected = record.scrubbed(poll)
            back = record.poll(position)
            assert back.body == expected.body
            assert json.loads(write_trace_line(back)) == json.loads(write_trace_line(expected))
        assert record.verify().ok


def test_importing_a_recording_again_adds_nothing(reading: TraceReading, tmp_path: Path) -> None:
    """An import that is repeated, or done by another process, knows every line; the head stays."""
    path = TRACES / min(RECORDINGS, key=lambda name: (TRACES / name).stat().st_size)
    with temporary_record(tmp_path, shapes=READINGS.shape) as record:
        first = import_trace(record, path, reading)
        head = record.head()
        again = import_trace(record, path, reading)
        assert (again.polls, again.known) == (0, first.polls)
        assert (again.first_position, again.last_position) == (first.first_position, first.last_position)
    with temporary_record(tmp_path, shapes=READINGS.shape) as record:
        assert import_trace(record, path, reading).polls == 0
        assert record.head() == head
