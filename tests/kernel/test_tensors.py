"""Numbers of every type, and what of them is right."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from engine.kernel.machine.tensors import SIZES, compared, packed, unpacked

NUMBERS = st.floats(allow_nan=True, allow_infinity=True)
FINITE = st.floats(allow_nan=False, allow_infinity=False, min_value=-1e300, max_value=1e300)
TOLERANCE = st.floats(min_value=0, max_value=1)


@given(st.sampled_from([math.inf, -math.inf, math.nan]), NUMBERS, TOLERANCE, TOLERANCE)
def test_only_itself_is_right_where_no_number_is_expected(
    expected: float, got: float, absolute: float, relative: float
) -> None:
    """An infinite entry has no relative tolerance that makes every answer right."""
    same = got == expected or (math.isnan(got) and math.isnan(expected))
    assert (compared([got], [expected], absolute, relative).wrong == 0) == same


@given(FINITE, NUMBERS, TOLERANCE, TOLERANCE)
def test_a_number_is_right_within_the_tolerance(expected: float, got: float, absolute: float, relative: float) -> None:
    found = compared([expected, got], [expected, expected], absolute, relative)
    fits = math.isfinite(got) and abs(got - expected) <= absolute + relative * abs(expected)
    assert found.wrong == (not fits)
    assert (found.first is None) == fits
    assert found.largest == (0.0 if got == expected else math.inf if math.isnan(got) else abs(got - expected))


@given(st.sampled_from(sorted(SIZES)), st.lists(st.integers(-128, 128)))
def test_numbers_come_back_as_they_were_packed(dtype: str, numbers: list[int]) -> None:
    """Small whole ones are exact in every type."""
    data = packed(numbers, dtype)
    assert len(data) == SIZES[dtype] * len(numbers)
    assert list(unpacked(data, dtype)) == numbers
