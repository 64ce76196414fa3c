"""Numbers of every type, and what of them is right."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steno.engine.kernel.machine import tensors
from steno.engine.kernel.machine.layout import SIZES
from steno.engine.kernel.machine.measure import RESOLUTION, interval
from steno.engine.kernel.machine.tensors import made, narrowed, widened

NUMBERS = st.floats(allow_nan=True, allow_infinity=True)
FINITE = st.floats(allow_nan=False, allow_infinity=False, min_value=-1e300, max_value=1e300)
SEED = b"s" * 32
TOLERANCE = st.floats(min_value=0, max_value=1)


def compared(got: list[float], expected: list[float], absolute: float, relative: float) -> tensors.Compared:
    ours, other = np.array(got), np.array(expected)
    return tensors.compared(lambda start, end: (ours[start:end], other[start:end]), len(got), absolute, relative)


@given(st.sampled_from([math.inf, -math.inf, math.nan]), NUMBERS, TOLERANCE, TOLERANCE)
def test_only_itself_is_right_where_no_number_is_expected(
    expected: float, got: float, absolute: float, relative: float
) -> None:
    """An infinite entry has no relative tolerance that makes every answer right."""
    same = got == expected or (math.isnan(got) and math.isnan(expected))
    assert (compared([got], [expected], absolute, relative).wrong == 0) == same


@given(FINITE, NUMBERS, TOLERANCE, TOLERANCE)
def test_a_number_is_right_within_the_tolerance(expected: float, got: float, absolute: float, relative: float) -> None:
    result = compared([expected, got], [expected, expected], absolute, relative)
    fits = math.isfinite(got) and abs(got - expected) <= absolute + relative * abs(expected)
    assert result.wrong == (not fits)
    assert (result.first is None) == fits
    assert result.largest == (0.0 if got == expected else math.inf if math.isnan(got) else abs(got - expected))


@given(st.sampled_from(sorted(SIZES)), st.lists(st.integers(-128, 128)))
def test_numbers_come_back_as_they_were_stored(dtype: str, numbers: list[int]) -> None:
    """Small whole numbers are exact in every type."""
    data = narrowed(np.array(numbers, float), dtype).tobytes()
    assert len(data) == SIZES[dtype] * len(numbers)
    assert widened(data, dtype).tolist() == numbers


@given(st.floats(width=32, allow_nan=False, allow_infinity=False, min_value=-(2.0**120), max_value=2.0**120))
def test_bfloat16_is_rounded_to_the_nearest(number: float) -> None:
    """No other number with as few digits is nearer."""
    bits = int(narrowed(np.array([number]), "bfloat16")[0])
    near = [
        float(widened(np.array([stored], "<u2").tobytes(), "bfloat16")[0])
        for stored in (bits - 1, bits, bits + 1)
        if 0 <= stored < 65536
    ]
    rounded = float(widened(np.array([bits], "<u2").tobytes(), "bfloat16")[0])
    assert abs(rounded - number) == min(abs(neighbour - number) for neighbour in near if math.isfinite(neighbour))


@pytest.mark.parametrize("dtype", sorted(SIZES))
def test_every_entry_is_drawn_again(dtype: str) -> None:
    """So nothing can be computed once for many entries; the same seed gives the same entries."""
    count = 3 * tensors.PIECE + 5
    first = np.concatenate(list(made(SEED, count, dtype, -1000, 1000)))
    assert (first == np.concatenate(list(made(SEED, count, dtype, -1000, 1000)))).all()
    assert len(first) == count
    assert not (first[: tensors.PIECE] == first[tensors.PIECE : 2 * tensors.PIECE]).all()
    if dtype in {"float32", "float64"}:
        assert len(np.unique(first)) > 0.98 * count


@given(st.lists(st.floats(0.1, 100), min_size=1, max_size=20), st.floats(0, 10))
def test_an_interval_holds_its_median_and_is_widened(times: list[float], late: float) -> None:
    median, low, high = interval(times, late)
    assert low <= median - late <= median + late <= high or low == 0
    if len(times) <= 5:
        wider = late + RESOLUTION * median
        assert (low, high) == (max(0.0, min(times) - wider), max(times) + wider)
