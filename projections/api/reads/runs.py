"""Reads about runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from engine.money.costs import Costs
from engine.money.reconcile import reconcile_run
from engine.money.words import money
from engine.objects import RunObject
from engine.states import State
from projections.api.parameters import (
    CURSOR,
    HIDDEN,
    LIMIT,
    SORTED_CURSOR,
    Asked,
    PagePosition,
    choice,
    cursor_of,
    cut,
    text,
)
from projections.api.reads import shapes
from projections.api.reads.read import Read
from projections.models.cost_rows import stored_machines_of
from projections.models.explain import explain, explanation_object
from projections.models.money_objects import charge_object, reconciliation_object
from projections.models.queue_rows import queued_object
from projections.models.record_pages import events
from projections.models.timeline import timeline, timeline_object
from projections.store.world_table import decode_run

if TYPE_CHECKING:
    from projections.api.service import Service
    from projections.store.reader_pool import Look


def _list(_: Service, look: Look, asked: Asked) -> object:
    limit = asked.number("limit")
    behind = asked.given["cursor"]
    found = look.view.store.page_of_runs(
        behind=behind if isinstance(behind, PagePosition) else None,
        limit=limit + 1,
        state=asked.text("state"),
        name=asked.text("name"),
        hidden=asked.flag("hidden"),
        newest_first=asked.text("order") == "newest",
    )
    rows, more = cut(found, limit)
    return {
        "runs": [msgspec.Raw(value) for _, value in rows],
        "next": cursor_of(PagePosition(*rows[-1][0])) if more else None,
        "position": look.position,
    }


def _one(_: Service, look: Look, asked: Asked) -> object:
    return look.view.row(asked.path["id"]).object


def _timeline(_: Service, look: Look, asked: Asked) -> object:
    view = look.view
    row = view.row(asked.path["id"])
    run = view.run(row.run_id)
    vm = None if run.vm_id is None else view.vm(run.vm_id)
    folded, now = decode_run(row.folded), view.clock(row.archive, look.now)
    life = timeline(run, view.blind_of(row), now, vm, folded.said, folded.later_attempts)
    return timeline_object(run, life) | {"position": look.position}


def _explain(_: Service, look: Look, asked: Asked) -> object:
    view = look.view
    row = view.row(asked.path["id"])
    source, queued = view.source_of(row, look.now), view.queued(look.now).get(row.run_id)
    return explanation_object(explain(look.record, view, row, look.now)) | {
        "not_warm": view.why_not_warm(row.run_id),
        "observability": None if source is None else source.observability,
        "queued": None if queued is None else queued_object(queued),
        "position": look.position,
    }


def _events(_: Service, look: Look, asked: Asked) -> object:
    row, behind = look.view.row(asked.path["id"]), asked.given["cursor"]
    page = events(
        look,
        behind=behind if isinstance(behind, int) else None,
        limit=asked.number("limit"),
        stream=f"run/{row.run_id}",
    )
    return {
        "events": page.rows,
        "next": None if page.next is None else cursor_of(page.next),
        "position": look.position,
    }


def _costs(_: Service, look: Look, asked: Asked) -> object:
    row = look.view.row(asked.path["id"])
    run, shown, state = decode_run(row.folded), look.view.run(row.run_id), look.view.world().state
    found = (state.vms.get(vm_id) for vm_id in stored_machines_of(run, row.against))
    vms = {vm.vm_id: vm for vm in sorted((vm for vm in found if vm is not None), key=lambda vm: vm.first_position)}
    part = msgspec.structs.replace(state, vms=vms, runs={run.run_id: run})
    charges = [charge for charge in Costs(part).charges() if charge.run_id == run.run_id]
    machines = {(one.run_id, one.job): vm for vm in vms.values() for one in vm.occupancies}
    return {
        "run_id": run.run_id,
        "cost_usd": shown.cost_usd,
        "provider_cost_usd": money(run.cost),
        "charges": [charge_object(charge) for charge in charges],
        "reconciliation": reconciliation_object(reconcile_run(run, charges, part, machines), part),
        "position": look.position,
    }


READS = (
    Read(
        path="/api/runs",
        summary="Runs, page by page, ordered by submission time",
        answer=_list,
        shape=shapes.RunPage,
        parameters=(
            SORTED_CURSOR,
            LIMIT,
            choice("state", "Only runs in this state.", (state.value for state in State)),
            text("name", "Only runs of this name."),
            choice("order", "Which runs come first.", ("newest", "oldest"), default="newest"),
            HIDDEN,
        ),
    ),
    Read(path="/api/runs/{id}", summary="One run", answer=_one, shape=RunObject),
    Read(
        path="/api/runs/{id}/timeline",
        summary="The timeline of a run: states, attempts, phases of its machine, gaps between polls",
        answer=_timeline,
        shape=shapes.TimelineAnswer,
    ),
    Read(
        path="/api/runs/{id}/explain",
        summary="Why a run has its state: the rule, the evidence, and what would change the verdict",
        answer=_explain,
        shape=shapes.ExplanationAnswer,
    ),
    Read(
        path="/api/runs/{id}/events",
        summary="The events of a run's stream, in order",
        answer=_events,
        shape=shapes.EventPage,
        parameters=(CURSOR, LIMIT),
    ),
    Read(
        path="/api/runs/{id}/costs",
        summary="The charges of a run, and how they differ from the provider's cost",
        answer=_costs,
        shape=shapes.RunCosts,
    ),
)
"""In the order of the OpenAPI document."""
