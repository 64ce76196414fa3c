"""Reads that are made of all records at once: costs, budget, charts, offers, leaderboards, filters, sources."""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from engine.decide.budget import Account, account, joint_account
from engine.fold.world_codec import WorldState
from engine.money.tables import Tabled
from engine.policy import Policy
from engine.settings.policy import policy_from
from engine.wire import wire
from projections.api.parameters import CURSOR, Asked
from projections.api.problems import Problem
from projections.api.reads.charts import chart_range
from projections.api.reads.money import costs_answer, policy_at
from projections.models import charts
from projections.models.costs import costs
from projections.models.incidents import RecordObject, record_object
from projections.models.leaderboard import leaderboard
from projections.models.offers import offers
from projections.models.sources import source_rows
from projections.site.looks import Looks, SeenRecord
from projections.site.pages import marked
from projections.site.places import text_of
from projections.store.run_query import FilterValues, filter_values
from projections.store.store import ProjectionStore

Sum = Callable[[Looks, Asked], dict[str, Any] | Tabled]
"""An answer without its positions."""


def _stores(looks: Looks) -> tuple[ProjectionStore, list[ProjectionStore]]:
    first, *others = (one.look.view.store for one in looks.seen)
    return first, others


def _costs(looks: Looks, asked: Asked) -> dict[str, Any] | Tabled:
    store, others = _stores(looks)
    names = "+".join(one.member.name for one in looks.seen)
    place = None if asked["cursor"] is None else _cost_place(asked["cursor"], names)
    found = costs_answer(costs(store, asked["by"], others), {**asked, "cursor": place})
    if isinstance(found, Tabled):
        return found
    ids, following = _ids(looks), found["next"]
    rows = [_marked_by(ids, row, "key") for row in found["rows"]]
    return {**found, "rows": rows, "next": None if following is None else f"{names}:{following}"}


def _cost_place(cursor: str, names: str) -> int:
    """The place in a cursor of costs, which is of these records alone: their rows are summed into one list."""
    known, _, place = cursor.partition(":")
    found: int | None = CURSOR.read(place)
    if known == names and found is not None:
        return found
    raise Problem(400, f"cursor is of another set of records than {names}: begin with the first page", field="cursor")


def policy_of_all(looks: Looks) -> Policy:
    """The settings' policy; of a past moment the one that was adopted last by then, in whichever record."""
    first = looks.seen[0]
    if not first.look.past:
        return policy_at(first.member.service, first.look.view.state, past=False)
    states = [one.look.view.state for one in looks.seen]
    steps = {f"{nth} {name}": found for nth, state in enumerate(states) for name, found in state.policies.items()}
    newest = max(steps.values(), key=lambda found: found[-1].at, default=None)
    adopted = WorldState(rules="") if newest is None else WorldState(rules="", policies={"": newest})
    return policy_at(first.member.service, adopted, past=True)


def accounts(looks: Looks) -> tuple[Account, list[tuple[str, Account]]]:
    """(the budget of all records, where each stands by itself)."""
    policy, now = policy_of_all(looks), looks.seen[0].look.now
    ledgers = [(one.member.name, one.look.view.ledger(now)) for one in looks.seen]
    each = [(name, account(state, policy, now, settled)) for name, (state, settled) in ledgers]
    return joint_account([ledger for _, ledger in ledgers], policy, now), each


def budget(looks: Looks) -> dict[str, Any]:
    joint, each = accounts(looks)
    return {**wire(joint), "parts": [marked(name, wire(one)) for name, one in each]}


def _charted(draw: Callable[..., Tabled], *, by: bool = True) -> Sum:
    def summed(looks: Looks, asked: Asked) -> Tabled:
        store, others = _stores(looks)
        of = chart_range(looks.seen[0].look, asked)
        return draw(store, asked["by"], of, others) if by else draw(store, of, others)

    return summed


def _offers(looks: Looks, _: Asked) -> dict[str, Any]:
    first, *others = looks.seen
    policy = policy_from(first.member.service.settings)
    return {"gpus": [wire(one) for one in offers(first.look, policy, [one.look for one in others])]}


