"""Callers, their roles, and the role that each request needs."""

import re
from dataclasses import dataclass
from typing import Final, Literal

from engine.commands.tokens import ANONYMOUS, Role


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    name: str  # the token's name, or `loopback`; the record names it as the submitter
    role: Role
    via: Literal["token", "session", "loopback"]
    token_id: str | None = None  # the token it authenticated with; None on loopback without one


LOOPBACK = Caller(name=ANONYMOUS, role=Role.ADMIN, via="loopback")  # a local caller without a token

_READS: Final = frozenset({"GET", "HEAD", "OPTIONS"})

_PUBLIC: Final = re.compile(r"/(healthz|readyz|api/session)")
_GUARDED: Final = re.compile(r"/(api|metrics|openapi\.json)(/.*)?", re.DOTALL)  # others: static files

_SUBMITTERS: Final = re.compile(r"/api/runs(/.*)?|/api/amd/submit", re.DOTALL)  # others: admins only
_ADMINS: Final = re.compile(r"/api/tokens(/.*)?", re.DOTALL)  # reads too: who may do what is for admins
_SUBMITS: Final = re.compile(r"/api/runs(/[^/]+/rerun)?|/api/amd/submit")  # limited by `api.submit_rate`


def needed(method: str, path: str) -> Role | None:
    """The role a request needs; None: open to all."""
    if _ADMINS.fullmatch(path):
        return Role.ADMIN
    if path.startswith("/api/") and method == "GET" and path != "/api/session":
        return Role.READ
    if _PUBLIC.fullmatch(path):
        return None
    if method in _READS:
        return Role.READ if _GUARDED.fullmatch(path) else None
    return Role.SUBMIT if _SUBMITTERS.fullmatch(path) else Role.ADMIN


def submits_a_run(method: str, path: str) -> bool:
    """Whether a request counts against `api.submit_rate`."""
    return method == "POST" and _SUBMITS.fullmatch(path) is not None
