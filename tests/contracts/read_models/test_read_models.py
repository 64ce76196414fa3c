"""Read models are disposable: built beside those in use, published in one step, dropped when they cannot be read."""

import threading

import pytest
from stenotest.waiting import LIMIT_S

from steno.events.store.store import Store
from steno.projections.read_models.read_models import ReadModels
from steno.projections.read_models.store import Checkpoint


@pytest.fixture
def models(store: Store) -> ReadModels:
    return ReadModels(store)


def build(models: ReadModels, position: int) -> None:
    """Publish read models of a position."""
    with models.building(), models.fresh() as (made, publish):
        made.set_checkpoint(Checkpoint(rules="r", record="1", position=position))
        with models.writing():
            publish()


def position(models: ReadModels) -> int | None:
    """The position of those in use."""
    store = models.open(write=False)
    if store is None:
        return None
    with store:
        checkpoint = store.checkpoint()
        return None if checkpoint is None else checkpoint.position


def test_there_are_none_before_the_first_are_published(models: ReadModels) -> None:
    """The models of a builder that gave up were never in use."""
    assert models.stamp() is None
    assert models.open(write=False) is None
    assert models.above(0) is None
    with pytest.raises(KeyboardInterrupt), models.fresh():
        raise KeyboardInterrupt
    assert models.stamp() is None


def test_a_reader_keeps_those_it_has_until_it_looks_again(models: ReadModels) -> None:
    """Reads never stop; a stamp says whether the models are in use."""
    build(models, 1)
    reader = models.open(write=False)
    assert reader is not None
    assert models.is_current(reader)
    build(models, 2)
    assert not models.is_current(reader)
    checkpoint = reader.checkpoint()
    assert checkpoint is not None
    assert checkpoint.position == 1
    reader.close()
    assert position(models) == 2


def test_what_is_built_and_not_published_leaves_those_in_use(models: ReadModels) -> None:
    """Not even their stamp changes."""
    build(models, 1)
    stamp = models.stamp()
    with models.fresh() as (made, _):
        made.set_checkpoint(Checkpoint(rules="r", record="1", position=9))
    assert models.stamp() == stamp
    assert position(models) == 1


def test_only_those_that_were_seen_damaged_are_discarded(models: ReadModels) -> None:
    """Another process may have built others meanwhile."""
    build(models, 1)
    seen = models.stamp()
    build(models, 2)
    models.discard(seen)
    assert position(models) == 2
    models.discard(models.stamp())
    assert models.open(write=False) is None


def test_writers_wait_for_each_other_and_not_for_builders(models: ReadModels) -> None:
    """The old models are written while new models are built."""
    entered = threading.Event()

    def write() -> None:
        with models.writing():
            entered.set()

    with models.building():
        with models.writing():
            other = threading.Thread(target=write)
            other.start()
            assert not entered.wait(0.05)
        assert entered.wait(LIMIT_S)
        other.join()


def test_a_store_above_a_moment_changes_nothing_below(models: ReadModels) -> None:
    """Rows that it is given stay in memory."""
    build(models, 5)
    above = models.above(5)
    assert above is not None
    with above, above.writing():
        above.set_checkpoint(Checkpoint(rules="r", record="1", position=6))
    assert position(models) == 5
