"""Samples of what the tools of vendors print: every version, and any bytes."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stenotest.smi import HEADERS

from steno.engine.providers.sample_text import samples_of
from steno.engine.state.samples import TASK, Sample, pack, unpack
from steno.events.clock import SECOND

AT = 1_795_986_424 * SECOND  # 2026-11-29 21:07:04
NVIDIA = HEADERS["nvidia-smi"] + "\n"
AMD = HEADERS["amd-smi"] + "\r\n"
OLDER = (
    "index, clocks_throttle_reasons.active, timestamp, temperature.gpu, power.draw [W], memory.total [MiB], "
    "memory.used [MiB], utilization.gpu [%]"
)
ROCM = (
    "device,Temperature (Sensor edge) (C),Temperature (Sensor junction) (C),Average Graphics Package Power (W),"
    "GPU use (%),VRAM Total Memory (B),VRAM Total Used Memory (B)"
)
FULL = {"use": 98, "memory": 7_234, "memory_total": 15_360, "power": 71, "temperature": 63}


def read(text: str, since: int = 0) -> tuple[str, list[Sample]]:
    answer = samples_of([text.encode()], since)
    assert answer is not None
    return answer


@pytest.mark.parametrize(
    ("text", "tool", "values"),
    [
        (
            NVIDIA + "2026/11/29 21:07:04.912, 0, 98, 7234, 15360, 71.20, 63, 0x0000000000000004, 3\n",
            "nvidia-smi", {**FULL, "throttled": 0, "errors": 3},
        ),
        (  # as R470 names it, with units, in another order, on a GPU without the newest columns
            f"{OLDER}\n0, 0x0000000000000060, 2026/11/29 21:07:04.912, 63, 71.20 W, 15360 MiB, 7234 MiB, 98 %\n",
            "nvidia-smi", {**FULL, "throttled": 1},
        ),
        (
            NVIDIA + "2026/11/29 21:07:04.912, 0, [GPU requires reset], 0, 15360, [N/A], [Unknown Error], "
            "[Not Supported], [N/A]\n",
            "nvidia-smi", {"memory": 0, "memory_total": 15_360},
        ),
        (
            f"'CTRL' + 'C' to stop watching output:\n{AMD}1795986424,0,312,63,51,98,1700,0,2,7234,196592\r\n\r\n",
            "amd-smi", {**FULL, "power": 312, "memory_total": 196_592, "errors": 2},
        ),
        (
            AMD + "1795986424,0,N/A,65535,N/A,nan,N/A,N/A,N/A,7234,196592\r\n",
            "amd-smi", {"memory": 7_234, "memory_total": 196_592},
        ),
        (  # version 2.3: Instinct MI100
            f"WARNING: Unlocked monitor_devices lock\n1795986424\n{ROCM}\ncard0,31.0,35.0,35.0,0,34342961152,6762496\n",
            "rocm-smi", {"use": 0, "memory": 6, "memory_total": 32_752, "power": 35, "temperature": 35},
        ),
        (  # behind a header of the tool that it replaced
            NVIDIA + "1795986424\n" + HEADERS["rocm-smi"] + "\ncard0,63.0,71.2,98,16106127360,7585398784\n",
            "rocm-smi", FULL,
        ),
    ],
    ids=["nvidia", "nvidia-other-columns", "nvidia-broken", "amd", "amd-unknown", "rocm", "two-tools"],
)  # fmt: skip
def test_a_form_of_a_tool(text: str, tool: str, values: dict[str, int]) -> None:
    """Columns are found by their names; what is not known is None."""
    assert read(text) == (tool, [Sample(at=AT, device="0", **values)])


def test_processes_use_what_they_used_since_the_last_look() -> None:
    """Percent of a core; None for the first look, after a restart and if the clock went back."""
    looks = ["24,processes,100,2048", "34.5,processes,21100,", "44.5,processes,50,1024", "40,processes,90,1024",
             "50,processes,90,"]  # fmt: skip
    tool, samples = read("".join(f"17959864{look}\n" for look in looks))
    assert tool == "processes"
    assert {sample.device for sample in samples} == {TASK}
    assert [((sample.at - AT) / SECOND, sample.use, sample.memory) for sample in samples] == [
        (0, None, 2), (10.5, 200, None), (16, None, 1), (20.5, None, 1), (26, 0, None),
    ]  # fmt: skip


def test_only_what_is_after_a_time_counts() -> None:
    """Also if lines come twice, out of order or cut; the use of a CPU is known from the first look on."""
    lines = [f"2026/11/29 21:07:{at:02}.000, {gpu}, {at}, 1, 2, 3, 4, 0x0, 0\n" for at in range(60) for gpu in (0, 1)]
    lines += [f"{AT // SECOND - 4 + at}.000,processes,{at * 100},4096\n" for at in range(60)]
    random.Random(36).shuffle(lines)
    text = NVIDIA + "".join(lines) * 2 + "2026/11/29 21:08:00.000, 0, 98, 7234, 1"
    _, samples = read(text, AT + 46 * SECOND)
    assert [(sample.at - AT) // SECOND for sample in samples if sample.device == "1"] == [*range(47, 56)]
    assert [sample.use for sample in samples if sample.device == "0"] == [*range(51, 60)]
    _, last = read("".join(sorted(lines[:])) + "1795986999,processes,1,1\n", AT + 54 * SECOND)
    assert [sample.use for sample in last if sample.device == TASK] == [10, None]


def test_a_thousand_gpus() -> None:
    """All of them, by number."""
    rows = "".join(f"2026/11/29 21:07:04.912, {gpu}, {gpu % 101}, 1, 2, 3, 4, 0x0, 0\n" for gpu in range(1_000))
    _, samples = read(NVIDIA + rows)
    assert {int(sample.device): sample.use for sample in samples} == {gpu: gpu % 101 for gpu in range(1_000)}


CELLS = st.one_of(
    st.sampled_from([*HEADERS["nvidia-smi"].split(", "), *HEADERS["amd-smi"].split(","), "card0", "device", "NaN"]),
    st.sampled_from(["2026/11/29 21:07:04.912", "2026/99/29 21:07:04", "1795986424", "processes", "0x4", "[N/A]"]),
    st.text(max_size=8), st.integers().map(str), st.floats().map(str),
)  # fmt: skip
LINES = st.lists(CELLS, max_size=12).map(",".join)


@given(
    st.one_of(st.binary(), st.lists(st.one_of(LINES, st.sampled_from([NVIDIA, AMD])), max_size=12).map("\n".join)),
    st.integers(0, 2 * AT),
)
def test_any_bytes_are_samples_or_nothing(text: bytes | str, since: int) -> None:
    """No text raises, and whatever was read can be kept."""
    answer = samples_of([text if isinstance(text, bytes) else text.encode()], since)
    for sample in answer[1] if answer is not None else ():
        assert sample.at > since
        assert sample.use is None or 0 <= sample.use <= 100 or sample.device == TASK
    assert answer is None or len(unpack(pack(answer[1]))) <= len(answer[1])


@given(st.integers(0, 400))
def test_a_cut_file_gives_no_value_that_it_had_not(cut: int) -> None:
    """Wherever it is cut: each sample is one of the whole file."""
    rows = (f"2026/11/29 21:07:{at:02}.000, 0, {at}, 1234, 5678, 90, 12, 0x0, 34\n" for at in range(40))
    text = (NVIDIA + "".join(rows)).encode()
    whole = samples_of([text], 0)
    assert whole is not None
    for part in (text[: len(text) - cut], text[:200] + b"\n" + text[cut:]):
        assert set((samples_of([part], 0) or ("", []))[1]) <= set(whole[1])
