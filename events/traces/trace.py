"""Poll traces: one poll a line of JSON (`.jsonl`, `.jsonl.zst`, `-`), readable by anybody.

A dstack line is `{"t", "ep", "path", "req", "status", "ms", "body"}`, with `"status": null` and `"error"` (also read as
`"exc"`) where no answer came; a Slurm line `{"t", "kind": "poll", "cmd", "rc", "ms", "out", "err"}`. Unknown keys are
kept. A line with `"ep": "lab_note"`, or a `kind` other than `poll`, is no poll.
"""

import json
import shlex
import stat
import sys
from collections.abc import Callable, Iterator
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import IO, Final, cast

import msgspec
import zstandard

from events.clock import SECOND, format_time, parse_time
from events.errors import UnreadableInput
from events.poll import Poll, too_deep, too_wide

SLURM: Final = "slurm:"
"""How the path of a Slurm poll begins; the command follows."""

_KNOWN: Final = ("t", "ep", "path", "req", "status", "ms", "body", "error", "exc", "sweep", "complete", "server_time")
_NULL: Final = msgspec.Raw(b"null")
_line: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_text: Final = msgspec.json.Decoder(str)
_maybe_text: Final = msgspec.json.Decoder(str | None)
_maybe_int: Final = msgspec.json.Decoder(int | None)
_maybe_number: Final = msgspec.json.Decoder(float | None)
_LONGEST: Final = 366 * 86_400 * SECOND
"""No question waits a year for its answer."""
_LAST: Final = parse_time("9999-12-31T23:59:59Z")


LONGEST_LINE: Final = 64 << 20
"""Bytes of a line; the answers we hold have at most half of that."""
BLANK: Final = 1_000_000
"""Blank lines of a file: a few kB of zstd unpack to a billion of them."""
_PIECE: Final = 1 << 20
_PACKED: Final = 2 << 10
"""Bytes unpacked at a time: zstd makes up to 32,000 of one, so 64 MB of these."""
CUT: Final = b"\0"
"""Stands for what cannot be unpacked; no line of any trace."""


class TraceReading(msgspec.Struct, frozen=True, kw_only=True):
    """What a line alone does not say; the engine knows."""

    source_of: Callable[[str, bytes], str]
    """(path, req) → who was asked."""
    answered: Callable[[str, bytes, int | None, bytes | None], bool]
    """(path, req, status, body) → whether the source told us something."""


class BadTraceLine(UnreadableInput):
    """A line of a trace is broken."""

    def __init__(self, path: str, line: int, why: str) -> None:
        super().__init__(f"{path}: line {line} is not a poll ({why}): correct it, or skip it with --lenient.")
        self.line = line
        """Counted from 1."""


def read_trace(
    path: str | Path, reading: TraceReading, *, lenient: bool = False, broken: Callable[[int], object] | None = None
) -> Iterator[tuple[int, Poll | None]]:
    """Each line's number, from 1, and its poll; None for a line that is no poll, or broken with `lenient`.

    `broken` is told the number of every line left out because it is broken.

    Raises:
        BadTraceLine: a line is broken and `lenient` is not set.
        UnreadableInput: the file is not there or cannot be unpacked.
    """
    for number, raw in numbered_lines(path, lenient=lenient):
        try:
            yield number, parse_line(raw, reading)
        except (ValueError, RecursionError) as error:
            if not lenient:
                raise BadTraceLine(str(path), number, str(error)) from None
            if broken is not None:
                broken(number)
            yield number, None


def parse_line(raw: bytes, reading: TraceReading) -> Poll | None:
    """The poll of one line, or None where the line is no poll.

    Raises:
        ValueError: the line is broken.
    """
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
    took = round(milliseconds * 1000)
    if "path" in line:
        return _http_poll(line, started_at, took, reading)
    if "cmd" in line:
        return _slurm_poll(line, started_at, took, reading)
    raise ValueError("it names no path and no command")


def write_trace_line(poll: Poll) -> bytes:
    """The poll as a line of a trace, newline included. Its secrets must have been replaced (`Record.scrubbed`)."""
    line: dict[str, object] = {"t": format_time(poll.started_at)}
    milliseconds = (poll.observed_at - poll.started_at) / 1000
    if poll.path.startswith(SLURM):
        line |= {"kind": "poll", "cmd": msgspec.Raw(poll.req), "rc": poll.status, "ms": milliseconds}
        if poll.body is not None:
            line["out"] = msgspec.Raw(poll.body)
        return msgspec.json.encode(line | poll.extra) + b"\n"
    line |= {
        "ep": poll.ep,
        "path": poll.path,
        "req": msgspec.Raw(poll.req),
        "status": poll.status,
        "ms": milliseconds,
    }
    if poll.error is not None:
        line["error"] = poll.error
    if poll.sweep is not None:
        line["sweep"] = poll.sweep
    if poll.complete:
        line["complete"] = True
    if poll.server_time is not None:
        line["server_time"] = format_time(poll.server_time)
    line |= poll.extra
    if poll.body is not None:
        line["body"] = msgspec.Raw(_one_line(poll.body))
    return msgspec.json.encode(line) + b"\n"


