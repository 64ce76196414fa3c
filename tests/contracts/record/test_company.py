"""Small blobs beside a record, replaced whole."""

import pytest
from stenotest.records import StandingClock

from steno.events.errors import RecordNotFound
from steno.events.store.record import Record
from steno.events.store.store import Store


def test_a_blob_is_what_was_written_last(store: Store) -> None:
    """Its stamp changes with it; there is none before the first write."""
    blob = store.blob("notes")
    assert blob.read() is None
    assert blob.stamp() is None
    blob.replace(b"one")
    first = blob.stamp()
    blob.replace(b"two, longer")
    assert store.blob("notes").read() == b"two, longer"
    assert store.blob("notes").stamp() not in (None, first)


def test_one_at_a_time_has_the_lock_of_a_blob(store: Store) -> None:
    """Whoever only tries is told at once; other blobs are free."""
    for lock in (store.blob("notes").locked, store.blob("notes").try_locked):
        with lock() as held:
            assert held is not None
            held.replace(b"mine")
            with store.blob("notes").try_locked() as other, store.blob("more").try_locked() as free:
                assert other is None
                assert free is not None
    assert store.blob("notes").read() == b"mine"


@pytest.mark.usefixtures("opener")
def test_a_reader_makes_no_record(store: Store, clock: StandingClock) -> None:
    """A missing record is not found, and still missing afterwards."""
    for _ in range(2):
        with pytest.raises(RecordNotFound):
            Record.open(store, clock=clock)


def test_a_record_keeps_its_place(store: Store, clock: StandingClock) -> None:
    """Opened again it is the same record, by its id and by its store."""
    with Record.open(store, clock=clock, write=True, create=True) as first, Record.open(store, clock=clock) as second:
        assert (second.id, second.store.url) == (first.id, store.url)
