"""A pooler between Steno and the database: sessions of its own are needed, and their lack is noticed at the start."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest
from stenotest import postgres
from stenotest.records import StandingClock

from events.errors import StenoError
from events.store.postgres.connection import connect
from events.store.record import Batch, Record
from events.types import SubmitIntended

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stenotest.command_line import Steno

PROGRAM = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")


@contextmanager
def pooler(url: str, mode: str, size: int = 5) -> Iterator[str]:
    """The URL of a record behind a real PgBouncer of that mode."""
    if PROGRAM is None and os.environ.get("STENO_REQUIRE_LAB") == "1":
        pytest.fail("PgBouncer is not installed")
    if PROGRAM is None:
        pytest.skip("no PgBouncer to test against; as root: apt-get install pgbouncer")
    with psycopg.connect(url) as found, socket.socket() as free:
        server = f"host={found.info.host} port={found.info.port} user={found.info.user}"
        database = found.info.dbname
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="steno-pgbouncer-") as name:
        folder = Path(name)
        settings = folder / "settings"
        settings.write_text(
            f"[databases]\n* = {server}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n"
            f"unix_socket_dir =\nauth_type = any\npool_mode = {mode}\ndefault_pool_size = {size}\n"
        )
        folder.chmod(0o755)  # another user reads it
        log = folder / "log"
        with log.open("wb") as out:
            process = subprocess.Popen([PROGRAM, settings], stdout=out, stderr=out, **postgres.as_user())
        try:
            end = time.monotonic() + 60
            while "process up" not in log.read_text():
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < end, log.read_text()
                time.sleep(0.02)
            yield f"postgresql://anybody@127.0.0.1:{port}/{database}"
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


def append(url: str) -> None:
    with Record.open(url, clock=StandingClock(), write=True, create=True) as record:
        record.append_many([Batch(stream="run/1", events=(SubmitIntended(run_id="1", provider="local", name="a"),))])


@pytest.mark.parametrize("size", [1, 5])
def test_a_pooler_of_transactions_is_refused_before_anything_is_set(postgres_url: str, size: int) -> None:
    """By reader and writer, whatever else runs there; other clients of the pooler are left as they were."""
    append(postgres_url)
    with pooler(postgres_url, "transaction", size) as url, closing(psycopg.connect(url, autocommit=True)) as other:
        other.execute("SELECT 1")
        for write in (False, True):
            with pytest.raises(StenoError, match="session pooling"):
                connect(url, write=write)
        assert other.execute("SHOW default_transaction_read_only").fetchone() == ("off",)
        assert other.execute("SHOW search_path").fetchone() == ('"$user", public',)
    append(postgres_url)


def test_a_pooler_of_sessions_serves(postgres_url: str) -> None:
    """Readers and writers beside each other; the next client of a session finds it clean."""
    append(postgres_url)
    with pooler(postgres_url, "session") as url:
        with Record.open(url, clock=StandingClock()) as reader:
            append(url)
            assert reader.head().position == 2
        append(url)


def test_a_command_says_so_in_one_line(steno: Steno, postgres_url: str) -> None:
    """Not that the database is read-only, which it is not."""
    append(postgres_url)
    with pooler(postgres_url, "transaction") as url:
        for words in (("ps",), ("record", "--provider", "local"), ("submit", "--provider", "local", "--", "true")):
            done = steno(*words, STENO_RECORD=url)
            assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
            assert "pool_mode = transaction" in done.stderr
