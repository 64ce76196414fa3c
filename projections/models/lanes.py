"""Machines as lanes: each with its bill's intervals, and the runs that were on it, in one window of time."""

from typing import Final

import msgspec

from engine.objects import RunObject, VmObject
from events.clock import SECOND, format_time
from projections.store.reader_pool import Look
from projections.store.store import ProjectionStore
from projections.store.vm_table import VmRow
from projections.store.world_table import decode_vm

WINDOW: Final = 6 * 3600 * SECOND
_MOST: Final = 100
"""Lanes shown: those that ended last are left out first where there are more."""
_run: Final = msgspec.json.Decoder(RunObject)


class Lanes(msgspec.Struct, frozen=True, kw_only=True):
    """The window (microseconds, UTC) and what is in it, as JSON values."""

    start: int
    end: int
    lanes: list[dict[str, object]]

    def to_json(self) -> dict[str, object]:
        """`{"window", "lanes"}`."""
        return {"window": {"from": format_time(self.start), "to": format_time(self.end)}, "lanes": self.lanes}


def lanes(look: Look, window: int = WINDOW) -> Lanes:
    """Machines billed in the last `window` microseconds; where none was, the newest machine's whole life."""
    store, end = look.view.store, look.now
    start = end - window
    rows = list(store.vms.all(billed_or_since=start, hidden=False))
    if not rows and (newest := store.vms.newest()) is not None:
        rows, start = [newest], newest.created
        end = max(start, end if newest.ended_at is None else newest.ended_at)
    if len(rows) > _MOST:
        kept = sorted(rows, key=lambda row: (row.billed, row.ended_at or 0))[-_MOST:]
        rows = [row for row in rows if row in kept]
    return Lanes(start=start, end=end, lanes=[_lane(store, row, start, end) for row in rows])


def _lane(store: ProjectionStore, row: VmRow, start: int, end: int) -> dict[str, object]:
    vm = decode_vm(row.folded)
    runs = []
    for one in vm.occupancies:
        if one.since > end or (one.until is not None and one.until < start):
            continue
        known = store.run(one.run_id)
        run = None if known is None else _run.decode(known.object)
        runs.append(
            {
                "run_id": one.run_id,
                "name": None if run is None else run.name,
                "state": None if run is None else run.state,
                "start": None if run is None else run.start,
                "from": format_time(max(vm.created, one.since)),
                "to": None if one.until is None else format_time(max(vm.created, one.until)),
            }
        )
    return {"vm": msgspec.json.decode(row.object, type=VmObject), "runs": runs}
