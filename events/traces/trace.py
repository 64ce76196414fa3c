"""Poll traces: one poll a line of JSON (`.jsonl`, `.jsonl.zst`, `-`).

A line is `{"t", "ep", "path", "req", "status", "ms", "body"}`, with `"status": null` and `"error"` (or `"exc"`) without
an answer; that of a command `{"t", "kind": "poll", "cmd", "rc", "ms", "out", "err"}`. Either may have `boot` (seconds
since the machine started, when the answer came) and `epoch` (8 hex digits: 4 of that start, 4 of the process). Unknown
keys are kept. A line with `"ep": "lab_note"`, or a `kind` other than `poll`, is not a poll; `{"kind": "left_out",
"events": {TYPE: N}}` says how many events of the record that the trace was written from are not in it.
"""

import json
import shlex
import shutil
import stat
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from hashlib import sha256
from io import BufferedReader
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, cast

import msgspec
import zstandard

from steno.events.clock import BOOT, SECOND, Stamp, format_time, parse_time
from steno.events.errors import SourceIsLive, UnreadableInput
from steno.events.poll import Poll, too_deep, too_wide

if TYPE_CHECKING:
    from steno.events.store.record import Record

SLURM: Final = "slurm:"  # start of the path of a Slurm poll; the command follows

_NULL: Final = msgspec.Raw(b"null")
_KNOWN: Final = ("t", "ep", "path", "req", "status", "ms", "body", "error", "exc", "sweep", "complete", "server_time")
_line: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_text: Final = msgspec.json.Decoder(str)
_maybe_text: Final = msgspec.json.Decoder(str | None)
_maybe_int: Final = msgspec.json.Decoder(int | None)
_maybe_number: Final = msgspec.json.Decoder(float | None)
_LONGEST: Final = 366 * 86_400 * SECOND  # no answer takes a year
_LAST: Final = parse_time("9999-12-31T23:59:59Z")

LONGEST_LINE: Final = 64 << 20  # bytes; the answers we hold have at most half of that
BLANK: Final = 1_000_000  # blank lines of a file: a few kB of zstd unpack to a billion of them
_PIECE: Final = 1 << 20
_PACKED: Final = 2 << 10  # bytes read at a time: zstd unpacks one to at most 32,000, so these to 64 MB
CUT: Final = b"\0"  # for what cannot be unpacked; not a line of any trace

_BATCH: Final = 500
Progress = Callable[[int, int], None]  # called with (bytes read, bytes of the file) after each line
_ID_BYTES: Final = 8  # tells all trace lines of a record apart; every imported poll pays twice for each byte


class TraceReading(msgspec.Struct, frozen=True, kw_only=True):
    """Functions of the engine for what a line alone does not say."""

    source_of: Callable[[str, bytes], str]  # (path, req) → who was asked
    answered: Callable[[str, bytes, int | None, bytes | None, str | None], bool]
    """(path, req, status, body, error) → whether the source told us something."""


class BadTraceLine(UnreadableInput):
    """A line of a trace is broken."""

    def __init__(self, path: str, line: int, why: str) -> None:
        super().__init__(f"{path}: line {line} is not a poll ({why}): correct it, or skip it with --lenient.")
        self.line = line  # from 1


def read_trace(
    path: str | Path,
    reading: TraceReading,
    *,
    lenient: bool = False,
    broken: Callable[[int], object] | None = None,
    progress: Progress | None = None,
) -> Iterator[tuple[int, Poll | None]]:
    """Each line's number, from 1, and its poll; None for a line that is not a poll, or broken with `lenient`.

    `broken` is called with the number of every skipped broken line. Raises BadTraceLine for a broken line unless
    `lenient`, UnreadableInput if the file is missing or cannot be unpacked.
    """
    for number, _, poll, is_broken in _parsed(path, str(path), reading, progress, lenient=lenient):
        if is_broken and broken is not None:
            broken(number)
        yield number, poll


def _parsed(
    file: str | Path, name: str, reading: TraceReading, progress: Progress | None, *, lenient: bool
) -> Iterator[tuple[int, bytes, Poll | None, bool]]:
    """Number, text and poll of each line, and whether it is broken."""
    for number, raw in numbered_lines(file, lenient=lenient, progress=progress):
        poll, broken = None, False
        try:
            poll = parse_line(raw, reading)
        except (ValueError, RecursionError) as error:
            if not lenient:
                raise BadTraceLine(name, number, str(error)) from None
            broken = True
        yield number, raw, poll, broken


