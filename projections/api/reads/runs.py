"""Reads about runs: now and in time, what was asked of Steno for them, and two of them side by side."""

from contextlib import suppress
from typing import Any, Final

import msgspec

from steno.engine.decide.queue import Queued
from steno.engine.errors import Conflict, TaskInvalid
from steno.engine.money.costs import Costs
from steno.engine.money.reconcile import Reconciliation, reconcile_run
from steno.engine.objects import RanObject, RunObject
from steno.engine.state.inventory import Inventory
from steno.engine.state.states import Reason, State
from steno.engine.submit.completion import missing_values, repeatable, repeated
from steno.engine.wire import Position, Shape, Time, Usd, money, wire
from steno.events.types import RunRequested
from steno.projections.answers.compare import Comparison, compared
from steno.projections.answers.explain import Explanation, explain
from steno.projections.answers.gpu_curve import RunUse, use_of
from steno.projections.answers.record_pages import EventObject, events, request_of
from steno.projections.answers.timeline import Timeline, timeline_of
from steno.projections.api.parameters import (
    CURSOR,
    HIDDEN,
    LIMIT,
    MAX_ID,
    QUERY_CURSOR,
    Asked,
    choice,
    cursor_of,
    integer,
    text,
    time,
)
from steno.projections.api.problems import Problem
from steno.projections.api.reads.read import Read, at_position, page_shape
from steno.projections.api.service import Service
from steno.projections.read_models.cost_rows import stored_machines_of
from steno.projections.read_models.reader_pool import Look
from steno.projections.read_models.run_query import (
    KNOWN,
    SORTS,
    FilterValues,
    RowPlace,
    RunQuery,
    check_known,
    filter_values,
    find,
)
from steno.projections.read_models.schema import RunRow
from steno.projections.read_models.tables import answer

_DIGITS: Final = 18  # of a place: more may not fit the database
LONGEST: Final = 2000  # characters of a search; no text that is searched is longer than a command shown


def _list(_: Service, look: Look, values: Asked) -> dict[str, Any]:
    limit, store = values["limit"], look.view.store
    given = {name: values[name] for name in (*KNOWN, "name", "since", "until", "hidden", "sort")}
    query = RunQuery(**given, search=values["search"] or "", turned=values["order"] == "oldest")
    behind = None if values["cursor"] is None else _place(values["cursor"], query)
    matches = find(store, query, limit + 1, behind)
    if not matches and values["at"] is None:  # a value that was unknown then may be known now
        check_known(store, query)
    rows, more = matches[:limit], len(matches) > limit
    answers = [msgspec.Raw(answer(*stored)) for stored in store.runs.objects_of(run_id for run_id, _ in rows)]
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
    detail = "cursor is of another list; it must be the previous page's `next`, with the same filters and order"
    raise Problem(400, detail, field="cursor")


def _answer(_: Service, look: Look, values: Asked) -> bytes:
    row = look.view.row(values["id"])
    return answer(row.object, row.ran)


def _timeline(_: Service, look: Look, values: Asked) -> dict[str, Any]:
    return wire(timeline_of(look.view, look.view.row(values["id"]), look.now))


def _explain(service: Service, look: Look, values: Asked) -> dict[str, Any]:
    view = look.view
    row = view.row(values["id"])
    source, queued = view.source_of(row, look.now), view.queued(look.now).get(row.run_id)
    return wire(explain(look.record, view, row, look.now, service.output_causes)) | {
        "observability": None if source is None else source.observability,
        "queued": None if queued is None else wire(queued),
    }


def _events(_: Service, look: Look, values: Asked) -> dict[str, Any]:
    stream = f"run/{look.view.row(values['id']).run_id}"
    page = events(look, behind=values["cursor"], limit=values["limit"], stream=stream)
    return {"events": page.rows, "next": cursor_of(page.next)}


def _samples(_: Service, look: Look, values: Asked) -> dict[str, Any]:
    since, until, run = values["from"], values["to"], look.view.row(values["id"]).decoded
    if since is not None and until is not None and since >= until:
        raise Problem(400, "from is not before to", field="from")
    return wire(use_of(look.record, run, look.position, values["points"], since, until))


def _costs(_: Service, look: Look, values: Asked) -> dict[str, Any]:
    row = look.view.row(values["id"])
    run, public, state = row.decoded, row.public, look.view.state
    costs = Costs(state)
    there = [vm_id for vm_id in stored_machines_of(run, row.against) if state.vms.get(vm_id) is not None]
    known = (state.vms[vm_id] for vm_id in dict.fromkeys((*there, *costs.beneath(there))))
    vms = {vm.vm_id: vm for vm in sorted(known, key=lambda vm: vm.first_position)}
    part = msgspec.structs.replace(state, vms=Inventory(vms), runs=Inventory({run.run_id: run}))
    charges = [charge for vm_id in vms for charge in costs.paid_by(run.run_id, vm_id)]
    machines = {(stay.run_id, stay.job): vm for vm in vms.values() for stay in vm.occupancies}
    return {
        "run_id": run.run_id,
        "cost_usd": public.cost_usd,
        "provider_cost_usd": money(run.cost),
        "charges": [wire(msgspec.convert(charge, ChargeObject, from_attributes=True)) for charge in charges],
        "reconciliation": wire(reconcile_run(run, charges, part, machines)),
    }


