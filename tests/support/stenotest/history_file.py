"""A whole record as a small file: its polls as lines of a trace, its own events as JSON, in order of position.

Unlike a trace it has the requests, decisions and policies; unlike a record's file it is read by every later version.
"""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import zstandard

from steno.engine.fold.fold import Fold
from steno.engine.fold.poll_reader import PollReader
from steno.engine.providers.registry import READINGS
from steno.engine.state.world import World
from steno.events import types
from steno.events.poll import Poll
from steno.events.store.append import Batch
from steno.events.store.record import Record
from steno.events.traces.trace import TraceReading, parse_line, write_trace_line
from stenotest.records import StandingClock

READING = TraceReading(source_of=READINGS.source, answered=READINGS.answered)


class Line(msgspec.Struct, omit_defaults=True):
    """An event of ours (`kind`, `stream`, `at`), or a poll (`source`)."""

    text: msgspec.Raw
    kind: str = ""
    stream: str = ""
    at: int = 0
    source: str = ""

    @property
    def event(self) -> types.Event:
        """The event."""
        event: types.Event = msgspec.json.decode(self.text, type=getattr(types, self.kind))
        return event

    @property
    def poll(self) -> Poll:
        """The poll."""
        poll = parse_line(bytes(self.text), READING)
        assert poll is not None
        return msgspec.structs.replace(poll, source=self.source, stamp=None)


def write_history(record: Record, path: Path) -> None:
    """Everything that the fold reads of a record, as `.jsonl.zst`; its secrets are commitments already."""
    lines = []
    for stored in record.read():
        if isinstance(stored.data, types.PollEvent):
            poll = record.poll(stored.position)
            lines.append(Line(msgspec.Raw(write_trace_line(poll).rstrip()), source=poll.source))
        elif not isinstance(stored.data, types.Observed):
            text = msgspec.Raw(msgspec.json.encode(stored.data))
            lines.append(Line(text, kind=stored.type, stream=stored.stream, at=stored.observed_at))
    whole = b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
    path.write_bytes(zstandard.ZstdCompressor(level=19).compress(whole))


def lines_of(path: Path) -> Iterator[Line]:
    """The lines of such a file."""
    whole = zstandard.ZstdDecompressor().decompress(path.read_bytes(), max_output_size=1 << 30)
    return (msgspec.json.decode(line, type=Line) for line in whole.splitlines())


def world_of_history(path: Path) -> World:
    """The world of such a file, folded by today's rules; the wall clock is its record time."""
    fold, polls = Fold(READINGS), PollReader(READINGS)
    for position, line in enumerate(lines_of(path), start=1):
        if line.kind:
            fold.apply_event(position, line.at, line.event)
        else:
            fold.apply(polls.read(position, line.poll))
    return fold.state


def record_of_history(path: Path, target: Path) -> Path:
    """The record again, as today's version writes it."""
    clock = StandingClock()
    with Record.open(target, clock=clock, write=True, create=True, shapes=READINGS.shape) as record:
        for line in lines_of(path):
            if line.kind:
                clock.sleep(line.at - clock.now())
                record.append_many([Batch(line.stream, (line.event,))])
            else:
                clock.sleep(line.poll.observed_at - clock.now())
                record.append_polls([line.poll])
    return target
