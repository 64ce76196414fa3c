"""Answers that list one run or machine more than once, with different facts: one row is used. If both were used, each
repetition of the answer would move and bill the thing back and forth. The choice depends on the answer alone: of a
machine the row that may cost most, so that a machine that may be billed is never forgotten; of a run the row furthest
ahead.
"""

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from msgspec.structs import replace

from engine.facts import RunFacts, VmFacts
from engine.fold.tick import Seen, Tick
from engine.providers.reading import Reading
from engine.rules.current import attempt_of, decisive, progress
from engine.states import PROGRESS, VmState

Row = TypeVar("Row", Seen, VmFacts)

_RANK: Final = {
    VmState.BUSY: 5,
    VmState.PROVISIONING: 4,
    VmState.IDLE: 3,
    VmState.TERMINATING: 1,
    VmState.TERMINATED: 0,
}
"""Where a machine is → how far it is from having ended; idle is nearer than busy, because idle machines are ended. An
unknown word ends none.
"""
_DERIVED: Final = frozenset(
    {"drift", "state", "requeued", "final", "failed", "cause", "by_request", "gives_end", "latest_exit_status"}
)  # facts that follow from others, which are named
_NO_END: Final = 1 << 62


def listed_once(tick: Tick, reading: Reading | None) -> Tick:
    """The poll with one row of each thing, the last of equal ones; the poll itself if nothing is listed twice. Runs
    that `reading` has joined are left as they are: with one id they are several.
    """
    unlike: dict[str, str] = {}
    joined = reading is not None and reading.joins_items
    runs = tick.runs if joined else _once(tick.runs, _of_run, unlike)
    vms = _once(tick.vms, _of_vm, unlike)
    same = len(runs) == len(tick.runs) and len(vms) == len(tick.vms)
    return tick if same else replace(tick, runs=runs, vms=vms, unlike=unlike)


def _once(rows: tuple[Row, ...], weight: Callable[[Row], tuple[int, ...]], unlike: dict[str, str]) -> tuple[Row, ...]:
    if len(rows) < 2:
        return rows
    ids = [_facts(row).provider_id for row in rows]
    if len(set(ids)) == len(ids):
        return rows
    found: dict[str, list[Row]] = {}
    for provider_id, row in zip(ids, rows, strict=True):
        found.setdefault(provider_id, []).append(row)
    for provider_id, same in found.items():
        if fields := _differing([_facts(row) for row in same]):
            unlike[provider_id] = f"listed {len(same)} times in one answer, with another {', '.join(fields)}"
    return tuple(max(reversed(same), key=weight) for same in found.values())


def _facts(row: Seen | VmFacts) -> RunFacts | VmFacts:
    return row.facts if isinstance(row, Seen) else row


def _differing(facts: Sequence[RunFacts | VmFacts]) -> list[str]:
    first, *others = facts
    names = (name for name in first.__struct_fields__ if name not in _DERIVED)
    return [name for name in names if any(getattr(one, name) != getattr(first, name) for one in others)]


def _of_vm(facts: VmFacts) -> tuple[int, ...]:
    """Machines before placeholders; then by distance from the end, cost, and latest end."""
    end = _NO_END if facts.finished_at is None else facts.finished_at
    return (facts.price is not None, 2 if facts.state is None else _RANK.get(facts.state, 2), facts.price or 0, end)


def _of_run(seen: Seen) -> tuple[int, ...]:
    """The newest attempt; then whether it has ended, and how far it is. A run only moves forward within an attempt."""
    facts, attempt, shown = seen.facts, attempt_of(seen.facts) or 0, bool(seen.facts.jobs)
    if decisive(facts) is not None:
        return (attempt, True, 0, shown)
    state = progress(facts).state
    return (attempt, False, 0 if state is None else PROGRESS.index(state), shown)
