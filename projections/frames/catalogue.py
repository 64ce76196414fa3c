"""Every table by its name, and those of the record itself: every poll without its answer, and every event."""

from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from steno.engine.providers.registry import READINGS
from steno.events.store.poll_header import PollScope
from steno.events.store.record import Stored
from steno.projections.answers.record_pages import POLLS as POLL_TYPES
from steno.projections.answers.record_pages import fields_of
from steno.projections.frames.machine_tables import COSTS, INTERVALS, MACHINES
from steno.projections.frames.run_tables import RUNS, SAMPLES, TRANSITIONS
from steno.projections.frames.source import FrameSource
from steno.projections.frames.table import AnyTable, FrameTable, boolean, integer, number, text, time

_EMPTY: Final = (b"", b"null")


class _Poll(NamedTuple):
    stored: Stored
    scope: PollScope | None

    @property
    def title(self) -> str | None:
        return None if self.scope is None else READINGS.title(self.scope.path, bytes(self.scope.req))

    @property
    def req(self) -> str | None:
        return None if self.scope is None or self.scope.req in _EMPTY else bytes(self.scope.req).decode()


def _polls(source: FrameSource) -> Iterator[_Poll]:
    for stored in source.events(POLL_TYPES):
        yield _Poll(stored, None if stored.scope is None else source.record.scope(stored.scope))


def _data(stored: Stored) -> str:
    return msgspec.json.encode(fields_of(stored)).decode()


POLLS: Final = FrameTable[_Poll](
    "polls",
    "One question to a provider and its answer or failure. `answer(position)` gives the answer itself, as JSON text.",
    (
        integer("position", "Its place in the record.", lambda row: row.stored.position),
        text("source", "Who was asked: `PROVIDER/PROJECT`.", lambda row: row.stored.stream.removeprefix("source/")),
        time("asked_at", "When it was asked.", lambda row: row.stored.observed_at - row.stored.took),
        time("observed_at", "When the answer was complete.", lambda row: row.stored.observed_at),
        number("took_ms", "Time between the two.", lambda row: row.stored.took / 1000, unit="milliseconds"),
        text("path", "The endpoint, or the command.", lambda row: row.scope and row.scope.path),
        text("asked", "The same in few words.", lambda row: row.title),
        text("req", "What was sent, as JSON text.", lambda row: row.req),
        integer("status", "HTTP status or exit code; null: no answer.", lambda row: row.scope and row.scope.status),
        boolean("answered", "The answer says something.", lambda row: row.stored.type == "PollRecorded"),
        boolean("complete", "It ends a sweep that read every page.", lambda row: row.scope and row.scope.complete),
        text("error", "Why there is no answer.", lambda row: row.scope and row.scope.error),
    ),
    _polls,
)

EVENTS: Final = FrameTable[Stored](
    "events",
    "One event of the record, polls and what they changed included.",
    (
        integer("position", "Its place in the record.", lambda row: row.position),
        time("observed_at", "When it was observed.", lambda row: row.observed_at),
        time("recorded_at", "When it was appended.", lambda row: row.recorded_at),
        text("stream", "What it is about: `run/ID`, `vm/ID`, `source/NAME` …", lambda row: row.stream),
        integer("version", "Its place in the stream, from 1.", lambda row: row.version),
        text("type", "What happened; see `steno events`.", lambda row: row.type),
        integer("poll", "Of an observation: the poll that showed it.", lambda row: getattr(row.data, "poll", None)),
        text("data", "Its fields, as JSON text.", _data),
        text("event_id", "Its id, if it has one.", lambda row: row.event_id),
        text("hash", "The beginning of its hash in the chain.", lambda row: row.hash),
    ),
    lambda source: source.events(),
)

_TABLES: Final[tuple[AnyTable, ...]] = (RUNS, TRANSITIONS, SAMPLES, MACHINES, INTERVALS, COSTS, POLLS, EVENTS)
TABLES: Final = {table.name: table for table in _TABLES}
