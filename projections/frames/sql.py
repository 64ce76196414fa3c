"""A question in SQL: DuckDB in memory over the tables of one moment. A statement reads and nothing else: no file, no
network, no settings, no other database.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from steno.events.errors import PositionNotFound, StenoError
from steno.projections.frames.catalogue import TABLES
from steno.projections.frames.source import FrameSource
from steno.projections.frames.table import ArrowFrame, MissingLibrary, arrow

if TYPE_CHECKING:
    import duckdb

_FETCHED: Final = 1_000
_SETTINGS: Final[dict[str, str | int]] = {
    "threads": 1,  # the tables are read in the thread that asks
    "python_enable_replacements": False,  # a name in a statement is never a variable of ours
    "autoinstall_known_extensions": False,
}
_OWN: Final = (
    "SET TimeZone = 'UTC'",
    # exact, where a division would be a double
    "CREATE MACRO usd(micro) AS CAST(micro AS DECIMAL(20, 0)) * CAST(0.000001 AS DECIMAL(7, 6))",
    "SET enable_external_access = false",
    "SET lock_configuration = true",
)


class BadStatement(StenoError):
    """The statement is wrong, or does not only read."""


class SqlAnswer(NamedTuple):
    columns: tuple[str, ...]
    rows: Iterator[tuple[Any, ...]]  # as Python has the values; read before the source is closed


class _Failures:
    """The first error while DuckDB read a table: DuckDB reports the text only."""

    def __init__(self) -> None:
        self.first: BaseException | None = None

    @contextmanager
    def kept(self) -> Iterator[None]:
        try:
            yield
        except GeneratorExit:  # no failure: DuckDB needs no more rows
            raise
        except BaseException as error:
            self.first = self.first or error
            raise

    @contextmanager
    def told(self) -> Iterator[None]:
        """Raise the original error, or a DuckDB error as BadStatement of one line."""
        import duckdb

        try:
            yield
        except (duckdb.Error, RuntimeError) as error:
            if self.first is not None:
                raise self.first from None
            if "INTERRUPT" in str(error).upper():
                raise KeyboardInterrupt from None
            raise BadStatement(f"the statement failed: {_line_of(error)}") from error
        if self.first is not None:  # DuckDB went on without what it could not read
            raise self.first


class _Guarded(ArrowFrame):
    """A table of an open source, whose failures are kept."""

    def __init__(self, name: str, source: FrameSource, failures: _Failures) -> None:
        super().__init__(TABLES[name], lambda: nullcontext(source))
        self._failures = failures

    def batches(self) -> Iterator[Any]:
        with self._failures.kept():
            yield from super().batches()

    def __arrow_c_schema__(self) -> object:
        with self._failures.kept():
            return super().__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        with self._failures.kept():
            return super().__arrow_c_stream__(requested_schema)


@contextmanager
def asked(source: FrameSource, statement: str) -> Iterator[SqlAnswer]:
    """The answer to one statement. Raises BadStatement (its text is one line), MissingLibrary, and what reading the
    record raises.
    """
    arrow()
    try:
        import duckdb
        import numpy  # noqa: F401 (DuckDB needs it to hand over an answer)
        from duckdb.func import SPECIAL
    except ImportError:
        raise MissingLibrary from None
    failures = _Failures()
    with (
        TemporaryDirectory(prefix="steno-sql-") as folder,
        duckdb.connect(":memory:", config={**_SETTINGS, "temp_directory": folder}) as database,
        failures.told(),
    ):
        for name in TABLES:
            database.register(name, _Guarded(name, source, failures))
        database.create_function("answer", _answers(source, failures), ["BIGINT"], "VARCHAR", null_handling=SPECIAL)
        for own in _OWN:
            database.execute(own)
        _check(database, statement)
        result = database.execute(statement)
        names = tuple(str(column[0]) for column in result.description or ())
        yield SqlAnswer(names, _rows(result, failures))


def _check(database: "duckdb.DuckDBPyConnection", statement: str) -> None:
    """That it is one statement, which reads."""
    statements = database.extract_statements(statement)
    if len(statements) != 1:
        raise BadStatement(f"give one statement, not {len(statements)}" if statements else "there is no statement")
    if statements[0].type.name != "SELECT":
        raise BadStatement(f"{statements[0].type.name} is not allowed: a question begins with SELECT or FROM")


def _answers(source: FrameSource, failures: _Failures) -> Any:
    def answer(position: int | None) -> str | None:
        if position is None or position > source.position:
            return None
        with failures.kept(), suppress(PositionNotFound):
            body = source.record.poll(position).body
            return None if body is None else body.decode()
        return None

    return answer


def _rows(result: Any, failures: _Failures) -> Iterator[tuple[Any, ...]]:
    while True:
        with failures.told():
            rows = result.fetchmany(_FETCHED)
        if not rows:
            return
        yield from rows


def _line_of(error: Exception) -> str:
    """`Binder Error: … (line 2: selct 1)`: the first lines of DuckDB's message, which draws a picture below."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    kept = [line for line in lines if not line.startswith(("LINE ", "^"))]
    return " ".join(kept) or type(error).__name__