def _http_poll(line: dict[str, msgspec.Raw], started_at: int, took: int, reading: TraceReading) -> Poll:
    path = _text.decode(line["path"])
    req = bytes(line.get("req", _NULL))
    status = _maybe_int.decode(line.get("status", _NULL))
    body = bytes(line["body"]) if "body" in line else None
    if status is None and body == b"null":
        body = None
    error = _maybe_text.decode(line.get("error", _NULL)) or _maybe_text.decode(line.get("exc", _NULL))
    server_time = _maybe_text.decode(line.get("server_time", _NULL))
    return Poll(
        source=reading.source_of(path, req),
        path=path,
        req=req,
        started_at=started_at,
        observed_at=started_at + took,
        status=status,
        error=error,
        body=body,
        text=body is not None and body.startswith(b'"'),
        ep=_maybe_text.decode(line.get("ep", _NULL)),
        answered=reading.answered(path, req, status, body),
        sweep=_maybe_text.decode(line.get("sweep", _NULL)),
        complete=bytes(line.get("complete", _NULL)) == b"true",
        server_time=None if server_time is None else parse_time(server_time),
        extra={key: value for key, value in line.items() if key not in _KNOWN},
    )


def _slurm_poll(line: dict[str, msgspec.Raw], started_at: int, took: int, reading: TraceReading) -> Poll:
    command = bytes(line.pop("cmd"))
    words = msgspec.json.decode(command, type=str | list[str])
    path = SLURM + (words if isinstance(words, str) else shlex.join(words))
    status = _maybe_int.decode(line.pop("rc", _NULL))
    out = line.pop("out", None)
    return Poll(
        source=reading.source_of(path, command),
        path=path,
        req=command,
        started_at=started_at,
        observed_at=started_at + took,
        status=status,
        body=None if out is None else bytes(out),
        text=out is not None and bytes(out).startswith(b'"'),
        answered=status == 0,
        extra=line,
    )


def _members(raw: bytes) -> dict[str, msgspec.Raw]:
    try:
        return _line.decode(raw)
    except msgspec.DecodeError:
        # Other writers' JSON may hold what strict readers refuse (NaN, half a surrogate pair): taken as Python reads
        # it.
        found = json.loads(raw)
        if not isinstance(found, dict):
            raise ValueError("it is not a JSON object") from None  # noqa: TRY004 - the caller names the line
        return {key: msgspec.Raw(json.dumps(value).encode()) for key, value in found.items()}


def _one_line(body: bytes) -> bytes:
    """JSON text without line breaks between its tokens (inside strings they are escaped anyway)."""
    return body.replace(b"\r", b" ").replace(b"\n", b" ") if b"\n" in body or b"\r" in body else body


def numbered_lines(path: str | Path, *, lenient: bool = False) -> Iterator[tuple[int, bytes]]:
    """The lines of a `.jsonl`, a `.jsonl.zst` or standard input (`-`), numbered from 1; blank lines are left out.

    With `lenient`, a packed file that cannot be unpacked to its end gives what can be, then the line `CUT`.

    Raises:
        UnreadableInput: the file is not there or is not a regular file; a line is longer than `LONGEST_LINE`; more than
            `BLANK` lines are blank; or it is packed, cannot be unpacked, and `lenient` is not set.
    """
    number = blank = 0
    try:
        for number, line in enumerate(_lines(str(path)), 1):
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


def _lines(path: str) -> Iterator[bytes]:
    if path == "-":
        return _split(iter(partial(cast(BufferedReader, sys.stdin.buffer).read1, _PIECE), b""))
    # A pipe that nobody writes to would be waited for, and a device never ends.
    if not stat.S_ISREG(Path(path).stat().st_mode):
        raise UnreadableInput(f"{path} is not a regular file: give one, or `-` and the lines on standard input.")
    return _of_file(Path(path))


def _of_file(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        packed = file.read(4) == zstandard.FRAME_HEADER
        file.seek(0)
        yield from _split(_unpacked(file) if packed else iter(partial(file.read, _PIECE), b""))


def _split(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The lines of a text in pieces; a line longer than `LONGEST_LINE` is the last, and not whole."""
    begun: list[bytes] = []
    size = 0
    for piece in pieces:
        *whole, rest = piece.split(b"\n")
        for line in whole:
            yield b"".join([*begun, line]) if begun else line
            begun, size = [], 0
        if rest:
            begun.append(rest)
            size += len(rest)
        if size > LONGEST_LINE:
            break
    if begun:
        yield b"".join(begun)


def _unpacked(file: IO[bytes]) -> Iterator[bytes]:
    """The text of one or more packed frames, one after the other.

    Raises:
        zstandard.ZstdError: a frame is broken or ends too early.
    """
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
