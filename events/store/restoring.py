"""Puts a copy in the place of a record that was lost or damaged, and notes in it what is lost by that."""

from bisect import bisect_left
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import msgspec

from events.clock import Clock
from events.errors import IdConflict, RecordDamaged, StenoError
from events.store.copying import copy as copy_to
from events.store.record import Batch, Head, Record
from events.store.store import Store
from events.types import RecordRestored


class Restored(msgspec.Struct, frozen=True, kw_only=True):
    copy: Head
    lost: int | None  # where the record ended before; None: it could not be read, or there was none
    common: int  # the newest position that was the same in both
    kept: str | None  # where the record from before is now


def restore(copy: Store, target: Store, *, clock: Clock, progress: Callable[[int, int], None]) -> Restored:
    """Put a copy in the place of a record, with a `RecordRestored`; vault and tokens of the place stay. RecordDamaged:
    the copy is not whole; IdConflict: it is of another record; RecordLocked: a process has the record. Then nothing was
    changed.
    """
    with Record.open(copy, clock=clock) as origin:
        verdict, head = origin.verify(), origin.head()
        if not verdict.ok:
            raise RecordDamaged(f"The copy {copy} is damaged ({verdict.damage[0].detail}): nothing was changed.")
        lost, common, record_id = None, head.position, origin.id
        with suppress(StenoError, TypeError), Record.open(target, clock=clock, check=False) as there:
            lost, record_id = there.head().position, there.id
            both = range(1, min(head.position, lost) + 1)
            common = bisect_left(both, 1, key=lambda at: there.digest(at) != origin.digest(at))
        if record_id != origin.id:
            raise IdConflict(f"{copy} is a copy of another record than {target}: nothing was changed.")
    copied = partial(copy_to, copy, clock=clock, progress=progress)
    kept = target.replace(partial(copied, private=False))
    copied(target)  # what is private, where there is none
    target.blob("snapshot").replace(b"")
    with Record.open(target, clock=clock, write=True) as record:
        record.append_many([Batch("record", [RecordRestored(common=common, lost=lost)])], durable=True)
    return Restored(copy=head, lost=lost, common=common, kept=kept)
