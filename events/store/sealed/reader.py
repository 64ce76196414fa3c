"""Reads the rows of `events` that are sealed in files."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from events.codec import POLLS
from events.store.ranges import BEHIND, REVISION_OF, SINCE, SPANS_OF, SealedRange
from events.store.sealed.parquet import COLUMNS, ParquetRows, as_rows
from events.store.sealed.place import UNREADABLE, SealedFolder, arrow

if TYPE_CHECKING:
    from events.store.store import Session

_FILES_KEPT: Final = 8  # open at once
_TABLES_KEPT: Final = 4  # groups of rows in memory, some 1 MB each
_PAGE: Final = 500  # rows that are made at once

Rows = list[tuple[Any, ...]]


class SealedRows:
    """The sealed ranges of one record, as one session sees them."""

    def __init__(self, session: "Session") -> None:
        self._session = session
        self.supported = False  # the schema has the tables
        self.ranges: list[SealedRange] = []
        self._places: dict[str, SealedFolder] = {}
        self._files: dict[int, ParquetRows] = {}
        self._tables: dict[tuple[int, int, Sequence[str]], Any] = {}
        self._page: Rows = []  # the rows read last: an observation is read with the poll before it
        self.refresh()

    @property
    def end(self) -> int:
        """The last sealed position; 0: nothing is sealed."""
        return self.ranges[-1].last if self.ranges else 0

    def refresh(self) -> bool:
        """Look for ranges that were sealed since the last look; whether there are any."""
        if not self.supported:
            with self._session.guard():
                rows = self._session.run(REVISION_OF).fetchall()
            self.supported = len(rows) == 1 and str(rows[0][0]) >= SINCE
        if not self.supported:
            return False
        with self._session.guard():
            found = self._session.run(BEHIND, self.end).fetchall()
        self.ranges += [SealedRange(*row) for row in found]
        return bool(found)

    def one(self, position: int) -> tuple[Any, ...]:
        """The row at a position that is sealed. Raises RecordDamaged, RecordUnreachable."""
        at = position - self._page[0][0] if self._page else -1
        if 0 <= at < len(self._page):
            return self._page[at]
        of = self.ranges[bisect_left(self.ranges, position, key=lambda one: one.last)]
        group, at = divmod(position - of.first, self._length(of))
        table = self._table(of, group)
        with self._reading(of):
            (row,) = as_rows(table.slice(at, 1))
            if row[0] != position:
                raise ValueError(f"position {position} is not at its place")
        return row

    def rows(
        self,
        low: int,
        high: int,
        *,
        kinds: Sequence[int] | None = None,
        other: bool = False,
        stream: int | None = None,
        polls_of: Sequence[int] | None = None,
        backwards: bool = False,
        columns: Sequence[str] = COLUMNS,
        page: int = _PAGE,
    ) -> Iterator[Rows]:
        """Rows with low < position ≤ high, `page` at a time: of some kinds (`other`: of all others), of a stream;
        with `polls_of`, polls of these streams only.
        """
        for of in self._between(low, high, backwards=backwards):
            length = self._length(of)
            groups = range((max(low + 1, of.first) - of.first) // length, (min(high, of.last) - of.first) // length + 1)
            for group in reversed(groups) if backwards else groups:
                begin = of.first + group * length
                start, stop = max(low + 1 - begin, 0), min(high + 1 - begin, length)
                chosen = self._chosen(of, group, kinds, stream, polls_of, other=other)
                if chosen is not None:
                    chosen = [at for at in chosen if start <= at < stop]
                    if not chosen:
                        continue
                    table = self._table(of, group, columns).take(chosen)
                else:
                    table = self._table(of, group, columns).slice(start, stop - start)
                starts = range(0, table.num_rows, page)
                for at in reversed(starts) if backwards else starts:
                    with self._reading(of):
                        found = as_rows(table.slice(at, page))
                    if chosen is None and columns is COLUMNS:
                        self._page = found
                    yield found[::-1] if backwards else found

    def rows_of(self, stream: int, low: int, high: int, **given: Any) -> Iterator[Rows]:
        """As `rows`, of one stream without polls: its places are known."""
        with self._session.guard():
            spans = self._session.run(SPANS_OF, stream).fetchall()
        for first, last in reversed(spans) if given.get("backwards") else spans:
            yield from self.rows(max(low, first - 1), min(high, last), stream=stream, **given)

    def whole(self, of: SealedRange) -> Iterator[Rows]:
        """All rows of a range, after every byte of its file was checked. Raises RecordDamaged, RecordUnreachable."""
        with self._reading(of) as place:
            content = place.read(of.file)
            file = ParquetRows(content)
            changed = sha256(content).digest() != of.digest
            expected = of.first
            for rows in file.pages():
                yield rows
                expected += len(rows)
            if expected != of.last + 1:
                raise ValueError(f"it has {expected - of.first} events")
            if changed:
                raise ValueError("its bytes were changed")

    def place(self, of: SealedRange) -> SealedFolder:
        """Where the file of a range is."""
        found = self._places.get(of.place)
        if found is None:
            found = self._places[of.place] = SealedFolder(of.place, self._session.home)
        return found

    def _between(self, low: int, high: int, *, backwards: bool) -> Iterator[SealedRange]:
        found = [one for one in self.ranges if one.last > low and one.first <= high]
        yield from reversed(found) if backwards else found

    def _chosen(
        self, of: SealedRange, group: int, kinds: Sequence[int] | None, stream: int | None,
        polls_of: Sequence[int] | None, *, other: bool,
    ) -> list[int] | None:  # fmt: skip
        """Which rows of a group `rows` gives; None: all."""
        if kinds is None and stream is None:
            return None
        pa, compute = arrow(), arrow("pyarrow.compute")
        table = self._table(of, group, ("stream_id", "kind"))
        with self._reading(of):
            wanted: Any = True
            if kinds is not None:
                wanted = compute.is_in(table.column("kind"), value_set=pa.array(kinds, pa.int16()))
                wanted = compute.invert(wanted) if other else wanted
            if stream is not None:
                wanted = compute.and_(compute.equal(table.column("stream_id"), stream), wanted)
            if polls_of is not None:
                polls = compute.is_in(table.column("kind"), value_set=pa.array(sorted(POLLS), pa.int16()))
                own = compute.is_in(table.column("stream_id"), value_set=pa.array(polls_of, pa.int64()))
                wanted = compute.and_(compute.or_(compute.invert(polls), own), wanted)
            found: list[int] = compute.indices_nonzero(wanted).to_pylist()
        return found

    def _table(self, of: SealedRange, group: int, columns: Sequence[str] = COLUMNS) -> Any:
        key = of.last, group, columns
        table = self._tables.pop(key, None)
        if table is None:
            with self._reading(of):
                table = self._file(of).group(group, columns)
                length = self._length(of)
                if table.num_rows != min(length, of.last - of.first + 1 - group * length):
                    raise ValueError("events are missing")
            if len(self._tables) >= _TABLES_KEPT:
                del self._tables[next(iter(self._tables))]
        self._tables[key] = table
        return table

    def _length(self, of: SealedRange) -> int:
        with self._reading(of):
            return self._file(of).length

    def _file(self, of: SealedRange) -> ParquetRows:
        file = self._files.pop(of.last, None)
        if file is None:
            size = self.place(of).size(of.file)
            if size is None:  # it may have moved since we looked
                of = self._noted_now(of)
                size = self.place(of).size(of.file)
            if size is None:
                raise FileNotFoundError
            if size != of.size:
                raise ValueError(f"it has {size} of {of.size} bytes")
            file = ParquetRows(self.place(of).open(of.file))
            if len(self._files) >= _FILES_KEPT:
                del self._files[next(iter(self._files))]
        self._files[of.last] = file
        return file

    def _noted_now(self, of: SealedRange) -> SealedRange:
        with self._session.guard():
            self.ranges = [SealedRange(*row) for row in self._session.run(BEHIND, 0).fetchall()]
        return self.ranges[bisect_left(self.ranges, of.last, key=lambda one: one.last)]

    @contextmanager
    def _reading(self, of: SealedRange) -> Iterator[SealedFolder]:
        """Turns errors of reading a sealed file into one that names it and its positions."""
        place = self.place(of)
        try:
            yield place
        except UNREADABLE as error:
            raise place.failed(of.file, str(of), error) from error
