"""Pages of the record's own events: actions with who asked for them, and notices to the webhook."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from steno.engine.state.levers import scope
from steno.engine.wire import Position, Shape, Time, usd, wire
from steno.events import types
from steno.events.budget_moves import BudgetMoved
from steno.events.clock import format_second
from steno.events.levers import LeverPulled, LeverReleased
from steno.projections.answers.record_pages import Page, events

if TYPE_CHECKING:
    from steno.events.store.record import Record, Stored
    from steno.projections.read_models.reader_pool import Look

_OUTCOMES: Final = frozenset({"NoticeDelivered", "NoticeFailed"})
_ACTIONS: Final[dict[type, str]] = {  # type → what was done
    types.RunRequested: "submitted the run",
    types.StopRequested: "asked to stop the run",
    types.VmStopRequested: "asked to stop the machine",
    types.VmGoneConfirmed: "confirmed that the machine is gone",
    types.TokenCreated: "created the token",
    types.TokenRevoked: "revoked the token",
    types.SourceHidden: "hid the archive",
    types.SourceShown: "showed the archive",
    types.RulesAdopted: "adopted the rules",
    LeverPulled: "pulled a lever",
    LeverReleased: "released a lever",
    BudgetMoved: "moved",
}
_LEVERS: Final = frozenset({"LeverPulled", "LeverReleased"})
_SETTINGS: Final = frozenset(
    {"TokenCreated", "TokenRevoked", "SourceHidden", "SourceShown", "RulesAdopted", *_LEVERS, "BudgetMoved"}
)
_SCANNED: Final = 20_000  # events of a page that looks for one person


class NoticeObject(Shape, frozen=True, kw_only=True):
    """A notice, and whether the webhook accepted it."""

    notice_id: str
    kind: str
    state: Literal["pending", "delivered", "failed", "unanswered"]
    at: Time
    position: Position
    attempts: int
    status: Annotated[int | None, Meta(description="The webhook's HTTP status, if it accepted the notice.")]
    error: str | None
    facts: Annotated[int, Meta(description="How many facts a digest holds; else 1.")]
    text: str
    route: Annotated[str, Meta(description="The name of the route; empty: the webhook.")] = ""


class ActionObject(Shape, frozen=True, kw_only=True):
    """Something that a person, a program or a policy asked for."""

    position: Position
    at: Time
    who: Annotated[str, Meta(description="A token's name, a user, `loopback`, or `policy`.")]
    action: str
    subject: Annotated[str, Meta(description="The stream it is about: `run/ID`, `vm/ID`, `token/ID`, `source/NAME`.")]
    name: str | None


def notice_row(record: Record, stored: Stored, until: int | None = None) -> dict[str, Any]:
    """A notice from its intent, with its outcome up to a position, as JSON values of `NoticeObject`."""
    intent: types.NoticeIntended = stored.data  # type: ignore[assignment]
    row = NoticeObject(
        notice_id=intent.notice_id,
        kind=intent.kind,
        state="unanswered" if intent.kind == "test" else "pending",
        at=stored.observed_at,
        position=stored.position,
        attempts=0,
        status=None,
        error=None,
        facts=len(intent.about) or 1,
        text=msgspec.json.decode(intent.body, type=dict[str, Any]).get("text", ""),
        route=intent.route,
    )
    for outcome in record.read(stream=stored.stream, types=_OUTCOMES, until=until):
        match outcome.data:
            case types.NoticeDelivered(status=status, attempt=attempt):
                row = msgspec.structs.replace(row, state="delivered", status=status or None, attempts=attempt)
            case types.NoticeFailed(error=error, attempt=attempt, final=final):
                row = msgspec.structs.replace(
                    row, state="failed" if final else "pending", error=error, attempts=attempt
                )
            case _:
                pass
    return wire(row)


def notices(look: Look, *, behind: int | None, limit: int) -> Page:
    return events(
        look,
        behind=behind,
        limit=limit,
        types=("NoticeIntended",),
        backwards=True,
        row=lambda stored: notice_row(look.record, stored, look.position),
    )


def actions(look: Look, *, behind: int | None, limit: int, who: str | None) -> Page:
    """Actions, newest first, of everybody or of `who`; a page of `who` ends after `_SCANNED` events."""
    until = look.position if behind is None else min(look.position, behind - 1)
    names = {kind.__name__ for kind in _ACTIONS}
    rows: list[dict[str, object]] = []
    last: int | None = None
    for scanned, stored in enumerate(look.record.read(until=until, types=names, backwards=True)):
        if len(rows) == limit or scanned == _SCANNED:
            return Page(rows=rows, next=last)
        last = stored.position
        action = _action(look.record, stored)
        if who in (None, action.who):
            rows.append(wire(action))
    return Page(rows=rows, next=None)


def changed_settings(look: Look, after: int) -> list[ActionObject]:
    """Actions after a position that change something for everybody, newest first."""
    stored = look.record.read(after=after, until=look.position, types=_SETTINGS, backwards=True)
    return [_action(look.record, each) for each in stored]


def _action(record: Record, stored: Stored) -> ActionObject:
    fact: Any = stored.data
    by_policy = isinstance(fact, types.StopRequested) and fact.by == "policy"
    action, name = _ACTIONS[type(fact)], getattr(fact, "name", None)
    if isinstance(fact, LeverPulled):
        until = "" if fact.until is None else f"until {format_second(fact.until)} "
        action, name = f"{action}: {fact.action} {scope(fact)}", f"{until}({fact.why})"
    if isinstance(fact, LeverReleased):
        pulls = record.read(stream=stored.stream, until=stored.position, types={"LeverPulled"}, backwards=True)
        for pulled in (pull.data for pull in pulls):
            if isinstance(pulled, LeverPulled) and pulled.lever_id == fact.lever_id:
                action = f"{action}: {pulled.action} {scope(pulled)}"
        name = f"({fact.why})" if fact.why else None
    if isinstance(fact, BudgetMoved):
        action, name = f"moved {usd(fact.amount)} from {fact.from_owner} to {fact.to_owner}", f"({fact.why})"
    return ActionObject(
        position=stored.position,
        at=stored.observed_at,
        who="policy" if by_policy else str(getattr(fact, "submitter", None) or getattr(fact, "by", "")),
        action=action,
        subject=stored.stream,
        name=name,
    )
