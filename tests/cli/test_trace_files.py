"""Traces that a recorder writes: whole lines, whatever killed it before."""

from contextlib import closing
from pathlib import Path

import pytest

from cli.wiring.trace_files import TraceFile, trace_reading
from events.poll import Poll
from events.traces.trace import read_trace


def poll(number: int) -> Poll:
    """An answered poll that can be told from others."""
    at = 1_763_600_000_000_000 + number * 1_000_000
    return Poll(
        source="dstack/main",
        path="/api/runs/list",
        req=b'{"project_name":"main"}',
        started_at=at,
        observed_at=at + 1000,
        status=200,
        body=b'[{"id":"%d"}]' % number,
        answered=True,
    )


def bodies(path: Path) -> list[bytes | None]:
    """The answers of a trace, in order."""
    return [found.body for _, found in read_trace(path, trace_reading()) if found is not None]


@pytest.mark.parametrize("name", ["live.jsonl", "live.jsonl.zst"])
def test_a_trace_is_whole_after_every_poll_and_goes_on_later(tmp_path: Path, name: str) -> None:
    """It can be read while it is written, and a second recorder appends to it."""
    path = tmp_path / name
    with closing(TraceFile(path)) as first:
        first.write(poll(1))
        assert bodies(path) == [b'[{"id":"1"}]']
        first.write(poll(2))
    with closing(TraceFile(path)) as second:
        second.write(poll(3))
    assert bodies(path) == [b'[{"id":"1"}]', b'[{"id":"2"}]', b'[{"id":"3"}]']


def test_half_a_frame_of_a_killed_recorder_is_cut_off(tmp_path: Path) -> None:
    """Behind it nothing could be unpacked any more."""
    path = tmp_path / "live.jsonl.zst"
    for number in (1, 2):
        with closing(TraceFile(path)) as trace:
            trace.write(poll(number))
    path.write_bytes(path.read_bytes()[:-5])
    with closing(TraceFile(path)) as again:
        again.write(poll(3))
    assert bodies(path) == [b'[{"id":"1"}]', b'[{"id":"3"}]']


@pytest.mark.parametrize("half", [b'{"t": "2025', b"x" * 200_000])
def test_half_a_line_of_a_killed_recorder_is_cut_off(tmp_path: Path, half: bytes) -> None:
    """Its poll is in the record all the same."""
    path = tmp_path / "live.jsonl"
    with closing(TraceFile(path)) as trace:
        trace.write(poll(1))
    with path.open("ab") as file:
        file.write(half)
    with closing(TraceFile(path)) as again:
        again.write(poll(2))
    assert bodies(path) == [b'[{"id":"1"}]', b'[{"id":"2"}]']
