"""Events and polls of the record as JSON rows; a poll's answer is not rebuilt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from projections.models.wire import Position, Shape, Time, wire

if TYPE_CHECKING:
    from collections.abc import Iterator

    from events.store.record import Record, Stored

_POLLS = frozenset({"PollRecorded", "PollFailed"})
_CHANGES = frozenset({"RunObserved", "VmObserved", "ProviderEventSeen"})


class PollObject(Shape, frozen=True, kw_only=True):
    """One poll, without its answer."""

    position: Position
    t: Time
    source: str
    path: str | None
    req: Any
    status: int | None
    ms: float
    changed: Annotated[list[str], Meta(description="The streams whose state changed.")]


class EventObject(Shape, frozen=True, kw_only=True):
    """One event of the record; fields that hold JSON text are given as JSON."""

    position: Position
    stream: str
    version: int
    type: str
    type_version: int
    id: str | None
    observed_at: Time
    recorded_at: Time
    data: dict[str, Any]
    hash: str


def poll_rows(
    record: Record, *, after: int, until: int, failed: bool = False, source: str | None = None, last: int | None = None
) -> Iterator[dict[str, object]]:
    """Polls in `(after, until]` as JSON values of a `PollObject`, in order.

    What a poll changed follows it in the same transaction, so one pass over the events sees both.
    """
    if last is not None:
        after = max(after, _start_of_last(record, after, until, last, failed=failed, source=source))
    poll: Stored | None = None
    changed: list[str] = []
    for stored in record.read(after=after, until=until, types=_POLLS | _CHANGES):
        if stored.type in _CHANGES:
            changed.append(stored.stream)
            continue
        if poll is not None:
            yield poll_row(record, poll, changed)
        poll, changed = stored if _wanted(stored, failed=failed, source=source) else None, []
    if poll is not None:
        yield poll_row(record, poll, changed)


def _start_of_last(record: Record, after: int, until: int, last: int, *, failed: bool, source: str | None) -> int:
    """The position before the `last`-newest poll."""
    found = until
    for stored in record.read(after=after, until=until, types=_POLLS, backwards=True):
        if _wanted(stored, failed=failed, source=source):
            found, last = stored.position - 1, last - 1
            if last == 0:
                return found
    return min(found, after)


def _wanted(stored: Stored, *, failed: bool, source: str | None) -> bool:
    if failed and stored.type != "PollFailed":
        return False
    return source is None or stored.stream == f"source/{source}"


def poll_row(record: Record, stored: Stored, changed: list[str]) -> dict[str, Any]:
    """One poll as JSON values of a `PollObject`."""
    scope = record.scope(stored.scope) if stored.scope is not None else None
    return wire(
        PollObject(
            position=stored.position,
            t=stored.observed_at - stored.took,
            source=stored.stream.removeprefix("source/"),
            path=None if scope is None else scope.path,
            req=None if scope is None else msgspec.Raw(bytes(scope.req)),
            status=None if scope is None else scope.status,
            ms=stored.took / 1000,
            changed=changed,
        )
    )


def event_row(stored: Stored) -> dict[str, Any]:
    """One event as JSON values of an `EventObject`."""
    fields = msgspec.structs.asdict(stored.data)
    return wire(
        EventObject(
            position=stored.position,
            stream=stored.stream,
            version=stored.version,
            type=stored.type,
            type_version=stored.type_version,
            id=stored.event_id,
            observed_at=stored.observed_at,
            recorded_at=stored.recorded_at,
            data={name: msgspec.Raw(value) if isinstance(value, bytes) else value for name, value in fields.items()},
            hash=stored.hash,
        )
    )
