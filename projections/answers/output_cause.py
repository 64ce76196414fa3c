"""The line of a run's recorded output that explains how it ended."""

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Final

from steno.engine.causes.catalogue import Catalogue, catalogue_of
from steno.engine.causes.find import Found, find, lines_of
from steno.engine.objects import RunObject
from steno.engine.state.facts import Blame
from steno.engine.state.states import Reason, State
from steno.engine.wire import Position, Shape
from steno.events.store.outputs import Chunk, chunks
from steno.events.store.read import Reader

_BY_REQUEST: Final = frozenset({Reason.STOPPED_BY_USER, Reason.ABORTED_BY_USER, Reason.STOPPED_BY_POLICY})
_MOST: Final = 200  # answers that are cached


class OutputCause(Shape, frozen=True, kw_only=True, rename={"start": "from", "end": "to"}):
    """The cause that an output shows. Without a line that explains the end it is `unknown`, and the rest is null."""

    cause: str
    blame: Blame | None
    rule: str | None
    remedy: str | None
    line: str | None  # as it was printed
    start: int | None  # its bytes in the output
    end: int | None
    chunk: Position | None  # the event of the chunk that holds its first byte
    chunk_from: int | None  # its bytes in that chunk; a line that goes on in the next one ends with it here
    chunk_to: int | None
    read: int  # bytes of the output that were read
    missing: int  # bytes that were not kept, or were dropped since


class OutputCauses:
    """Finds causes in outputs. What an ended run has printed stays the same, so answers are cached."""

    def __init__(self, rules: str | None) -> None:
        """`rules`: the file of a site's own rules."""
        self._rules = rules
        self._known: dict[tuple[str, int, int | None], OutputCause] = {}

    @cached_property
    def catalogue(self) -> Catalogue:
        """Raises UnreadableInput or OSError if the site's file cannot be used."""
        return catalogue_of(self._rules)

    def of(self, record: Reader, run: RunObject, provider_id: str | None) -> OutputCause | None:
        """The cause of a run's end, by the output of its attempt with this id; None: it did not fail, or no output of
        it was recorded.
        """
        is_wanted = run.state is State.SUCCEEDED or run.exit_status == 0 or run.reason in _BY_REQUEST
        if is_wanted or run.finished_at is None or provider_id is None:
            return None
        pieces = list(chunks(record, run.run_id, provider_id))
        if not pieces:
            return None
        key = run.run_id, pieces[-1].position, run.exit_status
        if (known := self._known.get(key)) is None:
            known = self._known[key] = cause_in(pieces, self.catalogue, run.exit_status or 1)
            for oldest in list(self._known)[:-_MOST]:
                del self._known[oldest]
        return known


def cause_in(pieces: Iterable[Chunk], catalogue: Catalogue, exit_status: int) -> OutputCause:
    """The cause that the chunks of an output show; a gap between two chunks ends a line."""
    pieces = list(pieces)
    kept = [piece for piece in pieces if piece.data is not None]
    quote = find(_lines(kept), catalogue, exit_status)
    read = sum(len(piece.data or b"") for piece in kept)
    missing = sum(piece.event.skipped + (piece.event.size if piece.data is None else 0) for piece in pieces)
    if quote is None:
        nothing = dict.fromkeys(("blame", "rule", "remedy", "line", "start", "end", "chunk", "chunk_from", "chunk_to"))
        return OutputCause(cause="unknown", read=read, missing=missing, **nothing)
    return _quoted(quote, kept, catalogue, read, missing)


def _quoted(quote: Found, kept: list[Chunk], catalogue: Catalogue, read: int, missing: int) -> OutputCause:
    holder = next(piece for piece in kept if piece.offset <= quote.start < piece.offset + piece.event.size)
    return OutputCause(
        cause=quote.rule.cause,
        blame=catalogue.blame(quote.rule),
        rule=quote.rule.name,
        remedy=catalogue.remedy(quote.rule),
        line=quote.line,
        start=quote.start,
        end=quote.end,
        chunk=holder.position,
        chunk_from=quote.start - holder.offset,
        chunk_to=min(quote.end - holder.offset, holder.event.size),
        read=read,
        missing=missing,
    )


def _lines(kept: Iterable[Chunk]) -> Iterator[tuple[int, bytes]]:
    """The lines of the chunks that were kept, each with its place in the output."""
    joined: list[bytes] = []
    begin = end = 0
    for piece in kept:
        if piece.offset != end:
            yield from ((begin + place, line) for place, line in lines_of(joined))
            joined, begin = [], piece.offset
        joined.append(piece.data or b"")
        end = piece.offset + piece.event.size
    yield from ((begin + place, line) for place, line in lines_of(joined))
