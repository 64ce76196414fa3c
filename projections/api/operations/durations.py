"""Counting durations into buckets, cheaply enough for every request."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Final

from prometheus_client.core import HistogramMetricFamily

SHORT: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Of answers and appends, seconds."""
LONG: Final = (1.0, 5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 10800.0, 43200.0, 86400.0)
"""Of what runs do, seconds."""


class Durations:
    """How many durations fell into each bucket, and their sum."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def add(self, seconds: float) -> None:
        """Count one."""
        self._counts[bisect_left(self._bounds, seconds)] += 1
        self._sum += seconds

    def tell(self, family: HistogramMetricFamily, labels: Iterable[str] = ()) -> None:
        """Add these to a family, as Prometheus counts: each bucket has those of the smaller ones too."""
        total, buckets = 0, []
        for bound, count in zip((*map(str, self._bounds), "+Inf"), tuple(self._counts), strict=True):
            total += count
            buckets.append((bound, total))
        family.add_metric(tuple(labels), buckets=buckets, sum_value=self._sum)
