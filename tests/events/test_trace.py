"""Traces: one poll a line, read as anybody may have written it, imported once."""

import io
import json
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from stenotest.records import START

from steno.events.clock import format_time
from steno.events.errors import UnreadableInput
from steno.events.poll import Poll
from steno.events.store.record import Record
from steno.events.traces.trace import BadTraceLine, TraceReading, import_trace, parse_line, read_trace, write_trace_line

LINE = {
    "t": "2026-11-20T13:37:20.559+00:00", "ep": "runs_list", "path": "/api/runs/list",
    "req": {"project_name": "main", "limit": 100}, "status": 200, "ms": 24.0, "bytes": 2, "body": [],
}  # fmt: skip
FAILED: dict[str, object] = {
    "t": "2026-11-20T13:37:21Z",
    "ep": "x",
    "path": "/api/runs/list",
    "req": {},
    "status": None,
    "ms": 0.5,
}
SLURM = {
    "t": "2026-11-20T14:01:52.271450Z", "kind": "poll", "cmd": ["squeue", "-h", "-o", "%i|%j"], "user": "root",
    "rc": 0, "ms": 12.9, "out": "116|ok\n", "err": "",
}  # fmt: skip
NOTES = (
    {"t": "2026-11-20T13:37:20Z", "ep": "lab_note", "note": "x"},
    {"kind": "header", "trace": "x"},
    {"kind": "end"},
)


