"""The record's events and polls: pages, and single entries whole; its sources and their sizes."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from steno.engine.errors import Conflict, SourceNotFound
from steno.engine.state.samples import unpack
from steno.engine.state.world import source_of
from steno.engine.wire import Position, Shape, Time, wire
from steno.events.errors import PositionNotFound, UnreadableInput
from steno.events.shape.secrets import PREFIX
from steno.events.traces.trace import write_trace_line
from steno.events.types import RunRequested, SamplesRecorded

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from steno.events.store.record import Record, Stored
    from steno.projections.read_models.reader_pool import Look
    from steno.projections.read_models.view import View


POLLS: Final = frozenset({"PollRecorded", "PollFailed"})
_CHANGES: Final = frozenset({"RunObserved", "VmObserved", "ProviderEventSeen"})


class PollObject(Shape, frozen=True, kw_only=True, rename={"title": "asked"}):
    """A poll without its answer."""

    position: Position
    t: Time
    source: str
    path: str | None
    req: Any
    status: int | None
    ms: float
    changed: Annotated[list[str], Meta(description="The streams whose state changed.")]
    answered: Annotated[bool, Meta(description="Whether the answer says something: false for a failed poll.")]
    title: Annotated[str | None, Meta(description="The path as people read it, where it is long.")]


class EventObject(Shape, frozen=True, kw_only=True):
    """An event of the record; fields that hold JSON text are given as JSON."""

    position: Position
    stream: str
    version: int
    type: str
    type_version: int
    id: str | None
    observed_at: Time
    recorded_at: Time
    data: Annotated[dict[str, Any], Meta(extra={"text": dict})]  # JSON values already
    hash: str


def request_of(record: Record, run_id: str) -> RunRequested | None:
    """The request of a run; None if Steno did not submit it."""
    requests = record.read(stream=f"run/{run_id}", types=("RunRequested",))
    return next((stored.data for stored in requests if isinstance(stored.data, RunRequested)), None)


def poll_rows(
    record: Record, *, after: int, until: int, failed: bool = False, source: str | None = None, last: int | None = None
) -> Iterator[dict[str, object]]:
    """Polls in `(after, until]` as JSON values of `PollObject`, in one pass: what a poll changed follows it in its
    transaction.
    """
    wanted, stream = _polls(source, failed=failed)
    if last is not None:
        newest = list(record.read(after=after, until=until, types=wanted, stream=stream, backwards=True, limit=last))
        after = newest[-1].position - 1 if newest else until
    poll: Stored | None = None
    changed: list[str] = []
    for stored in record.read(after=after, until=until, types=POLLS | _CHANGES):
        if stored.type in _CHANGES:
            changed.append(stored.stream)
            continue
        if poll is not None:
            yield poll_row(record, poll, changed)
        poll = stored if stored.type in wanted and stream in (None, stored.stream) else None
        changed = []
    if poll is not None:
        yield poll_row(record, poll, changed)


def _polls(source: str | None, *, failed: bool) -> tuple[frozenset[str], str | None]:
    """(types, stream) of the polls of one source, or of all."""
    return frozenset({"PollFailed"}) if failed else POLLS, None if source is None else f"source/{source}"


def poll_row(record: Record, stored: Stored, changed: Iterable[str]) -> dict[str, Any]:
    from steno.engine.providers.registry import READINGS

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
            changed=list(changed),
            answered=stored.type == "PollRecorded",
            title=None if scope is None else READINGS.title(scope.path, bytes(scope.req)),
        )
    )


def fields_of(stored: Stored) -> dict[str, Any]:
    """The fields of an event as JSON values; null where a field that holds JSON text is empty, and for an idempotency
    key that an old record has in clear. Without `decided_at` where nothing was decided. Samples are a list, or null if
    they cannot be read.
    """
    fields = msgspec.structs.asdict(stored.data)
    if isinstance(stored.data, SamplesRecorded):
        fields["samples"], block = None, fields.pop("block")
        with suppress(UnreadableInput):
            fields["samples"] = msgspec.to_builtins(unpack(block))
    if fields.get("decided_at", ...) is None:
        del fields["decided_at"]
    if not (fields.get("idempotency_key") or PREFIX).startswith(PREFIX):
        fields["idempotency_key"] = None
    return {
        name: (msgspec.Raw(value) if value else None) if isinstance(value, bytes) else value
        for name, value in fields.items()
    }


def event_row(stored: Stored) -> dict[str, Any]:
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
            data=fields_of(stored),
            hash=stored.hash,
        )
    )


PAGE_BYTES: Final = 4 << 20  # of text, then a page ends: one request may have 1 MiB


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """Rows as JSON values; `next` is the position behind which more follow, or None."""

    rows: list[dict[str, object]]
    next: int | None


def events(
    look: Look,
    *,
    behind: int | None = None,
    limit: int = 50,
    stream: str | None = None,
    types: Collection[str] | None = None,
    backwards: bool = False,
    row: Callable[[Stored], dict[str, Any]] = event_row,
) -> Page:
    """Events from behind a position on, in order or backwards, optionally of one stream or some types."""
    after, until = 0, look.position
    if backwards and behind is not None:
        until = min(until, behind - 1)
    elif behind is not None:
        after = behind
    page: list[Stored] = []
    size = 0
    read = partial(look.record.read, after=after, until=until, stream=stream, types=types, backwards=backwards)
    for stored in read(limit=limit + 1):
        if len(page) == limit or size > PAGE_BYTES:
            return Page(rows=[row(kept) for kept in page], next=page[-1].position)
        page.append(stored)
        values = msgspec.structs.astuple(stored.data)
        size += sum(len(value) for value in values if isinstance(value, bytes | str))
    return Page(rows=[row(kept) for kept in page], next=None)


def polls(
    look: Look, *, behind: int | None = None, limit: int = 50, source: str | None = None, failed: bool = False,
    backwards: bool = False,
) -> Page:  # fmt: skip
    """As `events`, for polls, optionally of one source; each with what it changed."""
    types, stream = _polls(source, failed=failed)

    def row(stored: Stored) -> dict[str, Any]:
        return poll_row(look.record, stored, look.record.changed(stored.position))

    return events(look, behind=behind, limit=limit, stream=stream, types=types, backwards=backwards, row=row)


def event(look: Look, position: int) -> dict[str, object]:
    """A whole event: a poll's with its trace line as `poll` and what it `shows`, an observation's with its item as
    `observed`. Raises `PositionNotFound` if there is nothing yet.
    """
    from steno.projections.answers.evidence import content_of

    stored = _one(look, position)
    row = event_row(stored)
    if stored.type in POLLS:
        row["poll"] = _trace_line(look.record, position)
        row["shows"] = [wire(item) for item in content_of(look, position, look.record.changed(position))]
    elif stored.type in _CHANGES:
        row["observed"] = _observed(look.record, stored)
    return row


def poll(look: Look, position: int) -> dict[str, object]:
    """A poll: position, trace fields, and the answer's JSON as `body` or null. Raises `PositionNotFound`."""
    _one(look, position)
    return {"position": position, **_trace_line(look.record, position)}


