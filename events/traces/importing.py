"""Takes a trace into a record, so that taking it twice adds nothing."""

import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

import msgspec

from events.errors import SourceIsLive
from events.poll import Poll
from events.store.record import Record
from events.traces.trace import BadTraceLine, TraceReading, numbered_lines, parse_line

_BATCH = 500
_ID_BYTES = 8
"""Enough to tell the lines of all traces of one record apart; each byte is paid for by every imported poll, twice."""


class Imported(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a trace."""

    polls: int
    """Poll lines the record did not have."""
    known: int
    """Poll lines it had already."""
    skipped: int
    """Broken lines."""
    first_position: int | None
    """Of the trace's polls, new or known; None if it has none."""
    last_position: int | None


def import_trace(
    record: Record, path: str | Path, reading: TraceReading, *, lenient: bool = False, name: str | None = None
) -> Imported:
    """Write one poll event per poll line, in order. Without `lenient` a broken line imports nothing.

    A poll's id is the hash of its line and of how often that line came before: importing again adds nothing, doubled
    lines stay two polls. An import that was cut short is completed by doing it again. The id also marks the poll as
    imported: its source is an archive.

    Args:
        name: import as `<provider>/<name>`, whichever sources the trace names; the ids are then others.

    Raises:
        BadTraceLine, UnreadableInput, SourceIsLive: nothing was imported.
        IdConflict, RecordLocked, RecordNotWritable: what had been imported stays, and is known the next time.
    """
    if name is not None:
        reading = _renamed(reading, name)
    salt = b"" if name is None else name.encode()
    with _rereadable(path) as file:
        found_polls = (found for found in _polls(file, str(path), reading, salt, lenient=lenient) if found is not None)
        for source in sorted({poll.source for _, poll in found_polls}):
            _refuse_live(record, source)
        polls = known = skipped = 0
        positions: list[int] = []
        batch: list[tuple[str, Poll]] = []

        def append() -> None:
            nonlocal polls, known
            results = record.append_polls([poll for _, poll in batch], ids=[name for name, _ in batch])
            polls += sum(result.appended for result in results)
            known += sum(not result.appended for result in results)
            positions.extend((results[0].position, results[-1].position))
            batch.clear()

        for found in _polls(file, str(path), reading, salt, lenient=lenient):
            if found is None:
                skipped += 1
                continue
            batch.append(found)
            if len(batch) == _BATCH:
                append()
        if batch:
            append()
    return Imported(
        polls=polls,
        known=known,
        skipped=skipped,
        first_position=positions[0] if positions else None,
        last_position=positions[-1] if positions else None,
    )


def _renamed(reading: TraceReading, name: str) -> TraceReading:
    """A reading whose polls are all of one source a provider."""
    own = reading.source_of
    return msgspec.structs.replace(reading, source_of=lambda path, req: f"{own(path, req).partition('/')[0]}/{name}")


def _refuse_live(record: Record, source: str) -> None:
    """
    Raises:
        SourceIsLive: a recorder polls, or has polled, this source.
    """
    if "/" not in source:
        return  # polls of no project, as of dstack's event log: no recorder has such a source
    stream = f"source/{source}"
    first = next(record.read(stream=stream, types={"PollRecorded", "PollFailed"}, limit=1), None)
    started = next(record.read(stream=stream, types={"RecorderStarted"}, limit=1), None)
    if started is not None or (first is not None and first.event_id is None):
        raise SourceIsLive(
            f"This record records {source} itself, so a trace cannot be imported under that name: give the import a "
            "name of its own with `--as NAME`."
        )


def _polls(
    file: Path, name: str, reading: TraceReading, salt: bytes, *, lenient: bool
) -> Iterator[tuple[str, Poll] | None]:
    """(id, poll) of every poll line, None for a broken one."""
    seen: Counter[bytes] = Counter()
    for number, raw in numbered_lines(file, lenient=lenient):
        try:
            poll = parse_line(raw, reading)
        except (ValueError, RecursionError) as error:
            if not lenient:
                raise BadTraceLine(name, number, str(error)) from None
            yield None
            continue
        if poll is None:
            continue
        line = sha256(raw.strip()).digest()
        seen[line] += 1
        occurrence = seen[line].to_bytes(8, "big")
        yield sha256(line + occurrence + salt).digest()[:_ID_BYTES].hex(), poll


@contextmanager
def _rereadable(path: str | Path) -> Iterator[Path]:
    """The file itself; standard input is put aside first, for it is read twice."""
    if str(path) != "-":
        yield Path(path)
        return
    with tempfile.NamedTemporaryFile(prefix="steno-") as aside:
        shutil.copyfileobj(sys.stdin.buffer, aside)
        aside.flush()
        yield Path(aside.name)
