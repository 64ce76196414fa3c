"""The overview of all records: one budget, one spend curve, and every list marked with its record."""

from collections.abc import Iterable
from itertools import chain
from typing import Any, Final

import msgspec

from engine.amounts import money
from engine.wire import wire
from projections.api.parameters import Asked
from projections.models.overview import WINDOW, Overview, burn, overview
from projections.site.looks import Looks
from projections.site.pages import marked
from projections.site.places import text_of
from projections.site.sums import budget, policy_of_all

_RUNNING: Final = 500
_RECENT: Final = 10
_ANOMALIES: Final = 5


def merged_overview(looks: Looks, _: Asked) -> dict[str, Any]:
    policy = policy_of_all(looks)
    each = [(one.member.name, overview(one.look, policy)) for one in looks.seen]
    texts = {name: _values(one) for name, one in each}
    shown = {name for name, one in each if one.window.start == one.at - WINDOW} or {_latest(each)}
    curve = burn(looks.seen[0].look, others=[one.look for one in looks.seen[1:]])
    first = next(name for name, _ in each if name in shown)
    return {
        "at": texts[first]["at"],
        "head": text_of({name: one.head for name, one in each}),
        "sources": _all(texts, "sources"),
        "running": _newest(_all(texts, "running"), "submitted_at")[:_RUNNING],
        "queued": {run_id: place for values in texts.values() for run_id, place in values["queued"].items()},
        "recent": _newest(_all(texts, "recent"), "finished_at")[:_RECENT],
        "today": _today(each, texts[first]["today"]),
        "budget": budget(looks),
        "burn": [wire(point) for point in curve],
        "window": texts[first]["window"],
        "lanes": [_lane(name, lane) for name in texts if name in shown for lane in texts[name]["lanes"]],
        "anomalies": {
            "count": sum(one.anomalies.count for _, one in each),
            "newest": _newest(
                [marked(name, one) for name, values in texts.items() for one in values["anomalies"]["newest"]], "at"
            )[:_ANOMALIES],
        },
        "blind": _all(texts, "blind"),
    }


def _values(one: Overview) -> dict[str, Any]:
    return dict(msgspec.json.decode(msgspec.json.encode(wire(one))))


def _latest(each: list[tuple[str, Overview]]) -> str:
    """The record whose newest machine began last, where none had a machine in the last hours."""
    with_lanes = [(name, one) for name, one in each if one.lanes] or each
    return max(with_lanes, key=lambda pair: pair[1].window.start)[0]


def _all(texts: dict[str, dict[str, Any]], key: str) -> list[dict[str, Any]]:
    return list(chain.from_iterable((marked(name, one) for one in values[key]) for name, values in texts.items()))


def _newest(rows: Iterable[dict[str, Any]], key: str) -> list[dict[str, Any]]:
    """Rows by a time, the newest first."""
    return sorted(rows, key=lambda row: row[key] or "", reverse=True)


def _today(each: list[tuple[str, Overview]], first: dict[str, Any]) -> dict[str, Any]:
    counts = {name: sum(getattr(one.today, name) for _, one in each) for name in ("succeeded", "failed", "stopped")}
    return {**first, "spent_usd": money(sum(one.today.spent for _, one in each)), **counts}


def _lane(record: str, lane: dict[str, Any]) -> dict[str, Any]:
    runs = [marked(record, run) for run in lane["runs"]]
    return {"record": record, "vm": marked(record, lane["vm"]), "runs": runs}
