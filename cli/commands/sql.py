"""`steno sql`: questions to the record in SQL."""

from __future__ import annotations

import csv
import sys
from contextlib import contextmanager
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from steno.cli.render import paint
from steno.cli.render.words import moment
from steno.cli.wiring.app import App, steno_command
from steno.cli.wiring.options import both_times_option
from steno.cli.wiring.output import emit, emit_json, hint, progress
from steno.cli.wiring.view import opened_at, viewing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from steno.projections.frames.source import FrameSource
    from steno.projections.frames.sql import SqlAnswer

_SHOWN = 1_000  # rows of a table for people
_WIDEST = 60  # characters of a cell


@steno_command("sql")
@click.argument("statement", metavar="[STATEMENT]", required=False)
@click.option("-f", "--file", "path", metavar="FILE", help="Read the statement from a file, or - for standard input.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@click.option("--tables", is_flag=True, help="Print the tables and their columns instead.")
@both_times_option
def sql_command(app: App, statement: str | None, path: str | None, as_csv: bool, tables: bool, at: str | None) -> None:
    """A question is one SELECT in the SQL of DuckDB. The tables are runs, transitions, samples (of GPUs), machines,
    intervals, costs, polls and events; --tables prints their columns. Money is in whole micro-dollars, and usd(n) makes
    dollars of it; times are UTC. answer(position) is what the provider answered to a poll, as JSON text.

    The statement only reads: it has no access to files and the network. With --json, JSON Lines, one object a row. A
    table for people ends after 1,000 rows, and cuts long texts beside others.

    \b
    Examples:
      steno sql "select name, state, reason from runs order by submitted_at"
      steno sql "select line, usd(sum(cost_microusd)) from costs group by line"
      steno sql "select answer(max(position)) from polls where answered"
      steno sql "select run_id, device, avg(use) from samples group by all"
      steno sql --at yesterday "select count(*) from runs"
      steno sql -f question.sql --csv > answer.csv
      steno sql --tables
    """
    if tables:
        _print_tables(app)
        return
    question = _statement(statement, path)
    if as_csv and app.json:
        raise click.UsageError("--csv and --json: give one of them")
    from steno.projections.frames.sql import asked

    with looking(app, at, "reading the record") as source, asked(source, question) as answer:
        if app.json:
            _print_json(answer)
        elif as_csv:
            _print_csv(answer)
        else:
            _print_table(answer)


@contextmanager
def looking(app: App, at: str | None, what: str) -> Iterator[FrameSource]:
    """The record and its read models now or `--at`, with a progress bar."""
    from steno.projections.frames.source import of_store

    with progress(what) as advance:
        if at is None:
            with viewing(app) as (record, view, _), of_store(record, view.store) as source:
                source.advance = advance
                yield source
            return
        with app.reading() as record:
            store, position, beyond, _ = opened_at(app, record, at, advance)
            with of_store(record, store, position, beyond) as source:
                source.advance = advance
                yield source


def _statement(statement: str | None, path: str | None) -> str:
    if statement is not None and path is not None:
        raise click.UsageError("a statement and --file: give one of them")
    if statement == "-" or (statement is None and path is None):
        path = "-"
    if path is None:
        return statement or ""
    if path == "-" and sys.stdin.isatty():
        raise click.UsageError('give a statement: steno sql "select …"')
    try:
        return sys.stdin.read() if path == "-" else Path(path).read_text()
    except UnicodeDecodeError:
        raise click.BadParameter(f"{path} is not UTF-8 text", param_hint="--file") from None


def _print_json(answer: SqlAnswer) -> None:
    from steno.projections.frames.files import distinct, plain

    names = distinct(answer.columns)
    for row in answer.rows:
        emit_json({name: plain(value) for name, value in zip(names, row, strict=True)}, lines=True)


def _print_csv(answer: SqlAnswer) -> None:
    from steno.projections.frames.files import cells

    writer = csv.writer(sys.stdout, lineterminator="\r\n")
    writer.writerow(cells(answer.columns))
    for row in answer.rows:
        writer.writerow(cells(row))
    sys.stdout.flush()


def _print_table(answer: SqlAnswer) -> None:
    rows = list(islice(answer.rows, _SHOWN + 1))
    widest = _WIDEST if len(answer.columns) > 1 else sys.maxsize
    cells = [[paint.cut(_cell(value), widest) for value in row] for row in rows[:_SHOWN]]
    figures = [
        index
        for index in range(len(answer.columns))
        if all(row[index] is None or _is_figure(row[index]) for row in rows)
    ]
    emit(paint.table(answer.columns, cells, right=figures if rows else ()))
    if len(rows) > _SHOWN:
        hint(f"only the first {_SHOWN:,} rows; --csv and --json print all")


def _is_figure(value: Any) -> bool:
    from decimal import Decimal

    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _cell(value: Any) -> str:
    from steno.projections.frames.files import plain

    text = plain(value)
    if text is None:
        return "–"
    if isinstance(value, datetime) and value.tzinfo is not None:
        return moment(text)
    return text if isinstance(text, str) else msgspec.json.encode(text).decode()


def _print_tables(app: App) -> None:
    from steno.projections.frames.catalogue import TABLES

    if app.json:
        emit_json(
            [
                {
                    "table": table.name,
                    "row": table.row,
                    "columns": [
                        {
                            "name": column.name,
                            "type": column.type,
                            "unit": column.unit or None,
                            "meaning": column.meaning,
                        }
                        for column in table.columns
                    ],
                }
                for table in TABLES.values()
            ]
        )
        return
    for number, table in enumerate(TABLES.values()):
        emit(("\n" if number else "") + paint.bold(table.name) + paint.dim(f"  {table.row}"))
        rows = [(f"  {column.name}", column.type.value, column.unit, column.meaning) for column in table.columns]
        emit(paint.table(("  COLUMN", "TYPE", "UNIT", "MEANING"), rows))
