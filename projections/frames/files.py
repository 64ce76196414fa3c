"""Tables as files: Parquet (zstd) and CSV, each complete under its name or not there; and values as JSON and CSV have
them. Exact numbers that JSON readers would round are texts.
"""

import csv
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import msgspec

from steno.engine.wire import Cell, csv_cells
from steno.events.clock import format_time, parse_time
from steno.projections.frames.source import FrameSource
from steno.projections.frames.table import AnyTable, ColumnType, arrow, batches, schema_of

Write = Callable[[AnyTable, FrameSource, Path], int]


def write_parquet(table: AnyTable, source: FrameSource, path: Path) -> int:
    """The number of rows written. Raises MissingLibrary, OSError, and what reading the record raises."""
    arrow()
    from pyarrow.parquet import ParquetWriter

    rows = 0
    with _part(path) as part, ParquetWriter(part, schema_of(table), compression="zstd") as writer:
        for batch in batches(table, source):
            writer.write_batch(batch)
            rows += batch.num_rows
    return rows


def write_csv(table: AnyTable, source: FrameSource, path: Path) -> int:
    """As `write_parquet`; needs no library. Times are ISO 8601, lists JSON."""
    times = [column.type is ColumnType.TIME for column in table.columns]
    rows = 0
    with _part(path) as part, part.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\r\n")
        writer.writerow(column.name for column in table.columns)
        for thing in table.things(source):
            values = [column.value(thing) for column in table.columns]
            texts = [
                format_time(value) if is_time and isinstance(value, int) else value
                for value, is_time in zip(values, times, strict=True)
            ]
            writer.writerow(cells(texts))
            rows += 1
    return rows


FORMATS: Final[dict[str, Write]] = {"parquet": write_parquet, "csv": write_csv}


@contextmanager
def _part(path: Path) -> Iterator[Path]:
    part = path.with_name(path.name + ".part")
    try:
        yield part
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


# -- values ---

_INTEGER: Final = 1 << 63


def plain(value: Any) -> Any:
    """A value of JSON: times as ISO 8601 (UTC), intervals as seconds, decimals as text, bytes as hex."""
    match value:
        case None | bool() | str() | float():
            return value
        case int():
            return value if -_INTEGER <= value < _INTEGER else str(value)
        case datetime():
            return value.isoformat() if value.tzinfo is None else format_time(parse_time(value.isoformat()))
        case date() | time():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case Decimal():
            return f"{value:f}"
        case bytes():
            return value.hex()
        case dict():
            return {str(plain(key)): plain(inner) for key, inner in value.items()}
        case list() | tuple():
            return [plain(inner) for inner in value]
    return str(value)


def cells(row: Iterable[Any]) -> list[Cell]:
    """A row of CSV: lists and objects as JSON text, null as an empty cell."""

    def cell(value: Any) -> Any:
        return msgspec.json.encode(value).decode() if isinstance(value, list | dict | bool) else value

    return csv_cells(cell(plain(value)) for value in row)


def distinct(names: Iterable[str]) -> tuple[str, ...]:
    """Names of columns as keys of an object: a repeated one gets a number."""
    keys: dict[str, None] = {}
    for name in names:
        key, number = name, 2
        while key in keys:
            key, number = f"{name}_{number}", number + 1
        keys[key] = None
    return tuple(keys)
