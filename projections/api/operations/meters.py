"""Counters that cost little: durations in buckets, and HTTP requests by route, method and status."""

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Final

SHORT: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Of answers and appends, seconds."""
LONG: Final = (1.0, 5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 10800.0, 43200.0, 86400.0)
"""Of what runs do, seconds."""
OTHER: Final = "other"
_ROUTES: Final = (
    (re.compile(r"/api/(runs|vms)/[^/]+"), r"/api/\1/{id}"),
    (re.compile(r"/api/runs/[^/]+/(timeline|explain|events|costs|logs|stop|stream)"), r"/api/runs/{id}/\1"),
    (re.compile(r"/api/vms/[^/]+/stop"), "/api/vms/{id}/stop"),
    (re.compile(r"/api/(events|polls)/[^/]+"), r"/api/\1/{position}"),
    (re.compile(r"/api/amd/runs/[^/]+/stream"), "/api/amd/runs/{id}/stream"),
    (re.compile(r"/api/amd/(submit|metrics|schema|problems)|/metrics|/healthz|/readyz|/openapi\.json"), r"\g<0>"),
    (re.compile("/api/(runs|vms|costs|budget|overview|events|polls|incidents|record|offers|sources)"), r"\g<0>"),
    (re.compile("/api/(session|stream)"), r"\g<0>"),
    (re.compile(r"/assets/.*"), "/assets/{path}"),
    (re.compile(r"/((runs|machines|costs|submit|record|incidents)(/[^/]+)?)?"), "/{page}"),
)
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "DELETE", "OPTIONS"})


class Durations:
    """How many durations fell into each bucket, and their sum."""

    __slots__ = ("_bounds", "_counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, seconds: float) -> None:
        """Count one."""
        self._counts[bisect_left(self._bounds, seconds)] += 1
        self.sum += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """As Prometheus counts: each bucket has those of the smaller ones too."""
        total, found = 0, []
        for bound, count in zip((*map(str, self._bounds), "+Inf"), tuple(self._counts), strict=True):
            total += count
            found.append((bound, float(total)))
        return found


@lru_cache(maxsize=4096)
def route_of(path: str) -> str:
    """The route a path belongs to; `other` for any we do not have, so that nobody can make up labels."""
    found = next(((match, route) for pattern, route in _ROUTES if (match := pattern.fullmatch(path))), None)
    return OTHER if found is None else found[0].expand(found[1])


class Requests:
    """Requests answered since the server started; used by the event loop's thread only."""

    def __init__(self) -> None:
        self.answered: Counter[tuple[str, str, str]] = Counter()
        """(method, route, status) → how often."""
        self.durations: defaultdict[tuple[str, str], Durations] = defaultdict(partial(Durations, SHORT))
        """(method, route) → how long answers took; streams are left out, they take as long as somebody listens."""

    def count(self, method: str, path: str, status: int, seconds: float) -> None:
        """Count one answer; status 0 is none."""
        method = method if method in _METHODS else OTHER
        route = route_of(path)
        self.answered[method, route, str(status)] += 1
        if not route.endswith("/stream"):
            self.durations[method, route].add(seconds)
