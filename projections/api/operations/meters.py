"""Everything counted while the service runs; HTTP requests by route, method and status."""

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from projections.api.operations.durations import SHORT, Durations
from projections.api.operations.tally import Tally

OTHER: Final = "other"
_EXACT: Final = frozenset(
    {
        "/api/runs", "/api/vms", "/api/costs", "/api/budget", "/api/overview", "/api/events", "/api/polls",
        "/api/incidents", "/api/record", "/api/offers", "/api/sources", "/api/session", "/api/stream", "/metrics",
        "/healthz", "/readyz", "/openapi.json", "/api/amd/submit", "/api/amd/metrics", "/api/amd/schema",
        "/api/amd/problems",
    }
)  # fmt: skip
_WITH_PARTS: Final = (
    (re.compile(r"/api/(runs|vms)/[^/]+"), r"/api/\1/{id}"),
    (re.compile(r"/api/runs/[^/]+/(timeline|explain|events|costs|logs|stop|stream)"), r"/api/runs/{id}/\1"),
    (re.compile(r"/api/vms/[^/]+/(stop)"), r"/api/vms/{id}/\1"),
    (re.compile(r"/api/(events|polls)/[^/]+"), r"/api/\1/{position}"),
    (re.compile(r"/api/amd/runs/[^/]+/stream"), "/api/amd/runs/{id}/stream"),
    (re.compile(r"/assets/.*"), "/assets/{path}"),
    (re.compile(r"/((runs|machines|costs|submit|record|incidents)(/[^/]+)?)?"), "/{page}"),
)
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "DELETE", "OPTIONS"})


@lru_cache(maxsize=4096)
def route_of(path: str) -> str:
    """The route a path belongs to; `other` for any we do not have, so that nobody can make up labels."""
    if path in _EXACT:
        return path
    for pattern, route in _WITH_PARTS:
        if pattern.fullmatch(path) is not None:
            return pattern.sub(route, path) if "\\" in route else route
    return OTHER


class Requests:
    """Requests answered since the server started; used by the event loop's thread only."""

    def __init__(self) -> None:
        self.answered: dict[tuple[str, str, int], int] = {}
        """(method, route, status) → how often."""
        self.durations: dict[tuple[str, str], Durations] = {}
        """(method, route) → how long answers took; streams are left out, they take as long as somebody listens."""

    def count(self, method: str, path: str, status: int, seconds: float) -> None:
        """Count one answer; status 0 is none."""
        method = method if method in _METHODS else OTHER
        route = route_of(path)
        key = (method, route, status)
        self.answered[key] = self.answered.get(key, 0) + 1
        if not route.endswith("/stream"):
            found = self.durations.get((method, route))
            if found is None:
                found = self.durations[method, route] = Durations(SHORT)
            found.add(seconds)


@dataclass(slots=True)
class Meters:
    """One of each."""

    tally: Tally = field(default_factory=Tally)
    requests: Requests = field(default_factory=Requests)
