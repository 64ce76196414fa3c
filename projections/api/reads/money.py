"""Reads about machines and money; those behind charts are also to be had as CSV."""

from typing import Any, get_args

import msgspec

from steno.engine.decide.budget import Account
from steno.engine.money.daily import STACKS, STRIPS, Spend, Utilisation, day_text
from steno.engine.money.forecast import MonthForecast
from steno.engine.money.reconcile import Reconciliation
from steno.engine.money.starts import Like, Starts
from steno.engine.objects import VmObject
from steno.engine.settings.settings import policy_from
from steno.engine.state.changes import Anomaly
from steno.engine.state.policy import DAY, Policy
from steno.engine.state.world import World
from steno.engine.wire import Position, Time, wire
from steno.projections.answers import costs as charts
from steno.projections.answers.costs import CostReport, costs
from steno.projections.answers.levers import LeverList, levers
from steno.projections.answers.overview import policy_then
from steno.projections.answers.owners import OwnerStanding, owner_standings
from steno.projections.answers.report import MonthReport, forecast, month_report
from steno.projections.answers.waste import By, WasteReport, waste
from steno.projections.api.parameters import (
    CURSOR,
    HIDDEN,
    LIMIT,
    MONTH,
    MOST,
    Asked,
    choice,
    cursor_of,
    flag,
    integer,
    text,
    time,
)
from steno.projections.api.problems import Problem
from steno.projections.api.reads.read import Cursor, Read, at_position, page_shape
from steno.projections.api.service import Service
from steno.projections.read_models.reader_pool import Look
from steno.projections.read_models.view import beside


class MachineAnswer(VmObject, frozen=True, kw_only=True):
    """A machine in full: its bill, the provider's facts, and why it is still up."""

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
    health: str | None  # `warning` or `failure` by its provider's check; null: nothing is known to be wrong
    why_up: tuple[str, ...]
    anomalies: tuple[Anomaly, ...]
    position: Position
    observability: str | None


class MachineRow(VmObject, frozen=True, kw_only=True):
    """A machine with its bill, what it is, and who used it last."""

    gpu: str | None
    gpu_count: int | None
    region: str | None
    user: str | None  # who submitted the last run on it


class CostAnswer(CostReport, frozen=True, kw_only=True):
    """The cost of everything, or of everything on some days; the rows of all pages sum to the total exactly.
    `reconciliation` is always of everything.
    """

    next: Cursor | None
    reconciliation: Reconciliation
    position: Position


def _machines(_: Service, look: Look, values: Asked) -> dict[str, Any]:
    limit, behind = values["limit"], None if values["cursor"] is None else (values["cursor"],)
    machines = look.view.store.vms.page(behind=behind, limit=limit + 1, live=values["live"], hidden=values["hidden"])
    page = machines[:limit]
    return {
        "vms": [_row(look, text) for _, text in page],
        "next": cursor_of(page[-1][0] if len(machines) > limit else None),
    }


def _row(look: Look, text: bytes) -> dict[str, Any]:
    machine = msgspec.json.decode(text, type=VmObject)
    facts = beside(look.view.machine(machine.vm_id))
    last = look.view.store.runs.get(machine.runs[-1]) if machine.runs else None
    more = {name: facts[name] for name in ("gpu", "gpu_count", "region")}
    return {**msgspec.to_builtins(machine), **more, "user": None if last is None else last.user}


def _machine(_: Service, look: Look, values: Asked) -> dict[str, Any]:
    view = look.view
    machine = view.vm(values["id"])
    source = view.source_named(machine.source, look.now)
    return {
        **msgspec.to_builtins(machine),
        **beside(view.machine(machine.vm_id)),
        "why_up": view.why_up(machine.vm_id, look.now),
        "anomalies": view.anomalies_of(f"vm/{machine.vm_id}"),
        "observability": None if source is None else source.observability,
    }


def _costs(_: Service, look: Look, values: Asked) -> dict[str, Any] | CostReport:
    all_days = values["since"] is None and values["until"] is None
    stored = costs(look.view.store, values["by"], None if all_days else range_asked(look, values), values["user"])
    behind, newest = values["cursor"], values["order"] == "newest"
    rows = list(zip(stored.places, stored.report.rows, strict=True))
    if newest:
        rows.reverse()
    if behind is not None:
        rows = [row for row in rows if (row[0] < behind if newest else row[0] > behind)]
    page = rows[: values["limit"]]
    report = msgspec.structs.replace(stored.report, rows=tuple(row for _, row in page))
    if values["format"] == "csv":
        return report
    return wire(report) | {
        "next": cursor_of(page[-1][0] if len(rows) > len(page) else None),
        "reconciliation": wire(stored.reconciliation),
    }


