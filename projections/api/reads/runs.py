"""Reads about runs."""

from contextlib import suppress
from typing import Any, Final

import msgspec

from engine.amounts import money
from engine.decide.queue import Queued
from engine.fold.run import phases_of
from engine.money.costs import Costs
from engine.money.reconcile import Reconciliation, reconcile_run
from engine.objects import RanObject, RunObject
from engine.states import Reason, State
from engine.wire import Position, Shape, Time, Usd, wire
from projections.api.parameters import CURSOR, HIDDEN, LIMIT, QUERY_CURSOR, Asked, choice, cursor_of, text, time
from projections.api.problems import Problem
from projections.api.reads.read import Read, at_position, page_shape
from projections.api.service import Service
from projections.models.cost_rows import stored_machines_of
from projections.models.explain import Explanation, explain
from projections.models.reader_pool import Look
from projections.models.record_pages import EventObject, events
from projections.models.timeline import Timeline, timeline
from projections.store.run_query import (
    KNOWN,
    SORTS,
    FilterValues,
    RowPlace,
    RunQuery,
    UnknownValue,
    check_known,
    filter_values,
    find,
)
from projections.store.tables import answer
from projections.store.world_table import decode_run

_DIGITS: Final = 18  # of a place: more may not fit the database
LONGEST: Final = 2000  # characters of a search; no text that is searched is longer than a command shown


def _list(_: Service, look: Look, asked: Asked) -> dict[str, Any]:
    limit, store = asked["limit"], look.view.store
    given = {name: asked[name] for name in (*KNOWN, "name", "since", "until", "hidden", "sort")}
    query = RunQuery(**given, search=asked["search"] or "", turned=asked["order"] == "oldest")
    behind = None if asked["cursor"] is None else _place(asked["cursor"], query)
    found = find(store, query, limit + 1, behind)
    if not found and asked["at"] is None:  # a value that was unknown then may be known now
        try:
            check_known(store, query)
        except UnknownValue as error:
            raise Problem(400, str(error), field=error.filter) from None
    rows, more = found[:limit], len(found) > limit
    answers = [msgspec.Raw(answer(*one)) for one in store.runs.objects_of(run_id for run_id, _ in rows)]
    return {"runs": answers, "next": _cursor(rows[-1][1], query) if more else None}


def _cursor(place: RowPlace, query: RunQuery) -> str:
    """`<key>.<ordinal>.<checksum of the query>`; a name as the hexadecimal digits of its bytes."""
    key = place.key.encode().hex() if isinstance(place.key, str) else place.key
    return f"{key}.{place.ordinal}.{query.checksum():08x}"


def _place(cursor: str, query: RunQuery) -> RowPlace:
    """Raises `Problem`: the cursor is not of this query."""
    key, ordinal, checksum = cursor.split(".")
    if int(checksum, 16) == query.checksum():
        with suppress(ValueError):
            if query.sort == "name":
                return RowPlace(bytes.fromhex(key).decode(), int(ordinal))
            if len(key) <= _DIGITS:
                return RowPlace(int(key), int(ordinal))
    said = "cursor is of another list; it must be the previous page's `next`, with the same filters and order"
    raise Problem(400, said, field="cursor")


def _answer(_: Service, look: Look, asked: Asked) -> bytes:
    return look.view.store.runs.answer_of(look.view.row(asked["id"]).run_id) or b""


def _filters(_: Service, look: Look, __: Asked) -> dict[str, Any]:
    return wire(filter_values(look.view.store))


def _timeline(_: Service, look: Look, asked: Asked) -> dict[str, Any]:
    view = look.view
    row = view.row(asked["id"])
    run = view.run(row.run_id)
    vm = None if run.vm_id is None else view.vm(run.vm_id)
    folded, now = decode_run(row.folded), view.clock(row.archive, look.now)
    return wire(
        timeline(
            run,
            view.blind_of(row, now),
            now,
            vm,
            folded.said,
            folded.later_attempts,
            phases_of(folded),
            foreign=row.is_foreign,
        )
    )


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
    costs = Costs(state)
    there = [vm_id for vm_id in stored_machines_of(run, row.against) if state.vms.get(vm_id) is not None]
    found = (state.vms[vm_id] for vm_id in dict.fromkeys((*there, *costs.beneath(there))))
    vms = {vm.vm_id: vm for vm in sorted(found, key=lambda vm: vm.first_position)}
    part = msgspec.structs.replace(state, vms=vms, runs={run.run_id: run})
    charges = [charge for vm_id in vms for charge in costs.paid_by(run.run_id, vm_id)]
    machines = {(one.run_id, one.job): vm for vm in vms.values() for one in vm.occupancies}
    return {
        "run_id": run.run_id,
        "cost_usd": shown.cost_usd,
        "provider_cost_usd": money(run.cost),
        "charges": [wire(msgspec.convert(charge, ChargeObject, from_attributes=True)) for charge in charges],
        "reconciliation": wire(reconcile_run(run, charges, part, machines)),
    }


class RunAnswer(RunObject, frozen=True, kw_only=True):
    """One run, and what it executes."""

    ran: RanObject


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
        "Runs that meet all conditions, page by page",
        _list,
        page_shape("runs", RunAnswer),
        parameters=(
            QUERY_CURSOR,
            LIMIT,
            choice("state", "Only runs in this state.", (state.value for state in State)),
            choice("reason", "Only runs with this reason.", (reason.value for reason in Reason)),
            text("user", "Only runs that this user submitted."),
            text("project", "Only runs of this project."),
            text("gpu", "Only runs that got this GPU, or asked for it while they have none: a model, or `MI300X:2`."),
            text(
                "machine", "Only runs whose last machine has this name or id, or an id that begins so (4 characters)."
            ),
            text("source", "Only runs of this source, or of this archive."),
            text("name", "Only runs of this name."),
            text("search", "Only runs with this text in name, command or id, in upper or lower case.", longest=LONGEST),
            time("since", "Only runs submitted at this time or later."),
            time("until", "Only runs submitted at this time or earlier."),
            choice("sort", "What the list is ordered by.", SORTS, default="time"),
            choice(
                "order",
                "`newest`: newest first, names from A to Z, longest or most expensive first. `oldest`: the reverse.",
                ("newest", "oldest"),
                default="newest",
            ),
            HIDDEN,
        ),
    ),
    Read("/api/filters", "The values that the filters of runs know", _filters, at_position(FilterValues)),
    Read("/api/runs/{id}", "One run", _answer, RunAnswer),
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
