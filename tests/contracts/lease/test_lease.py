"""At most one process acts on a source."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from steno.events.clock import SECOND, SystemClock
from steno.events.errors import RecordNotWritable
from steno.events.store.sqlite.files import last_holder
from steno.events.store.store import Store, store_at, this_worker


def test_a_lease_is_held_once(store: Store) -> None:
    """A second taker gets None until the first releases it; releasing twice does nothing."""
    first = store.lease("dstack/main")
    assert first is not None
    with first:
        assert store.lease("dstack/main") is None
        assert [holder.process for holder in store.leases()] == [os.getpid()]
    again = store.lease("dstack/main")
    assert again is not None
    again.release()
    again.release()
    assert store.lease("dstack/main") is not None


def test_leases_of_other_names_are_others(store: Store) -> None:
    """A recorder of one project does not act for another."""
    assert store.lease("dstack/main") is not None
    assert store.lease("dstack/other") is not None


def test_every_lease_says_who_holds_it(store: Store) -> None:
    """In the order of names; a lease that was released says so, and who held it last."""
    assert store.leases() == []
    later, first = store.lease("notices"), store.lease("dstack/main")
    assert later is not None
    assert first is not None
    first.release()
    source, notices = store.leases()
    assert (source.name, source.held, source.token, first.token) == ("dstack/main", False, 1, 1)
    assert (notices.name, notices.held, notices.process) == ("notices", True, os.getpid())
    assert source.worker == notices.worker == this_worker()
    assert abs((notices.since or 0) - SystemClock().now()) < 3600 * SECOND
    again = store.lease("dstack/main")
    assert again is not None
    assert (again.token, store.leases()[0].token, store.leases()[0].held) == (2, 2, True)


def test_another_start_of_a_process_is_another_worker() -> None:
    """A fork too: its number may be anything, its id is its own."""
    mine = this_worker()
    read, write = os.pipe()
    if os.fork() == 0:
        os.write(write, this_worker().encode())
        os._exit(0)
    os.wait()
    theirs = os.read(read, 100).decode()
    os.close(read)
    os.close(write)
    assert (len(theirs), theirs != mine, this_worker()) == (16, True, mine)


def test_a_lease_of_an_older_version_has_a_process_alone(tmp_path: Path) -> None:
    store, path = store_at(tmp_path / "record.db"), tmp_path / "record.db.lease-local-here"
    path.write_text("4711\n")
    before = last_holder(path)
    assert before is not None
    assert (before.process, before.held) == (4711, False)
    with store.lease("local/here") or pytest.fail("it is free") as lease:
        assert lease.token == 1


def test_a_killed_holder_frees_it_at_once(tmp_path: Path) -> None:
    """The lease falls with the process, whatever killed it."""
    store = store_at(tmp_path / "record.db")
    script = textwrap.dedent(
        f"""
        import time
        from steno.events.store.store import store_at
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
            holder = last_holder(tmp_path / "record.db.lease-local-here")
            assert holder is not None
            assert (holder.process, holder.held) == (process.pid, True)
        finally:
            process.kill()
    assert store.lease("local/here") is not None


def test_a_lease_that_cannot_be_opened_is_said_in_one_line(tmp_path: Path) -> None:
    """Exit 8 to a user; who asks finds out before there is a request."""
    (tmp_path / "record.db.lease-local-here").mkdir()
    with pytest.raises(RecordNotWritable, match="lease"):
        store_at(tmp_path / "record.db").lease("local/here")
