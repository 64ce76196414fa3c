"""Callers and their roles, and the role that each request needs."""

import re
from dataclasses import dataclass
from typing import Final, Literal

from engine.commands.tokens import ANONYMOUS, Role


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The caller of one request."""

    name: str  # the token's name, or `loopback`; the record names it as the submitter
    role: Role
    via: Literal["token", "session", "loopback"]
    token_id: str | None = None  # the token it authenticated with; None on loopback without one


LOOPBACK = Caller(name=ANONYMOUS, role=Role.ADMIN, via="loopback")
"""A caller on this machine without a token."""

_READS: Final = frozenset({"GET", "HEAD", "OPTIONS"})

_PUBLIC: Final = re.compile(r"/(healthz|readyz|api/session)")
_GUARDED: Final = re.compile(r"/(api|metrics|openapi\.json)(/.*)?", re.DOTALL)
"""Paths that need a reader; all others are the dashboard's files, which hold no data."""

_SUBMITTERS: Final = re.compile(r"/api/runs(/.*)?|/api/amd/submit", re.DOTALL)
"""Paths that a submitter may change; all other changes are an admin's."""
_SUBMITS: Final = frozenset({"/api/runs", "/api/amd/submit"})
"""Where runs are submitted: `api.submit_rate` limits these."""


def needed(method: str, path: str) -> Role | None:
    """The role a request needs; None: it is open to all."""
    if path.startswith("/api/") and method == "GET" and path != "/api/session":
        return Role.READ
    if _PUBLIC.fullmatch(path):
        return None
    if method in _READS:
        return Role.READ if _GUARDED.fullmatch(path) else None
    return Role.SUBMIT if _SUBMITTERS.fullmatch(path) else Role.ADMIN


def submits_a_run(method: str, path: str) -> bool:
    """Whether a request counts against the rate of submissions."""
    return method == "POST" and path in _SUBMITS
