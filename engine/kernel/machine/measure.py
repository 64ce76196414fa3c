"""The result of a measurement: pure functions, used when a kernel is judged and when it is judged again."""

from __future__ import annotations

import random
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

SHORTEST = 50.0  # milliseconds of a batch
LATE = 0.01  # of a batch: how late everything may be frozen after it was done
FEWEST, MOST = 5, 15  # batches that count
TRIES = 5  # measurements of one batch whose freeze came late
STEADY = 0.04  # of the median: the width of an interval that needs no more batches
RESOLUTION = 0.01  # of the median: as much do runs of one program differ by that follow each other on one machine
_RESAMPLES = 1000
GPUS: dict[str, dict[str, Any]] = {  # GB/s of memory, and the highest 10¹² operations a second, sparsity aside
    "MI210": {"arch": "gfx90a", "bandwidth": 1638, "float64": 45.3, "float32": 45.3, "half": 181},
    "MI250X": {"arch": "gfx90a", "bandwidth": 3277, "float64": 95.7, "float32": 95.7, "half": 383},
    "MI300A": {"arch": "gfx942", "bandwidth": 5300, "float64": 122.6, "float32": 122.6, "half": 980.6},
    "MI300X": {"arch": "gfx942", "bandwidth": 5300, "float64": 163.4, "float32": 163.4, "half": 1307.4},
    "A100": {"arch": "sm_80", "bandwidth": 2039, "float64": 19.5, "float32": 19.5, "half": 312},
    "H100": {"arch": "sm_90", "bandwidth": 3350, "float64": 67, "float32": 67, "half": 990},
    "CPU": {"arch": "", "bandwidth": 2000, "float64": 20, "float32": 40, "half": 80},
}
"""By the makers' data sheets; of the CPU more than any has."""


def floor_ms(gpu: str, dtype: str, moved: int, operations: int) -> float:
    """The least time in which this GPU can read and write so many bytes, or do so many operations. It is shown only."""
    about = GPUS[gpu]
    peak = about.get(dtype, about["half" if dtype in ("float16", "bfloat16") else "float32"])
    return float(max(moved / (about["bandwidth"] * 1e6), operations / (peak * 1e9)))


def interval(times: Sequence[float], late: float) -> tuple[float, float, float]:
    """Median, lower and upper bound of these times of a call. Up to `FEWEST` values: the least and the largest; more:
    95 % of the medians of resamples. Both are widened by `RESOLUTION`, and by `late`, how long after its end a call may
    have been timed.
    """
    median = statistics.median(times)
    low, high = min(times), max(times)
    if len(times) > FEWEST:
        rolls = random.Random(0)  # noqa: S311 - the same values have the same interval
        medians = sorted(statistics.median(rolls.choices(times, k=len(times))) for _ in range(_RESAMPLES))
        low, high = medians[_RESAMPLES // 40], medians[-_RESAMPLES // 40 - 1]
    wider = late + RESOLUTION * median
    return median, max(0.0, low - wider), high + wider


def summary(batches: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The times of a call, in milliseconds, by the batches that count."""
    counted = [batch for batch in batches if batch["counts"]]
    times = [batch["ms"] / batch["calls"] for batch in counted]
    late = max(batch["late_ms"] / batch["calls"] for batch in counted)
    median, low, high = interval(times, late)
    works = [batch["cpu_ms"] / batch["calls"] for batch in counted if batch["cpu_ms"] is not None]
    return {
        "min_ms": round(min(times), 6),
        "median_ms": round(median, 6),
        "max_ms": round(max(times), 6),
        "low_ms": round(low, 6),
        "high_ms": round(high, 6),
        "cpu_ms": round(statistics.median(works), 6) if works else None,
        "spread": round(statistics.pstdev(times) / statistics.fmean(times), 4),
    }


def is_late(batch: Mapping[str, Any]) -> bool:
    return bool(batch["late_ms"] > LATE * batch["ms"])