def _one(look: Look, position: int) -> Stored:
    stored = look.record.at(position) if position <= look.position else None
    if stored is None:
        raise PositionNotFound(f"The record ends at position {look.position}; there is no event at {position}.")
    return stored


def _trace_line(record: Record, position: int) -> dict[str, object]:
    line: dict[str, msgspec.Raw] = msgspec.json.decode(
        write_trace_line(record.poll(position)), type=dict[str, msgspec.Raw]
    )
    return {"body": None, **line}


def _observed(record: Record, stored: Stored) -> msgspec.Raw | None:
    """The item of the answer that was observed."""
    poll_position = getattr(stored.data, "poll", None)
    wanted = getattr(stored.data, "provider_id", None)
    if poll_position is None:
        return None
    from steno.engine.providers.registry import READINGS
    from steno.events.shape.cut import identity_of

    poll = record.poll(poll_position)
    shape = READINGS.shape(poll.path, poll.req)
    for item in record.items(poll_position):
        if shape is not None and identity_of(item, shape) == wanted:
            return msgspec.Raw(item)
    return None


class SourceRow(Shape, frozen=True, kw_only=True):
    """A source, and how much of it the record holds."""

    source: str
    kind: Annotated[Literal["live", "archive"], Meta(description="`live`: polled by a recorder; `archive`: imported.")]
    hidden: Annotated[bool, Meta(description="Lists omit the archive.")]
    first_poll_at: Time
    last_poll_at: Time
    polls: int
    runs: int
    machines: int


def source_rows(record: Record, view: View) -> tuple[SourceRow, ...]:
    """Every source by name. Reads every poll's row: slow on a long record."""
    sources = view.state.sources
    runs = Counter(row.archive or source_of(row.decoded) for row in view.store.runs.all())
    machines = Counter(row.archive or row.decoded.source for row in view.store.vms.all())
    return tuple(
        SourceRow(
            source=name,
            kind="archive" if sources[name].archive else "live",
            hidden=sources[name].hidden,
            first_poll_at=first_at,
            last_poll_at=last_at,
            polls=polls,
            runs=runs[name],
            machines=machines[name],
        )
        for name, polls, first_at, last_at in sorted(record.polled(until=view.position))
        # An event log may have no project; an imported one then belongs to the archive beside it.
        if name in sources and (not sources[name].archive or sources[name].imported_to is not None)
    )


def archive_named(view: View, name: str) -> str:
    """The archive of that name: `PROVIDER/march-outage`, or a unique `march-outage`. Raises `SourceNotFound` (none or
    several) or `Conflict` (a live source).
    """
    sources = view.state.sources
    archives = [archive for archive, source in sources.items() if source.imported_to is not None]
    named = [name] if name in archives else [archive for archive in archives if archive.endswith(f"/{name}")]
    if len(named) == 1:
        return named[0]
    if named:
        raise SourceNotFound(f"Several archives are named {name!r}: {', '.join(named)}. Write the whole name.")
    if name in sources and sources[name].archive is False:
        raise Conflict(f"{name} is recorded live: only an archive can be hidden.")
    raise SourceNotFound(f"There is no archive {name!r}; `steno sources` lists them all.")
