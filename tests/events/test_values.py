"""The values that move at every poll come back byte for byte, in few bytes."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stenotest.records import START

from steno.events.clock import format_time
from steno.events.store.poll_header import decode_values, encode_values

ODD = [
    b"null", b"true", b"false", b'""', b"0", b"-0", b"-1", b"00", b"0.0", b"0.10", b"12.50", b"1e400", b"1E5", b"-0.5",
    b"9" * 40, b"0." + b"0" * 15, b"0." + b"1" * 16, b"1234567890123456.123456789012345",
    b'"2026-11-20T13:37:20.737094Z"', b'"2026-11-20T13:37:20.737094+00:00"', b'"2026-11-20T13:37:20.737094+01:00"',
    b'"2026-11-20T13:37:60.737094Z"', b'"2026-13-20T13:37:20.737094Z"', b'"2026-11-20T13:37:20.73709Z"',
    b'"2026-11-20 13:37:20.737094Z"', b'"0001-01-01T00:00:00.000000Z"', b'"9999-12-31T23:59:59.999999Z"',
    b'"2026-11-20T13:37:20.7370\xc2\xb2Z"', b'"2026-02-30T13:37:20.737094Z"', b"[1,2]", b'{"a":null}', b'"\x80"',
]  # fmt: skip


@pytest.mark.parametrize("value", ODD)
def test_odd_values_come_back(value: bytes) -> None:
    """A value that does not fit a short form is kept unchanged."""
    for values in ([value], [value, value], [b"1", value, b"7", value]):
        assert decode_values(encode_values(values, START), 0, START) == values


TIMES = st.datetimes().map(lambda at: f'"{at:%Y-%m-%dT%H:%M:%S.%f}Z"'.encode())
NUMBERS = st.integers().map(lambda n: str(n).encode()) | st.decimals(allow_nan=False, allow_infinity=False).map(
    lambda d: f"{d:f}".encode()
)


@given(st.lists(TIMES | NUMBERS | st.binary(max_size=40) | st.sampled_from(ODD)), st.integers(0, 2**52))
def test_any_values_come_back(values: list[bytes], moment: int) -> None:
    """The whole vector of a poll, whenever the poll was."""
    assert decode_values(encode_values(values, moment), 0, moment) == values


@given(st.binary(max_size=60))
def test_any_bytes_are_values_or_refused(data: bytes) -> None:
    """Damage is a ValueError, never anything else."""
    with contextlib.suppress(ValueError, OverflowError):
        decode_values(data, 0, START)


def test_the_values_of_a_quiet_poll_take_a_dozen_bytes() -> None:
    """Two times, one of them twice, and a cost."""
    values = [f'"{format_time(START - ago)}"'.encode() for ago in (1_262_906, 999_999)] * 2 + [b"0.1234"]
    assert len(encode_values(values, START)) <= 16
