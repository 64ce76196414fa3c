"""Who asks, and what that allows."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Literal


class Role(enum.StrEnum):
    """What a caller may do; each role includes the ones before it."""

    READ = "read"
    """Look at everything."""
    SUBMIT = "submit"
    """Also ask for runs, and stop them."""
    ADMIN = "admin"
    """Also end machines, and whatever else changes anything."""

    def covers(self, needed: Role) -> bool:
        """Whether this role allows what needs that one."""
        return _ORDER[self] >= _ORDER[needed]


_ORDER = {role: rank for rank, role in enumerate(Role)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Who:
    """The caller of one request."""

    name: str
    """What its commands are recorded under: the token's name, or `loopback`."""
    role: Role
    via: Literal["token", "session", "loopback"]
    token_id: str | None = None
    """The token that opened the door; None on loopback without one."""


LOOPBACK = Who(name="loopback", role=Role.ADMIN, via="loopback")
"""Whoever is on this machine and brings no token."""