def parse_line(raw: bytes, reading: TraceReading) -> Poll | None:
    """The poll of one line, or None if it is not a poll. Raises ValueError for a broken line."""
    if too_deep(raw):
        raise ValueError("it is nested too deeply")
    if too_wide(raw):
        raise ValueError("it holds too many values")
    line = _members(raw)
    kind = bytes(line.pop("kind", _NULL))
    if kind not in (b'"poll"', b"null") or bytes(line.get("ep", _NULL)) == b'"lab_note"':
        return None
    started_at = parse_time(_text.decode(line.pop("t", _NULL)))
    milliseconds = _maybe_number.decode(line.pop("ms", _NULL)) or 0
    if abs(milliseconds) > _LONGEST / 1000 or started_at + milliseconds * 1000 > _LAST:
        raise ValueError("its times are out of range")
    stamp = _stamp(line)
    own: dict[str, Any]
    if "path" in line:
        path, req, body = _text.decode(line["path"]), bytes(line.get("req", _NULL)), line.get("body")
        status = _maybe_int.decode(line.get("status", _NULL))
        if status is None and body == _NULL:
            body = None
        server_time = _maybe_text.decode(line.get("server_time", _NULL))
        own = {
            "error": _maybe_text.decode(line.get("error", _NULL)) or _maybe_text.decode(line.get("exc", _NULL)),
            "ep": _maybe_text.decode(line.get("ep", _NULL)),
            "sweep": _maybe_text.decode(line.get("sweep", _NULL)),
            "complete": bytes(line.get("complete", _NULL)) == b"true",
            "server_time": None if server_time is None else parse_time(server_time),
            "answered": reading.answered(path, req, status, None if body is None else bytes(body), None),
            "extra": {key: value for key, value in line.items() if key not in _KNOWN},
        }
    elif "cmd" in line:
        req, body = bytes(line.pop("cmd")), line.pop("out", None)
        words = msgspec.json.decode(req, type=str | list[str])
        path = SLURM + (words if isinstance(words, str) else shlex.join(words))
        status = _maybe_int.decode(line.pop("rc", _NULL))
        error = _maybe_text.decode(line.get("err", _NULL)) if status != 0 else None
        answered = reading.answered(path, req, status, None if body is None else bytes(body), error)
        own = {"error": error, "answered": answered, "extra": line}
    else:
        raise ValueError("it names no path and no command")
    text = None if body is None else bytes(body)
    return Poll(
        source=reading.source_of(path, req),
        path=path,
        req=req,
        started_at=started_at,
        observed_at=started_at + round(milliseconds * 1000),
        status=status,
        stamp=stamp,
        body=text,
        text=text is not None and text.startswith(b'"'),
        **own,
    )


def _stamp(line: dict[str, msgspec.Raw]) -> bytes | None:
    """The clock of a line, which is taken out of it; None: it has no boot time."""
    epoch, boot = line.pop("epoch", _NULL), _maybe_number.decode(line.pop("boot", _NULL))
    if boot is None:
        return None
    number = int(_maybe_text.decode(epoch) or "0", 16)
    if not (0 <= boot <= BOOT / 1000 and 0 <= number < 1 << 32):
        raise ValueError("its clock is out of range")
    return Stamp(number, round(boot * SECOND), 0).packed()


def write_trace_line(poll: Poll) -> bytes:
    """The poll as a line of a trace with its newline. Its secrets must have been replaced (`Record.scrubbed`)."""
    line: dict[str, object] = {"t": format_time(poll.started_at)}
    milliseconds = (poll.observed_at - poll.started_at) / 1000
    if poll.stamp is not None:
        epoch, boot, _ = Stamp.unpacked(poll.stamp, poll.observed_at)
        line |= {"boot": boot / SECOND, "epoch": f"{epoch:08x}"}
    if poll.path.startswith(SLURM):
        line |= {"kind": "poll", "cmd": msgspec.Raw(poll.req), "rc": poll.status, "ms": milliseconds}
        if poll.body is not None:
            line["out"] = msgspec.Raw(poll.body)
        return msgspec.json.encode(line | poll.extra) + b"\n"
    req = msgspec.Raw(poll.req)
    line |= {"ep": poll.ep, "path": poll.path, "req": req, "status": poll.status, "ms": milliseconds}
    server_time = None if poll.server_time is None else format_time(poll.server_time)
    more = {"error": poll.error, "sweep": poll.sweep, "complete": poll.complete or None, "server_time": server_time}
    line |= {key: value for key, value in more.items() if value is not None}
    line |= poll.extra
    if poll.body is not None:
        # Line breaks between tokens; inside strings they are escaped.
        line["body"] = msgspec.Raw(poll.body.replace(b"\r", b" ").replace(b"\n", b" "))
    return msgspec.json.encode(line) + b"\n"


