"""Appending events: gapless, atomic, expected, repeatable."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from steno.events import types
from steno.events.errors import IdConflict, RecordNotWritable, VersionConflict
from steno.events.store.record import ANY, Batch, Unless

if TYPE_CHECKING:
    from collections.abc import Callable

    from steno.events.store.record import Record

    Opener = Callable[..., Record]


def intended(run: str, name: str = "a") -> types.SubmitIntended:
    return types.SubmitIntended(run_id=run, provider="local", name=name)


def ident(number: int) -> str:
    return f"{number:032x}"


def test_an_empty_record_is_at_position_zero(opener: Opener) -> None:
    """Positions begin at 1; before that there is only the genesis hash."""
    record = opener()
    assert record.head().position == 0
    assert list(record.read()) == []
    assert record.version("run/1") == 0


def test_what_was_appended_comes_back_in_order(opener: Opener, clock: object) -> None:
    """Every field of an event survives, and another reader sees the same."""
    record = opener()
    requested = types.RunRequested(
        run_id="1", provider="dstack", project="main", name="a", configuration=b'{"type":"task"}', submitter="ada"
    )
    assert record.append_many([Batch("run/1", [requested, intended("1")]), Batch("run/2", [intended("2")])]) == (
        1,
        2,
        3,
    )
    seen = [(event.position, event.stream, event.version, event.data) for event in opener(write=False).read()]
    assert seen == [(1, "run/1", 1, requested), (2, "run/1", 2, intended("1")), (3, "run/2", 1, intended("2"))]
    assert record.streams() == (("run/1", 2), ("run/2", 1))


def test_an_append_that_another_event_makes_wrong_is_void(opener: Opener) -> None:
    """Only an event of these types after that position counts, of any writer; the writer reads it and tries again."""
    record, other = opener(), opener()
    seen = record.append_many([Batch("run/1", [intended("1")])])[-1]
    other.append_many([Batch("run/2", [intended("2")])])
    with pytest.raises(VersionConflict, match="SubmitIntended is at position 2"):
        record.append_many([Batch("run/1", [intended("3")])], unless=Unless(frozenset({"SubmitIntended"}), seen))
    assert record.head().position == 2
    assert record.append_many([Batch("run/1", [intended("3")])], unless=Unless(frozenset({"StopIntended"}), seen)) == (
        3,
    )
    assert other.append_many([Batch("run/2", [intended("4")])], unless=Unless(frozenset({"SubmitIntended"}), 3)) == (4,)


def test_reading_narrows_by_position_stream_type_and_number(opener: Opener) -> None:
    """`after` is exclusive, `until` inclusive; backwards gives the newest first."""
    record = opener()
    for number in range(1, 6):
        record.append_many([Batch(f"run/{number % 2}", [intended(str(number))])])
    record.append_many([Batch("run/1", [types.StopSucceeded(run_id="1", provider="local")])])
    assert [event.position for event in record.read(after=1, until=4)] == [2, 3, 4]
    assert [event.position for event in record.read(stream="run/1")] == [1, 3, 5, 6]
    assert [event.position for event in record.read(types={"StopSucceeded"})] == [6]
    assert [event.position for event in record.read(backwards=True, limit=2)] == [6, 5]
    assert [event.position for event in record.read(stream="run/9")] == []
    assert list(record.read(types=frozenset())) == []


def test_rare_events_of_a_long_record_are_found_as_those_of_a_short_one(
    opener: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond some length they are looked up by an index: the same events in the same order, narrowed the same way."""
    record = opener()
    placed = [types.RunPlaced(run_id=str(number), provider="local") for number in range(700)]
    for number in range(0, 700, 10):
        record.append_many(
            [Batch("queue/local", placed[number : number + 10]), Batch(f"run/{number % 3}", [intended(str(number))])]
        )
    queries: list[dict[str, Any]] = [
        {"types": {"RunPlaced"}},
        {"types": {"RunPlaced", "SubmitIntended"}, "after": 17, "until": 611},
        {"types": {"SubmitIntended"}, "backwards": True, "limit": 5},
        {"types": {"RunPlaced"}, "after": 10_000},
        {"types": frozenset()},
    ]
    answers = [list(record.read(**query)) for query in queries]
    for narrowed, rows in zip(queries, answers, strict=True):
        everything = record.read(**{name: value for name, value in narrowed.items() if name not in ("types", "limit")})
        assert rows == [stored for stored in everything if stored.type in narrowed["types"]][: narrowed.get("limit")]
    assert [len(answer) for answer in answers] == [700, 594, 5, 0, 0]


