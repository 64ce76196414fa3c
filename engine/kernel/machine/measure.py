"""What a measurement says: pure functions, used when a kernel is judged and when a recorded one is judged again."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

STEADY = 0.02  # the spread (standard deviation by mean) at which a measurement is good enough
GPUS: dict[str, dict[str, Any]] = {  # GB/s of memory, and the highest 10¹² operations a second, sparsity aside
    "MI210": {"arch": "gfx90a", "bandwidth": 1638, "float64": 45.3, "float32": 45.3, "half": 181, "cache": 16},
    "MI250X": {"arch": "gfx90a", "bandwidth": 3277, "float64": 95.7, "float32": 95.7, "half": 383, "cache": 32},
    "MI300A": {"arch": "gfx942", "bandwidth": 5300, "float64": 122.6, "float32": 122.6, "half": 980.6, "cache": 512},
    "MI300X": {"arch": "gfx942", "bandwidth": 5300, "float64": 163.4, "float32": 163.4, "half": 1307.4, "cache": 512},
    "A100": {"arch": "sm_80", "bandwidth": 2039, "float64": 19.5, "float32": 19.5, "half": 312, "cache": 80},
    "H100": {"arch": "sm_90", "bandwidth": 3350, "float64": 67, "float32": 67, "half": 990, "cache": 100},
    "CPU": {"arch": "", "bandwidth": 2000, "float64": 20, "float32": 40, "half": 80, "cache": 64},
}
"""By the makers' data sheets; `cache`: megabytes that are written before each call, twice the last level. Of the CPU
more than any has: there a floor only catches what is impossible everywhere.
"""


def floor_ms(gpu: str, dtype: str, moved: int, operations: int) -> float:
    """The least time in which this GPU can read and write so many bytes, or do so many operations."""
    about = GPUS[gpu]
    peak = about.get(dtype, about["half" if dtype in ("float16", "bfloat16") else "float32"])
    return float(max(moved / (about["bandwidth"] * 1e6), operations / (peak * 1e9)))


def spread(times: Sequence[float]) -> float:
    """Standard deviation by mean."""
    mean = statistics.fmean(times)
    return statistics.pstdev(times) / mean if mean > 0 else 0.0


def suspicion(found: Mapping[str, Any]) -> str | None:
    """Why these times cannot be believed; None: nothing speaks against them. `found`: `times_ms` by the solution's own
    clock, `walls_ms` by the judge's, `works_ms` of processors in them (empty: not seen, as on a GPU); `overhead_ms` and
    `overhead_work_ms` of a question and its answer; `floor_ms`; `around_ms` from inputs to outputs without the call,
    and `idle_ms`, the most of a program that does nothing (0: not measured, as of a command).
    """
    own = statistics.median(found["times_ms"])
    if own < found["floor_ms"]:
        return f"{own:.6f} ms is less than this GPU can do it in: {found['floor_ms']:.6f} ms"
    # Between the clocks lies the way there and back, and whatever else a busy machine does; what processors worked
    # for a call has nothing of the latter, so a busy machine hides no cheat from it.
    says = {"walls_ms": "the judge's {:.6f} ms", "works_ms": "it worked {:.6f} ms for it"}
    for name, overhead in (("walls_ms", "overhead_ms"), ("works_ms", "overhead_work_ms")):
        time, other = _nearest(found["times_ms"], found[name])
        if other - time > max(3 * found[overhead] + 0.5, 0.3 * time):
            return f"its clock says {time:.6f} ms for a call, {says[name].format(other)}"
    around = min((around for _, around in _half(found["times_ms"], found["around_ms"])), default=0.0)
    idle = found["idle_ms"]
    if idle and around > 1.5 * idle + 0.5:
        return f"it works before or after its calls: around them it takes {around:.6f} ms, an empty one {idle:.6f} ms"
    return None


def _half(times: Sequence[float], others: Sequence[float]) -> list[tuple[float, float]]:
    """The calls that the median stands on, each as (time, other)."""
    return sorted(zip(times, others))[: len(times) // 2 + 1]  # noqa: B905 - Python 3.9 has no `strict`


def _nearest(times: Sequence[float], others: Sequence[float]) -> tuple[float, float]:
    """The call that speaks most for the solution: who lies about the median lies about all that it stands on."""
    return min(_half(times, others), key=lambda call: call[1] - call[0], default=(0.0, 0.0))
