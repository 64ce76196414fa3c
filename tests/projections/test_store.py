"""The store finds what a person means, survives its own loss, and writes all or nothing."""

from pathlib import Path

import pytest
from stenotest.records import read_models_file

from projections.store.read_models import ReadModels
from projections.store.schema import RunRow
from projections.store.store import Checkpoint, ProjectionStore


def row(run_id: str, name: str = "a", provider_id: str | None = None, ended: bool = False, sort_at: int = 0) -> RunRow:
    """A run with an object that says only its id."""
    return RunRow(
        run_id=run_id,
        provider="dstack",
        provider_id=provider_id,
        name=name,
        ended=ended,
        sort_at=sort_at,
        object=run_id.encode(),
        folded=b"",
    )


@pytest.fixture
def store() -> ProjectionStore:
    """Three runs, two of one name."""
    found = ProjectionStore.create(None)
    found.runs.put(
        [row("aaa1", "one", "p-1", ended=True, sort_at=3), row("aab2", "two", "p-2"), row("bbb3", "one", "q-3")]
    )
    return found


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("aaa1", ["aaa1"]),
        ("p-2", ["aab2"]),
        ("one", ["bbb3"]),
        ("aab", ["aab2"]),
        ("aa", ["aaa1", "aab2"]),
        ("q", ["bbb3"]),
        ("zz", []),
        ("", []),
    ],
)
def test_a_word_finds_the_run_it_means(store: ProjectionStore, word: str, meant: list[str]) -> None:
    """Run id, provider's id, newest of that name, unique prefix: in this order."""
    assert [found.run_id for found in store.runs.matching(word)] == meant


def test_a_run_replaced_keeps_its_place(store: ProjectionStore) -> None:
    """Runs are in order of first sight for ever."""
    store.runs.put([row("aaa1", "renamed")])
    assert [found.run_id for found in store.runs.all()] == ["aaa1", "aab2", "bbb3"]
    assert store.runs.count() == 3


def test_the_listing_can_leave_out_old_ended_runs(store: ProjectionStore) -> None:
    """Open runs are always listed."""
    assert [found.run_id for found in store.runs.all(since=4)] == ["aab2", "bbb3"]
    assert {found.run_id for found in store.runs.all(since=3)} == {"aaa1", "aab2", "bbb3"}


def test_a_failed_transaction_leaves_nothing(store: ProjectionStore) -> None:
    """A catch-up that breaks off changes nothing."""

    def broken_off() -> None:
        with store.writing():
            store.runs.put([row("ccc4")])
            raise RuntimeError

    with pytest.raises(RuntimeError):
        broken_off()
    assert store.runs.get("ccc4") is None


@pytest.mark.parametrize("content", [b"", b"not a database at all", b"SQLite format 3\0" + b"\0" * 200])
def test_a_file_that_is_no_projection_is_none(tmp_path: Path, content: bytes) -> None:
    """Whatever lies there, it is built anew, never an error."""
    models = ReadModels(tmp_path / "record.db")
    assert models.open(write=False) is None
    (tmp_path / "record.db.projections").write_bytes(content)
    assert models.open(write=False) is None


def test_a_stored_checkpoint_is_read_again(tmp_path: Path) -> None:
    """What was committed is there for the next process."""
    path = read_models_file(tmp_path / "record.db")
    with ReadModels(tmp_path / "record.db").writing(), ProjectionStore.create(path) as made, made.writing():
        made.runs.put([row("aaa1")])
        made.set_checkpoint(Checkpoint(rules="r", position=7, record="r"))
    opened = ReadModels(tmp_path / "record.db").open(write=False)
    assert opened is not None
    assert opened.checkpoint() == Checkpoint(rules="r", position=7, record="r")
    assert opened.copy().runs.get("aaa1") == row("aaa1")
    opened.close()
