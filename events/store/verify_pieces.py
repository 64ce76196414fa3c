"""Verify in pieces at once: stretches of the chain, ranges of parts, and what the database says of its pages.

Each piece only says whether it is whole. Together they prove the record whole, or a walk through all of it names what
is not: so both ways find the same. Every hundredth row keeps its whole hash: the chain of a piece begins with one, and
has to end with the hash that the next piece began with.
"""

from array import array
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from functools import partial
from itertools import pairwise
from typing import Any, Final, Literal, Protocol, TypeVar

import msgspec
from sqlalchemy import Integer, bindparam, func, literal_column, select

from steno.events.clock import SystemClock
from steno.events.errors import StenoError
from steno.events.store.chain import SEAL_EVERY
from steno.events.store.rows import HEAD
from steno.events.store.schema import parts
from steno.events.store.store import Session, store_at
from steno.events.store.verify import Verification, Verifier

T = TypeVar("T")
R = TypeVar("R")

_PAGE: Final = 1_000
_NONE: Final = literal_column("0", Integer)
_PART_IDS: Final = select(func.coalesce(func.min(parts.c.id), _NONE), func.coalesce(func.max(parts.c.id), _NONE))
_PARTS: Final = (
    select(parts)
    .where(parts.c.id > bindparam("after"), parts.c.id <= bindparam("until"))
    .order_by(parts.c.id)
    .limit(literal_column(str(_PAGE)))
)


class WorkPool(Protocol):
    """Other processes or machines that work on the pieces of a record at once. It starts when it is first used."""

    @property
    def size(self) -> int:
        """How many pieces keep all of it busy."""

    @property
    def least(self) -> int:
        """Events of a record from which pieces are worth the start."""

    def map(self, work: Callable[[T], R], pieces: Sequence[T], done: Callable[[T], None]) -> list[R]:
        """The results of `work`, a function of a module, for each piece, in order; both can be pickled. `done` gets
        each piece that is ready. An error of one piece ends the others and is raised here.
        """


class RecordPiece(msgspec.Struct, frozen=True, kw_only=True):
    """The part that one worker checks: positions or ids of parts, after < number ≤ until."""

    kind: Literal["pages", "chain", "parts"]
    where: str
    record_id: str
    after: int = 0
    until: int = 0
    start: bytes = b""  # the chain's hash at `after`


class WholePiece(msgspec.Struct, frozen=True, kw_only=True):
    """The values of a whole piece that the others need."""

    end: bytes = b""  # the chain's hash at its end
    firsts: dict[int, int] = {}  # stream → the version of its first event here
    versions: dict[int, int] = {}  # … of its last one
    latest: dict[int, tuple[int, int]] = {}  # stream → what it showed last
    used: bytes = b""  # ids of parts that its events, or newer parts, use
    ids: bytes = b""  # of its own parts


def check_piece(piece: RecordPiece) -> WholePiece | None:
    """Check one piece, anywhere; None: it is not whole. StenoError: the record there is another."""
    store = store_at(piece.where)
    with closing(store.open(write=False, create=False, check=False, clock=SystemClock())) as session:
        if session.identity.record_id != piece.record_id:
            raise StenoError(f"{store} is another record here: all workers must reach the same record.")
        return _PieceVerifier(session, piece).check()


class _PieceVerifier(Verifier):
    def __init__(self, session: Session, piece: RecordPiece) -> None:
        super().__init__(session, None, None)
        self._partly = True  # what came before is unknown
        self._piece = piece

    def check(self) -> WholePiece | None:
        steps = {"pages": self._of_pages, "chain": self._of_chain, "parts": self._of_parts}
        with self._session.snapshot():
            whole = self._take(steps[self._piece.kind])
        return whole if not self._damage else None

    def _of_pages(self) -> WholePiece | None:
        return WholePiece() if next(iter(self._session.damage()), None) is None else None

    def _of_chain(self) -> WholePiece | None:
        piece = self._piece
        self._last, self._total = (piece.after, piece.start), piece.until
        self._walk(piece.until)
        position, end = self._last
        if position != piece.until:
            return None
        used = array("q", self._first_use).tobytes()
        return WholePiece(end=end, firsts=self._firsts, versions=self._versions, latest=self._latest, used=used)

    def _of_parts(self) -> WholePiece | None:
        users: dict[int, list[int]] = {}
        if next(self._bad_parts(users), None) is not None:
            return None
        # If every part is used by an event or by a newer part, then, the newest first, each is used by an event.
        used = array("q", [child for child, by in users.items() if max(by) > child])
        return WholePiece(used=used.tobytes(), ids=self._ids.tobytes())

    def _reached(self, from_: list[int]) -> Iterable[tuple[Any, ...]]:
        del from_
        after = self._piece.after
        while rows := self._run(_PARTS, after, self._piece.until).fetchall():
            yield from rows
            after = rows[-1][0]


