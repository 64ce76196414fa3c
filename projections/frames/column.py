"""One column of a table that people ask questions of: its name, type, unit and meaning, and where its value is from."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from projections.frames.source import FrameSource

T = TypeVar("T")


class ColumnType(StrEnum):
    """What a column holds; any column may be null."""

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

    def values(self, things: list[T]) -> list[list[object]]:
        """The values of some rows, column by column."""
        return [[column.value(thing) for thing in things] for column in self.columns]


AnyTable = FrameTable[Any]