class BudgetAnswer(Account, frozen=True, kw_only=True):
    """The budget, and the owners of runs that have limits."""

    limits: tuple[OwnerStanding, ...]


def _budget(service: Service, look: Look, _: Asked) -> dict[str, Any]:
    policy = policy_at(service, look.view.state)
    limits = owner_standings(look.view, policy, look.now)
    return wire(look.view.account(policy, look.now)) | {"limits": [wire(owner) for owner in limits]}


def _forecast(service: Service, look: Look, _: Asked) -> dict[str, Any]:
    return wire(forecast(look.view, policy_at(service, look.view.state), look.now))


def _report(service: Service, look: Look, values: Asked) -> MonthReport:
    named, policy = values["month"] or day_text(look.now // DAY)[:7], policy_at(service, look.view.state)
    return month_report(look.record, look.view, named, policy, look.now, service.output_causes)


def policy_at(service: Service, state: World) -> Policy:
    """The policy in force in that world, as for `steno budget`; that of the settings if no process adopted one."""
    return policy_then(state, policy_from(service.settings))


USER = text("user", "Only what is about runs of this user; gaps and settings are everybody's.")
RANGE = (
    time("since", "Begin with the day of this time (UTC); default: 29 days before the last day."),
    time("until", "End with the day of this time (UTC); default: the moment shown."),
)


def range_asked(look: Look, values: Asked) -> charts.ChartRange:
    since, until = values["since"], values["until"]
    if since is not None and since > min(look.now if until is None else until, look.now):
        raise Problem(400, "since is later than the end of the range", field="since")
    return charts.ChartRange(since=since, until=until, now=look.now)


READS = (
    Read(
        "/api/vms",
        "Machines with their bills, newest first",
        _machines,
        page_shape("vms", MachineRow),
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
            USER,
        ),
        tabled=True,
    ),
    Read(
        "/api/waste",
        "What was paid for and not used, and what to ask for next time",
        lambda _, look, values: wire(waste(look.view, values["by"], range_asked(look, values))),
        at_position(WasteReport),
        "money",
        (choice("by", "What a row is.", get_args(By), default="user"), *RANGE),
    ),
    Read(
        "/api/levers",
        "The levers in force: what is paused, drained, stopped and kept, by whom and why",
        lambda _, look, __: wire(levers(look.view, look.now)),
        at_position(LeverList),
        "levers",
    ),
    Read(
        "/api/budget",
        "The budget: spent, committed, remaining, and when it is used up; owners with limits",
        _budget,
        at_position(BudgetAnswer),
        "money",
    ),
    Read("/api/forecast", "What the month will cost, with a band", _forecast, at_position(MonthForecast), "money"),
    Read("/api/report", "The report of a month", _report, at_position(MonthReport), "money", (MONTH,), tabled=True),
    Read(
        "/api/spend",
        "Spend by day, stacked by purpose, GPU or user",
        lambda _, look, values: charts.spend(look.view.store, values["by"], range_asked(look, values)),
        at_position(Spend),
        "money",
        (choice("by", "What a part of a day's stack is.", STACKS, default="line"), *RANGE),
        tabled=True,
    ),
    Read(
        "/api/utilisation",
        "How long machines were busy of the time they were billed, by day",
        lambda _, look, values: charts.utilisation(look.view.store, values["by"], range_asked(look, values)),
        at_position(Utilisation),
        "machines",
        (choice("by", "What a strip is: all machines of a GPU, or one machine.", STRIPS, default="gpu"), *RANGE),
        tabled=True,
    ),
    Read(
        "/api/starts",
        "Distribution of start-up times, cold and warm",
        lambda _, look, values: charts.starts(look.view.store, range_asked(look, values)),
        at_position(Starts),
        parameters=RANGE,
        tabled=True,
    ),
    Read(
        "/api/runs/{id}/like",
        "A run's queue, provisioning and running times beside the medians of its name",
        lambda _, look, values: charts.like(look.view.store, look.view.row(values["id"])),
        at_position(Like),
        tabled=True,
    ),
)
