"""Two runs side by side: their outcome, their times and cost, and what differs in what was asked for."""

from collections.abc import Iterator
from typing import Any

import msgspec

from steno.engine.objects import RunObject
from steno.events.clock import SECOND, parse_time
from steno.events.types import RunRequested


class ComparedField(msgspec.Struct, frozen=True, kw_only=True):
    """A value of both runs; None: unknown, or missing."""

    field: str
    values: tuple[Any, Any]

    @property
    def differs(self) -> bool:
        return bool(self.values[0] != self.values[1])


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    outcome: tuple[ComparedField, ...]  # every field, also if equal; times in seconds
    task: tuple[ComparedField, ...]  # only what differs, by path
    task_known: bool  # Steno submitted both, so their tasks are in the record


def compared(
    first: RunObject, second: RunObject, requests: tuple[RunRequested | None, RunRequested | None]
) -> Comparison:
    """`requests`: those of both runs; None where Steno did not submit the run."""
    before, after = _outcome(first), _outcome(second)
    outcome = [ComparedField(field=name, values=(before[name], after[name])) for name in before]
    tasks = [{} if request is None else dict(_flat(msgspec.json.decode(request.configuration))) for request in requests]
    known = None not in requests
    paths = dict.fromkeys((*tasks[0], *tasks[1])) if known else {}
    fields = [ComparedField(field=path, values=(tasks[0].get(path), tasks[1].get(path))) for path in paths]
    differing = tuple(field for field in fields if field.differs and field.field != "name")
    return Comparison(outcome=tuple(outcome), task=differing, task_known=known)


def _outcome(run: RunObject) -> dict[str, Any]:
    return {
        "state": run.state,
        "reason": run.reason,
        "exit_status": run.exit_status,
        "attempts": run.attempts,
        "start": run.start,
        "waited_seconds": _between(run.submitted_at, run.started_at),
        "ran_seconds": run.execution_seconds,
        "whole_seconds": _between(run.submitted_at, run.finished_at),
        "cost_usd": run.cost_usd or run.provider_cost_usd,
    }


def _between(start: str | None, end: str | None) -> float | None:
    return None if start is None or end is None else (parse_time(end) - parse_time(start)) / SECOND


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """(path, value) of every leaf."""
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from _flat(inner, f"{path}.{name}" if path else str(name))
    elif isinstance(value, list) and value and path != "commands":
        for index, inner in enumerate(value):
            yield from _flat(inner, f"{path}[{index}]")
    elif value not in (None, {}, []):
        yield path, value