class RunAnswer(RunObject, frozen=True, kw_only=True):
    """A run, and what it executes."""

    ran: RanObject


class ExplanationAnswer(Explanation, frozen=True, kw_only=True):
    """Why a run has its state: the rule, its evidence, and what would have been another verdict."""

    observability: str | None
    queued: Queued | None
    position: Position


class ChargeObject(
    Shape,
    frozen=True,
    kw_only=True,
    rename={"since": "from", "until": "to", "cost": "cost_usd", "hourly": "price_usd_per_hour"},
):
    """A sum of a machine's bill that a run pays, and the price it follows from."""

    vm_id: str
    line: str
    since: Time
    until: Time
    cost: Usd
    hourly: Usd


class RunCosts(Shape, frozen=True, kw_only=True):
    """The cost of a run, and why the provider says otherwise."""

    run_id: str
    cost_usd: Usd | None
    provider_cost_usd: Usd | None
    charges: tuple[ChargeObject, ...]
    reconciliation: Reconciliation
    position: Position


EVENTS = page_shape("events", EventObject)


class RequestedTask(Shape, frozen=True, kw_only=True):
    """The request of a run, and whether it can be submitted again."""

    name: str | None  # None: Steno generates it
    configuration: dict[str, Any] | None  # None: Steno did not submit the run
    needs: tuple[str, ...]  # variables whose values are not recorded
    refused: str | None  # why it cannot be submitted again here; None: it can


class ComparedRuns(Comparison, frozen=True, kw_only=True):
    """Two runs, and their values side by side."""

    runs: tuple[RunAnswer, RunAnswer]
    position: Position


def repeatable_here(service: Service, look: Look, row: RunRow) -> RunRequested:
    """The request of a run; Conflict if it cannot be submitted again over HTTP."""
    name = row.name or row.run_id
    before = repeatable(request_of(look.record, row.run_id), name)
    here, task = service.provider, msgspec.json.decode(before.configuration, type=dict[str, Any])
    why = None if before.provider == here else f"it ran at {before.provider}, and this service submits to {here}"
    if task.get("files") or task.get("repos"):
        why = "its task has files of the machine it was submitted from"
    if why is not None:
        raise Conflict(f"{name} cannot be submitted again from here: {why}; use `steno rerun {row.run_id}`")
    return before


def _request(service: Service, look: Look, values: Asked) -> dict[str, Any]:
    row = look.view.row(values["id"])
    try:
        task = repeated(repeatable_here(service, look, row), changes={}, environ={}).configuration
    except (Conflict, TaskInvalid) as error:
        before = request_of(look.record, row.run_id)
        asked_for = None if before is None else msgspec.json.decode(before.configuration)
        return {"name": row.name, "configuration": asked_for, "needs": (), "refused": str(error)}
    return {"name": task.get("name"), "configuration": task, "needs": missing_values(task), "refused": None}


def _compare(_: Service, look: Look, values: Asked) -> dict[str, Any]:
    view = look.view
    ids = [view.row(values[name]).run_id for name in ("a", "b")]
    first, second = (view.run(run_id) for run_id in ids)
    comparison = compared(first, second, (request_of(look.record, ids[0]), request_of(look.record, ids[1])))
    answers = [msgspec.Raw(answer(*stored)) for stored in view.store.runs.objects_of(ids)]
    return {"runs": answers, **msgspec.to_builtins(comparison)}


_ONE: Final = "One of the two runs, as `/api/runs/{id}` finds it."
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
    Read(
        "/api/filters",
        "The values that the filters of runs know",
        lambda _, look, __: wire(filter_values(look.view.store)),
        at_position(FilterValues),
    ),
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
        "/api/runs/{id}/samples",
        "What the GPUs of a run did over time, by its samples",
        _samples,
        at_position(RunUse),
        parameters=(
            time("from", "Begin at this time; default: the start of the run, or its first sample."),
            time("to", "End at this time; default: the end of the run, or its newest sample."),
            integer("points", "The number of points of each GPU.", low=1, high=500, default=120),
        ),
    ),
    Read(
        "/api/runs/{id}/costs", "The charges of a run, and how they differ from the provider's cost", _costs, RunCosts
    ),
    Read(
        "/api/runs/{id}/request",
        "What was asked of Steno for a run, and whether it can be submitted again",
        _request,
        at_position(RequestedTask),
    ),
    Read(
        "/api/compare",
        "Two runs side by side: outcome, times, cost, and what differs in what was asked for",
        _compare,
        ComparedRuns,
        parameters=tuple(text(name, _ONE, longest=MAX_ID, required=True) for name in ("a", "b")),
    ),
)
