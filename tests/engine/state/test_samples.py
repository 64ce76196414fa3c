"""Samples of devices survive their packed form, which is small; anything else is refused."""

import random

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from steno.engine.state.samples import MOST_DEVICES, MOST_TIMES, Sample, pack, unpack, whole
from steno.events.clock import SECOND
from steno.events.errors import UnreadableInput

NUMBER = st.none() | st.integers(0, 1 << 40)
SAMPLES = st.builds(
    Sample,
    at=st.integers(0, 1 << 40).map(lambda second: second * SECOND),
    device=st.text(max_size=8),
    use=st.integers(0, 100),
    memory=NUMBER,
    power=NUMBER,
    errors=NUMBER,
    event=NUMBER,
)


@given(st.lists(SAMPLES, max_size=30))
def test_a_block_gives_the_samples_again(samples: list[Sample]) -> None:
    """Law: by device and time; of equal samples the last."""
    known = {(sample.device, sample.at): sample for sample in samples}
    assert unpack(pack(samples)) == [known[key] for key in sorted(known)]


@given(st.binary(max_size=200))
def test_bytes_that_are_no_block_are_refused(noise: bytes) -> None:
    for block in (noise, zstandard.compress(noise), pack([])[:-1]):
        try:
            unpack(block)
        except UnreadableInput:
            continue


def test_a_bomb_is_refused_within_bounded_memory() -> None:
    with pytest.raises(UnreadableInput):
        unpack(zstandard.compress(b"\x01\xff" + bytes(1 << 28)))


def test_too_much_is_cut() -> None:
    """A thousand devices are a cluster's, a million an error."""
    samples = [Sample(at=0, device=f"{number:05}", use=1) for number in range(MOST_DEVICES + 5)]
    assert len(unpack(pack(samples))) == MOST_DEVICES
    samples = [Sample(at=second * SECOND, device="0", use=1) for second in range(MOST_TIMES + 5)]
    assert unpack(pack(samples)) == samples[5:]


def test_ten_minutes_of_four_gpus_take_less_than_four_bytes_a_sample() -> None:
    """An hour of noisy use: a day of 1,000 runs of four GPUs has to stay within 120 MB."""
    drawn = random.Random(7)
    samples = [
        Sample(at=1_790_000_000 * SECOND + second * SECOND, device=str(gpu), use=drawn.randint(70, 99), memory=71_234)
        for gpu in range(4)
        for second in range(0, 600, 10)
    ]
    assert len(pack(samples)) < 2 * len(samples)


@pytest.mark.parametrize(
    ("text", "number"),
    [("87 %", 87), ("87%", 87), (" 12.6 W", 13), ("[N/A]", None), ("nan", None), ("inf", None), ("-3", None), (5, 5),
     ("", None), (None, None), ("1e400", None)],
)  # fmt: skip
def test_numbers_of_tools(text: object, number: int | None) -> None:
    """Unknown is never 0."""
    assert whole(text) == number
