"""Output beside the chain: every store keeps it, drops it, copies it, and verify says which of it is there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from stenotest.outputs import keep_output
from stenotest.records import StandingClock

from steno.events.clock import SECOND
from steno.events.errors import RecordNotWritable
from steno.events.store.copying import copy
from steno.events.store.outputs import chunks, expire, kept_output, output_of, search
from steno.events.store.record import Record
from steno.events.store.store import store_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Opener = Callable[..., Record]


def test_chunks_come_back_and_may_be_dropped(opener: Opener) -> None:
    """A gap is one line; verify counts a chunk that was dropped."""
    record = opener()
    positions = keep_output(record, "a", "p", b"one\n", b"two\n", b"three\n", b"", drop=[1])
    assert [(chunk.offset, chunk.data) for chunk in chunks(record, "a")] == [
        (0, b"one\n"), (4, None), (8, b"three\n"), (14, b""),
    ]  # fmt: skip
    assert b"".join(kept_output(record, "a", "p")).decode() == "one\n… 4 bytes were not kept …\nthree\n"
    assert list(kept_output(record, "a", "other")) == []
    verdict = record.verify()
    assert (verdict.ok, verdict.events, verdict.outputs, verdict.dropped) == (True, len(positions), 3, 1)
    with pytest.raises(RecordNotWritable):
        keep_output(opener(write=False), "a", "p", b"four\n")


def test_old_chunks_are_dropped_by_the_time_of_their_event(opener: Opener, clock: StandingClock) -> None:
    record = opener()
    keep_output(record, "a", "p", b"old\n")
    clock.sleep(100 * SECOND)
    keep_output(record, "b", "p", b"new\n")
    before = clock.now() - SECOND
    assert (expire(record, before), expire(record, before)) == (1, 0)
    assert [list(kept_output(record, run, "p")) for run in "ab"] == [[], [b"new\n"]]
    assert record.verify().ok


def test_a_copy_has_the_output_that_is_left(opener: Opener, tmp_path: Path) -> None:
    record = opener()
    keep_output(record, "a", "p", b"one\n", b"two\n", drop=[0])
    copy(record.store, store_at(tmp_path / "copy.db"), clock=StandingClock(), progress=lambda *_: None)
    with Record.open(tmp_path / "copy.db", clock=StandingClock()) as copied:
        assert [chunk.data for chunk in chunks(copied, "a")] == [None, b"two\n"]
        assert copied.verify().ok


def test_a_search_finds_lines_across_chunks_of_the_newest_run_first(opener: Opener) -> None:
    """With their places; a gap ends a line, and a line of megabytes gives the part that matches."""
    record = opener()
    keep_output(record, "a", "p", b"x\nCUDA out of ", b"memory\nrest")
    keep_output(
        record, "b", "p", b"y" * 100_000, b"y" * 100_000 + b"CUDA out of memory", b"lost", b"\nCUDA out", drop=[2]
    )
    matches = [(match.run_id, match.offset, len(match.line)) for match in search(record, b"CUDA out of memory")]
    assert matches[1:] == [("a", 2, 18)]
    (long,) = matches[:1]
    assert (long[0], long[1] + long[2]) == ("b", 200_018)
    assert [match.line for match in search(record, b"CUDA out", ["b"])][1:] == [b"CUDA out"]


def test_an_output_is_read_from_the_record_when_its_provider_has_none(opener: Opener, clock: StandingClock) -> None:
    """Or raises; not in the middle of an output, and not if there is nothing in the record."""
    record = opener()
    keep_output(record, "a", "p", b"kept\n")
    heard: list[str] = []

    def read(*pieces: bytes | Exception, run: str = "a") -> bytes:
        def live() -> Iterator[bytes]:
            for piece in pieces:
                if isinstance(piece, Exception):
                    raise piece
                yield piece

        return b"".join(output_of(live, record.store, (run, "p"), clock, heard.append))

    gone = RecordNotWritable("it is gone")
    assert (read(b"live\n"), heard) == (b"live\n", [])
    assert (read(), read(gone)) == (b"kept\n", b"kept\n")
    assert [why.removeprefix("from the record, because ") for why in heard] == [
        "the provider has no output of it any more", "it is gone",
    ]  # fmt: skip
    for pieces, run in (((b"live\n", gone), "a"), ((gone,), "b")):
        with pytest.raises(RecordNotWritable):
            read(*pieces, run=run)
    assert read(run="b") == b""
