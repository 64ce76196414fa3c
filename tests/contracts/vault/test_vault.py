"""The vault: the one place that can forget."""

import json
import stat
import threading
from pathlib import Path

import pytest

from steno.events.errors import RecordDamaged, RecordNotWritable, SecretGone
from steno.events.store.store import Blob, Store, store_at
from steno.events.store.vault import Vault

NUMBER = 80_808_080_808  # so long that no digest has it by chance
TASK = json.dumps(
    {"type": "task", "env": {"TOKEN": 'hun"ter\\2é', "PORT": NUMBER, "NONE": None}, "commands": ["echo hun"]}
).encode()


@pytest.fixture
def blob(store: Store) -> Blob:
    return store.blob("vault")


@pytest.fixture
def vault(blob: Blob) -> Vault:
    return Vault(blob)


def test_a_concealed_configuration_is_revealed_equal(vault: Vault, blob: Blob) -> None:
    """Text, escapes and numbers come back equal; in between nothing can be read."""
    concealed = vault.conceal(TASK, owner="run-1")
    assert b"ter" not in concealed
    assert str(NUMBER).encode() not in concealed
    assert json.loads(vault.reveal(concealed)) == json.loads(TASK)
    assert json.loads(Vault(blob).reveal(concealed)) == json.loads(TASK)


def test_what_is_erased_is_gone(vault: Vault, blob: Blob) -> None:
    """After the outcome no byte of a value is left, and revealing says so; another run's copy stays."""
    concealed = vault.conceal(TASK, owner="run-1")
    vault.conceal(b'{"env":{"OTHER":"kept-value"}}', owner="run-2")
    assert str(NUMBER).encode() in (blob.read() or b"")
    vault.erase("run-1")
    vault.erase("run-1")
    assert vault.owners() == ("run-2",)
    assert str(NUMBER).encode() not in (blob.read() or b"")
    assert b"kept-value" in (blob.read() or b"")
    with pytest.raises(SecretGone):
        vault.reveal(concealed)


def test_what_is_erased_is_in_no_file(tmp_path: Path) -> None:
    """Not in a file that was replaced either."""
    vault = Vault(store_at(tmp_path / "record.db").blob("vault"))
    vault.conceal(TASK, owner="run-1")
    vault.erase("run-1")
    assert [path.name for path in tmp_path.iterdir() if str(NUMBER).encode() in path.read_bytes()] == []


def test_a_secret_two_runs_share_stays_until_both_are_done(vault: Vault) -> None:
    """Erasing is by owner, not by value."""
    concealed = vault.conceal(TASK, owner="run-1")
    assert vault.conceal(TASK, owner="run-2") == concealed
    vault.erase("run-1")
    assert json.loads(vault.reveal(concealed)) == json.loads(TASK)


def test_only_its_owner_may_read_the_file(tmp_path: Path) -> None:
    """Mode 0600, from the first byte on."""
    Vault(store_at(tmp_path / "record.db").blob("vault")).conceal(TASK, owner="run-1")
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}


def test_commitments_are_equal_for_equal_values_under_one_key_only(vault: Vault, store: Store) -> None:
    """The key is minted once and kept; another vault commits otherwise."""
    commitment = vault.commitment(b"value")
    assert commitment == Vault(store.blob("vault")).commitment(b"value") != vault.commitment(b"other")
    assert commitment != Vault(store.blob("other")).commitment(b"value")


def test_nothing_is_committed_with_a_key_that_was_not_written(
    vault: Vault, blob: Blob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store was full: when there is room again, every process reads the same key."""

    def refuse(*_: object) -> None:
        raise RecordNotWritable("full")

    with monkeypatch.context() as full:
        full.setattr(type(blob), "replace", refuse)
        with pytest.raises(RecordNotWritable):
            vault.commitment(b"value")
    assert vault.commitment(b"value") == Vault(blob).commitment(b"value")


def test_a_configuration_without_secrets_makes_no_vault(vault: Vault, blob: Blob) -> None:
    """Nothing to keep, nothing to write."""
    assert vault.conceal(b'{"type":"task","env":{}}', owner="run-1") == b'{"type":"task","env":{}}'
    assert blob.read() is None


def test_many_writers_lose_nothing(vault: Vault, blob: Blob) -> None:
    """It is replaced whole, under a lock."""
    texts = [json.dumps({"env": {"A": f"value-{number}"}}).encode() for number in range(12)]
    threads = [threading.Thread(target=Vault(blob).conceal, args=(text, f"run-{n}")) for n, text in enumerate(texts)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(vault.owners()) == 12
    assert [json.loads(vault.reveal(vault.commit(text))) for text in texts] == [json.loads(text) for text in texts]


def test_a_damaged_vault_is_refused_by_name(vault: Vault, blob: Blob) -> None:
    """A key that is lost would make equal secrets differ without anybody noticing."""
    blob.replace(b'{"key":"00"}')
    with pytest.raises(RecordDamaged, match="vault"):
        vault.commitment(b"value")


def test_a_vault_for_reading_writes_nothing(blob: Blob) -> None:
    """A reader never makes a key."""
    with pytest.raises(RecordNotWritable):
        Vault(blob, write=False).commitment(b"value")
    assert blob.read() is None
