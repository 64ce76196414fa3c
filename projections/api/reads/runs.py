"""Reads about runs."""

from typing import Any

import msgspec

from engine.amounts import money
from engine.decide.queue import Queued
from engine.fold.run import phases_of
from engine.money.costs import Costs
from engine.money.reconcile import Reconciliation, reconcile_run
from engine.objects import RunObject
from engine.states import State
from engine.wire import Position, Shape, Time, Usd, wire
from projections.api.parameters import CURSOR, HIDDEN, LIMIT, SORTED_CURSOR, Asked, choice, cursor_of, text
from projections.api.reads.read import Read, at_position, page_shape, stored_page
from projections.api.service import Service
from projections.models.cost_rows import stored_machines_of
from projections.models.explain import Explanation, explain
from projections.models.reader_pool import Look
from projections.models.record_pages import EventObject, events
from projections.models.timeline import Timeline, timeline
from projections.store.world_table import decode_run


def _list(_: Service, look: Look, asked: Asked) -> dict[str, Any]:
    limit = asked["limit"]
    found = look.view.store.runs.page(
        behind=asked["cursor"],
        limit=limit + 1,
        state=asked["state"],
        name=asked["name"],
        hidden=asked["hidden"],
        newest_first=asked["order"] == "newest",
    )
    return stored_page("runs", found, limit)


def _timeline(_: Service, look: Look, asked: Asked) -> dict[str, Any]:
    view = look.view
    row = view.row(asked["id"])
    run = view.run(row.run_id)
    vm = None if run.vm_id is None else view.vm(run.vm_id)
    folded, now = decode_run(row.folded), view.clock(row.archive, look.now)
    return wire(timeline(run, view.blind_of(row), now, vm, folded.said, folded.later_attempts, phases_of(folded)))


def _explain(_: Service, look: Look, asked: Asked) -> dict[str, Any]:
    view = look.view
    row = view.row(asked["id"])
    source, queued = view.source_of(row, look.now), view.queued(look.now).get(row.run_id)
    return wire(explain(look.record, view, row, look.now)) | {
        "not_warm": view.why_not_warm(row.run_id),
        "observability": None if source is None else source.observability,
        "queued": queued,
    }


def _events(_: Service, look: Look, asked: Asked) -> dict[str, Any]:
    stream = f"run/{look.view.row(asked['id']).run_id}"
    page = events(look, behind=asked["cursor"], limit=asked["limit"], stream=stream)
    return {"events": page.rows, "next": cursor_of(page.next)}


def _costs(_: Service, look: Look, asked: Asked) -> dict[str, Any]:
    row = look.view.row(asked["id"])
    run, shown, state = decode_run(row.folded), look.view.run(row.run_id), look.view.state
    found = (state.vms.get(vm_id) for vm_id in stored_machines_of(run, row.against))
    vms = {vm.vm_id: vm for vm in sorted((vm for vm in found if vm is not None), key=lambda vm: vm.first_position)}
    part = msgspec.structs.replace(state, vms=vms, runs={run.run_id: run})
    charges = [charge for charge in Costs(part).charges() if charge.run_id == run.run_id]
    machines = {(one.run_id, one.job): vm for vm in vms.values() for one in vm.occupancies}
    return {
        "run_id": run.run_id,
        "cost_usd": shown.cost_usd,
        "provider_cost_usd": money(run.cost),
        "charges": [wire(msgspec.convert(charge, ChargeObject, from_attributes=True)) for charge in charges],
        "reconciliation": wire(reconcile_run(run, charges, part, machines)),
    }


class ExplanationAnswer(Explanation, frozen=True, kw_only=True):
    """Why a run is where it is: the rule, its evidence, and what would have been another verdict."""

    not_warm: tuple[str, ...]
    observability: str | None
    queued: Queued | None
    position: Position


class ChargeObject(
    Shape,
    frozen=True,
    kw_only=True,
    rename={"since": "from", "until": "to", "cost": "cost_usd", "hourly": "price_usd_per_hour"},
):
    """One sum of a machine's bill that a run pays, and the price it follows from."""

    vm_id: str
    line: str
    since: Time
    until: Time
    cost: Usd
    hourly: Usd


class RunCosts(Shape, frozen=True, kw_only=True):
    """What a run cost, and why the provider says otherwise."""

    run_id: str
    cost_usd: Usd | None
    provider_cost_usd: Usd | None
    charges: tuple[ChargeObject, ...]
    reconciliation: Reconciliation
    position: Position


EVENTS = page_shape("events", EventObject)
READS = (  # in the order of the OpenAPI document
    Read(
        "/api/runs",
        "Runs, page by page, ordered by submission time",
        _list,
        page_shape("runs", RunObject),
        parameters=(
            SORTED_CURSOR,
            LIMIT,
            choice("state", "Only runs in this state.", (state.value for state in State)),
            text("name", "Only runs of this name."),
            choice("order", "Which runs come first.", ("newest", "oldest"), default="newest"),
            HIDDEN,
        ),
    ),
    Read("/api/runs/{id}", "One run", lambda _, look, asked: look.view.row(asked["id"]).object, RunObject),
    Read(
        "/api/runs/{id}/timeline",
        "The timeline of a run: states, attempts, phases of its machine, gaps between polls",
        _timeline,
        at_position(Timeline),
    ),
    Read(
        "/api/runs/{id}/explain",
        "Why a run has its state: the rule, the evidence, and what would change the verdict",
        _explain,
        ExplanationAnswer,
    ),
    Read(
        "/api/runs/{id}/events", "The events of a run's stream, in order", _events, EVENTS, parameters=(CURSOR, LIMIT)
    ),
    Read(
        "/api/runs/{id}/costs", "The charges of a run, and how they differ from the provider's cost", _costs, RunCosts
    ),
)
