"""The evidence in a poll about one run: the fields that a verdict reads, with the provider's values."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from engine.fold.run import Run
from engine.providers.readings import READINGS
from engine.states import State
from engine.wire import Position, Shape, Time
from events import types
from events.clock import format_time
from events.poll import Poll
from events.shape.cut import identity_of, split
from events.shape.shape import LINES, BodyShape

if TYPE_CHECKING:
    from events.store.record import Record, Stored

_IDS = frozenset({"run_id", "provider", "name"})
_MOMENTS = frozenset({"not_before", "ended_at"})
_SAID = frozenset({".error", ".why", ".detail", ".frame.status", ".frame.message"})
"""The telling fields of our own events."""
_BRIEF = frozenset({"status", "reason", "termination_reason", "exit_status"})


class Field(Shape, frozen=True, kw_only=True):
    """One value of an answer, with the path by which `jq` finds it."""

    path: str
    value: Any


class Quote(Shape, frozen=True, kw_only=True, rename={"observed_at": "at", "endpoint": "path"}):
    """What one poll said about one run, or what one of our own events says."""

    position: Position
    kind: Literal["poll", "event"]
    observed_at: Time  # our clock at the end of the answer
    source: str
    endpoint: str  # the path that was asked; of an event, its type
    asked: str  # the same as people read it, where it is long
    fields: tuple[Field, ...]  # empty where the answer does not show the run


def quote(poll: Poll, position: int, provider_id: str | None) -> Quote:
    """The poll's evidence about the run of this provider id."""
    return Quote(
        position=position,
        kind="poll",
        observed_at=poll.observed_at,
        source=poll.source,
        endpoint=poll.path,
        asked=READINGS.title(poll.path, poll.req),
        fields=tuple(_fields(poll, provider_id)),
    )


def quote_event(stored: "Stored") -> Quote:
    """One of our own events as evidence, without ids."""
    said = msgspec.structs.asdict(stored.data)
    return Quote(
        position=stored.position,
        kind="event",
        observed_at=stored.observed_at,
        source="steno",
        endpoint=stored.type,
        asked=stored.type,
        fields=tuple(
            Field(path=f".{name}", value=_moment(name, value))
            for name, value in said.items()
            if name not in _IDS and isinstance(value, str | int | None)
        )
        + _reported(stored.data),
    )


def message_of(record: "Record", run: Run) -> str | None:
    """What the first evidence of a failed run says of the cause: a refusal, or a kernel's report; None: a poll is all
    there is.
    """
    if run.state is not State.FAILED or not run.evidence:
        return None
    match next((one.data for one in record.read(after=run.evidence[0] - 1, limit=1)), None):
        case types.SubmitFailed() as failed:
            return failed.error
        case types.IntentAbandoned() as abandoned:
            return abandoned.why
        case types.TaskReported() as report:
            frame = _decoded(report.frame)
            said = frame.get("message") if isinstance(frame, Mapping) else None
            return None if said is None else str(said)
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


def brief(one: Quote) -> tuple[str, ...]:
    """`run running`, `job done`, `exit 0`: the shortest form of a quote."""
    if one.kind == "event":
        said = (str(field.value) for field in one.fields if field.path in _SAID and field.value)
        return (one.endpoint, *said)
    told = []
    for field in one.fields:
        name = field.path.rsplit(".", 1)[-1]
        who = "job" if ".jobs[" in field.path else "run"
        if field.value is None or name not in _BRIEF:
            continue
        if name == "status":
            told.append(f"{who} {field.value}")
        else:
            told.append(f"exit {field.value}" if name == "exit_status" else str(field.value))
    if not told:  # a line of a text
        told = [field.value for field in one.fields[:1] if isinstance(field.value, str)]
    return tuple(told)


def _fields(poll: Poll, provider_id: str | None) -> Iterator[Field]:
    if poll.body is None:
        return
    reading, shape = READINGS.asked(poll.path, poll.req)[1], READINGS.shape(poll.path, poll.req)
    if reading is not None and shape is not None:
        for where, item in _items(poll.body, shape):
            if provider_id is not None and identity_of(item, shape) == provider_id:
                with suppress(ValueError):
                    yield from (Field(path=f"{where}{path}", value=value) for path, value in reading.quotes(item))
                return
    answer = _decoded(poll.body)
    if isinstance(answer, Mapping) and "detail" in answer:
        yield Field(path=".detail", value=answer["detail"])


def _items(body: bytes, shape: BodyShape) -> list[tuple[str, bytes]]:
    """The path and text of each item; an answer of unexpected shape is one item."""
    try:
        found = split(body, shape)
    except (msgspec.MsgspecError, RecursionError):
        return []
    if found is None:
        return [("", body)]
    inside = "" if shape.items == LINES else shape.items.removesuffix("[]")
    return [(f".{inside}[{index}]", item) for index, item in enumerate(found.items)]


def _decoded(text: bytes) -> object:
    """The value of a JSON text; `None` if strict JSON has none (`NaN`, `1e400`, half a surrogate pair)."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None
