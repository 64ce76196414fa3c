"""Which role each request needs: one table, first match."""

from __future__ import annotations

import re
from typing import Final

from projections.api.access.who import Role

_READS: Final = frozenset({"GET", "HEAD", "OPTIONS"})

_PUBLIC: Final = re.compile(r"/(healthz|readyz|api/session)")
_GUARDED: Final = re.compile(r"/(api|metrics|openapi\.json)(/.*)?", re.DOTALL)
"""What else is behind the door for readers; all other paths are the dashboard's files, which tell nothing."""

_CHANGES: Final[tuple[tuple[re.Pattern[str], Role], ...]] = (
    (re.compile(r"/api/runs(/.*)?", re.DOTALL), Role.SUBMIT),
    (re.compile(r"/api/amd/submit"), Role.SUBMIT),
)
_SUBMITS: Final = frozenset({"/api/runs", "/api/amd/submit"})
"""Where runs are asked for: what the rate is limited of."""


def needed(method: str, path: str) -> Role | None:
    """The role a request needs; None: anybody may."""
    if path.startswith("/api/") and method == "GET" and path != "/api/session":
        return Role.READ
    if _PUBLIC.fullmatch(path):
        return None
    if method in _READS:
        return Role.READ if _GUARDED.fullmatch(path) else None
    return next((role for pattern, role in _CHANGES if pattern.fullmatch(path)), Role.ADMIN)


def asks_for_a_run(method: str, path: str) -> bool:
    """Whether a request counts against the rate of submissions."""
    return method == "POST" and path in _SUBMITS