class ApartVerifier(Verifier):
    """Proves a record whole by its pieces; `apart` once."""

    def apart(self, where: str, pool: "WorkPool", progress: Callable[[int, int], None] | None) -> Verification | None:
        """The verdict on a record that is whole, whatever is expected of it; None: it is too short, or not proven.

        Raises what the pool raises.
        """
        ready = 0

        def done(_piece: RecordPiece) -> None:
            nonlocal ready
            ready += 1
            if progress is not None:
                progress(ready, len(pieces))

        with self._session.snapshot():
            pieces: list[RecordPiece] = self._take(lambda: self._pieces(where, pool)) or []
            checked = pool.map(check_piece, pieces, done) if pieces else []
            whole = [piece for piece in checked if piece is not None]
            if not pieces or len(whole) < len(pieces) or not self._take(lambda: self._joined(pieces, whole)):
                return None
            for step in (self._meta, self._streams, self._head, self._outputs):
                self._take(step)
        verdict = self._verdict()
        return verdict if all(damage.kind == "expect" for damage in verdict.damage) else None

    def _joined(self, pieces: Sequence[RecordPiece], wholes: Sequence[WholePiece]) -> bool:
        """True if pieces that are whole make a whole record, its last events included, which are looked at here."""
        used, ids = set[int](), set[int]()
        for piece, whole in zip(pieces, wholes, strict=True):
            used.update(array("q", whole.used))
            ids.update(array("q", whole.ids))
            if piece.kind == "chain" and not self._append(piece, whole):
                return False
        self._total = self._last[0]
        self._walk()
        return ids <= used | self._first_use.keys()

    def _append(self, piece: RecordPiece, whole: WholePiece) -> bool:
        """Continue the chain with its next stretch; False if they do not meet."""
        if self._last != (piece.after, piece.start):
            return False
        if any(first != self._versions.get(stream, 0) + 1 for stream, first in whole.firsts.items()):
            return False
        self._versions |= whole.versions
        self._latest |= whole.latest
        self._events, self._last = piece.until, (piece.until, whole.end)
        return True

    def _pieces(self, where: str, pool: "WorkPool") -> list[RecordPiece]:
        """Pages, stretches of the chain but for its end, and ranges of parts; none if the record is too short."""
        ((total, _),) = self._run(HEAD).fetchall()
        if total < max(pool.least, 1):
            return []
        of = partial(RecordPiece, where=where, record_id=self._session.identity.record_id)
        step = max(total // pool.size // SEAL_EVERY, 1) * SEAL_EVERY
        marks = [self._last, *((at, self._kept(at)) for at in range(step, total + 1, step))]
        ((oldest, newest),) = self._run(_PART_IDS).fetchall()
        if oldest < 0:
            return []
        width = max(newest // pool.size, 1)
        ids = [0, *range(width, newest - width + 1, width), newest]
        return [
            of(kind="pages"),
            *(
                of(kind="chain", after=after, start=start, until=until)
                for (after, start), (until, _) in pairwise(marks)
            ),
            *(of(kind="parts", after=after, until=until) for after, until in pairwise(ids)),
        ]

    def _kept(self, position: int) -> bytes:
        """The whole hash that the row at a position keeps."""
        row = self._rows.raw(position)
        if row is None or not isinstance(row[11], bytes) or len(row[11]) != 32:
            raise ValueError("a whole hash is missing")
        return row[11]
