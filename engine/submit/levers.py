"""Requests to pull and to release a lever, checked and recorded. Each goes to one stream, in which the version says
whether another request came first: then it is checked again, so that of two equal requests only one is recorded.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress

from msgspec.structs import replace

from steno.engine.errors import Conflict, LeverNotFound, SourceNotFound
from steno.engine.live.journal import Journal
from steno.engine.state.archives import refuse_archive
from steno.engine.state.levers import SHORT, Lever, lasts, nothing_to_stop, stopped_by
from steno.engine.state.policy import DAY
from steno.engine.state.states import State, VmState
from steno.engine.state.vm import Vm
from steno.engine.state.world import World
from steno.events.clock import format_second
from steno.events.errors import UnreadableInput, VersionConflict
from steno.events.levers import LeverEvent, LeverPulled, LeverReleased
from steno.events.store.append import Batch

STREAM = "levers"
Look = Callable[[], AbstractContextManager[tuple[World, int]]]
"""Enters the world at the head of the record, with the time (microseconds, UTC)."""
_LONGEST = 31 * DAY
_FIELDS = {
    "pause": {"user", "gpu", "source", "until"},
    "drain": {"source", "until"},
    "stop": {"user", "gpu", "source", "state", "vm_id"},
    "keep": {"vm_id", "until"},
}


def in_force(state: World, now: int) -> list[Lever]:
    """The levers that hold something at `now`, in order; a machine that has ended is kept no more."""
    return [
        lever
        for lever in state.levers.values()
        if lever.holds(now)
        and (lever.pulled.action != "keep" or state.vms[lever.pulled.vm_id or ""].state is not VmState.TERMINATED)
    ]


def lever_named(state: World, word: str, now: int) -> Lever:
    """The lever in force whose id begins so. Raises `LeverNotFound` for none or several."""
    there = in_force(state, now)
    named = [lever for lever in there if word and lever.pulled.lever_id.startswith(word)]
    if len(named) == 1:
        return named[0]
    names = ", ".join(lever.pulled.lever_id[:SHORT] for lever in there) or "none"
    raise LeverNotFound(f"{'several levers' if named else 'no lever'} {word} in force; in force: {names}")


def refuse_form(wanted: LeverPulled) -> None:
    """Raises `UnreadableInput` if the fields do not fit the action."""
    given = {name for name in ("user", "gpu", "source", "state", "vm_id", "until") if getattr(wanted, name) is not None}
    if more := sorted(given - _FIELDS[wanted.action]):
        raise UnreadableInput(f"{wanted.action} takes no {', '.join(more)}")
    if empty := [name for name in sorted(given) if getattr(wanted, name) == ""]:
        raise UnreadableInput(f"`{empty[0]}` is empty: name it, or leave it out")
    if wanted.action == "keep" and given != _FIELDS["keep"]:
        raise UnreadableInput("keep needs a machine (`vm_id`) and how long (`for`)")
    if wanted.state not in (None, *State):
        raise UnreadableInput(f"there is no state {wanted.state}; there are {', '.join(State)}")
    if not wanted.why.strip():
        raise UnreadableInput("`why` is empty: say why")


def refuse_pull(state: World, wanted: LeverPulled, now: int) -> LeverPulled | None:
    """The same lever of the same person, if it is in force; None: it may be pulled.

    Raises:
        Conflict: the machine has ended, is not Steno's to end, is about to end, or somebody else keeps it.
        SourceNotFound: the record has no such source.
    """
    _refuse_source(state, wanted.source)
    if wanted.until is not None and not now < wanted.until <= now + _LONGEST:
        raise Conflict(f"a lever lasts between 1 second and 31 days, not until {format_second(wanted.until)}")
    if wanted.action == "keep":
        _refuse_keep(state.vms[wanted.vm_id or ""], wanted, now)
    if not lasts(wanted):
        return None
    for lever in in_force(state, now):
        known = lever.pulled
        same = replace(known, lever_id=wanted.lever_id, why=wanted.why)
        if same == wanted and wanted.action != "stop":  # a stop also stops what came since
            return known
    return None


def _refuse_source(state: World, source: str | None) -> None:
    names = {source.name for source in state.sources.values() if not source.archive} | set(state.policies)
    if source is not None and source not in names | {name.partition("/")[0] for name in names}:
        raise SourceNotFound(f"the record has no source {source}; it has {', '.join(sorted(names)) or 'none'}")


def _refuse_keep(vm: Vm, wanted: LeverPulled, now: int) -> None:
    name, kept = vm.facts.name or vm.provider_id, vm.kept(now)
    if vm.state in (VmState.TERMINATED, VmState.TERMINATING, VmState.UNCONFIRMED):
        raise Conflict(f"{name} cannot be kept: it is {vm.state}")
    refuse_archive(vm, name)
    if not vm.ours:
        raise Conflict(f"Steno did not create {name} and never ends it: only its provider can keep it")
    if vm.wish is not None:
        raise Conflict(f"{name} cannot be kept: its stop was requested at {format_second(vm.wish.at)}")
    if kept is not None and kept.by != wanted.by:
        release = f"`steno resume {kept.lever_id[:SHORT]}` releases it"
        raise Conflict(f"{kept.by} keeps {name} until {format_second(kept.until)} ({kept.why}); {release}")


def pull(journal: Journal, wanted: LeverPulled, look: Look) -> tuple[LeverPulled, int | None]:
    """The lever in force; its event's position, None: unchanged. Raises as `refuse_pull`; Conflict: nothing to stop."""
    while True:
        version = journal.record.version(STREAM)
        with look() as (state, now):
            known = refuse_pull(state, wanted, now)
            if not lasts(wanted) and not stopped_by(wanted, state.runs.open()):
                raise Conflict(nothing_to_stop(wanted))
        if known is not None:
            return known, None
        if (position := _append(journal, wanted, version)) is not None:
            return wanted, position


def release(journal: Journal, word: str, *, why: str, by: str, look: Look) -> tuple[str, int]:
    """Release a lever: its id, and the position of the event. Raises `LeverNotFound` if it is not in force."""
    while True:
        version = journal.record.version(STREAM)
        with look() as (state, now):
            lever_id = lever_named(state, word, now).pulled.lever_id
        if (position := _append(journal, LeverReleased(lever_id=lever_id, why=why, by=by), version)) is not None:
            return lever_id, position


def _append(journal: Journal, event: LeverEvent, version: int) -> int | None:
    with suppress(VersionConflict):
        return journal.append(Batch(STREAM, (event,), expected_version=version))[-1]
    return None
