"""A database that was restored to an older point: the record says what is lost, and continues from there."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import psycopg
import pytest
from stenotest.postgres import lacking, new_server

if TYPE_CHECKING:
    from stenotest.command_line import Steno

pytestmark = [pytest.mark.slow, pytest.mark.skipif(lacking() is not None, reason=str(lacking()))]


def test_a_restored_database_says_what_is_lost_and_continues(steno: Steno) -> None:
    """By `pg_basebackup`, archived WAL and a restore point, as docs/operations.md says. Read models follow too."""
    server = new_server("fsync=off", "archive_mode=on", "archive_command=mkdir -p ../archive && cp %p ../archive/%f")
    try:
        server.start()
        server.client("createdb", "steno")
        url = server.url("steno")
        record = {"STENO_RECORD": url}

        def submit(name: str) -> None:
            done = steno("submit", "--provider", "local", "--wait", "-q", "--name", name, "--", "true", **record)
            assert done.returncode == 0, done.stderr

        def head(*words: str) -> str:
            done = steno("verify", *words, **record)
            assert done.returncode == 0, done.stderr
            return re.search(r"\d+:[0-9a-f]{64}", done.stdout)[0]  # type: ignore[index]

        def names() -> set[str]:
            return set(steno("ps", "--all", "-q", **record).stdout.split())

        submit("one")
        older, before = head(), names()
        server.client("pg_basebackup", "-D", "backup", "-X", "stream", "-c", "fast")
        server.client("psql", "-q", "-c", "SELECT pg_create_restore_point('before')", "-o", "/dev/null")
        submit("two")
        saved, both = head("--expect", older), names()
        assert len(both) == len(before) + 1
        server.client("psql", "-q", "-c", "SELECT pg_switch_wal()", "-o", "/dev/null")

        server.restore(
            "backup", "fsync=off", "restore_command=cp ../archive/%f %p", "recovery_target_name=before",
            "recovery_target_action=promote",
        )  # fmt: skip
        with psycopg.connect(server.url("steno"), autocommit=True) as found:
            while found.execute("SELECT pg_is_in_recovery()").fetchone() == (True,):
                pass
        assert names() == before
        lost = steno("verify", "--expect", saved, **record)
        position = saved.partition(":")[0]
        ends = older.partition(":")[0]
        assert (
            lost.returncode,
            f"the record ends at position {ends}: what followed up to {position} is lost" in lost.stderr,
        ) == (7, True)
        assert head("--expect", older) == older

        submit("three")
        submit("four")
        assert names() > before
        assert head("--expect", older) != older
        other = steno("verify", "--expect", saved, **record)
        assert (other.returncode, "has another hash" in other.stderr) == (7, True), other.stderr
    finally:
        server.remove()
