"""The evidence in a poll about one run: the fields that a verdict reads, with the provider's values; and what a whole
poll showed.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from steno.engine.providers.registry import READINGS
from steno.engine.state.facts import RunFacts, VmFacts
from steno.engine.state.reading import Listing
from steno.engine.state.run import Run
from steno.engine.state.states import State
from steno.engine.wire import Position, Shape, Time
from steno.events import types
from steno.events.clock import format_time
from steno.events.errors import StenoError
from steno.events.poll import Poll
from steno.events.shape.cut import identity_of, split
from steno.events.shape.shape import LINES, BodyShape

if TYPE_CHECKING:
    from steno.events.store.record import Record, Stored
    from steno.projections.read_models.reader_pool import Look

_IDS = frozenset({"run_id", "provider", "name"})
_MOMENTS = frozenset({"not_before", "ended_at"})
_SAID = frozenset({".error", ".why", ".detail", ".frame.status", ".frame.message"})
"""The telling fields of our own events."""
_BRIEF = frozenset({"status", "reason", "termination_reason", "exit_status"})
MOST: Final = 500  # runs and machines of one answer


class Field(Shape, frozen=True, kw_only=True):
    """A value of an answer, with the path by which `jq` finds it."""

    path: str
    value: Any


class Quote(Shape, frozen=True, kw_only=True, rename={"observed_at": "at", "endpoint": "path", "title": "asked"}):
    """The words of a poll about a run, or of an event of our own."""

    position: Position
    kind: Literal["poll", "event"]
    observed_at: Time  # our clock at the end of the answer
    source: str
    endpoint: str  # the path that was asked; of an event, its type
    title: str  # the same for people, where it is long
    fields: tuple[Field, ...]  # empty where the answer does not show the run


def quote(poll: Poll, position: int, provider_id: str | None) -> Quote:
    """The poll's evidence about the run of this provider id."""
    return Quote(
        position=position,
        kind="poll",
        observed_at=poll.observed_at,
        source=poll.source,
        endpoint=poll.path,
        title=READINGS.title(poll.path, poll.req),
        fields=tuple(_fields(poll, provider_id)),
    )


def quote_at(record: "Record", position: int, provider_id: str | None) -> Quote | None:
    """The poll or event at a position; None: it is not there."""
    stored = record.at(position)
    if stored is None:
        return None
    is_poll = isinstance(stored.data, types.PollEvent)
    return quote(record.poll(position), position, provider_id) if is_poll else quote_event(stored)


def quote_event(stored: "Stored") -> Quote:
    """An event of our own as evidence, without ids."""
    values = msgspec.structs.asdict(stored.data)
    return Quote(
        position=stored.position,
        kind="event",
        observed_at=stored.observed_at,
        source="steno",
        endpoint=stored.type,
        title=stored.type,
        fields=tuple(
            Field(path=f".{name}", value=_moment(name, value))
            for name, value in values.items()
            if name not in _IDS and isinstance(value, str | int | None)
        )
        + _reported(stored.data),
    )


def message_of(record: "Record", run: Run) -> str | None:
    """The cause of a failed run by its first evidence: a refusal, or a kernel's report; None if that is a poll."""
    if run.state is not State.FAILED or not run.evidence:
        return None
    match next((stored.data for stored in record.read(after=run.evidence[0] - 1, limit=1)), None):
        case types.SubmitFailed() as failed:
            return failed.error
        case types.IntentAbandoned() as abandoned:
            return abandoned.why
        case types.TaskReported() as report:
            frame = _decoded(report.frame)
            message = frame.get("message") if isinstance(frame, Mapping) else None
            return None if message is None else str(message)
        case _:
            return None


def _reported(event: types.Event) -> tuple[Field, ...]:
    if not isinstance(event, types.TaskReported) or not event.frame:
        return ()
    frame = _decoded(event.frame)
    if not isinstance(frame, Mapping):
        return ()
    return tuple(
        Field(path=f".frame.{name}", value=value) for name in ("status", "message") if (value := frame.get(name))
    )


def _moment(name: str, value: str | int | None) -> str | int | None:
    return format_time(value) if name in _MOMENTS and isinstance(value, int) else value


