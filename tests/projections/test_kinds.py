"""Events of one type, found without a look at all others."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from steno.events.clock import SystemClock
from steno.events.poll import Poll
from steno.events.store import rows as stored_rows
from steno.events.store.append import Batch
from steno.events.store.record import Record
from steno.events.types import NAMES, RecorderStarted
from steno.projections.answers import record_pages as browse
from steno.projections.read_models.reader_pool import Look, Pool

Polls = Callable[[str], tuple[Poll, ...]]
Recorded = Callable[[Path, Sequence[Poll]], Record]
TYPES = sorted(NAMES)


@pytest.fixture
def pool(tmp_path: Path, recording: Polls, recorded: Recorded) -> Iterator[Pool]:
    """A pool over a recording with failed polls, in which three recorders began, two of one source."""
    polls = recording("dstack-0.22.5/server_restart")
    part = len(polls) // 3
    for number, source in enumerate(("dstack/a", "dstack/b", "dstack/a")):
        with recorded(tmp_path / "record.db", polls[number * part : (number + 1) * part]) as record:
            record.append_many([Batch(f"source/{source}", [RecorderStarted(source=source, software="1")])])
    made = Pool(tmp_path / "record.db", clock=SystemClock())
    yield made
    made.close()


def looks(pool: Pool) -> Iterator[Look]:
    """Now, and two thirds back."""
    with pool.now() as look:
        yield look
        third = look.position // 3
    with pool.at(third) as look:
        yield look


def paged(look: Look, **query: object) -> list[object]:
    """The positions that all pages of three together have."""
    positions: list[object] = []
    behind = None
    while True:
        page = browse.events(look, behind=behind, limit=3, **query)  # type: ignore[arg-type]
        positions += [row["position"] for row in page.rows]
        behind = page.next
        if behind is None:
            return positions


@pytest.mark.parametrize("backwards", [False, True])
def test_the_events_of_every_type_are_those_that_the_record_has(pool: Pool, *, backwards: bool) -> None:
    """Page by page, now and at a moment before."""
    for look in looks(pool):
        there = list(look.record.read(until=look.position, backwards=backwards))
        assert look.past or {"PollFailed", "RunObserved", "RecorderStarted"} <= {stored.type for stored in there}
        for kind in TYPES:
            if kind == "PollRecorded":
                continue
            expected = [stored.position for stored in there if stored.type == kind]
            assert paged(look, types={kind}, backwards=backwards) == expected, kind


@pytest.mark.parametrize("backwards", [False, True])
def test_those_of_one_source_are_its_own(pool: Pool, *, backwards: bool) -> None:
    """Among those of all sources."""
    for look in looks(pool):
        for source in ("dstack/a", "dstack/b", "nowhere"):
            query = {"stream": f"source/{source}", "types": {"RecorderStarted"}, "backwards": backwards}
            assert paged(look, **query) == [
                stored.position
                for stored in look.record.read(until=look.position, backwards=backwards)
                if stored.type == "RecorderStarted" and stored.stream == f"source/{source}"
            ]


def test_a_rare_type_is_found_without_reading_through_the_record(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing kind would else be looked for in every event."""
    with pool.now() as look:
        real = stored_rows._page

        def page(kinds: tuple[int, ...] | None, *, by_kind: bool, **how: bool) -> object:
            assert by_kind, "the record was read through"
            return real(kinds, by_kind=by_kind, **how)

        monkeypatch.setattr(stored_rows, "_page", page)
        for kind in ("RecorderStarted", "TokenCreated", "PollFailed"):
            for backwards in (False, True):
                rows = browse.events(look, types={kind}, backwards=backwards).rows
                assert {row["type"] for row in rows} <= {kind}
                assert bool(rows) is (kind != "TokenCreated")
