"""Archives: sources whose polls were imported from a trace; their time ends with their last poll (docs/adr/0030). An
import gives its polls ids, a recorder does not.
"""

import re
from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from steno.engine.errors import Conflict
from steno.engine.state.facts import RunFacts
from steno.engine.state.inventory import Brief
from steno.engine.state.reading import Tick
from steno.engine.state.run import Run
from steno.engine.state.sources import BLIND_AFTER, Source
from steno.engine.state.states import Reason
from steno.engine.state.vm import Vm
from steno.engine.state.world import World

_RUN_ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def polled(state: World, source: Source, at: int, position: int) -> None:
    """Move the clock of a poll's source: the record's for a live source, its own for an archive."""
    if not source.archive:
        if state.last_at is None or at > state.last_at:
            state.last_at = at
        return
    back = at < (source.imported_to or at) - BLIND_AFTER
    project = "/" in source.name
    begins = project and (state.importing != source.name or back)
    if project:
        state.importing = source.name
    elif (beside := _beside(state, source)) is not None and at - (beside.imported_to or 0) <= BLIND_AFTER:
        source = beside
    source.imported_to = at if source.imported_to is None else max(source.imported_to, at)
    *before, (first, last) = source.imported_at or ((position, position),)
    if begins and last < position:
        source.imported_at = (*before, (first, last), (position, position))
    else:
        source.imported_at = (*before, (first, max(last, position)))


def archive_of(state: World, source: Source) -> str | None:
    """The archive that a poll of a source belongs to; None for a live source."""
    if not source.archive:
        return None
    return (_beside(state, source) or source).name


def _beside(state: World, source: Source) -> Source | None:
    """The archive of a source that names no project, such as a provider's event log: its provider's, imported last;
    None: it is one of its own.
    """
    named = [other for other in state.sources.values() if other.archive and other.name.startswith(f"{source.name}/")]
    return max(named, key=lambda source: source.imported_at[-1:], default=None)


def imported_id(state: World, facts: RunFacts) -> str | None:
    """The run id of an archive's new run by its mark, which a Steno gave it that requested it; None: it has none."""
    mark = None if facts.group is not None else facts.mark  # a task has the mark of its array
    return None if mark is None or mark in state.runs or _RUN_ID.fullmatch(mark) is None else mark


def repeated(state: World, facts: RunFacts, provider: str) -> Run | None:
    """The run of an archive which its Steno requested again, as a new run with the same mark: it had no capacity."""
    run = None if facts.group is not None else state.runs.get(facts.mark or "")
    if run is None or run.archive is None or run.provider != provider or run.reason is not Reason.NO_CAPACITY:
        return None
    return run if run.terminal and run.facts is not None and run.facts.mark == facts.mark else None


def may_move(tick: Tick, thing: Run | Vm) -> bool:
    """True if a poll may move a run or machine that is known already. An archive moves nothing that a live source
    shows; a live source takes over what only an archive had shown.
    """
    if tick.archive is not None:
        return thing.archive is not None
    thing.archive, thing.hidden = None, False
    return True


def concerns(tick: Tick, thing: Run | Vm) -> bool:
    """True if a poll that omits a thing can mean anything: both are live, or both imported."""
    return (thing.archive is None) == (tick.archive is None)


def is_hidden(state: World, archive: str | None) -> bool:
    """True if lists leave an archive out."""
    return archive is not None and archive in state.sources and state.sources[archive].hidden


def set_hidden(state: World, name: str, *, hidden: bool) -> None:
    """Take an archive out of the lists, or put it back."""
    if name in state.sources:
        state.sources[name].hidden = hidden
        for thing in (*state.runs.all(), *state.vms.all()):
            thing.hidden = hidden if thing.archive == name else thing.hidden


def until_of(state: World, vm: Vm) -> int:
    """Up to when an open machine is billed (microseconds, UTC): to the newest poll of any live source, or, in an
    archive, to the archive's last poll.
    """
    if vm.archive is None:
        return state.last_at or 0
    source = state.sources.get(vm.archive)
    return vm.last_at if source is None or source.imported_to is None else source.imported_to


def newest_poll(state: World) -> int | None:
    """When the newest poll was observed: of a live source, or, if there is none, of an archive."""
    ends = (state.last_at,) if state.last_at is not None else (source.imported_to for source in state.sources.values())
    return max((end for end in ends if end is not None), default=None)


def imported_at(state: World) -> tuple[tuple[int, int], ...]:
    """The ranges of positions (first, last) of archives, in order."""
    ranges: list[tuple[int, int]] = []
    for first, last in sorted(stretch for source in state.sources.values() for stretch in source.imported_at):
        if ranges and first <= ranges[-1][1]:  # imported at the same time
            ranges[-1] = (ranges[-1][0], max(ranges[-1][1], last))
        else:
            ranges.append((first, last))
    return tuple(ranges)


def archive_about(state: World, subject: str) -> str | None:
    """The archive that `run/<run_id>`, `vm/<vm_id>` or `source/<source>` belongs to; None: it is live."""
    kind, _, name = subject.partition("/")
    if kind == "source":
        source = state.sources.get(name)
        return None if source is None else archive_of(state, source)
    thing: Run | Vm | None = state.runs.get(name) if kind == "run" else state.vms.get(name)
    return None if thing is None else thing.archive


def seen_at(state: World, subject: str) -> int:
    """The newest poll that could show `run/<run_id>`, `vm/<vm_id>` or `source/<source>` (microseconds, UTC)."""
    archive = archive_about(state, subject)
    return (state.last_at if archive is None else state.sources[archive].imported_to) or 0


def shown_part(state: World) -> World:
    """The world without the archives that lists leave out."""
    return _part(state, lambda thing: not thing.hidden)


def refuse_archive(thing: Run | Vm, name: str) -> None:
    """Raise `Conflict` if it is part of an archive: Steno changes nothing there."""
    if thing.archive is not None:
        raise Conflict(f"{name} is part of the archive {thing.archive}: it was imported, and Steno does not act on it.")


def live_part(state: World) -> World:
    """The world without archives: what decisions and effects use."""
    if all(source.imported_to is None for source in state.sources.values()):  # most worlds; called each round
        return state
    return _part(state, lambda thing: thing.archive is None)


def _part(state: World, belongs: Callable[[Run | Vm | Brief], bool]) -> World:
    return replace(state, runs=state.runs.part(belongs), vms=state.vms.part(belongs))
