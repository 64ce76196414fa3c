"""What the live world changed behind a position, encoded: one thread takes it under the world's lock, in a moment, and
decodes it outside.
"""

from typing import TYPE_CHECKING

import msgspec

from engine.fold.change import Anomaly, Blind
from engine.fold.run import Run
from engine.fold.vm import Vm
from projections.store.world_table import encode_run, encode_vm, pieces

if TYPE_CHECKING:
    from engine.live.live_world import LiveWorld


class LiveCut(msgspec.Struct, frozen=True, kw_only=True):
    """The world at `position`, as far as it may be other than at the position before."""

    position: int
    runs: dict[str, bytes]
    """Every run that may have changed; new ones in order of first sight."""
    gone: tuple[str, ...]
    """Runs that were taken into others."""
    vms: dict[str, bytes]
    world: bytes
    """See `projections.store.world_table.pieces`."""
    lasting: bytes
    notes: tuple[Anomaly | Blind, ...]
    """New ones, in order."""


def cut_of(live: "LiveWorld", after: int) -> LiveCut | None:
    """What changed behind `after`; None where the live world does not know, so that the record has to be folded."""
    with live.reading() as state:
        touched, position = live.touched, live.position
        if state is None or not touched.floor <= after <= position:
            return None
        runs = touched.runs_since(after)
        gone = tuple(run_id for run_id in runs if run_id not in state.runs)
        there = _in_order(state.runs, {*state.unsettled, *runs}.difference(gone), after)
        vms = _in_order(state.vms, {*state.open_vms, *touched.vms_since(after)}, after)
        world, lasting = pieces(state)
        return LiveCut(
            position=position,
            runs={run_id: encode_run(state.runs[run_id]) for run_id in there},
            gone=gone,
            vms={vm_id: encode_vm(state.vms[vm_id]) for vm_id in vms},
            world=world,
            lasting=lasting,
            notes=tuple(touched.notes_since(after)),
        )


def _in_order(known: dict[str, Run] | dict[str, Vm], ids: set[str], after: int) -> list[str]:
    """These ids; those first seen behind `after` last, in the order of the world, which has the newest at its end."""
    new = {one for one in ids if known[one].first_position > after}
    behind: list[str] = []
    for one in reversed(known):
        if len(behind) == len(new):
            break
        if one in new:
            behind.append(one)
    return [*(ids - new), *reversed(behind)]
