"""At most one process acts on a provider."""

import subprocess
import sys
import textwrap

import pytest

from engine.act.lease import Lease, holder, lease_path
from events.errors import RecordNotWritable


def test_a_lease_is_held_once(tmp_path):
    """A second taker gets None until the first lets go."""
    path = lease_path(tmp_path / "record.db", "dstack/main")
    with Lease.take(path) as first:
        assert first is not None
        assert Lease.take(path) is None
        assert holder(path) is not None
    with Lease.take(path) as again:
        assert again is not None
        again.release()


def test_a_killed_holder_frees_it_at_once(tmp_path):
    """The lease falls with the process, whatever killed it."""
    path = lease_path(tmp_path / "record.db", "local/here")
    script = textwrap.dedent(
        f"""
        import time, pathlib
        from engine.act.lease import Lease
        held = Lease.take(pathlib.Path({str(path)!r}))
        print("held", flush=True)
        time.sleep(3600)
        """
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout.readline() == b"held\n"
            assert Lease.take(path) is None
        finally:
            process.kill()
    with Lease.take(path) as mine:
        assert mine is not None


def test_a_lease_that_cannot_be_opened_is_said_in_one_line(tmp_path):
    """Exit 8 to a user; the desk finds out before there is a request."""
    (tmp_path / "record.db.lease-local-here").mkdir()
    with pytest.raises(RecordNotWritable, match="lease"):
        Lease.take(lease_path(tmp_path / "record.db", "local/here"))


def test_nobody_ever_held_it(tmp_path):
    assert holder(tmp_path / "nothing") is None
