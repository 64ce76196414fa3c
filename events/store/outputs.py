"""The output of runs, read from the record.

The first bytes of an output are kept, and the newest of the rest: what lies between is a gap, and so are chunks that
were dropped because they are too old.
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from steno.events.clock import Clock
from steno.events.errors import StenoError
from steno.events.store.output_rows import unpack
from steno.events.store.read import Reader
from steno.events.store.record import Record
from steno.events.store.store import Store
from steno.events.types import OutputRecorded

_LONG: Final = 1 << 16  # bytes of a line after which a search gives its parts
_TYPES: Final = frozenset({"OutputRecorded"})


class Chunk(NamedTuple):
    """A piece of an output."""

    position: int  # of its event
    offset: int  # the bytes of the output before it
    sha256: str
    data: bytes | None  # None: it was dropped
    event: OutputRecorded


def chunks(record: Reader, run_id: str, provider_id: str | None = None, *, until: int | None = None) -> Iterator[Chunk]:
    """The chunks of a run's output in order, attempt after attempt, or of one attempt, up to a position.
    RecordDamaged: one was changed.
    """
    for stored in record.read(stream=f"run/{run_id}", types=_TYPES, until=until):
        event = stored.data
        if isinstance(event, OutputRecorded) and provider_id in (None, event.provider_id):
            packed = record.packed_output(stored.position)
            data = None if packed is None else unpack(packed, event)
            yield Chunk(stored.position, event.offset, event.sha256, data, event)


def kept_output(record: Reader, run_id: str, provider_id: str) -> Iterator[bytes]:
    """The rest of an attempt's output, with a line for each gap; nothing if all was dropped."""
    missing, begins, there = 0, True, False
    for chunk in chunks(record, run_id, provider_id):
        missing += chunk.event.skipped + (chunk.event.size if chunk.data is None else 0)
        if chunk.data:
            if missing:
                yield _gap(missing, begins=begins)
            yield chunk.data
            missing, begins, there = 0, chunk.data.endswith(b"\n"), True
    if missing and there:
        yield _gap(missing, begins=begins)


def output_of(
    live: Callable[[], Iterator[bytes]],
    store: Store,
    attempt: tuple[str, str],
    clock: Clock,
    say: Callable[[str], object],
) -> Iterator[bytes]:
    """An output by its provider; where that has none or does not answer, what is recorded, and `say` gets a sentence.
    Raises as the provider does if nothing is recorded. `attempt`: run id and provider id.
    """
    pieces: Iterator[bytes] = iter(())
    first: bytes | None = None
    why: StenoError | None = None
    try:
        pieces = live()
        first = next(pieces, None)
    except StenoError as error:
        why = error
    if first is not None:
        yield first
        yield from pieces
        return
    with Record.open(store, clock=clock) as record:
        for number, piece in enumerate(kept_output(record, *attempt)):
            if number == 0:
                say(f"from the record, because {why or 'the provider has no output of it any more'}")
            yield piece
            why = None
    if why is not None:
        raise why


def _gap(missing: int, *, begins: bool) -> bytes:
    return ("" if begins else "\n").encode() + f"… {missing:,} bytes were not kept …\n".encode()


class OutputLine(NamedTuple):
    """A line of an output that contains a text."""

    run_id: str
    provider_id: str
    offset: int  # of the line, in the output
    line: bytes


class SearchTooLarge(StenoError):
    """More output is recorded than a search may read."""


def search(
    record: Reader,
    text: bytes,
    run_ids: Iterable[str] | None = None,
    *,
    until: int | None = None,
    most: int = sys.maxsize,
) -> Iterator[OutputLine]:
    """The lines that contain a text, in order; of all runs, that with the newest chunk first, if none are named. Of a
    line of more than 64 KB it gives the part that contains the text. `until`: the position of the newest chunk.
    Raises SearchTooLarge after `most` bytes of output, RecordDamaged if a chunk was changed.
    """
    begun, at, read = b"", 0, 0  # the line that goes on, and where it begins
    before = "", ""  # of which attempt it is
    for run_id in _newest(record, until) if run_ids is None else dict.fromkeys(run_ids):
        for chunk in chunks(record, run_id, until=until):
            attempt, data = (run_id, chunk.event.provider_id), chunk.data or b""
            if (read := read + len(data)) > most:
                raise SearchTooLarge
            if attempt != before or chunk.data is None or chunk.offset != at + len(begun):
                if text in begun:
                    yield OutputLine(*before, at, begun)
                begun, at, before = b"", chunk.offset, attempt
            *whole, begun = (begun + data).split(b"\n")
            for line in whole:
                if text in line:
                    yield OutputLine(*before, at, line)
                at += len(line) + 1
            if len(begun) > _LONG:
                if text in begun:
                    yield OutputLine(*before, at, begun)
                keep = begun[len(begun) - len(text) + 1 :]
                begun, at = keep, at + len(begun) - len(keep)
    if text in begun:
        yield OutputLine(*before, at, begun)


def _newest(record: Reader, until: int | None) -> Iterator[str]:
    """The runs with output, each once, that with the newest chunk first."""
    seen = set[str]()
    for stored in record.read(types=_TYPES, backwards=True, until=until):
        if isinstance(event := stored.data, OutputRecorded) and event.run_id not in seen:
            seen.add(event.run_id)
            yield event.run_id


def expire(record: Record, before: int) -> int:
    """Drop some of the chunks that were recorded before a time, the oldest first; how many: 0 if none is left."""
    old = [position for position, at in record.oldest_outputs() if at is None or at < before]
    if old:
        record.append_output("", (), old)
    return len(old)