def write(path: Path, *lines: object, packed: bool = False) -> Path:
    text = b"".join((line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n" for line in lines)
    path.write_bytes(zstandard.ZstdCompressor().compress(text) if packed else text)
    return path


def test_a_dstack_line_is_a_poll_and_comes_back(reading: TraceReading) -> None:
    """`observed_at` is the end of the answer; keys we do not know stay."""
    poll = parse_line(json.dumps(LINE).encode(), reading)
    assert poll is not None
    assert (poll.source, poll.answered, poll.body) == ("dstack/main", True, b"[]")
    assert poll.observed_at - poll.started_at == 24_000
    again = json.loads(write_trace_line(poll))
    assert again == LINE | {"t": format_time(poll.started_at)}
    assert next(iter(again)) == "t"
    assert list(again)[-1] == "body"


@pytest.mark.parametrize("key", ["error", "exc"])
def test_where_no_answer_came_the_error_says_why(key: str, reading: TraceReading) -> None:
    """Both names of the error are read, one is written."""
    poll = parse_line(json.dumps(FAILED | {key: "ConnectError"}).encode(), reading)
    assert poll is not None
    assert (poll.status, poll.body, poll.error, poll.answered) == (None, None, "ConnectError", False)
    assert json.loads(write_trace_line(poll))["error"] == "ConnectError"


def test_a_line_may_say_null_where_it_says_nothing(reading: TraceReading) -> None:
    """Other writers give every key."""
    poll = parse_line(json.dumps(FAILED | {"ms": None, "kind": None, "sweep": None}).encode(), reading)
    assert poll is not None
    assert poll.observed_at == poll.started_at


def test_a_slurm_line_keeps_every_key(reading: TraceReading) -> None:
    """Kept, not interpreted: the same line comes back."""
    poll = parse_line(json.dumps(SLURM).encode(), reading)
    assert poll is not None
    assert poll.path == "slurm:squeue -h -o '%i|%j'"
    assert json.loads(write_trace_line(poll)) == SLURM


@pytest.mark.parametrize("note", NOTES)
def test_a_note_is_no_poll(note: dict[str, object], reading: TraceReading) -> None:
    """Lab notes, headers and ends are not evidence."""
    assert parse_line(json.dumps(note).encode(), reading) is None


BROKEN = [b"{", b"[]", b"null", b'{"t":"yesterday","path":"/x"}', b'{"path":"/x"}', b'{"t":"2026-11-20T13:37:20Z"}',
          b'{"t":"2026-11-20T13:37:20Z","path":7}', b'{"t":"2026-11-20T13:37:20Z","path":"/x","ms":"fast"}',
          b'{"t":"2026-11-20T13:37:20Z","path":"/x","status":"ok"}',
          b'{"t":"2026-11-20T13:37:20Z","path":"/x","ms":1e999}',
          b'{"t":"2026-11-20T13:37:20Z","path":"/x","ms":1e18}', b'{"t":"2026-11-20T13:37:20Z","path":"/x","ms":-1e15}',
          b'{"t":"2026-11-20T13:37:20Z","path":"/x"', b"\xff\xfe", b"[" * 100_000]  # fmt: skip


@pytest.mark.parametrize("line", BROKEN)
def test_a_broken_line_is_named_and_imports_nothing(
    line: bytes, reading: TraceReading, record: Record, tmp_path: Path
) -> None:
    """The error names the line's number; with `lenient` the rest is read."""
    path = write(tmp_path / "t.jsonl", LINE, NOTES[0], line, FAILED)
    with pytest.raises(BadTraceLine, match="line 3") as caught:
        import_trace(record, path, reading)
    assert caught.value.line == 3
    assert "\n" not in str(caught.value)
    assert record.head().position == 0
    imported = import_trace(record, path, reading, lenient=True)
    assert (imported.polls, imported.skipped, imported.first_position, imported.last_position) == (2, 1, 1, 2)
    assert [number for number, poll in read_trace(path, reading, lenient=True) if poll is not None] == [1, 4]


def test_json_only_python_takes_is_kept(reading: TraceReading, record: Record, tmp_path: Path) -> None:
    """NaN and half surrogate pairs in an answer do not break a line."""
    text = json.dumps(LINE)[:-3] + '[{"id":"a","x":NaN,"y":"\\ud800"}]}'
    import_trace(record, write(tmp_path / "t.jsonl", text.encode()), reading)
    assert record.poll(1).body == b'[{"id": "a", "x": NaN, "y": "\\ud800"}]'


def test_doubled_lines_stay_two_polls_and_importing_again_adds_nothing(
    reading: TraceReading, record: Record, tmp_path: Path
) -> None:
    """The id of a poll is its line and how often it came before."""
    path = write(tmp_path / "t.jsonl", LINE, LINE, FAILED, LINE)
    assert import_trace(record, path, reading).polls == 4
    again = import_trace(record, path, reading)
    assert (again.polls, again.known, again.first_position, again.last_position) == (0, 4, 1, 4)
    longer = write(tmp_path / "longer.jsonl", LINE, LINE, FAILED, LINE, LINE)
    assert import_trace(record, longer, reading).polls == 1
    assert record.verify().ok


def test_packed_plain_and_piped_traces_are_the_same(
    reading: TraceReading, record: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`.jsonl`, `.jsonl.zst` in one or more frames, blank lines, no last line break, and standard input."""
    plain = write(tmp_path / "t.jsonl", LINE, b"", SLURM)
    packed = write(tmp_path / "t.jsonl.zst", LINE, b"", SLURM, packed=True)
    twice = tmp_path / "frames.jsonl.zst"
    whole = plain.read_bytes().rstrip(b"\n")
    twice.write_bytes(b"".join(zstandard.ZstdCompressor().compress(part) for part in (whole[:100], whole[100:])))
    lines = [number for number, _ in read_trace(plain, reading)]
    assert lines == [1, 3]
    for path in (packed, twice):
        assert [number for number, _ in read_trace(path, reading)] == lines
        import_trace(record, path, reading)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(plain.read_bytes())))
    assert import_trace(record, "-", reading).known == 2
    assert record.head().position == 3, "two polls, and the job that squeue lists"


@pytest.mark.parametrize("content", [b"(\xb5/\xfd" + b"x" * 50, b""])
def test_a_file_that_is_no_trace_is_refused(content: bytes, reading: TraceReading, tmp_path: Path) -> None:
    """Not there, a folder, cut while packed: one line, no traceback; an empty file is an empty trace."""
    path = tmp_path / "t.jsonl.zst"
    path.write_bytes(content)
    if not content:
        assert list(read_trace(path, reading)) == []
        path = write(path, LINE, packed=True)
        path.write_bytes(path.read_bytes()[:-5])
    for bad in (path, tmp_path / "none", tmp_path):
        with pytest.raises(UnreadableInput):
            list(read_trace(bad, reading))


def test_what_is_there_of_a_cut_packed_trace_is_read_with_lenient(reading: TraceReading, tmp_path: Path) -> None:
    """A recorder that was killed leaves half a frame; the line behind the last whole one counts as broken."""
    frames = [zstandard.ZstdCompressor().compress(json.dumps(LINE).encode() + b"\n") for _ in range(3)]
    path = tmp_path / "t.jsonl.zst"
    path.write_bytes(b"".join(frames)[:-5])
    broken: list[int] = []
    numbers = [number for number, _ in read_trace(path, reading, lenient=True, broken=broken.append)]
    assert (numbers, broken) == ([1, 2, 3], [3])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@given(
    body=JSON,
    req=JSON,
    took=st.integers(0, 10**9),
    at=st.integers(0, 2 * START),
    sweep=st.none() | st.text("0123456789abcdef", min_size=2),
    complete=st.booleans(),
    server_time=st.none() | st.integers(0, 2 * START),
)
def test_a_poll_written_is_a_poll_read(
    body: object, req: object, took: int, at: int, sweep: str | None, complete: bool, server_time: int | None
) -> None:
    """Nothing of a poll is lost in its line."""
    from steno.events.traces.trace import TraceReading

    poll = Poll(
        source="s",
        path="/api/x",
        req=json.dumps(req).encode(),
        started_at=at,
        observed_at=at + took,
        status=200,
        body=json.dumps(body).encode(),
        text=isinstance(body, str),
        ep=None,
        answered=True,
        sweep=sweep,
        complete=complete,
        server_time=server_time,
    )
    line = write_trace_line(poll)
    assert line.count(b"\n") == 1
    assert parse_line(line, TraceReading(source_of=lambda *_: "s", answered=lambda *_: True)) == poll
