"""A table for questions: columns with name, type, unit and meaning; its rows as Arrow, batch by batch, so that any
length needs the memory of one batch.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from steno.events.errors import StenoError
from steno.events.installation import installing

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

    from steno.projections.frames.source import FrameSource

T = TypeVar("T")


class ColumnType(StrEnum):
    """The type of a column; any column may be null."""

    TEXT = "text"
    INTEGER = "integer"  # 64 bits
    NUMBER = "number"  # a double
    BOOLEAN = "boolean"
    TIME = "time"  # microseconds, UTC
    INTEGERS = "integers"  # a list
    TEXTS = "texts"  # a list


@dataclass(frozen=True)
class Column(Generic[T]):
    """`value` gives the value in a row: times as microseconds UTC, lists as tuples, unknown as None."""

    type: ColumnType
    name: str
    meaning: str
    value: Callable[[T], object]
    unit: str = ""


text = partial(Column, ColumnType.TEXT)
texts = partial(Column, ColumnType.TEXTS)
integer = partial(Column, ColumnType.INTEGER)
integers = partial(Column, ColumnType.INTEGERS)
number = partial(Column, ColumnType.NUMBER)
boolean = partial(Column, ColumnType.BOOLEAN)
time = partial(Column, ColumnType.TIME, unit="UTC")
seconds = partial(Column, ColumnType.NUMBER, unit="seconds")
money = partial(Column, ColumnType.INTEGER, unit="micro-dollars")


@dataclass(frozen=True)
class FrameTable(Generic[T]):
    """A table: what one row of it is, its columns, and the things that its rows are made of, one after another."""

    name: str
    row: str
    columns: tuple[Column[T], ...]
    things: Callable[["FrameSource"], Iterator[T]]


AnyTable = FrameTable[Any]
ROWS: Final = 2_000  # of a batch


class MissingLibrary(StenoError):
    """A package of the extra `questions` is not installed."""

    def __init__(self) -> None:
        super().__init__(f"Questions need DuckDB, NumPy and Arrow: `{installing('questions')}`.")


def arrow() -> Any:
    """The module `pyarrow`. Raises MissingLibrary."""
    try:
        import pyarrow
    except ImportError:
        raise MissingLibrary from None
    return pyarrow


def schema_of(table: AnyTable) -> "pyarrow.Schema":
    """The Arrow schema of a table; meaning and unit of a column are its metadata."""
    pa = arrow()
    types = {
        ColumnType.TEXT: pa.string(),
        ColumnType.INTEGER: pa.int64(),
        ColumnType.NUMBER: pa.float64(),
        ColumnType.BOOLEAN: pa.bool_(),
        ColumnType.TIME: pa.timestamp("us", tz="UTC"),
        ColumnType.INTEGERS: pa.list_(pa.int64()),
        ColumnType.TEXTS: pa.list_(pa.string()),
    }
    return pa.schema(
        [
            pa.field(column.name, types[column.type], metadata={"meaning": column.meaning, "unit": column.unit})
            for column in table.columns
        ]
    )


def batches(table: AnyTable, source: "FrameSource") -> Iterator["pyarrow.RecordBatch"]:
    """The rows of a table in order."""
    pa, schema = arrow(), schema_of(table)
    things = iter(table.things(source))
    while chunk := list(islice(things, ROWS)):
        columns = [
            pa.array([column.value(thing) for thing in chunk], type=field.type)
            for column, field in zip(table.columns, schema, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


class ArrowFrame:
    """A table as of a moment. It keeps no rows: each conversion reads the record again. DuckDB scans it by the name
    of the Python variable that holds it.
    """

    def __init__(self, table: AnyTable, opened: Callable[[], AbstractContextManager["FrameSource"]]) -> None:
        self.table = table
        self._opened = opened

    @property
    def schema(self) -> "pyarrow.Schema":
        return schema_of(self.table)

    def batches(self) -> Iterator["pyarrow.RecordBatch"]:
        """The rows as Arrow batches, in order. Raises StenoError if the record cannot be read."""
        with self._opened() as source:
            yield from batches(self.table, source)

    def reader(self) -> "pyarrow.RecordBatchReader":
        return arrow().RecordBatchReader.from_batches(self.schema, self.batches())

    def to_arrow(self) -> "pyarrow.Table":
        """All rows at once."""
        return arrow().Table.from_batches(self.batches(), self.schema)

    def to_pandas(self) -> "pandas.DataFrame":
        """All rows as pandas keeps them; integers with nulls stay integers."""
        import pandas

        kept = {arrow().int64(): pandas.Int64Dtype(), arrow().bool_(): pandas.BooleanDtype()}
        return self.to_arrow().to_pandas(types_mapper=kept.get)

    def to_polars(self) -> "polars.DataFrame":
        import polars

        frame = polars.from_arrow(self.to_arrow())
        assert isinstance(frame, polars.DataFrame)  # noqa: S101 - of a table
        return frame

    def __arrow_c_schema__(self) -> object:
        return self.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.reader().__arrow_c_stream__(requested_schema)
