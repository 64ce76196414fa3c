"""Everything that a record shows through its public interface, as one value: what sealing, copying must not change."""

from contextlib import suppress
from typing import Any

from events.errors import PositionNotFound
from events.store.record import Record


def everything(record: Record, *, sample: int = 1) -> dict[str, Any]:
    """What every question about a record gives; of positions, streams and spans every `sample`th."""
    stored = list(record.read())
    end = record.head().position
    streams = record.streams()
    types = sorted({one.type for one in stored})
    found: dict[str, Any] = {
        "head": record.head(),
        "events": stored,
        "backwards": list(record.read(backwards=True)),
        "streams": streams,
        "scan": list(record.scan()),
        "polled": sorted(record.polled()),
        "ids": [record.position_of(bytes.fromhex(one.event_id)) for one in stored if one.event_id is not None],
        "absent": (record.position_of(b"no such id"), list(record.read(stream="run/none")), list(record.at([end + 1]))),
        "at": list(record.at(range(end, 0, -sample))),
    }
    for position in range(1, end + 1, sample):
        with suppress(PositionNotFound):
            poll = record.poll(position)
            items = record.items(position)
            found[f"poll {position}"] = poll, items, record.server_time(position), record.changed(position)
            found[f"imported {position}"] = record.is_imported(position)
            continue
        found[f"event {position}"] = stored[position - 1].data
    for name, _ in streams[::sample]:
        found[f"stream {name}"] = list(record.read(stream=name)), record.version(name)
        found[f"stream {name}, the end"] = list(record.read(stream=name, backwards=True, limit=2))
        found[f"stream {name}, some"] = list(record.read(stream=name, types=types[-2:], after=end // 3))
    for kind in types:
        found[f"type {kind}"] = list(record.read(types={kind}))
        found[f"type {kind}, the end"] = list(record.read(types={kind}, backwards=True, limit=3))
    for low in range(0, end, max(1, end // 7 * sample)):
        high = low + end // 2
        found[f"span {low}"] = (
            list(record.read(after=low, until=high, types=types[:2], limit=9)),
            list(record.read(after=low, until=high, limit=5, backwards=True)),
            list(record.scan(after=low, until=high)),
            sorted(record.polled(until=high)),
        )
    return found