class LeftOut(msgspec.Struct, frozen=True, tag_field="kind", tag="left_out"):
    """The last line of an exported trace."""

    events: dict[str, int]  # by type


def write_left_out(events: dict[str, int]) -> bytes:
    return msgspec.json.encode(LeftOut(events)) + b"\n"


def _left_out(raw: bytes) -> dict[str, int]:
    """The counts in a line that says what a trace leaves out; {} for other lines."""
    try:
        return msgspec.json.decode(raw, type=LeftOut).events
    except (msgspec.DecodeError, RecursionError):
        return {}


def _members(raw: bytes) -> dict[str, msgspec.Raw]:
    try:
        return _line.decode(raw)
    except msgspec.DecodeError:
        # Other writers' JSON may hold what strict readers refuse (NaN, half a surrogate pair).
        members = json.loads(raw)
        if not isinstance(members, dict):
            raise ValueError("it is not a JSON object") from None  # noqa: TRY004 - the caller names the line
        return {key: msgspec.Raw(json.dumps(value).encode()) for key, value in members.items()}


def numbered_lines(
    path: str | Path, *, lenient: bool = False, progress: Progress | None = None
) -> Iterator[tuple[int, bytes]]:
    """The lines of a `.jsonl`, a `.jsonl.zst` or standard input (`-`), numbered from 1, without blank lines.

    With `lenient`, a file that cannot be unpacked to its end gives what can be, then the line `CUT`; otherwise it
    raises UnreadableInput. So do a missing or irregular file, a line over `LONGEST_LINE` and over `BLANK` blank lines.
    """
    number = blank = 0
    try:
        for number, line in enumerate(_lines(str(path), progress), 1):
            if len(line) > LONGEST_LINE:
                raise UnreadableInput(f"{path}: line {number} is longer than {LONGEST_LINE >> 20} MB; no poll is.")
            if line.strip():
                yield number, line
            elif (blank := blank + 1) > BLANK:
                raise UnreadableInput(f"{path}: more than {BLANK:,} lines up to line {number} are blank.")
    except FileNotFoundError:
        raise UnreadableInput(f"There is no file {path}.") from None
    except OSError as error:
        raise UnreadableInput(f"{path} cannot be read ({error.strerror}).") from error
    except zstandard.ZstdError as error:
        if lenient:
            yield number + 1, CUT
            return
        raise UnreadableInput(f"{path} cannot be unpacked behind line {number} ({error}): it is damaged.") from error


def _lines(path: str, progress: Progress | None) -> Iterator[bytes]:
    if path == "-":
        yield from _split(iter(partial(cast(BufferedReader, sys.stdin.buffer).read1, _PIECE), b""))
        return
    # A pipe without a writer would block, and a device never ends.
    if not stat.S_ISREG(Path(path).stat().st_mode):
        raise UnreadableInput(f"{path} is not a regular file: give one, or `-` and the lines on standard input.")
    with Path(path).open("rb") as file:
        size, packed = Path(path).stat().st_size, file.read(4) == zstandard.FRAME_HEADER
        file.seek(0)
        for line in _split(_unpacked(file) if packed else iter(partial(file.read, _PIECE), b"")):
            if progress is not None:
                progress(file.tell(), size)
            yield line


