"""The form of a sealed file: the columns of `events`, in order of position, in groups of equal size.

Numbers are differences from the row before, compressed by zstd: 13 bytes an event, 9 of them its hash. Every page has
a CRC.
"""

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal

from events.store.schema import events
from events.store.sealed.place import arrow

GROUP: Final = 4_000  # rows of a group: to read one event costs 1 ms
COLUMNS: Final = tuple([column.name for column in events.columns])
_BINARY: Final = ("event_id", "data", "hash")
_WIDTHS: Final[dict[str, Literal["q", "h"]]] = {"int64": "q", "int16": "h"}
_MAY_MISS: Final = ("event_id", "scope_id", "body_id")
_NUMBERS: Final = tuple([name for name in COLUMNS if name not in (*_BINARY, "kind")])


def encoded(pages: Iterable[Sequence[Sequence[Any]]], about: Mapping[str, str]) -> bytes:
    """The bytes of a file of rows of `events`, in pages of one length, the last aside. `about` goes into its footer."""
    pa, parquet = arrow(), arrow("pyarrow.parquet")
    types = {name: pa.binary() if name in _BINARY else pa.int64() for name in COLUMNS} | {"kind": pa.int16()}
    fields = [pa.field(name, types[name], nullable=name in _MAY_MISS) for name in COLUMNS]
    schema = pa.schema(fields, metadata={f"steno.{key}": value for key, value in about.items()})
    out = io.BytesIO()
    with parquet.ParquetWriter(
        out,
        schema,
        compression="zstd",
        use_dictionary=["kind"],
        column_encoding=dict.fromkeys(_NUMBERS, "DELTA_BINARY_PACKED"),
        write_page_checksum=True,
        write_statistics=list(_NUMBERS),
    ) as writer:
        for rows in pages:
            columns = [pa.array(column, one.type) for column, one in zip(zip(*rows, strict=True), schema, strict=True)]
            writer.write_table(pa.Table.from_arrays(columns, schema=schema), row_group_size=len(rows))
    return out.getvalue()


class ParquetRows:
    """The rows of one file. Every method raises OSError or ValueError where its bytes are not as written."""

    def __init__(self, source: Any) -> None:
        pa, parquet = arrow(), arrow("pyarrow.parquet")
        given = pa.BufferReader(source) if isinstance(source, bytes) else source
        self._file = parquet.ParquetFile(given, page_checksum_verification=True)
        if tuple(self._file.schema_arrow.names) != COLUMNS:
            raise ValueError("it has other columns")
        self.length: int = self._file.metadata.row_group(0).num_rows  # of every group but the last

    def group(self, number: int, columns: Sequence[str] = COLUMNS) -> Any:
        """A group of rows, as a table of Arrow."""
        return self._file.read_row_group(number, columns=list(columns), use_threads=False)

    def pages(self) -> Iterator[list[tuple[Any, ...]]]:
        """All rows, a group at a time."""
        for number in range(self._file.num_row_groups):
            yield as_rows(self.group(number))


def as_rows(table: Any) -> list[tuple[Any, ...]]:
    """A table's rows as the databases give them."""
    return list(zip(*[_values(column.combine_chunks()) for column in table.columns], strict=True))


def _values(column: Any) -> list[Any]:
    width = _WIDTHS.get(str(column.type))
    if width is None or column.null_count or not len(column):
        return list(column.to_pylist())
    # A ninth of the time of `to_pylist`.
    values = memoryview(column.buffers()[1]).cast("B").cast(width)
    return values[column.offset : column.offset + len(column)].tolist()
