"""A question in SQL reads the tables, and nothing else of this machine."""

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from stenotest.waiting import LIMIT_S

from steno.events.errors import RecordDamaged
from steno.events.poll import Poll
from steno.events.store.record import Record
from steno.projections.frames import TABLES
from steno.projections.frames.source import FrameSource, opened
from steno.projections.frames.sql import BadStatement, asked
from steno.projections.frames.table import ArrowFrame


@pytest.fixture
def source(
    tmp_path: Path, recording: Callable[[str], tuple[Poll, ...]], recorded: Callable[[Path, Sequence[Poll]], Record]
) -> Iterator[FrameSource]:
    with (
        recorded(tmp_path / "record.db", recording("dstack-0.22.5/retry_success")) as record,
        opened(record) as opened_record,
    ):
        yield opened_record


def answer(source: FrameSource, statement: str) -> list[tuple[Any, ...]]:
    with asked(source, statement) as reply:
        return list(reply.rows)


def test_a_table_is_read_again_by_each_mention(source: FrameSource) -> None:
    """A join of a table with itself, and two questions one after another."""
    (counts,) = answer(source, "select count(*), count(distinct a.position) from polls a join polls b using (position)")
    assert counts[0] == counts[1] > 100
    assert answer(source, "select count(*) from polls") == [(counts[0],)]


def test_sums_are_exact(source: FrameSource) -> None:
    """In dollars too, where a division would be a double."""
    ((whole, dollars, text),) = answer(
        source, "select sum(cost_microusd), usd(sum(cost_microusd)), typeof(usd(sum(cost_microusd))) from costs"
    )
    assert isinstance(whole, int)
    assert str(dollars) == f"{whole // 10**6}.{whole % 10**6:06d}"
    assert text.startswith("DECIMAL")
    assert answer(source, "select usd(9007199254740993)") == [(type(dollars)("9007199254.740993"),)]


def test_every_column_can_be_named_as_it_is(source: FrameSource) -> None:
    """In an expression, without quotes: no name is a word of SQL."""
    for table in TABLES.values():
        names = [column.name for column in table.columns]
        counts = ", ".join(f"count({name}) + count({table.name}.{name})" for name in names)
        assert len(answer(source, f"select {counts} from {table.name}")[0]) == len(names)


def test_an_answer_is_what_the_provider_said(source: FrameSource) -> None:
    """The answer of a poll; null for other events, beyond the end, and without an answer."""
    rows = answer(source, "select position, answer(position) from polls where answered limit 5")
    assert rows
    for position, body in rows:
        assert body == (source.record.poll(position).body or b"").decode()
    observed = "select min(position) from events where type = 'RunObserved'"
    assert answer(source, f"select answer(({observed})), answer(1000000), answer(null), answer(-1)") == [(None,) * 4]


@pytest.mark.parametrize(
    "statement",
    [
        "select * from read_csv('/etc/hostname')",
        "select * from '/etc/hostname'",
        "select content from read_text('/etc/hostname')",
        "select * from glob('/*')",
        "select * from read_parquet('https://example.org/x.parquet')",
        "copy runs to 'x.csv'",
        "export database 'x'",
        "attach 'x.db'",
        "install httpfs",
        "load httpfs",
        "set enable_external_access = true",
        "pragma enable_object_cache",
        "create table x as select 1",
        "insert into runs select * from runs",
        "drop view runs",
        "call pragma_version()",
        "select * from source",  # a variable of the caller
        "select * from statement",
        "select getenv('HOME')",
        "select 1; select 2",
        "selec 1",
        "select nothing from runs",
        "select * from nothing",
        "select cast('x' as integer)",
        "select error('told to')",
        "select \x00",
        "",
        "   -- nothing",
    ],
)
def test_a_statement_that_does_more_or_is_wrong_is_one_line(
    source: FrameSource, statement: str, tmp_path: Path
) -> None:
    """And nothing is written anywhere."""
    before = sorted(path.name for path in tmp_path.iterdir())
    with pytest.raises(BadStatement) as refused:
        answer(source, statement)
    assert "\n" not in str(refused.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_damage_is_reported_as_damage(source: FrameSource, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not as an error of the database that asked."""

    def damaged(*_: object, **__: object) -> Iterator[object]:
        raise RecordDamaged("a part is missing")

    monkeypatch.setattr(source.record, "read", damaged)
    monkeypatch.setattr(source.record, "poll", damaged)
    for statement in ("select count(*) from polls", "select answer(1)"):
        with pytest.raises(RecordDamaged, match="a part is missing"):
            answer(source, statement)


def test_an_interruption_ends_it(source: FrameSource, monkeypatch: pytest.MonkeyPatch) -> None:
    """While DuckDB itself is busy, which it is as soon as it has read the events; and while it reads."""
    import _thread
    import threading

    really, reading = source.record.read, threading.Event()

    def read(*words: Any, **given: Any) -> Any:
        reading.set()
        return really(*words, **given)

    def press() -> None:
        assert reading.wait(LIMIT_S)
        time.sleep(0.3)
        _thread.interrupt_main()

    monkeypatch.setattr(source.record, "read", read)
    pressed = threading.Thread(target=press)
    pressed.start()
    with pytest.raises(KeyboardInterrupt):
        answer(
            source,
            "with e as materialized (select count(*) n from events) select count(*) from e, range(100000000) a, "
            "range(1000000) b where (a.range * b.range + n) % 7 = 3",
        )
    pressed.join()

    def interrupted(*_: object, **__: object) -> Iterator[object]:
        raise KeyboardInterrupt

    monkeypatch.setattr(source.record, "read", interrupted)
    with pytest.raises(KeyboardInterrupt):
        answer(source, "select count(*) from events")


@pytest.mark.parametrize("part", ["__arrow_c_schema__", "__arrow_c_stream__"])
def test_an_interruption_while_a_table_is_introduced_ends_it(
    source: FrameSource, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    """DuckDB makes an error of its own of it."""

    def interrupted(*_: object) -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr(ArrowFrame, part, interrupted)
    with pytest.raises(KeyboardInterrupt):
        answer(source, "select count(*) from events")


def test_a_table_may_be_larger_than_the_memory_of_a_statement(source: FrameSource) -> None:
    """Sorting goes to a private folder, which is gone afterwards."""
    rows = answer(
        source, "select max(x) from (select range x, row_number() over (order by hash(range)) from range(300000))"
    )
    assert rows == [(299999,)]