def _split(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The lines of a text in pieces; a line over `LONGEST_LINE` is the last, and incomplete."""
    begun = bytearray()
    for piece in pieces:
        *whole, rest = piece.split(b"\n")
        for line in whole:
            yield bytes(begun + line) if begun else line
            begun.clear()
        begun += rest
        if len(begun) > LONGEST_LINE:
            break
    if begun:
        yield bytes(begun)


def _unpacked(file: IO[bytes]) -> Iterator[bytes]:
    """The text of one or more packed frames in turn. Raises zstandard.ZstdError if one is broken or ends too early."""
    unpacker = zstandard.ZstdDecompressor().decompressobj()
    while piece := file.read(_PACKED):
        while piece:
            if unpacker.eof:
                unpacker = zstandard.ZstdDecompressor().decompressobj()
            text = unpacker.decompress(piece)
            for start in range(0, len(text), _PIECE):
                yield text[start : start + _PIECE]
            piece = unpacker.unused_data if unpacker.eof else b""
    if not unpacker.eof:
        raise zstandard.ZstdError("it ends too early")


class Imported(msgspec.Struct, frozen=True, kw_only=True):
    polls: int  # poll lines the record did not have
    known: int  # poll lines it had already
    skipped: int  # broken lines
    first_position: int | None  # of the trace's polls, new or known; None if it has none
    last_position: int | None
    left_out: dict[str, int]  # events by type that the trace says it leaves out


def import_trace(
    record: "Record",
    path: str | Path,
    reading: TraceReading,
    *,
    lenient: bool = False,
    name: str | None = None,
    progress: Progress | None = None,
) -> Imported:
    """Write one poll event per poll line, in order. Without `lenient` a broken line imports nothing.

    A poll's id is the hash of its line and of how often that line came before: importing again, or after an
    interruption, adds what is missing. The id marks the poll as imported: its source is an archive. With `name`, all is
    imported as `<provider>/<name>`, with other ids. `progress` counts the bytes of both readings of the file: the first
    is to know that no line is broken.

    BadTraceLine, UnreadableInput and SourceIsLive mean that nothing was imported. After IdConflict, RecordLocked or
    RecordNotWritable what was imported stays.
    """
    if name is not None:
        own = reading.source_of
        reading = msgspec.structs.replace(
            reading, source_of=lambda path, req: f"{own(path, req).partition('/')[0]}/{name}"
        )
    first = last = None
    count, left_out = Counter[str](), Counter[str]()
    with _rereadable(path) as file:
        once = progress and (lambda at, size: progress(at, 2 * size))
        lines = _parsed(file, str(path), reading, once, lenient=lenient)
        sources = {poll.source for _, _, poll, _ in lines if poll}
        for source in sorted(sources):
            if "/" in source and _is_recorded(record, f"source/{source}"):
                raise SourceIsLive(
                    f"This record records {source} itself, so a trace cannot be imported under that name: give the "
                    "import a name of its own with `--as NAME`."
                )
        again = progress and (lambda at, size: progress(size + at, 2 * size))
        lines = _parsed(file, str(path), reading, again, lenient=lenient)
        polls = _identified(lines, (name or "").encode(), count, left_out)
        while batch := list(islice(polls, _BATCH)):
            results = record.append_polls([poll for _, poll in batch], ids=[name for name, _ in batch])
            count["polls"] += sum(result.appended for result in results)
            count["known"] += sum(not result.appended for result in results)
            first, last = results[0].position if first is None else first, results[-1].position
    counts = {name: count[name] for name in ("polls", "known", "skipped")}
    return Imported(**counts, first_position=first, last_position=last, left_out=dict(left_out))


def _identified(
    lines: Iterator[tuple[int, bytes, Poll | None, bool]], salt: bytes, count: Counter[str], left_out: Counter[str]
) -> Iterator[tuple[str, Poll]]:
    """(id, poll) of every poll; counts broken lines as `skipped`, and what the trace leaves out."""
    seen: Counter[bytes] = Counter()
    for _, raw, poll, broken in lines:
        count["skipped"] += broken
        left_out.update(_left_out(raw) if poll is None and not broken else ())
        if poll is not None:
            line = sha256(raw.strip()).digest()
            seen[line] += 1
            yield sha256(line + seen[line].to_bytes(8, "big") + salt).digest()[:_ID_BYTES].hex(), poll


def _is_recorded(record: "Record", stream: str) -> bool:
    """True if a recorder polls, or has polled, the source of this stream."""
    first = next(record.read(stream=stream, types={"PollRecorded", "PollFailed"}, limit=1), None)
    started = next(record.read(stream=stream, types={"RecorderStarted"}, limit=1), None)
    return started is not None or (first is not None and first.event_id is None)


@contextmanager
def _rereadable(path: str | Path) -> Iterator[Path]:
    """The file itself, or a copy of standard input: it is read twice."""
    if str(path) != "-":
        yield Path(path)
        return
    with tempfile.NamedTemporaryFile(prefix="steno-") as aside:
        shutil.copyfileobj(sys.stdin.buffer, aside)
        aside.flush()
        yield Path(aside.name)