def brief(quote: Quote) -> tuple[str, ...]:
    """`run running`, `job done`, `exit 0`: the shortest form of a quote."""
    if quote.kind == "event":
        words = (str(field.value) for field in quote.fields if field.path in _SAID and field.value)
        return (quote.endpoint, *words)
    parts = []
    for field in quote.fields:
        name = field.path.rsplit(".", 1)[-1]
        who = "job" if ".jobs[" in field.path else "run"
        if field.value is None or name not in _BRIEF:
            continue
        if name == "status":
            parts.append(f"{who} {field.value}")
        else:
            parts.append(f"exit {field.value}" if name == "exit_status" else str(field.value))
    if not parts:  # a line of a text
        parts = [field.value for field in quote.fields[:1] if isinstance(field.value, str)]
    return tuple(parts)


def _fields(poll: Poll, provider_id: str | None) -> Iterator[Field]:
    if poll.body is None:
        return
    reading, shape = READINGS.asked(poll.path, poll.req)[1], READINGS.shape(poll.path, poll.req)
    if reading is not None and shape is not None:
        items = [] if provider_id is None else _items(poll.body, shape)
        mine = [(where, item) for where, item in items if identity_of(item, shape) == provider_id]
        for where, item in mine[-1:]:  # the newest of its attempts, where each is an item
            with suppress(ValueError):
                yield from (Field(path=f"{where}{path}", value=value) for path, value in reading.quotes(item))
            return
    answer = _decoded(poll.body)
    if isinstance(answer, Mapping) and "detail" in answer:
        yield Field(path=".detail", value=answer["detail"])


def _items(body: bytes, shape: BodyShape) -> list[tuple[str, bytes]]:
    """The path and text of each item; an answer of unexpected shape is one item."""
    try:
        parts = split(body, shape)
    except (msgspec.MsgspecError, RecursionError):
        return []
    if parts is None:
        return [("", body)]
    inside = "" if shape.items == LINES else shape.items.removesuffix("[]")
    return [(f".{inside}[{index}]", item) for index, item in enumerate(parts.items)]


def _decoded(text: bytes) -> object:
    """The value of a JSON text; `None` if strict JSON has none (`NaN`, `1e400`, half a surrogate pair)."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None


# -- all that a poll showed ---


class ShownItem(Shape, frozen=True, kw_only=True):
    """A run or a machine that an answer shows."""

    kind: Literal["run", "machine"]
    id: Annotated[str | None, Meta(description="Steno's id; null: not known at this moment.")]
    name: str
    status: Annotated[str | None, Meta(description="The provider's word.")]
    changed: Annotated[bool, Meta(description="The answer said something new about it.")]
    moved: Annotated[str | None, Meta(description="The run's states before and after, if this poll changed its state.")]


def content_of(look: "Look", position: int, changed: Collection[str]) -> list[ShownItem]:
    """The runs and machines of the answer at `position`, at most `MOST`; `changed`: the streams with something new."""
    items = {facts.provider_id: facts for facts in islice(_facts_in(look, position), MOST)}
    return [_item(look, facts, position, changed) for facts in items.values()]


def _facts_in(look: "Look", position: int) -> Iterator[RunFacts | VmFacts]:
    poll = look.record.poll(position)
    scope, reading = READINGS.asked(poll.path, poll.req)
    listed = reading is not None and scope.listing in (Listing.RUNS, Listing.RUN, Listing.VMS)
    for item in look.record.items(position) if listed else ():
        try:
            if scope.listing is Listing.VMS:
                yield reading.vm(item, scope)  # type: ignore[union-attr]
            else:
                yield from reading.runs(item, scope)  # type: ignore[union-attr]
        except ValueError:  # it is not an item as we know it
            continue


def _item(look: "Look", facts: RunFacts | VmFacts, position: int, changed: Collection[str]) -> ShownItem:
    known: str | None = None
    moved: str | None = None
    is_run = isinstance(facts, RunFacts)
    try:
        if is_run:
            run = look.view.run(facts.provider_id)
            known = run.run_id
            moves = (move for move in run.transitions if move.position == position)
            moved = next((f"{move.origin or 'unknown'} → {move.target}" for move in moves), None)
        else:
            known = look.view.vm_row(facts.provider_id).vm_id
    except StenoError:  # none, or several archives have it
        pass
    return ShownItem(
        kind="run" if is_run else "machine",
        id=known,
        name=facts.name or facts.provider_id,
        status=facts.status,
        changed=known is not None and f"{'run' if is_run else 'vm'}/{known}" in changed,
        moved=moved,
    )
