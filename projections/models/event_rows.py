"""An event of the record as JSON values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from events.clock import format_time

if TYPE_CHECKING:
    from events.store.record import Stored


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
