"""Rows of one kind in an open store, found by any of their names: the base of runs and machines."""

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import starmap
from typing import Any, ClassVar, Final, Generic, TypeVar

import msgspec
import sqlalchemy
import zstandard
from sqlalchemy import Delete, Insert, Select, bindparam, delete, func, select, text, tuple_
from sqlalchemy.dialects.sqlite import insert

from steno.projections.read_models.database import Database, StoreUnreadable
from steno.projections.read_models.schema import PACKED, SHOWN, WAS

_Coder = tuple[Callable[[bytes], bytes], Callable[[bytes], bytes]]  # packs, unpacks
Row = TypeVar("Row", bound=msgspec.Struct)
_AFTER_ANY: Final = "\U0010ffff"
_SEVERAL: Final = 6  # rows told where the beginning of an id is that of more
_LIVE_FIRST: Final = "archive IS NOT NULL"
_DICTIONARY: Final = 1 << 14  # bytes
_EXAMPLES: Final = 150  # of which a dictionary is made; more make rows no smaller
_LEAST: Final = 50
_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(tuple[bytes, ...]).decode


def _coder(dictionary: bytes | None) -> _Coder:
    """For one thread: packs a run to 12 % of its size with a dictionary, to 40 % without."""
    data = None if dictionary is None else zstandard.ZstdCompressionDict(dictionary)
    packer = zstandard.ZstdCompressor(dict_data=data, write_dict_id=False)
    return packer.compress, zstandard.ZstdDecompressor(dict_data=data).decompress


