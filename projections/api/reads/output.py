"""GET /api/output: the recorded output of runs, searched."""

from contextlib import suppress
from itertools import islice
from typing import Annotated, Any

from msgspec import Meta

from steno.engine.wire import Position, Shape, wire
from steno.events.store.outputs import OutputLine, SearchTooLarge, search
from steno.projections.api.parameters import LIMIT, MAX_ID, Asked, text
from steno.projections.api.reads.read import Read
from steno.projections.api.service import Service
from steno.projections.read_models.reader_pool import Look

MOST_SEARCHED = 1 << 28  # bytes of output that one search reads: some seconds of a thread
LONGEST = 1000  # characters of a line in the answer, from some before the text on
_BEFORE = 200


class OutputLineObject(Shape, frozen=True, kw_only=True):
    """A recorded line that contains the text."""

    run: Annotated[str, Meta(description="The name of the run, or its id.")]
    run_id: str
    offset: Annotated[int, Meta(description="The byte of the output at which the line begins.")]
    text: Annotated[str, Meta(description=f"At most {LONGEST:,} characters of the line, with the text.")]


class OutputLines(Shape, frozen=True, kw_only=True):
    """The recorded lines that contain a text: of a run in order, the run with the newest output first."""

    lines: tuple[OutputLineObject, ...]
    complete: Annotated[bool, Meta(description="False: there is more output than one answer can search or list.")]
    position: Position


def _search(_: Service, look: Look, values: Asked) -> dict[str, Any]:
    sought, limit, rows = values["search"].encode(errors="replace"), values["limit"], list[OutputLineObject]()
    run_ids = None if values["run"] is None else [look.view.row(values["run"]).run_id]
    matches = search(look.record, sought, run_ids, until=look.position, most=MOST_SEARCHED)
    with suppress(SearchTooLarge):
        for match in islice(matches, limit):
            rows.append(_row(look, match, sought))
        return {"lines": [wire(row) for row in rows], "complete": next(matches, None) is None}
    return {"lines": [wire(row) for row in rows], "complete": False}


def _row(look: Look, match: OutputLine, sought: bytes) -> OutputLineObject:
    before, _, after = match.line.partition(sought)
    part = before.decode(errors="replace")[-_BEFORE:] + (sought + after).decode(errors="replace")
    name = look.view.row(match.run_id).name or match.run_id
    return OutputLineObject(run=name, run_id=match.run_id, offset=match.offset, text=part[:LONGEST])


READS = (
    Read(
        "/api/output",
        "The recorded output of all runs or of one, searched",
        _search,
        OutputLines,
        parameters=(
            text("search", "Only lines that contain this text, as it was printed.", required=True),
            text("run", "Only the output of this run, as `/api/runs/{id}` finds it.", longest=MAX_ID),
            LIMIT,
        ),
    ),
)
