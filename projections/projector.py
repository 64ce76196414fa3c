"""Brings the projections up to the record: idempotent, safe under several processes, in memory where need be."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from engine.replay.objects import anomaly_object, blind_object, run_object
from engine.replay.until import Until
from engine.rules.sets import CURRENT
from engine.rules.verdict import NAME
from engine.run.states import is_terminal
from engine.world.runs import Run
from engine.world.state import WorldState
from engine.world.world import World
from projections.costed import costed
from projections.folded import StoredRuns, encode_run, form, put_down, take_up
from projections.store import Checkpoint, RunRow, Store, beside, only_writer

if TYPE_CHECKING:
    from events.record import Record

Progress = Callable[[int, int], None]
"""Called with (done, total) while a fold goes on."""

_CHUNK = 100_000
"""Positions folded between two words of progress."""

RULES = f"{NAME} {form()}"
"""What the projections are made by and of: other rules or another form, and they are built anew."""


def caught_up(record: "Record", *, progress: Progress | None = None) -> Store:
    """The projections of a record, up to its head as it is now; the caller closes them.

    They are kept in a file beside the record, so that the next call folds only what is new. Where that file cannot be
    written the rest is folded in memory.
    """
    path = beside(record.path)
    store = _current(record, path)
    if store is not None and _is_at_head(record, store):
        return store
    try:
        with only_writer(path):
            _write(record, path, progress)
    except OSError:
        return _in_memory(record, store, progress)
    if store is not None:
        store.close()
    opened = Store.open(path, write=False)
    return opened if opened is not None else _in_memory(record, None, progress)


def rebuilt(record: "Record", *, progress: Progress | None = None) -> int:
    """Build the projections anew in another file and put it in the old one's place; how many runs they have.

    Raises:
        OSError: the folder cannot be written.
    """
    path = beside(record.path)
    with only_writer(path):
        return _build(record, path, progress)


def as_it_was(record: "Record", position: int, *, progress: Progress | None = None) -> Store:
    """The projections as they were after `position`, folded in memory."""
    store = Store.create(None)
    _catch_up(record, store, position, progress)
    return store


def _current(record: "Record", path: Path) -> Store | None:
    """The store at `path`, if it was made from this record by these rules."""
    store = Store.open(path, write=False)
    if store is None:
        return None
    if _belongs(record, store):
        return store
    store.close()
    return None


def _belongs(record: "Record", store: Store) -> bool:
    checkpoint = store.checkpoint()
    if checkpoint is None or (checkpoint.version, checkpoint.rules) != (Checkpoint(rules="").version, RULES):
        return False
    return checkpoint.record == record.id and checkpoint.position <= record.head().position


def _is_at_head(record: "Record", store: Store) -> bool:
    checkpoint = store.checkpoint()
    return checkpoint is not None and checkpoint.position == record.head().position


def _write(record: "Record", path: Path, progress: Progress | None) -> None:
    """Catch up the file at `path`, or make it; the caller holds its lock."""
    store = Store.open(path, write=True)
    if store is None or not _belongs(record, store):
        if store is not None:
            store.close()
        _build(record, path, progress)
        return
    with store:
        _catch_up(record, store, record.head().position, progress)


def _build(record: "Record", path: Path, progress: Progress | None) -> int:
    """Fill a new file and put it in the place of the old one, whose readers keep what they have open."""
    fresh = path.with_name(path.name + ".new")
    fresh.unlink(missing_ok=True)
    with Store.create(fresh) as store:
        _catch_up(record, store, record.head().position, progress)
        runs = store.count()
    path.with_name(path.name + "-journal").unlink(missing_ok=True)
    fresh.replace(path)
    return runs


def _in_memory(record: "Record", store: Store | None, progress: Progress | None) -> Store:
    if store is None:
        found = Store.create(None)
    else:
        found = store.copy()
        store.close()
    _catch_up(record, found, record.head().position, progress)
    return found


def _catch_up(record: "Record", store: Store, until: int, progress: Progress | None) -> None:
    """Fold what came after the store's checkpoint up to `until`, in one transaction."""
    with store.writing():
        checkpoint = store.checkpoint()
        after = 0 if checkpoint is None else checkpoint.position
        if after >= until and checkpoint is not None:
            return
        try:
            state = _folded(record, store, after, until, progress)
        except _Renumbered:
            store.clear()
            after, state = 0, _folded(record, store, 0, until, progress)
        _keep(store, state, after)
        store.set_checkpoint(Checkpoint(rules=RULES, record=record.id, position=until))


class _Renumbered(Exception):
    """A run was taken into another in a way only a fold from the start can follow."""


def _folded(record: "Record", store: Store, after: int, until: int, progress: Progress | None) -> WorldState:
    from engine.replay.fold import RecordFold
    from engine.replay.record import fill_costs

    state = take_up(store) if after else None
    resumed = state.runs if state is not None else None
    world = World(CURRENT, state=state)
    fold = RecordFold(record, world)
    try:
        for position in (*range(after + _CHUNK, until, _CHUNK), until):
            fold.run(Until(position=position))
            if progress is not None:
                progress(position - after, until - after)
    except KeyError:
        if isinstance(resumed, StoredRuns) and world.state.runs is not resumed:
            raise _Renumbered from None
        raise
    if isinstance(resumed, StoredRuns) and world.state.runs is not resumed:
        raise _Renumbered
    fill_costs(record, dict.values(world.state.runs))
    return world.state


def _keep(store: Store, state: WorldState, after: int) -> None:
    """Write every run and machine the fold met or whose cost went on, and what it added."""
    costs, machines = costed(state, after)
    store.put_runs(_row(run, costs.get(run.run_id)) for run in dict.values(state.runs))
    store.vms.put(machines)
    store.add_anomalies((one.subject, msgspec.json.encode(anomaly_object(one))) for one in state.anomalies)
    store.add_blind((one.source, msgspec.json.encode(blind_object(one))) for one in state.blind)
    put_down(store, state)


def _row(run: Run, cost: int | None) -> RunRow:
    return RunRow(
        run_id=run.run_id,
        provider=run.provider,
        provider_id=run.provider_id,
        name=run.name,
        ended=is_terminal(run.state),
        sort_at=run.submitted_at if run.submitted_at is not None else run.first_at,
        object=msgspec.json.encode(run_object(run, CURRENT, cost)),
        folded=encode_run(run),
    )
