"""Marks in time: those shown of a period that has more of them than a page can show."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steno.projections.read_models.notes import Mark
from steno.projections.read_models.store import ProjectionStore

DAY = 86_400_000_000


@pytest.fixture
def store() -> Iterator[ProjectionStore]:
    """An empty store in memory."""
    with ProjectionStore.create(None) as made:
        yield made


def ends(times: range) -> list[Mark]:
    """Runs that succeeded, one at each of these times."""
    return [Mark(position=n, at=at, kind="run_succeeded", subject=f"run/{n}") for n, at in enumerate(times, 1)]


def test_what_is_not_too_much_is_told_whole(store: ProjectionStore) -> None:
    """In order of position, and nothing is said to be left out."""
    given_ = ends(range(0, 400_000, 1000))
    store.add_marks(reversed(given_))
    marks = store.marks(400)
    assert marks.marks == tuple(given_)
    assert not marks.thinned


def test_a_shorter_stretch_shows_what_a_longer_one_leaves_out(store: ProjectionStore) -> None:
    """A year with an end every five minutes gives at most 400 marks; a day of it gives every end."""
    store.add_marks(ends(range(0, 365 * DAY, DAY // 288)))
    whole = store.marks(400)
    assert whole.thinned
    assert 200 <= len(whole.marks) <= 400
    week = store.marks(400, 100 * DAY, 107 * DAY - 1)
    assert week.thinned
    assert all(100 * DAY <= mark.at < 107 * DAY for mark in week.marks)
    assert len(week.marks) > 20 * sum(100 * DAY <= mark.at < 107 * DAY for mark in whole.marks)
    day = store.marks(400, 100 * DAY, 101 * DAY - 1)
    assert not day.thinned
    assert [mark.at for mark in day.marks] == list(range(100 * DAY, 101 * DAY, DAY // 288))


def test_both_ends_of_a_stretch_belong_to_it(store: ProjectionStore) -> None:
    """A stretch that is one moment has what is at that moment."""
    store.add_marks(ends(range(10)))
    assert [mark.at for mark in store.marks(400, 3, 5).marks] == [3, 4, 5]
    assert [mark.at for mark in store.marks(400, 7, 7).marks] == [7]
    assert [mark.at for mark in store.marks(400, since=8).marks] == [8, 9]
    assert [mark.at for mark in store.marks(400, until=1).marks] == [0, 1]
    assert store.marks(400, 10, 20).marks == ()


def test_an_anomaly_is_hidden_neither_by_an_end_nor_by_a_machine(store: ProjectionStore) -> None:
    """A rare one stays among thousands of others, and so do the few machines of many runs."""
    machines = [Mark(position=n * 100, at=n * 100_000, kind="vm_started", subject="vm/a") for n in range(1, 11)]
    odd = [Mark(position=n, at=n * 1000, kind="orphan", subject="vm/b") for n in (17, 18, 500)]
    store.add_marks([*ends(range(0, 10_000_000, 1000)), *machines, *odd])
    marks = store.marks(60)
    assert len(marks.marks) <= 60
    assert [mark.position for mark in marks.marks] == sorted(mark.position for mark in marks.marks)
    kinds = [mark.kind for mark in marks.marks]
    assert kinds.count("vm_started") >= 2
    assert kinds.count("orphan") >= 1
    assert kinds.count("run_succeeded") >= 10


def test_a_lonely_mark_is_not_lost_beside_a_crowd(store: ProjectionStore) -> None:
    """A crowd gives way; what stands alone is told, and the room that is left goes to the crowd."""
    crowd = [Mark(position=n, at=DAY + n, kind="run_failed", subject="run/c") for n in range(2, 5000)]
    lonely = [Mark(position=n, at=at, kind="run_failed", subject="run/l") for n, at in ((1, 0), (5000, 40 * DAY))]
    store.add_marks([*lonely, *crowd])
    marks = store.marks(300)
    assert {mark.subject for mark in marks.marks} == {"run/c", "run/l"}
    assert sum(mark.subject == "run/l" for mark in marks.marks) == 2
    assert len(marks.marks) > 80


@given(
    marks=st.lists(
        st.tuples(st.integers(0, 1 << 50), st.sampled_from(["run_failed", "vm_ended", "orphan", "contradiction"])),
        max_size=80,
    ),
    most=st.integers(9, 40),
    ends=st.tuples(st.none() | st.integers(0, 1 << 50), st.none() | st.integers(0, 1 << 50)),
)
def test_no_answer_is_longer_than_asked_for_and_none_has_a_mark_twice(
    marks: list[tuple[int, str]], most: int, ends: tuple[int | None, int | None]
) -> None:
    """Marks are of the period and in order; each track that has a mark is there; all are where there is room."""
    since, until = ends
    with ProjectionStore.create(None) as store:
        everything = [
            Mark(position=n, at=at, kind=kind, subject="run/a") for n, (at, kind) in enumerate(sorted(marks), 1)
        ]
        store.add_marks(everything)
        of_period = store.marks(most, since, until)
    wanted = [
        mark for mark in everything if (since is None or since <= mark.at) and (until is None or mark.at <= until)
    ]
    assert of_period.thinned is (len(wanted) > most)
    assert len(of_period.marks) <= most
    positions = [mark.position for mark in of_period.marks]
    assert positions == sorted(set(positions))
    assert set(of_period.marks) <= set(wanted)
    if not of_period.thinned:
        assert list(of_period.marks) == wanted
    assert {mark.kind[:3] in ("run", "vm_") and mark.kind[:3] for mark in wanted} == {
        mark.kind[:3] in ("run", "vm_") and mark.kind[:3] for mark in of_period.marks
    }