def test_a_batch_is_appended_whole_or_not_at_all(opener: Opener) -> None:
    """A batch that does not fit keeps the others out too, and leaves no trace of itself."""
    record = opener()
    record.append_many([Batch("run/1", [intended("1")])])
    before = record.head()
    with pytest.raises(VersionConflict):
        record.append_many([Batch("run/2", [intended("2")]), Batch("run/1", [intended("1")], expected_version=5)])
    assert record.head() == before
    assert record.version("run/2") == 0
    assert record.append_many([Batch("run/2", [intended("2")], expected_version=0)]) == (2,)
    assert record.verify().ok


def test_the_expected_version_is_that_of_the_stream(opener: Opener) -> None:
    """0 means a new stream, ANY means no expectation; another writer's events count."""
    record, other = opener(), opener()
    record.append_many([Batch("run/1", [intended("1")], expected_version=0)])
    other.append_many([Batch("run/1", [intended("1")], expected_version=1)])
    with pytest.raises(VersionConflict):
        record.append_many([Batch("run/1", [intended("1")], expected_version=1)])
    record.append_many([Batch("run/1", [intended("1")], expected_version=ANY)])
    assert record.version("run/1") == 3


def test_an_event_with_the_same_id_is_appended_once(opener: Opener) -> None:
    """The same bytes give the old position, other bytes a conflict, also within one call."""
    record = opener()
    first = Batch("run/1", [intended("1"), intended("1", "b")], ids=[ident(1), ident(2)])
    assert record.append_many([first]) == (1, 2)
    assert record.append_many([first]) == (1, 2)
    assert record.append_many([Batch("run/1", [intended("1"), intended("1", "c")], ids=[ident(1), None])]) == (1, 3)
    twice = Batch("run/1", [intended("1", "d")] * 2, ids=[ident(7)] * 2)
    assert record.append_many([twice]) == (4, 4)
    for other in (
        Batch("run/1", [intended("1", "x")], ids=[ident(1)]),
        Batch("run/2", [intended("1")], ids=[ident(1)]),
    ):
        with pytest.raises(IdConflict):
            record.append_many([other])
    assert record.head().position == 4
    assert record.verify().ok


def test_repeating_an_append_with_its_expected_version_is_no_conflict(opener: Opener) -> None:
    """A caller that repeats a call after a crash cannot know that the first came through."""
    record = opener()
    batch = Batch("run/1", [intended("1")], expected_version=0, ids=[ident(1)])
    assert record.append_many([batch], durable=True) == record.append_many([batch], durable=True)


def test_a_reader_cannot_append(opener: Opener) -> None:
    """A record opened for reading refuses, whatever the file would allow."""
    opener()
    with pytest.raises(RecordNotWritable):
        opener(write=False).append_many([Batch("run/1", [intended("1")])])


@settings(
    max_examples=25,
    suppress_health_check=[*settings.default.suppress_health_check, HealthCheck.function_scoped_fixture],
)
@given(
    steps=st.lists(
        st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3), st.booleans()), min_size=1, max_size=4),
        max_size=6,
    )
)
def test_positions_have_no_gaps_and_versions_count_each_stream(
    steps: list[list[tuple[str, int, bool]]], opener: Opener
) -> None:
    """Whatever is appended, positions are 1, 2, 3 … and each stream's versions too, and the chain holds."""
    record = opener()
    before = record.head().position
    for step in steps:
        batches = [Batch(f"run/{name}", [intended(name)] * count) for name, count, _ in step]
        positions = record.append_many(batches, durable=any(durable for _, _, durable in step))
        assert positions == tuple(range(before + 1, before + 1 + len(positions)))
        before += len(positions)
    everything = list(record.read())
    assert [event.position for event in everything] == list(range(1, before + 1))
    for stream, version in record.streams():
        assert [event.version for event in everything if event.stream == stream] == list(range(1, version + 1))
    assert record.verify().ok


@pytest.mark.parametrize("store", ["sqlite", "postgres"], indirect=True)  # memory has no transactions
def test_a_snapshot_that_a_signal_cuts_off_leaves_no_transaction(
    opener: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else what the process appends last is refused as damage: seen 4 ms after the start of `steno record`."""
    record = opener()
    session: Any = record._session
    owner, name = (session.connection, "exec_driver_sql") if hasattr(session, "connection") else (session, "execute")
    begin = getattr(owner, name)

    def cut_off(*words: Any, **more: Any) -> None:
        begin(*words, **more)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(owner, name, cut_off)
        with pytest.raises(KeyboardInterrupt), session.snapshot():
            pass
    assert record.append_many([Batch("run/1", [intended("1")])]) == (1,)
