"""The overview: active runs, costs of today, budget, spend curve, machines as lanes, and incidents."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from itertools import accumulate
from typing import Final

import msgspec

from engine.decide.budget import account
from engine.fold.world_codec import WorldState
from engine.money.words import money
from engine.objects import RunObject, VmObject
from engine.policy import Policy
from events.clock import SECOND, format_time
from projections.models import incidents
from projections.models.bill_sums import DAY, decode_paid
from projections.models.money_objects import budget_object
from projections.models.queue_rows import queued_object
from projections.store.reader_pool import Look
from projections.store.store import ProjectionStore
from projections.store.vm_table import VmRow
from projections.store.world_table import decode_vm

_RUNNING: Final = 500
_RECENT: Final = 10
_ANOMALIES: Final = 5
WINDOW: Final = 6 * 3600 * SECOND
_MOST: Final = 100
"""Lanes shown: those that ended last are left out first where there are more."""
_run: Final = msgspec.json.Decoder(RunObject)
POINTS: Final = 120
Stretch = tuple[int, int, int]
"""(since, until, micro-dollars) at one price."""
_stretches: Final = msgspec.msgpack.Decoder(list[Stretch])


def overview(look: Look, policy: Policy) -> dict[str, object]:
    """The whole page as JSON values. `policy` is the one in force at the moment looked at (`policy_then` for one past).

    Money and times are as everywhere; lists that may be long are cut to their newest.
    """
    view, store = look.view, look.view.store
    world = view.world().state
    state, settled = view.ledger(look.now)
    running = store.page_of_runs(limit=_RUNNING, active=True)
    return {
        "position": look.position,
        "at": format_time(look.now),
        "head": look.record.head().position,
        "sources": [
            {
                "name": source.name,
                "observability": source.observability.value,
                "last_answered": None if source.last_answered is None else format_time(source.last_answered),
            }
            for source in view.sources(look.now)
        ],
        "running": [msgspec.Raw(value) for _, value in running],
        "queued": {run_id: queued_object(one) for run_id, one in view.queued(look.now).items()},
        "recent": [msgspec.Raw(value) for value in store.last_ended(_RECENT)],
        "today": today(look),
        "budget": budget_object(account(state, policy, look.now, settled), world, policy),
        "burn": burn(look),
        **lanes(look).to_json(),
        "anomalies": {"count": store.count_anomalies(), "newest": incidents.newest(look, _ANOMALIES)},
        "blind": view.open_gaps(),
    }


def today(look: Look) -> dict[str, object]:
    """The day in UTC that the moment is in: what machines cost in it, and how its runs ended."""
    store = look.view.store
    midnight = look.now - look.now % DAY
    spent = 0
    for row in store.vms.all(billed_or_since=midnight):
        if row.archive is None:
            spent += sum(part.cost for part in decode_paid(row.paid).parts if part.day * DAY >= midnight)
    ended = store.ended_since(midnight)
    return {
        "from": format_time(midnight),
        "spent_usd": money(spent),
        "succeeded": ended.get("succeeded", 0),
        "failed": ended.get("failed", 0),
        "stopped": ended.get("stopped", 0),
    }


def policy_then(state: WorldState, default: Policy) -> Policy:
    """The policy adopted last in a world of the past; `default` where none was.

    The budget is one for all sources, so that of a source whose machines are free is as good as any other's.
    """
    newest = max((steps[-1] for steps in state.policies.values()), key=lambda step: step.position, default=None)
    return msgspec.structs.replace(default if newest is None else newest.policy, free=False)


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


def burn(look: Look, points: int = POINTS) -> list[dict[str, object]]:
    """`{"at", "spent_usd"}` from the first machine's beginning to the moment looked from, at most so many."""
    found = [stretch for spans in look.view.store.vms.spans() for stretch in _stretches.decode(spans)]
    if not found:
        return []
    first, last = min(stretch[0] for stretch in found), max(look.now, *(stretch[1] for stretch in found))
    moments = moments_between(first, last, points)
    sums = spent_at(moments, found)
    return [{"at": format_time(at), "spent_usd": money(cost)} for at, cost in zip(moments, sums, strict=True)]


def moments_between(first: int, last: int, points: int) -> list[int]:
    """So many moments at most, evenly spaced, both ends among them; ascending, none twice."""
    steps = max(1, points - 1)
    return sorted({first + (last - first) * step // steps for step in range(steps + 1)})


def spent_at(moments: list[int], stretches: Iterable[Stretch]) -> list[int]:
    """What was spent by each of these moments (ascending), micro-dollars; at the end of all, every stretch whole."""
    partly, whole = [0.0] * len(moments), [0] * (len(moments) + 1)
    for since, until, cost in stretches:
        over = bisect_left(moments, until)
        whole[over] += cost
        for index in range(bisect_right(moments, since), over):
            partly[index] += cost * (moments[index] - since) / (until - since)
    return [round(part) + done for part, done in zip(partly, accumulate(whole[:-1]), strict=True)]
