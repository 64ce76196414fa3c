"""Sealed ranges: everything a record shows is the same before and after, and it goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import func, select, text
from stenotest.memory_store import MemoryStore
from stenotest.postgres import small_partitions
from stenotest.readings_of import everything
from stenotest.records import START, StandingClock, poll_of

from events.clock import SECOND
from events.errors import IdConflict, VersionConflict
from events.shape.shape import BodyShape
from events.store import rows, sealing
from events.store.append import Batch
from events.store.copying import copy
from events.store.identity import new_identity
from events.store.record import Record
from events.store.schema import events
from events.types import PollFailed, TokenRevoked

if TYPE_CHECKING:
    from pathlib import Path

    from events.store.store import Store

Step = tuple[str, int]

SHAPE = BodyShape(kind="run", items="[]", volatile=("cost",), cold=("spec",))
GROUP = 8
"""Rows of a group in these tests: ranges have several."""

steps = st.lists(
    st.one_of(
        st.tuples(st.just("poll"), st.integers(0, 30)),
        st.tuples(st.just("failed"), st.integers(0, 3)),
        st.tuples(st.just("import"), st.integers(0, 40)),
        st.tuples(st.just("event"), st.integers(0, 5)),
        st.tuples(st.just("seal"), st.integers(1, 25)),
    ),
    max_size=40,
)


def shapes(path: str, req: bytes, /) -> BodyShape | None:
    return SHAPE if path == "/runs" else None


@pytest.fixture(autouse=True)
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealing, "GROUP", GROUP)


def listing(number: int, at: int) -> Any:
    """An answer that shows something else for another number, and its cost for another moment."""
    runs = [
        {"id": f"r{one}", "status": number >> one & 1, "cost": at % 97, "spec": f"long cold {one}" * 9}
        for one in range(3)
    ]
    return poll_of(msgspec.json.encode(runs), path="/runs", at=at)


def revoked(name: str) -> TokenRevoked:
    return TokenRevoked(token_id=name, name=name, role="read", by="alice")


def act(record: Record, clock: StandingClock, step: Step) -> None:
    """One step of a story: the same record for the same steps."""
    word, number = step
    clock.sleep(SECOND)
    match word:
        case "poll":
            record.append_polls([listing(number, clock.now()), listing(number, clock.now() + 1)])
        case "failed":
            record.append_polls(
                [poll_of(None, path="/runs", at=clock.now(), answered=False, error="away", source=f"s/{number}")]
            )
        case "import":
            record.append_polls([listing(number, START + number)], ids=[f"{number:04x}"])
        case "event":
            ids = [f"ee{number:02x}"] if number % 2 else None
            record.append_many([Batch(f"token/{number}", [revoked(str(number))], ids=ids)])


def seal(store: Store, clock: StandingClock, folder: Path, size: int) -> sealing.Sealing:
    return sealing.seal(
        store, before=clock.now() + SECOND, size=size, place=str(folder), clock=clock, progress=lambda done, total: None
    )


UNSHRUNK = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


@given(story=steps)
@settings(max_examples=12, deadline=None, suppress_health_check=UNSHRUNK)
def test_sealing_changes_nothing_that_is_read(story: list[Step], tmp_path_factory: pytest.TempPathFactory) -> None:
    """Two records of the same steps, one sealed at any points into ranges of any size: all that is read is equal."""
    compare(story, tmp_path_factory)


@given(story=steps)
@settings(suppress_health_check=UNSHRUNK)
@pytest.mark.long
def test_sealing_changes_nothing_whatever_happens(story: list[Step], tmp_path_factory: pytest.TempPathFactory) -> None:
    """The same, with patience."""
    compare(story, tmp_path_factory)


def compare(story: list[Step], tmp_path_factory: pytest.TempPathFactory) -> None:
    folder, identity = tmp_path_factory.mktemp("sealed"), new_identity(StandingClock())
    whole, cut = MemoryStore(), MemoryStore()
    clocks = StandingClock(), StandingClock()
    for store in (whole, cut):
        store.create(identity)
    with (
        Record.open(whole, clock=clocks[0], write=True, shapes=shapes) as plain,
        Record.open(cut, clock=clocks[1], write=True, shapes=shapes) as sealed,
    ):
        for step in (*story, ("poll", 5), ("event", 1)):
            for record, clock in zip((plain, sealed), clocks, strict=True):
                act(record, clock, step)
            if step[0] == "seal":
                seal(cut, clocks[1], folder, step[1])
        expected = everything(plain)
        assert everything(sealed) == expected
        with Record.open(cut, clock=clocks[1], shapes=shapes) as opened:
            assert everything(opened) == expected
            verdict = opened.verify(expect=plain.head())
            assert (verdict.ok, verdict.damage, verdict.events) == (True, (), plain.head().position)
    whole.close()
    cut.close()


def long_story(store: Store, clock: StandingClock) -> dict[str, Any]:
    with Record.open(store, clock=clock, write=True, shapes=shapes) as record:
        for number in range(30):
            act(record, clock, ("poll", number % 7))
            act(record, clock, ("import", number))
            act(record, clock, ("event", number % 6))
            act(record, clock, ("failed", number % 2))
        return everything(record, sample=3)


@pytest.fixture
def sealed(store: Store, clock: StandingClock, tmp_path: Path) -> tuple[Store, dict[str, Any]]:
    """A record with sealed ranges, and what it showed before."""
    if store.url.startswith("postgresql"):
        small_partitions(store.url)
    before = long_story(store, clock)
    done = seal(store, clock, tmp_path / "files", 50)
    assert done.sealed == (before["head"].position - 1) // 50 * 50
    assert [one.last - one.first + 1 for one in done.files] == [50] * (done.sealed // 50)
    return store, before


def test_a_sealed_record_is_read_and_verified_as_before(
    sealed: tuple[Store, dict[str, Any]], clock: StandingClock
) -> None:
    """In every store; its rows have left the database."""
    store, before = sealed
    with Record.open(store, clock=clock, write=True, shapes=shapes) as record:
        assert everything(record, sample=3) == before
        verdict = record.verify(expect=before["head"])
        assert (verdict.ok, verdict.damage) == (True, ())
        left = record._session.run(select(func.min(events.c.position))).fetchone()[0]
        assert left == (121 if "postgres" in store.url else 151)  # a partition leaves whole


def test_appends_go_on(sealed: tuple[Store, dict[str, Any]], clock: StandingClock) -> None:
    """Ids and versions of sealed events are known, and what was shown last."""
    store, before = sealed
    with Record.open(store, clock=clock, write=True, shapes=shapes) as record:
        (again,) = record.append_many([Batch("token/1", [revoked("1")], ids=["ee01"])])
        assert again == before["ids"][1] or again < before["head"].position
        with pytest.raises(IdConflict):
            record.append_many([Batch("token/1", [revoked("x")], ids=["ee01"])])
        with pytest.raises(VersionConflict):
            record.append_many([Batch("token/0", [revoked("0")], expected_version=0)])
        (known,) = record.append_polls([listing(0, START)], ids=["0000"])
        assert (known.appended, known.position < 10) == (False, True)
        with pytest.raises(IdConflict):
            record.append_polls([listing(1, START)], ids=["0000"])
        assert record.head() == before["head"]
        record.append_polls([listing(3, clock.now()), listing(4, clock.now() + 1)])
        assert record.verify().ok


def test_a_copy_reads_sealed_ranges(sealed: tuple[Store, dict[str, Any]], clock: StandingClock) -> None:
    """The copy has all rows in its database: that is how a record is unsealed."""
    store, before = sealed
    target = MemoryStore()
    assert copy(store, target, clock=clock, progress=lambda done, total: None) == before["head"]
    with Record.open(target, clock=clock, shapes=shapes) as record:
        found = everything(record, sample=3)
        assert found == before
        assert record._rows.sealed.end == 0
        assert record.verify().ok
    target.close()


def test_a_reader_that_is_open_follows(
    store: Store, clock: StandingClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that leave while somebody reads are read from their file."""
    monkeypatch.setattr(rows, "_CHUNK", 20)
    monkeypatch.setattr(rows, "_SCANNED", 20)
    before = long_story(store, clock)
    with Record.open(store, clock=clock, shapes=shapes) as reader:
        pages = reader.read(types={"TokenRevoked"}), reader.scan(), reader.read(backwards=True)
        firsts = [next(one) for one in pages]
        seal(store, clock, tmp_path / "files", 30)
        assert [firsts[0], *pages[0]] == before["type TokenRevoked"]
        assert [firsts[1], *pages[1]] == before["scan"]
        assert [firsts[2], *pages[2]] == before["backwards"]
        assert everything(reader, sample=3) == before
        assert PollFailed() in [one.data for one in reader.read(types={"PollFailed"})]


def test_nothing_else_can_be_removed(store: Store, clock: StandingClock, tmp_path: Path) -> None:
    """Rows that are not sealed stay, and so does what says which are."""
    long_story(store, clock)
    seal(store, clock, tmp_path / "files", 50)
    with Record.open(store, clock=clock, write=True) as record:
        for table in ("sealed", "sealed_ids", "sealed_streams", "events"):
            with pytest.raises(Exception, match="append-only"), record._session.guard():
                record._session.run(text(f"DELETE FROM {table}"))
        with pytest.raises(Exception, match="append-only"), record._session.guard():
            record._session.run(text("UPDATE sealed SET file = 'other'"))
        assert record.verify().ok
