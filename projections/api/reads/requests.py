"""Reads of what was asked of Steno for a run, and of two runs side by side."""

from typing import Any, Final

import msgspec

from engine.commands.rerun import missing_values, repeatable, repeated
from engine.errors import Conflict, TaskInvalid
from engine.wire import Position, Shape
from events.types import RunRequested
from projections.api.parameters import MAX_ID, Asked, text
from projections.api.reads.read import Read, at_position
from projections.api.reads.runs import RunAnswer
from projections.api.service import Service
from projections.models.compare import Comparison, compared
from projections.models.reader_pool import Look
from projections.models.record_pages import request_of
from projections.store.schema import RunRow


class RequestedTask(Shape, frozen=True, kw_only=True):
    """What was asked for, and whether it can be asked for again."""

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
    here, task = service.outside.provider, msgspec.json.decode(before.configuration, type=dict[str, Any])
    why = None if before.provider == here else f"it ran at {before.provider}, and this service submits to {here}"
    if task.get("files") or task.get("repos"):
        why = "its task has files of the machine it was submitted from"
    if why is not None:
        raise Conflict(f"{name} cannot be submitted again from here: {why}; use `steno rerun {row.run_id}`")
    return before


def _request(service: Service, look: Look, asked: Asked) -> dict[str, Any]:
    row = look.view.row(asked["id"])
    try:
        draft, _ = repeated(repeatable_here(service, look, row), changes={}, environ={})
    except (Conflict, TaskInvalid) as error:
        before = request_of(look.record, row.run_id)
        task = None if before is None else msgspec.json.decode(before.configuration)
        return {"name": row.name, "configuration": task, "needs": (), "refused": str(error)}
    task = draft.configuration
    return {"name": task.get("name"), "configuration": task, "needs": missing_values(task), "refused": None}


def _compare(_: Service, look: Look, asked: Asked) -> dict[str, Any]:
    view = look.view
    ids = [view.row(asked[name]).run_id for name in ("a", "b")]
    first, second = (view.run(run_id) for run_id in ids)
    found = compared(first, second, (request_of(look.record, ids[0]), request_of(look.record, ids[1])))
    answers = [msgspec.Raw(view.store.runs.answer_of(run_id) or b"") for run_id in ids]
    return {"runs": answers, **msgspec.to_builtins(found)}


_ONE: Final = "One of the two runs, as `/api/runs/{id}` finds it."
READS = (
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
