"""The requests, each with the type of its answer."""

import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Generic, Literal, TypedDict, TypeVar, Unpack

import msgspec

from steno.projections.client.objects import (
    AcceptedInfo,
    BudgetInfo,
    CostInfo,
    LikeInfo,
    MachineInfo,
    RunInfo,
    SpendInfo,
    StartsInfo,
    StopInfo,
    UseInfo,
)

T = TypeVar("T")
Moment = int | datetime | str | None  # a position, a time, or now; `known` is read with `at`, and may be "now"
Day = datetime | str | None  # a time of that day, or the range's default


class Ask(msgspec.Struct, Generic[T], frozen=True):
    """A request for a `kind`; of a list, `items` is the key of the page's rows."""

    kind: type[T]
    path: str
    params: Mapping[str, Any] = {}
    body: Mapping[str, Any] | None = None  # None: a GET
    headers: Mapping[str, str] = {}
    items: str = ""
    method: str = ""  # if it is neither GET nor, with a body, POST


class RunFilters(TypedDict, total=False):
    """As the parameters of GET /api/runs."""

    state: str
    reason: str
    user: str
    project: str
    gpu: str
    machine: str
    source: str
    name: str
    search: str
    since: datetime | str
    until: datetime | str
    sort: Literal["time", "name", "duration", "cost"]
    order: Literal["newest", "oldest"]
    hidden: bool
    at: int | datetime | str
    known: int | datetime | str


def runs(**filters: Unpack[RunFilters]) -> Ask[RunInfo]:
    """Every run that the filters find, for `each`."""
    return Ask(RunInfo, "/api/runs", dict(filters), items="runs")


def run(word: str, *, at: Moment = None, known: Moment = None, min_position: int | None = None) -> Ask[RunInfo]:
    """By id, the provider's id, name, or the unique beginning of an id."""
    return Ask(RunInfo, f"/api/runs/{word}", {"at": at, "known": known, "min_position": min_position})


def explain(word: str, *, at: Moment = None, known: Moment = None) -> Ask[dict[str, Any]]:
    """As `steno explain --json`."""
    return Ask(dict[str, Any], f"/api/runs/{word}/explain", {"at": at, "known": known})


def machines(*, live: bool = False, at: Moment = None, known: Moment = None) -> Ask[MachineInfo]:
    """Every machine, or those that may still be billed, for `each`."""
    return Ask(MachineInfo, "/api/vms", {"live": live, "at": at, "known": known}, items="vms")


def machine(word: str, *, at: Moment = None, known: Moment = None) -> Ask[MachineInfo]:
    return Ask(MachineInfo, f"/api/vms/{word}", {"at": at, "known": known})


def costs(
    by: Literal["vm", "run", "day", "user", "gpu"] = "vm", *, at: Moment = None, known: Moment = None
) -> Ask[CostInfo]:
    return Ask(CostInfo, "/api/costs", {"by": by, "at": at, "known": known})


def budget(*, at: Moment = None, known: Moment = None) -> Ask[BudgetInfo]:
    return Ask(BudgetInfo, "/api/budget", {"at": at, "known": known})


def spend(
    by: Literal["line", "gpu", "user"] = "line",
    *,
    since: Day = None,
    until: Day = None,
    at: Moment = None,
    known: Moment = None,
) -> Ask[SpendInfo]:
    """By day, of the days `since` to `until` (UTC), by default the last 30; `line` is the purpose."""
    return Ask(SpendInfo, "/api/spend", {"by": by, "since": since, "until": until, "at": at, "known": known})


def utilisation(
    by: Literal["gpu", "vm"] = "gpu", *, since: Day = None, until: Day = None, at: Moment = None, known: Moment = None
) -> Ask[UseInfo]:
    """By day, as `spend`."""
    return Ask(UseInfo, "/api/utilisation", {"by": by, "since": since, "until": until, "at": at, "known": known})


def starts(*, since: Day = None, until: Day = None, at: Moment = None, known: Moment = None) -> Ask[StartsInfo]:
    """Start-up times of the runs submitted on these days."""
    return Ask(StartsInfo, "/api/starts", {"since": since, "until": until, "at": at, "known": known})


def like(word: str, *, at: Moment = None, known: Moment = None) -> Ask[LikeInfo]:
    """A run beside the medians of its name."""
    return Ask(LikeInfo, f"/api/runs/{word}/like", {"at": at, "known": known})


def submit(
    task: Sequence[str] | Mapping[str, Any],
    *,
    name: str | None = None,
    project: str | None = None,
    idempotency_key: str | None = None,
) -> Ask[AcceptedInfo]:
    """`task`: commands, or a whole task as in a task file. The same key with the same task means the same run; None: a
    new key, also used when the request is sent again.
    """
    given = {"configuration": task if isinstance(task, Mapping) else {"type": "task", "commands": list(task)}}
    body = given | {key: value for key, value in (("name", name), ("project", project)) if value is not None}
    return Ask(AcceptedInfo, "/api/runs", body=body, headers={"Idempotency-Key": idempotency_key or str(uuid.uuid4())})


def stop(word: str, *, abort: bool = False) -> Ask[StopInfo]:
    return Ask(StopInfo, f"/api/runs/{word}/stop", body={"abort": abort})


def stop_machine(word: str, *, when_idle: bool = False) -> Ask[StopInfo]:
    return Ask(StopInfo, f"/api/vms/{word}/stop", body={"when_idle": when_idle})


def levers() -> Ask[dict[str, Any]]:
    """The levers in force."""
    return Ask(dict[str, Any], "/api/levers")


def pull(action: Literal["pause", "drain", "stop", "keep"], why: str, **fields: str | bool) -> Ask[dict[str, Any]]:
    """`fields` as the body of POST /api/levers, `for` as `length`. With `preview` nothing is recorded."""
    body = {"for" if name == "length" else name: value for name, value in fields.items()}
    return Ask(dict[str, Any], "/api/levers", body={"action": action, "why": why, **body})


def release(lever_id: str, why: str = "") -> Ask[dict[str, Any]]:
    return Ask(dict[str, Any], f"/api/levers/{lever_id}", body={"why": why}, method="DELETE")
