"""A bundle is told from a record of such a name by its content, and never at a record's expense."""

from pathlib import Path

import pytest

from steno.engine.providers.registry import READINGS
from steno.events.clock import SystemClock
from steno.events.store.record import Record
from steno.events.store.store import is_bundle


def test_no_open_record_is_opened_again_for_its_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing a file takes SQLite's locks on it from the whole process; another may then cut the WAL below a reader."""
    path = tmp_path / "mine.steno"
    with Record.open(path, write=True, create=True, shapes=READINGS.shape, clock=SystemClock()) as record:
        record.head()
        monkeypatch.setattr(Path, "open", lambda path, *_: pytest.fail(f"{path} was opened"))
        assert not is_bundle(path)
        assert not is_bundle(record.store)
