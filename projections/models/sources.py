"""The sources of a record, live and archived, and their sizes."""

from collections import Counter
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta

from engine.errors import Conflict, SourceNotFound
from engine.fold.world_codec import source_of
from engine.wire import Shape, Time
from projections.store.world_table import decode_run, decode_vm

if TYPE_CHECKING:
    from events.store.record import Record
    from projections.models.view import View


class SourceRow(Shape, frozen=True, kw_only=True):
    """One source, and how much of it the record holds."""

    source: str
    kind: Annotated[Literal["live", "archive"], Meta(description="`live`: polled by a recorder; `archive`: imported.")]
    hidden: Annotated[bool, Meta(description="Lists omit the archive.")]
    first_poll_at: Time
    last_poll_at: Time
    polls: int
    runs: int
    machines: int


def source_rows(record: "Record", view: "View") -> tuple[SourceRow, ...]:
    """Every source by name. Reads every poll's row: slow on a long record."""
    sources = view.state.sources
    runs = Counter(row.archive or source_of(decode_run(row.folded)) for row in view.store.runs.all())
    machines = Counter(row.archive or decode_vm(row.folded).source for row in view.store.vms.all())
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


def archive_named(view: "View", name: str) -> str:
    """The archive of that name: `PROVIDER/march-outage`, or a unique `march-outage`. Raises `SourceNotFound` (none or
    several) or `Conflict` (a live source).
    """
    sources = view.state.sources
    archives = [one for one, source in sources.items() if source.imported_to is not None]
    found = [one for one in archives if one == name] or [one for one in archives if one.endswith(f"/{name}")]
    if len(found) == 1:
        return found[0]
    if found:
        raise SourceNotFound(f"Several archives are named {name!r}: {', '.join(found)}. Write the whole name.")
    if name in sources and sources[name].archive is False:
        raise Conflict(f"{name} is recorded live: only an archive can be hidden.")
    raise SourceNotFound(f"There is no archive {name!r}; `steno sources` lists them all.")
