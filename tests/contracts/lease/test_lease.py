"""At most one process acts on a source."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING

import pytest

from events.errors import RecordNotWritable
from events.store.store import store_at

if TYPE_CHECKING:
    from pathlib import Path

    from events.store.store import Store


def test_a_lease_is_held_once(store: Store) -> None:
    """A second taker gets None until the first releases it; releasing twice does nothing."""
    first = store.lease("dstack/main")
    assert first is not None
    with first:
        assert store.lease("dstack/main") is None
        assert store.lease_holder("dstack/main") is not None
    again = store.lease("dstack/main")
    assert again is not None
    again.release()
    again.release()
    assert store.lease("dstack/main") is not None


def test_leases_of_other_names_are_others(store: Store) -> None:
    """Who records one project does not act for another."""
    assert store.lease("dstack/main") is not None
    assert store.lease("dstack/other") is not None


def test_nobody_ever_held_it(store: Store) -> None:
    assert store.lease_holder("nothing") is None


def test_a_killed_holder_frees_it_at_once(tmp_path: Path) -> None:
    """The lease falls with the process, whatever killed it."""
    store = store_at(tmp_path / "record.db")
    script = textwrap.dedent(
        f"""
        import time
        from events.store.store import store_at
        lease = store_at({store.url!r}).lease("local/here")
        print("held", flush=True)
        time.sleep(3600)
        """
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"held\n"
            assert store.lease("local/here") is None
            assert store.lease_holder("local/here") == process.pid
        finally:
            process.kill()
    assert store.lease("local/here") is not None


def test_a_lease_that_cannot_be_opened_is_said_in_one_line(tmp_path: Path) -> None:
    """Exit 8 to a user; who asks finds out before there is a request."""
    (tmp_path / "record.db.lease-local-here").mkdir()
    with pytest.raises(RecordNotWritable, match="lease"):
        store_at(tmp_path / "record.db").lease("local/here")
