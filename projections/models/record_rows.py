"""Events and polls of the record as JSON rows; a poll's answer is not rebuilt."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from events.clock import format_time

if TYPE_CHECKING:
    from collections.abc import Iterator

    from events.store.record import Record, Stored

_POLLS = frozenset({"PollRecorded", "PollFailed"})
_CHANGES = frozenset({"RunObserved", "VmObserved", "ProviderEventSeen"})


def poll_rows(
    record: Record, *, after: int, until: int, failed: bool = False, source: str | None = None, last: int | None = None
) -> Iterator[dict[str, object]]:
    """Polls in `(after, until]` as `{"position", "t", "source", "path", "req", "status", "ms", "changed"}`, in order.

    What a poll changed follows it in the same transaction, so one pass over the events sees both.
    """
    if last is not None:
        after = max(after, _start_of_last(record, after, until, last, failed=failed, source=source))
    row: dict[str, object] | None = None
    changed: list[str] = []
    for stored in record.read(after=after, until=until, types=_POLLS | _CHANGES):
        if stored.type in _CHANGES:
            changed.append(stored.stream)
            continue
        if row is not None:
            yield row
        row, changed = None, []
        if _wanted(stored, failed=failed, source=source):
            row = poll_row(record, stored, changed)
    if row is not None:
        yield row


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


def poll_row(record: Record, stored: Stored, changed: list[str]) -> dict[str, object]:
    scope = record.scope(stored.scope) if stored.scope is not None else None
    return {
        "position": stored.position,
        "t": format_time(stored.observed_at - stored.took),
        "source": stored.stream.removeprefix("source/"),
        "path": None if scope is None else scope.path,
        "req": None if scope is None else msgspec.Raw(bytes(scope.req)),
        "status": None if scope is None else scope.status,
        "ms": stored.took / 1000,
        "changed": changed,
    }


def event_row(stored: Stored) -> dict[str, object]:
    """`{"position", "stream", "version", "type", "type_version", "id", "observed_at", "recorded_at", "data", "hash"}`.

    Fields that hold JSON text are given as JSON.
    """
    fields = msgspec.structs.asdict(stored.data)
    return {
        "position": stored.position,
        "stream": stored.stream,
        "version": stored.version,
        "type": stored.type,
        "type_version": stored.type_version,
        "id": stored.event_id,
        "observed_at": format_time(stored.observed_at),
        "recorded_at": format_time(stored.recorded_at),
        "data": {name: msgspec.Raw(value) if isinstance(value, bytes) else value for name, value in fields.items()},
        "hash": stored.hash,
    }
