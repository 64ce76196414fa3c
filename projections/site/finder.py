"""Which record a request is for: the one it names, the one that has its run or machine, or the one with its source."""

from collections.abc import Callable, Sequence
from typing import Any

from engine.fold.world_codec import WorldState
from projections.api.parameters import MAX_ID
from projections.api.problems import Problem
from projections.api.service import Outside, Service
from projections.models.reader_pool import Look
from projections.site.looks import said
from projections.site.site import RECORD, UNAVAILABLE, Member, RecordSet, refused

_THINGS = {"runs": "run", "kernels": "run", "vms": "machine"}


def holder(site: RecordSet, kind: str, word: str) -> Member:
    """The record that has a run (`runs`, `kernels`) or a machine (`vms`); blocks: call it in a worker thread. Raises
    `Problem`: 404 none has it; 400 a name or a prefix matches in several; 503 none that can be read has it.
    """
    if len(word) > MAX_ID:
        raise Problem(404, f"no name is that long ({len(word)} characters)", field="id")
    machines = kind == "vms"
    missing: dict[str, str] = {}
    there = [one for one in site.members if one.trouble is None]
    followed = all(one.service.feed.live.is_ready(0) for one in there)  # else another one may know it too
    knowing = [one for one in there if followed and _knows(one, word, machines=machines)]
    if len(knowing) == 1:
        return knowing[0]
    found: list[tuple[Member, Sequence[Any]]] = []
    for member in site.members:
        try:
            if rows := _matching(member, word, machines=machines):
                found.append((member, rows))
        except Exception as error:
            if (why := refused(error)) is None:
                raise
            missing[member.name] = why
    exact = [(member, rows) for member, rows in found if any(_is_exactly(row, word) for row in rows)]
    match exact or found:
        case [(member, _)]:
            return member
        case []:
            if missing:
                raise Problem(UNAVAILABLE, f"no record that can be read has it; {said(missing)}")
            names = ", ".join(site.names)
            raise Problem(404, f"there is no {_THINGS[kind]} {word!r} in any of the records {names}", field="id")
        case several:
            names = " and ".join(member.name for member, _ in several)
            raise Problem(400, f"{word!r} is in the records {names}: name one with ?{RECORD}=", field=RECORD)


def _knows(member: Member, word: str, *, machines: bool) -> bool:
    """Whether a record has this very id, by the engine's own world: also just after it was made."""
    with member.service.feed.state() as state:
        return word in (state.vms if machines else state.runs)


def _matching(member: Member, word: str, *, machines: bool) -> Sequence[Any]:
    if member.trouble is not None:
        raise Problem(UNAVAILABLE, member.trouble)
    with member.service.pool.latest() as look:
        return _rows(look, word, machines=machines)


def _rows(look: Look, word: str, *, machines: bool) -> Sequence[Any]:
    store = look.view.store
    return store.vms.matching(word) if machines else store.runs.matching(word)


def _is_exactly(row: Any, word: str) -> bool:
    return word in (getattr(row, "run_id", None), getattr(row, "vm_id", None), row.provider_id)


def taker(site: RecordSet, outside: Callable[[Service], Outside], project: str | None) -> Member:
    """The record that takes a submission: the only one that records its source. Blocks. Raises `Problem` 400 if none
    or several do, and `NotConfigured` if the settings name no project.
    """
    port = outside(site.first.service)
    source = f"{port.provider}/{project or port.project()}"
    having = [one for one in site.members if one.trouble is None and _records(one, source)]
    match having:
        case [only]:
            return only
        case []:
            raise site.choose(f"no record has the source {source[:80]} yet")
        case several:
            names = " and ".join(one.name for one in several)
            raise site.choose(f"the records {names} have the source {source[:80]}")


def _records(member: Member, source: str) -> bool:
    def has(state: WorldState) -> bool:
        found = state.sources.get(source)
        return found is not None and not found.archive

    with member.service.feed.state() as state:
        return has(state)
