"""Tables as files: Parquet (zstd) and CSV, each complete under its name or not there."""

import csv
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from events.clock import format_time
from projections.frames.arrow import arrow, batches, schema_of
from projections.frames.column import AnyTable, ColumnType
from projections.frames.plain import cells
from projections.frames.source import FrameSource

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
    times = [one.type is ColumnType.TIME for one in table.columns]
    rows = 0
    with _part(path) as part, part.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\r\n")
        writer.writerow(one.name for one in table.columns)
        for thing in table.things(source):
            values = [one.value(thing) for one in table.columns]
            shown = [
                format_time(value) if is_time and isinstance(value, int) else value
                for value, is_time in zip(values, times, strict=True)
            ]
            writer.writerow(cells(shown))
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