class RowTable(Generic[Row]):
    """A table of an open store; builds its statements once per class."""

    _upsert: ClassVar[Insert]
    _copy: ClassVar[Insert]  # keeps a row that the newest moment shows, as it is
    _ordinal: ClassVar[Select[Any]]
    _delete: ClassVar[Delete]
    _count: ClassVar[Select[Any]]
    _newest: ClassVar[Select[Any]]  # examples for a dictionary
    _names: ClassVar[Select[Any]]
    _columns: ClassVar[tuple[str, ...]]  # in the order of the row's fields; the last holds all of `_parts`
    _parts: ClassVar[list[str]]

    row: type[Row]  # its fields are the columns that are read
    table: ClassVar[sqlalchemy.Table]
    key: ClassVar[str]
    live: ClassVar[str]  # the condition of what goes on: every list of the present has it
    since: ClassVar[str]  # the time that decides about other rows
    listed_by: ClassVar[str] = "ordinal"  # the order of a list of the present
    paged_by: ClassVar[tuple[str, ...]] = ("ordinal",)

    def __init__(self, database: Database) -> None:
        self._database = database
        self.newest_moment: int | None = None  # a row that it shows is copied before a rewrite
        self._plain = _coder(None)
        self.forget()

    def __init_subclass__(cls) -> None:
        columns, is_it = cls.table.c, cls.table.c[cls.key] == bindparam("id")
        cls._columns = (*(name for name in cls.row.__struct_fields__ if name not in PACKED), "packed")
        cls._parts = [name for name in cls.row.__struct_fields__ if name in PACKED]
        names = ["changed", *cls._columns]
        made = insert(cls.table).values({name: bindparam(name) for name in ("ordinal", *names)})
        replaced = {name: made.excluded[name] for name in names if name != cls.key}
        cls._upsert = made.on_conflict_do_update(index_elements=[cls.key], set_=replaced)
        kept = select(*columns, bindparam("until")).where(is_it, columns.changed <= bindparam("moment"))
        cls._copy = insert(WAS[cls.table.name]).from_select([*columns.keys(), "until"], kept)
        cls._ordinal = select(columns.ordinal).where(is_it)
        cls._delete = delete(cls.table).where(is_it)
        every = select(func.count()).select_from(cls.table)
        cls._newest = select(columns.packed).order_by(columns.ordinal.desc()).limit(bindparam("limit"))
        cls._count = select(every.scalar_subquery() - every.where(text("hidden = 1")).scalar_subquery())
        named = select(columns.name).where(columns.name.between(bindparam("word"), bindparam("last")))
        by_newest = named.group_by(columns.name).order_by(func.max(columns.ordinal).desc())
        cls._names = by_newest.limit(bindparam("limit"))

    def put(self, rows: Iterable[Row], changed: int = 0) -> None:
        """Insert or replace rows at a position; new rows go last."""
        given: list[dict[str, Any]] = []
        for row in rows:
            place = None if self._database.last_place is None else self._place(getattr(row, self.key))
            given.append({"ordinal": place, "changed": changed, **msgspec.structs.asdict(row)})
            given[-1]["packed"] = _encode([given[-1].pop(name) for name in self._parts])
        pack = self._coding([values["packed"] for values in given])[0]
        for values in given:
            values["packed"] = pack(values["packed"])
        self._keep((values[self.key] for values in given), changed)
        self._database.execute_many(self._upsert, given)

    def drop(self, ids: Iterable[str], changed: int = 0) -> None:
        row_ids = list(ids)
        self._keep(row_ids, changed)
        self._database.execute_many(self._delete, ({"id": row_id} for row_id in row_ids))

    def get(self, row_id: str) -> Row | None:
        return self._first(f"{self.key} = :word", word=row_id)

    def columns(self, row_id: str, *names: str) -> Any:
        """The values of these columns, without reading the others; None for an unknown row."""
        return self._database.first(self._values(names), id=row_id)

    def unpacked(self, rows: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
        """These rows with the values of `packed`, their last column, in its place. Raises `StoreUnreadable`."""
        unpack = self._coding()[1]
        try:
            for row in rows:
                yield *row[:-1], *_decode(unpack(row[-1]))
        except (zstandard.ZstdError, msgspec.MsgspecError) as error:
            raise StoreUnreadable("a row cannot be unpacked") from error

    def forget(self) -> None:
        """Read the dictionary again: what was written may be undone."""
        self._coder: _Coder | None = None

    def _coding(self, new: list[bytes] | None = None) -> _Coder:
        """How rows are packed: with a dictionary as soon as there are examples for it, `new` rows included."""
        if self._coder is None:
            known = self._database.get(f"dictionary/{self.table.name}")
            if known is None and new:
                stored = self._database.execute(self._newest, limit=_EXAMPLES)
                examples: list[Any] = [*new[:: -(-len(new) // _EXAMPLES)], *(self._plain[1](row[0]) for row in stored)]
                if len(examples) >= _LEAST:
                    known = zstandard.train_dictionary(_DICTIONARY, examples, k=1024, d=8).as_bytes()
                    self._database.put(f"dictionary/{self.table.name}", known)
            self._coder = None if known is None else _coder(known)
        return self._coder or self._plain

    def matching(self, word: str) -> tuple[Row, ...]:
        """The row of a word: its id, the provider's, the newest of a name, or a prefix of an id; several if the prefix
        is ambiguous.
        """
        row = self.get(word) or self._first("provider_id = :word", word=word) or self._named(word)
        if row is not None:
            return (row,)
        between = "BETWEEN :word AND :last"
        condition = f"{self.key} {between} OR provider_id {between}"
        return tuple(self._rows(condition, "", limit=_SEVERAL, word=word, last=word + _AFTER_ANY)) if word else ()

    def all(self, *, since: int | None = None, newest_first: bool = False, hidden: bool = True) -> Iterator[Row]:
        """Rows by first sight or in page order; all, or only those open or not older than a time. `hidden`: with hidden
        rows.
        """
        conditions = [] if hidden else [SHOWN]
        order = "ordinal"
        if newest_first:
            order = ", ".join(f"{name} DESC" for name in self.paged_by)
        if since is None:
            return self._rows(" AND ".join(conditions), order)
        conditions.append(f"(({self.live}) OR {self.since} >= :since)")
        return self._rows(" AND ".join(conditions), order if newest_first else self.listed_by, since=since)

    def changed_since(self, position: int) -> Iterator[Row]:
        """Rows written after a position."""
        return self._rows("changed > :position", position=position)

    def page(
        self,
        *,
        behind: tuple[int, ...] | None = None,
        limit: int = 50,
        live: bool = False,
        hidden: bool = False,
    ) -> tuple[tuple[tuple[int, ...], bytes], ...]:
        """(place, object), newest first, after the place `behind`. `live`: only open rows, never of archives; `hidden`:
        with hidden rows.
        """
        statement = self._page(behind=bool(behind), live=live, hidden=hidden)
        given = {f"behind_{name}": place for name, place in zip(self.paged_by, behind or (), strict=False)}
        rows = self.unpacked(self._database.execute(statement, limit=limit, **given))
        return tuple((row[: len(self.paged_by)], row[len(self.paged_by)]) for row in rows)

    def count(self) -> int:
        """The number of rows that are not hidden."""
        count: int = self._database.first(self._count)[0]
        return count

    def names(self, prefix: str = "", limit: int = 1000) -> tuple[str, ...]:
        """Names with that prefix, newest first."""
        names = self._database.execute(self._names, word=prefix, last=prefix + _AFTER_ANY, limit=limit)
        return tuple(row[0] for row in names)

    def ids(self, prefix: str) -> tuple[str, ...]:
        """At most 100 ids with that prefix, newest first; none for an empty prefix."""
        condition = f"{self.key} BETWEEN :word AND :last"
        rows = self._rows(condition, "ordinal DESC", limit=100, word=prefix, last=prefix + _AFTER_ANY)
        return tuple(getattr(row, self.key) for row in rows) if prefix else ()

    def _named(self, name: str) -> Row | None:
        return self._first("name = :word", word=name)

    def _first(self, condition: str, **given: Any) -> Row | None:
        """The newest row in page order; live rows before archived rows."""
        order = ", ".join((_LIVE_FIRST, *(f"{name} DESC" for name in self.paged_by)))
        return next(self._rows(condition, order, limit=1, **given), None)

    def _rows(self, condition: str = "", order: str = "ordinal", **given: Any) -> Iterator[Row]:
        statement = self._select(condition, order, limited="limit" in given)
        return starmap(self.row, self.unpacked(self._database.execute(statement, **given)))

    def _place(self, row_id: str) -> int | None:
        """The place of a row in the store below, else a new one."""
        place = self._database.first(self._ordinal, id=row_id)
        return self._database.next_place() if place is None else place[0]

    def _keep(self, ids: Iterable[str], changed: int) -> None:
        if self.newest_moment is not None:
            moment = {"until": changed, "moment": self.newest_moment}
            self._database.execute_many(self._copy, ({"id": row_id, **moment} for row_id in ids))

    # -- statements ---

    @classmethod
    @cache
    def _values(cls, names: tuple[str, ...]) -> Select[Any]:
        return select(*(cls.table.c[name] for name in names)).where(cls.table.c[cls.key] == bindparam("id"))

    @classmethod
    @cache
    def _select(cls, condition: str, order: str, *, limited: bool) -> Select[Any]:
        made = select(*(cls.table.c[name] for name in cls._columns))
        made = made.where(text(condition)) if condition else made
        made = made.order_by(text(order)) if order else made
        return made.limit(bindparam("limit")) if limited else made

    @classmethod
    @cache
    def _page(cls, *, behind: bool, live: bool, hidden: bool) -> Select[Any]:
        places = [cls.table.c[name] for name in cls.paged_by]
        made = select(*places, cls.table.c.packed)
        if not hidden:
            made = made.where(text(SHOWN))
        if live:
            made = made.where(text(f"({cls.live})"))
        if behind:
            seen = tuple_(*(bindparam(f"behind_{name}") for name in cls.paged_by))
            made = made.where(tuple_(*places) < seen)
        return made.order_by(*(place.desc() for place in places)).limit(bindparam("limit"))