def _leaderboard(looks: Looks, asked: Asked) -> dict[str, Any]:
    kernels = [kernel for one in looks.seen for kernel in _judged(one)]
    wanted = {name: asked[name] for name in ("problem", "gpu", "dtype", "limit")}
    found = msgspec.json.decode(msgspec.json.encode(wire(leaderboard(kernels, **wanted))))
    of = {kernel.run_id: one.member.name for one in looks.seen for kernel in _judged(one)}
    for board in found["boards"]:
        for place in board["places"]:
            place["kernel"] = _marked_by(of, place["kernel"], "run_id")
        board["history"] = [_marked_by(of, one, "run_id") for one in board["history"]]
    for name in ("suspected", "unproven"):
        found[name] = [_marked_by(of, one, "run_id") for one in found[name]]
    return dict(found)


def _judged(one: SeenRecord) -> Any:
    return one.member.service.judged_kernels.read(one.look.record, one.look.view, one.look.now)


def _filters(looks: Looks, _: Asked) -> dict[str, Any]:
    each = [msgspec.structs.asdict(filter_values(one.look.view.store)) for one in looks.seen]
    joint = {name: tuple(dict.fromkeys(value for one in each for value in one[name])) for name in each[0]}
    for name in ("users", "projects", "gpus", "sources"):
        joint[name] = tuple(sorted(joint[name]))
    return wire(FilterValues(**joint))


def _sources(looks: Looks, _: Asked) -> dict[str, Any]:
    rows = [(one.member.name, row) for one in looks.seen for row in source_rows(one.look.record, one.look.view)]
    return {"sources": [marked(name, wire(row)) for name, row in sorted(rows, key=lambda row: row[1].source)]}


def _record(looks: Looks, asked: Asked) -> dict[str, Any]:
    """Where all records stand, with the marks of all in time."""
    span = {"since": asked["since"], "until": asked["until"]}
    each = [(one.member.name, record_object(one.look, one.member.service.projector.lag, **span)) for one in looks.seen]
    marks = [(name, mark) for name, one in each for mark in one.marks]
    parts = {name: {key: value for key, value in wire(one).items() if key != "marks"} for name, one in each}
    first = min((one.first_at for _, one in each if one.first_at is not None), default=None)
    last = max((one.last_at for _, one in each if one.last_at is not None), default=None)
    times = wire(msgspec.structs.replace(each[0][1], first_at=first, last_at=last))
    return {
        "record_id": ",".join(one.record_id for _, one in each),
        "hash": None,
        "first_at": times["first_at"],
        "last_at": times["last_at"],
        "checkpoint": text_of({name: one.checkpoint for name, one in each}),
        "lag": _lag([one for _, one in each]),
        "marks": [marked(name, wire(mark)) for name, mark in sorted(marks, key=lambda pair: pair[1].at)],
        "thinned": any(one.thinned for _, one in each),
        "parts": [marked(name, one) for name, one in parts.items()],
    }


def _lag(each: list[RecordObject]) -> dict[str, Any]:
    return {"positions": sum(one.lag.positions for one in each), "seconds": max(one.lag.seconds for one in each)}


def _ids(looks: Looks) -> dict[str, str]:
    """The record of every run and machine that a bill names."""
    found: dict[str, str] = {}
    for one in looks.seen:
        store = one.look.view.store
        found |= {run_id: one.member.name for _, run_id, *_ in store.runs.against()}
        found |= {vm_id: one.member.name for _, vm_id, *_ in store.vms.paid()}
    return found


def _marked_by(of: dict[str, str], row: dict[str, Any], key: str) -> dict[str, Any]:
    """A row that names its record, if one record has what it is about."""
    record = of.get(row[key])
    return row if record is None else dict(marked(record, row))


SUMS: Final[dict[str, Sum]] = {
    "/api/costs": _costs,
    "/api/budget": lambda looks, _: budget(looks),
    "/api/spend": _charted(charts.spend),
    "/api/utilisation": _charted(charts.utilisation),
    "/api/starts": _charted(charts.starts, by=False),
    "/api/offers": _offers,
    "/api/kernels/leaderboard": _leaderboard,
    "/api/filters": _filters,
    "/api/sources": _sources,
    "/api/record": _record,
}
