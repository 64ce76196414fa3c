"""Who holds a lease: what every store can say of it, and the id that a holder takes it under."""

import os
import secrets
import uuid
from collections.abc import Iterable
from typing import Final

import msgspec

from events.clock import SystemClock
from events.errors import RecordLocked

SEATS: Final = "sharing "
"""How the names of leases begin that say only that a process lives, to those it shares sources with."""

_RANDOM_BITS: Final = 62  # of a UUID of version 7, behind its variant
_own: tuple[int, int] = (0, 0)  # (process id, its random number)


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """The holder of a lease, or its last one."""

    name: str  # of the lease
    process: int
    host: str
    worker: str  # random for each start of a process; equal for all leases of one process
    token: int  # grows with each holder
    since: int | None  # microseconds, UTC, by the holder's clock; None: an older version took it
    seconds_left: float | None
    """Until it ends unless its holder renews it; 0 or less: it has ended. None: it ends with its process."""

    @property
    def held(self) -> bool:
        return self.seconds_left is None or self.seconds_left > 0


def expect_nobody_acts(where: object, found: Iterable[Holder]) -> None:
    """RecordLocked if a lease is held: its holder would stay, and could not append to what is there afterwards."""
    for one in found:
        if one.held:
            whose = f"process {one.process}" + (f" on {one.host}" if one.host else "")
            raise RecordLocked(f"The record {where} is in use by {whose}: stop that first (`steno workers`).")


def new_owner() -> uuid.UUID:
    """A UUID of version 7: when a lease is taken, and by whom. Its last 62 bits are random for each process start: a
    name or a number would be another's after a restart.
    """
    global _own  # noqa: PLW0603 - one process, one number; a fork is another process
    if _own[0] != os.getpid():
        _own = os.getpid(), secrets.randbits(_RANDOM_BITS)
    moment = SystemClock().now() // 1000
    return uuid.UUID(int=moment << 80 | 7 << 76 | secrets.randbits(12) << 64 | 2 << _RANDOM_BITS | _own[1])


def worker_of(owner: uuid.UUID) -> str:
    """The part of an owner that is the process's: 16 digits."""
    return f"{owner.int & ((1 << _RANDOM_BITS) - 1):016x}"


def since_of(owner: uuid.UUID) -> int | None:
    """When the lease was taken, microseconds UTC, to the millisecond; None: by an owner of an older version."""
    return (owner.int >> 80) * 1000 if owner.version == 7 else None


def this_worker() -> str:
    """The worker of this process."""
    return worker_of(new_owner())
