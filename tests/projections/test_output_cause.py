"""The cause that a run's recorded output shows is a line of it, quoted by its bytes."""

from hashlib import sha256
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steno.engine.causes.catalogue import rules_in, shipped, with_rules
from steno.events.store.outputs import Chunk
from steno.events.types import OutputRecorded
from steno.projections.answers.output_cause import OutputCause, cause_in

OOM = b"torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB."
OUTPUT = b"step 1 loss 2.1\n::steno::{}\n\xff\x00\n" + OOM + b"\r\nbye\n"
RULE = "[[rule]]\nname = 'goodbye'\ncause = 'preempted'\nsource = 'ours'\npatterns = ['^bye$']\n"


def chunk(data: bytes, offset: int, *, skipped: int = 0, dropped: bool = False) -> Chunk:
    event = OutputRecorded(
        run_id="r",
        provider="local",
        provider_id="p",
        offset=offset,
        size=len(data),
        sha256=sha256(data).hexdigest(),
        skipped=skipped,
    )
    return Chunk(position=100 + offset, offset=offset, sha256=event.sha256, data=None if dropped else data, event=event)


def found_in(*chunks: Chunk) -> OutputCause:
    return cause_in(chunks, shipped(), 1)


@given(st.lists(st.integers(1, len(OUTPUT) - 1), max_size=5).map(sorted))
def test_a_line_is_quoted_by_its_bytes_however_the_output_is_cut(cuts: list[int]) -> None:
    """Law: in the output, and in the chunk that holds its first byte."""
    edges = [0, *dict.fromkeys(cuts), len(OUTPUT)]
    chunks = [chunk(OUTPUT[at:end], at) for at, end in pairwise(edges)]
    quoted = found_in(*chunks)
    assert (quoted.cause, quoted.read, quoted.missing) == ("gpu_out_of_memory", len(OUTPUT), 0)
    assert quoted.line == OOM.decode()
    assert OUTPUT[quoted.start : quoted.end] == OOM
    holder = next(each for each in chunks if each.position == quoted.chunk)
    assert holder.data is not None
    assert OOM.startswith(holder.data[quoted.chunk_from : quoted.chunk_to])


def test_a_gap_joins_no_lines() -> None:
    """The end of the head and the begin of the tail are not one line, and count what lies between."""
    head, tail = b"step 1\nRuntimeError: HIP out", b" of memory\nbye\n"
    assert found_in(chunk(head + tail, 0)).cause == "gpu_out_of_memory"
    quoted = found_in(chunk(head, 0), chunk(tail, len(head) + 50, skipped=50))
    assert (quoted.cause, quoted.line, quoted.missing) == ("unknown", None, 50)


def test_what_was_dropped_is_said() -> None:
    quoted = found_in(chunk(OOM, 0, dropped=True), chunk(b"bye\n", len(OOM)))
    assert (quoted.cause, quoted.read, quoted.missing) == ("unknown", 4, len(OOM))


@pytest.mark.parametrize("output", [b"", b"\x00" * 5000, b"all is well\n"])
def test_nothing_is_guessed(output: bytes) -> None:
    assert found_in(chunk(output, 0)).cause == "unknown"


def test_a_sites_rule_counts_first() -> None:
    quoted = cause_in([chunk(OUTPUT, 0)], with_rules(rules_in(RULE, "site.toml")), 1)
    assert (quoted.cause, quoted.rule, quoted.line) == ("preempted", "goodbye", "bye")
