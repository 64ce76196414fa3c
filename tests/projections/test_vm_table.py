"""Machines are found by any word a person has for one."""

import pytest

from engine.errors import VmNotFound
from projections.models.view import View
from projections.store.schema import VmRow
from projections.store.store import ProjectionStore


def row(vm_id: str, name: str, provider_id: str, *, billed: bool = False, ended_at: int | None = 5) -> VmRow:
    """A machine whose object says only its id."""
    return VmRow(
        vm_id=vm_id, provider_id=provider_id, name=name, billed=billed, ended_at=ended_at, object=vm_id.encode()
    )


@pytest.fixture
def store() -> ProjectionStore:
    """Four machines; `gpu-0` was given again twice, and its second machine is the one that may be billed."""
    found = ProjectionStore.create(None)
    found.vms.put(
        [
            row("aaa1", "gpu-0", "p-1", ended_at=3),
            row("aab2", "gpu-0", "p-2", billed=True, ended_at=None),
            row("bbb3", "gpu-0", "q-3", ended_at=9),
            row("ccc4", "gpu-1", "r-4", ended_at=4),
        ]
    )
    return found


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("aaa1", ["aaa1"]),
        ("p-2", ["aab2"]),
        ("gpu-0", ["aab2"]),
        ("gpu-1", ["ccc4"]),
        ("bb", ["bbb3"]),
        ("aa", ["aaa1", "aab2"]),
        ("q", ["bbb3"]),
        ("zz", []),
        ("", []),
    ],
)
def test_a_word_finds_the_machine_it_means(store: ProjectionStore, word: str, meant: list[str]) -> None:
    """Its id, the provider's, a name (billed before gone), a unique prefix: in this order."""
    assert [found.vm_id for found in store.vms.matching(word)] == meant


def test_a_machine_replaced_keeps_its_place(store: ProjectionStore) -> None:
    """Machines are in order of first sight for ever."""
    store.vms.put([row("aaa1", "renamed", "p-1")])
    assert [found.vm_id for found in store.vms.all()] == ["aaa1", "aab2", "bbb3", "ccc4"]
    assert store.vms.count() == 4
    assert store.vms.names("gpu") == ("gpu-1", "gpu-0")


def test_the_listing_can_leave_out_what_is_long_gone(store: ProjectionStore) -> None:
    """What may be billed is always listed."""
    assert [found.vm_id for found in store.vms.all(since=5)] == ["aab2", "bbb3"]


@pytest.mark.parametrize(
    ("word", "said"), [("gpu-2", "gpu-1"), ("aa", "write more of it"), ("zzzzz", "steno vms --all")]
)
def test_a_word_for_no_machine_is_answered_with_what_there_is(store: ProjectionStore, word: str, said: str) -> None:
    """The near names, the several meant, or the command that lists them."""
    with pytest.raises(VmNotFound, match=said):
        View(store).vm_row(word)
