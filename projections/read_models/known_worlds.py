"""The read models as of a moment, by what was known later (`--at T --known T2`, `?at=T&known=T2`).

What was known at the moment is the base: its rows, sources, policies and queue. Above it stand the runs and machines of
which more was known later. So only what changed between both positions is read.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

import msgspec

from steno.engine.fold.record_time import record_time
from steno.engine.state.as_known import run_as_known, vm_as_known
from steno.engine.state.run import Run
from steno.engine.state.vm import Vm
from steno.engine.state.world import World
from steno.events.clock import format_time
from steno.events.errors import StenoError
from steno.events.store.record import Record
from steno.projections.read_models.database import StoreError
from steno.projections.read_models.projection_writer import NO_MOMENTS, ProjectionWriter
from steno.projections.read_models.projector import belongs, caught_up
from steno.projections.read_models.read_models import ReadModels
from steno.projections.read_models.schema import RunRow
from steno.projections.read_models.store import ProjectionStore
from steno.projections.read_models.world_table import encode, load_bare_world


class Knowledge(NamedTuple):
    """How much is known of a moment."""

    position: int  # what was recorded up to here
    time: int  # the moment itself (microseconds, UTC)


Learnt = dict[str, tuple[str | None, str]]
"""Run id → (its state as known then, None: nobody knew of it; its state then as known later), where they differ."""


class NotKnown(StenoError):
    """The later time is none: before the moment, or before the record."""


def known_by(record: Record, at: int, time: int | None, known: int, state: World) -> Knowledge | None:
    """The knowledge at position `known` of the moment at position `at`, or of a time behind it; None: nothing is newer.
    Raises `NotKnown`: it is before the moment.
    """
    if known < 1:
        first = next(iter(record.read(limit=1)), None)
        begins = "it is empty" if first is None else f"it begins at {format_time(record_time(state, first))}"
        raise NotKnown(f"nothing was known then: the record has no event up to that time; {begins}")
    if known < at:
        raise NotKnown(f"position {known} is before position {at}, the moment shown; give a later one, or `now`")
    if time is None:
        time = record_time(state, next(iter(record.read(after=at - 1, limit=1))))
    return None if known == at else Knowledge(known, time)


def correct(record: Record, store: ProjectionStore, known: Knowledge, opened: Callable[..., ProjectionStore]) -> None:
    """Write into a store of the past, in memory, what is known of its moment. `opened` opens another position."""
    position = store.read_checkpoint().position
    runs: dict[str, Run | None] = {}
    vms: dict[str, Vm] = {}
    with _newest(record, known.position) or opened(record, known.position) as later, later.reading():
        for vm_row in later.vms.changed_since(position):
            vm_then = store.vms.get(vm_row.vm_id)
            vm = vm_as_known(None if vm_then is None else vm_then.decoded, vm_row.decoded, known.time)
            if vm is not None and (vm_then is None or encode(vm) != vm_then.folded):
                vms[vm.vm_id] = vm
        for then, there in _runs(store, later.runs.changed_since(position), known.time):
            early = there.vm_id is not None and there.vm_id not in vms and store.vms.get(there.vm_id) is None
            run = msgspec.structs.replace(there, vm_id=None, links={}) if early else there  # its machine came later
            if then is None or encode(run) != then.folded:
                runs[run.run_id] = run
            store.learnt |= _learnt(then, run)
        merged = (row.run_id for row in store.runs.all(since=known.time) if row.archive is None)
        runs |= {run_id: None for run_id in merged if later.runs.get(run_id) is None}
        seen = (load_bare_world(store), load_bare_world(later))
    before, after = (None if world is None else world.last_at for world in seen)
    seen_until = before if after is None else max(before or 0, min(known.time, after))
    ProjectionWriter(record, store, spacing=NO_MOMENTS).correct(runs, vms, seen_until)


def learnt(record: Record, store: ProjectionStore, known: Knowledge, ids: Iterable[str]) -> Learnt:
    """The runs of a store of the past, among these, whose state at its moment is known otherwise by now."""
    with caught_up(record) as later:
        rows = (row for run_id in ids if (row := later.runs.get(run_id)) is not None)
        return {
            key: states for then, run in _runs(store, rows, known.time) for key, states in _learnt(then, run).items()
        }


def _runs(store: ProjectionStore, rows: Iterable[RunRow], moment: int) -> Iterator[tuple[RunRow | None, Run]]:
    """(the run as known then, the run at the moment by what its row knows) of those that were there."""
    for row in rows:
        then = store.runs.get(row.run_id)
        run = run_as_known(None if then is None else then.decoded, row.decoded, moment)
        if run is not None:
            yield then, run


def _learnt(then: RunRow | None, run: Run) -> Learnt:
    before, now = None if then is None else then.state, run.state.value
    return {} if before == now else {run.run_id: (before, now)}


def _newest(record: Record, position: int) -> ProjectionStore | None:
    """The current read models, if they stand at a position."""
    with suppress(StoreError):
        models = ReadModels(record.store).open(write=False)
        if models is not None:
            there = models.checkpoint()
            if there is not None and there.position == position and belongs(record, there):
                return models
            models.close()
    return None
