"""Reads about machines and money."""

from typing import Any

import msgspec

from engine.decide.budget import Account
from engine.fold.change import Anomaly
from engine.fold.world_codec import WorldState
from engine.money.reconcile import Reconciliation
from engine.objects import VmObject
from engine.policy import Policy
from engine.settings.policy import policy_from
from engine.wire import Position, Time, wire
from projections.api.parameters import CURSOR, HIDDEN, LIMIT, MOST, Asked, choice, cursor_of, flag, integer, time
from projections.api.reads.charts import range_asked
from projections.api.reads.read import Cursor, Read, at_position, page_shape, stored_page
from projections.api.service import Service
from projections.models.costs import CostReport, costs
from projections.models.overview import policy_then
from projections.models.reader_pool import Look
from projections.models.view import beside


class MachineAnswer(VmObject, frozen=True, kw_only=True):
    """One machine in full: its bill, the provider's facts, and why it is still up."""

    project: str | None
    backend: str | None
    region: str | None
    fleet: str | None
    gpu: str | None
    gpu_count: int | None
    spot: bool | None
    ours: bool
    made_for: str | None
    created_at: Time
    idle_since: Time | None
    unreachable: bool | None
    why_up: tuple[str, ...]
    anomalies: tuple[Anomaly, ...]
    position: Position
    observability: str | None


class CostAnswer(CostReport, frozen=True, kw_only=True):
    """What everything, or everything of some days, cost; the rows of all pages sum to the total exactly.
    `reconciliation` is always of everything.
    """

    next: Cursor | None
    reconciliation: Reconciliation
    position: Position


def _machines(_: Service, look: Look, asked: Asked) -> dict[str, Any]:
    limit, behind = asked["limit"], None if asked["cursor"] is None else (asked["cursor"],)
    found = look.view.store.vms.page(behind=behind, limit=limit + 1, live=asked["live"], hidden=asked["hidden"])
    return stored_page("vms", found, limit)


def _machine(_: Service, look: Look, asked: Asked) -> dict[str, Any]:
    view = look.view
    found = view.vm(asked["id"])
    source = view.source_named(found.source, look.now)
    return {
        **msgspec.to_builtins(found),
        **beside(view.machine(found.vm_id)),
        "why_up": view.why_up(found.vm_id, look.now),
        "anomalies": view.anomalies_of(f"vm/{found.vm_id}"),
        "observability": None if source is None else source.observability,
    }


def _costs(_: Service, look: Look, asked: Asked) -> dict[str, Any] | CostReport:
    all_days = asked["since"] is None and asked["until"] is None
    found = costs(look.view.store, asked["by"], None if all_days else range_asked(look, asked))
    behind, newest = asked["cursor"], asked["order"] == "newest"
    rows = list(zip(found.places, found.report.rows, strict=True))
    if newest:
        rows.reverse()
    if behind is not None:
        rows = [row for row in rows if (row[0] < behind if newest else row[0] > behind)]
    shown = rows[: asked["limit"]]
    report = msgspec.structs.replace(found.report, rows=tuple(row for _, row in shown))
    if asked["format"] == "csv":
        return report
    return wire(report) | {
        "next": cursor_of(shown[-1][0] if len(rows) > len(shown) else None),
        "reconciliation": wire(found.reconciliation),
    }


def _budget(service: Service, look: Look, _: Asked) -> dict[str, Any]:
    return wire(look.view.account(policy_at(service, look.view.state), look.now))


def policy_at(service: Service, state: WorldState) -> Policy:
    """The policy in force in that world, as for `steno budget`; that of the settings if no process adopted one."""
    return policy_then(state, policy_from(service.settings))


READS = (
    Read(
        "/api/vms",
        "Machines with their bills, newest first",
        _machines,
        page_shape("vms", VmObject),
        "machines",
        (CURSOR, LIMIT, flag("live", "Only machines that may still be billed."), HIDDEN),
    ),
    Read(
        "/api/vms/{id}",
        "One machine: bill, facts from the provider, and why it is still up",
        _machine,
        MachineAnswer,
        "machines",
    ),
    Read(
        "/api/costs",
        "Costs by machine, run, day, user or GPU, compared with the provider's costs",
        _costs,
        CostAnswer,
        "money",
        (
            choice("by", "What a row is.", ("vm", "run", "day", "user", "gpu"), default="vm"),
            CURSOR,
            integer(
                "limit", "Maximum number of rows; default: all. The totals always cover all rows.", low=1, high=MOST
            ),
            choice("order", "Which rows come first.", ("oldest", "newest"), default="oldest"),
            time("since", "Only costs from the day of this time (UTC) on; default: all, but for `reconciliation`."),
            time("until", "Only costs up to the day of this time (UTC); default: the moment shown."),
        ),
        tabled=True,
    ),
    Read(
        "/api/budget",
        "The budget: spent, committed, remaining, and when it is used up",
        _budget,
        at_position(Account),
        "money",
    ),
)
