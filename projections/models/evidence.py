"""The words of a poll that decide about one run: the fields a verdict reads, with the values the provider gave."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from events import types
from events.clock import format_time
from events.poll import Poll
from projections.models.wire import Position, Shape, Time

if TYPE_CHECKING:
    from events.store.record import Stored

_RUN = ("status", "status_message", "termination_reason")
_SUBMISSION = (
    "submission_num",
    "status",
    "status_message",
    "termination_reason",
    "termination_reason_message",
    "exit_status",
)
_IDS = frozenset({"run_id", "provider", "name"})
_MOMENTS = frozenset({"not_before", "ended_at"})
_SAID = frozenset({".error", ".why", ".detail", ".frame.status", ".frame.message"})
"""What of one of our own events is short and to the point."""
_ALWAYS = frozenset({"status", "termination_reason", "exit_status"})


class Field(Shape, frozen=True, kw_only=True):
    """One value of an answer, with the path by which `jq` finds it."""

    path: str
    value: Any


class Quote(Shape, frozen=True, kw_only=True, rename={"observed_at": "at", "endpoint": "path"}):
    """What one poll said about one run, or what one of our own events says."""

    position: Position
    kind: Literal["poll", "event"]
    observed_at: Time
    """Our clock at the end of the answer."""
    source: str
    endpoint: str
    """The path that was asked; of an event, its type."""
    fields: tuple[Field, ...]
    """Empty where the answer does not show the run."""


def quote(poll: Poll, position: int, provider_id: str | None) -> Quote:
    """What this poll said about the run of that provider id."""
    return Quote(
        position=position,
        kind="poll",
        observed_at=poll.observed_at,
        source=poll.source,
        endpoint=poll.path,
        fields=tuple(_fields(poll.body, provider_id)),
    )


def quote_event(stored: "Stored") -> Quote:
    """What one of our own events says, ids left out."""
    said = msgspec.structs.asdict(stored.data)
    return Quote(
        position=stored.position,
        kind="event",
        observed_at=stored.observed_at,
        source="steno",
        endpoint=stored.type,
        fields=tuple(
            Field(path=f".{name}", value=_moment(name, value))
            for name, value in said.items()
            if name not in _IDS and isinstance(value, str | int | None)
        )
        + _reported(stored.data),
    )


def _reported(event: types.Event) -> tuple[Field, ...]:
    """What a task said of itself, in its own words."""
    if not isinstance(event, types.TaskReported) or not event.frame:
        return ()
    frame = _decoded(event.frame)
    if not isinstance(frame, Mapping):
        return ()
    return tuple(
        Field(path=f".frame.{name}", value=value) for name in ("status", "message") if (value := frame.get(name))
    )


def _moment(name: str, value: str | int | None) -> str | int | None:
    """A moment as text; any other value as it is."""
    return format_time(value) if name in _MOMENTS and isinstance(value, int) else value


def brief(one: Quote) -> tuple[str, ...]:
    """`run running`, `job done`, `exit 0`: what a poll said, as short as can be."""
    if one.kind == "event":
        said = (str(field.value) for field in one.fields if field.path in _SAID and field.value)
        return (one.endpoint, *said)
    told = []
    for field in one.fields:
        name = field.path.rsplit(".", 1)[-1]
        who = "job" if ".jobs[" in field.path else "run"
        if field.value is None or name not in _ALWAYS:
            continue
        if name == "status":
            told.append(f"{who} {field.value}")
        else:
            told.append(f"exit {field.value}" if name == "exit_status" else str(field.value))
    return tuple(told)


def _fields(body: bytes | None, provider_id: str | None) -> Iterator[Field]:
    if body is None:
        return
    answer = _decoded(body)
    for path, item in _items(answer):
        if provider_id is not None and item.get("id") == provider_id:
            yield from _run(path, item)
            return
    if isinstance(answer, Mapping) and "detail" in answer:
        yield Field(path=".detail", value=answer["detail"])


def _decoded(text: bytes) -> object:
    """The value of a JSON text; `None` where strict JSON has none (`NaN`, `1e400`, half a surrogate pair)."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None


def _items(answer: object) -> Iterator[tuple[str, Mapping[str, object]]]:
    if isinstance(answer, Mapping):
        yield "", answer
    elif isinstance(answer, list):
        for index, item in enumerate(answer):
            if isinstance(item, Mapping):
                yield f".[{index}]", item


def _run(path: str, item: Mapping[str, object]) -> Iterator[Field]:
    yield from _named(path, item, _RUN)
    jobs = item.get("jobs")
    for number, job in enumerate(jobs if isinstance(jobs, list) else ()):
        submissions = job.get("job_submissions") if isinstance(job, Mapping) else None
        if not isinstance(submissions, list) or not submissions:
            continue
        newest = max(range(len(submissions)), key=lambda index: _number(submissions[index]))
        submission = submissions[newest]
        if isinstance(submission, Mapping):
            yield from _named(f"{path}.jobs[{number}].job_submissions[{newest}]", submission, _SUBMISSION)


def _named(path: str, values: Mapping[str, object], names: tuple[str, ...]) -> Iterator[Field]:
    for name in names:
        value = values.get(name)
        if (value in (None, "") and name not in _ALWAYS) or (name == "submission_num" and value == 0):
            continue
        if name != "status_message" or value != values.get("status"):
            yield Field(path=f"{path}.{name}", value=value)


def _number(submission: object) -> int:
    number = submission.get("submission_num") if isinstance(submission, Mapping) else None
    return number if isinstance(number, int) else 0
