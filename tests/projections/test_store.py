"""The store finds what a person means, survives its own loss, and writes all or nothing."""

from pathlib import Path

import pytest
from stenotest.records import read_models_file

from steno.engine.errors import VmNotFound
from steno.projections.read_models.database import StoreUnreadable, is_damage
from steno.projections.read_models.read_models import ReadModels
from steno.projections.read_models.schema import RunRow, VmRow
from steno.projections.read_models.store import Checkpoint, ProjectionStore
from steno.projections.read_models.view import View


def run(run_id: str, name: str = "a", provider_id: str | None = None, ended: bool = False, sort_at: int = 0) -> RunRow:
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


def vm(vm_id: str, name: str, provider_id: str, *, billed: bool = False, ended_at: int | None = 5) -> VmRow:
    """A machine whose object says only its id."""
    return VmRow(
        vm_id=vm_id, provider_id=provider_id, name=name, billed=billed, ended_at=ended_at, object=vm_id.encode()
    )


@pytest.fixture
def store() -> ProjectionStore:
    """Three runs, two of a name; four machines: `gpu-0` was given again twice, its second machine may be billed."""
    made = ProjectionStore.create(None)
    made.runs.put(
        [run("aaa1", "one", "p-1", ended=True, sort_at=3), run("aab2", "two", "p-2"), run("bbb3", "one", "q-3")]
    )
    made.vms.put(
        [
            vm("aaa1", "gpu-0", "p-1", ended_at=3),
            vm("aab2", "gpu-0", "p-2", billed=True, ended_at=None),
            vm("bbb3", "gpu-0", "q-3", ended_at=9),
            vm("ccc4", "gpu-1", "r-4", ended_at=4),
        ]
    )
    return made


@pytest.mark.parametrize("count", [1, 49, 50, 700])
def test_rows_are_read_as_they_were_written(count: int) -> None:
    """Before and after there are rows enough for a dictionary, which another reader of the file finds too."""
    store = ProjectionStore.create(None)
    rows = [run(f"run-{number}", provider_id=f"p-{number}", sort_at=number) for number in range(count)]
    before, after = rows[: count // 3], rows[count // 3 :]
    store.runs.put(before)
    reader = store.copy()
    assert [*reader.runs.all()] == before
    store.runs.put(after)
    for reader in (store, store.copy()):
        assert [*reader.runs.all()] == rows
        ids = [row.run_id for row in reversed(rows)]
        assert [stored for stored, _ in reader.runs.objects_of(ids)] == [run_id.encode() for run_id in ids]
    assert (store.get("dictionary/runs") is not None) == (count >= 50)


def test_what_a_transaction_undoes_leaves_no_dictionary(store: ProjectionStore) -> None:
    """Rows that are written after it are read by others."""
    many = [run(f"run-{number}") for number in range(60)]
    store.begin()
    store.runs.put(many)
    store.end()
    store.note_moments()
    store.runs.put(many[:5])
    assert store.copy().runs.get("run-3") == many[3]


def test_a_row_that_cannot_be_unpacked_is_damage(store: ProjectionStore) -> None:
    """The read models are rebuilt then."""
    store._connection.execute("UPDATE runs SET packed = x'00' WHERE run_id = 'aaa1'")
    with pytest.raises(StoreUnreadable) as damage:
        store.runs.get("aaa1")
    assert is_damage(damage.value)
    assert store.runs.get("aab2") is not None


BOTH = [("p-2", ["aab2"]), ("aaa1", ["aaa1"]), ("aa", ["aaa1", "aab2"]), ("q", ["bbb3"]), ("zz", []), ("", [])]


@pytest.mark.parametrize(("word", "meant"), [*BOTH, ("one", ["bbb3"]), ("aab", ["aab2"])])
def test_a_word_finds_the_run_it_means(store: ProjectionStore, word: str, meant: list[str]) -> None:
    """Run id, provider's id, newest of that name, unique prefix: in this order."""
    assert [row.run_id for row in store.runs.matching(word)] == meant


@pytest.mark.parametrize(("word", "meant"), [*BOTH, ("gpu-0", ["aab2"]), ("gpu-1", ["ccc4"]), ("bb", ["bbb3"])])
def test_a_word_finds_the_machine_it_means(store: ProjectionStore, word: str, meant: list[str]) -> None:
    """Its id, the provider's, a name (billed before gone), a unique prefix: in this order."""
    assert [row.vm_id for row in store.vms.matching(word)] == meant


def test_a_row_replaced_keeps_its_place(store: ProjectionStore) -> None:
    """Runs and machines are in order of first sight for ever."""
    store.runs.put([run("aaa1", "renamed")])
    store.vms.put([vm("aaa1", "renamed", "p-1")])
    assert [row.run_id for row in store.runs.all()] == ["aaa1", "aab2", "bbb3"]
    assert [row.vm_id for row in store.vms.all()] == ["aaa1", "aab2", "bbb3", "ccc4"]
    assert (store.runs.count(), store.vms.count()) == (3, 4)
    assert store.vms.names("gpu") == ("gpu-1", "gpu-0")


def test_a_listing_can_leave_out_what_is_long_over(store: ProjectionStore) -> None:
    """Open runs, and machines that may be billed, are always listed."""
    assert [row.run_id for row in store.runs.all(since=4)] == ["aab2", "bbb3"]
    assert {row.run_id for row in store.runs.all(since=3)} == {"aaa1", "aab2", "bbb3"}
    assert [row.vm_id for row in store.vms.all(since=5)] == ["aab2", "bbb3"]


@pytest.mark.parametrize(
    ("word", "message"), [("gpu-2", "gpu-1"), ("aa", "write more of it"), ("zzzzz", "steno vms --all")]
)
def test_a_word_for_no_machine_is_answered_with_what_there_is(store: ProjectionStore, word: str, message: str) -> None:
    """The near names, the several meant, or the command that lists them."""
    with pytest.raises(VmNotFound, match=message):
        View(store).vm_row(word)


def test_a_failed_transaction_leaves_nothing(store: ProjectionStore) -> None:
    """A catch-up that breaks off changes nothing."""

    def broken_off() -> None:
        with store.writing():
            store.runs.put([run("ccc4")])
            raise RuntimeError

    with pytest.raises(RuntimeError):
        broken_off()
    assert store.runs.get("ccc4") is None


@pytest.mark.parametrize("content", [b"", b"not a database at all", b"SQLite format 3\0" + b"\0" * 200])
def test_a_file_that_is_no_projection_is_none(tmp_path: Path, content: bytes) -> None:
    """It is rebuilt, and raises no error."""
    models = ReadModels(tmp_path / "record.db")
    assert models.open(write=False) is None
    (tmp_path / "record.db.projections").write_bytes(content)
    assert models.open(write=False) is None


def test_a_stored_checkpoint_is_read_again(tmp_path: Path) -> None:
    """Committed rows are there for the next process."""
    path = read_models_file(tmp_path / "record.db")
    with ReadModels(tmp_path / "record.db").writing(), ProjectionStore.create(path) as made, made.writing():
        made.runs.put([run("aaa1")])
        made.set_checkpoint(Checkpoint(rules="r", position=7, record="r"))
    opened = ReadModels(tmp_path / "record.db").open(write=False)
    assert opened is not None
    assert opened.checkpoint() == Checkpoint(rules="r", position=7, record="r")
    assert opened.copy().runs.get("aaa1") == run("aaa1")
    opened.close()
