"""The schema that the migrations make is the one the code declares."""

import json
import os
import signal
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest
import zstandard
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import NullPool, create_engine
from stenotest import steno_process
from stenotest.records import StandingClock, temporary_record

from steno.engine.providers.registry import READINGS
from steno.engine.replay.replay import replay_record
from steno.events.errors import NotARecord, RecordNotFound, RecordTooNew, RecordTooOld
from steno.events.store.record import Head, Record
from steno.events.store.schema import alembic_config, metadata, migrate
from steno.events.store.sqlite.opening import described, expected_schema, plain_sql
from steno.events.store.store import REVISION, store_at

RECORDS = Path(__file__).with_name("records")
"""`format-1.db.zst` was written by the first version: an imported trace and events of our own. Beside it what that
version printed of it: `steno events --json` and `steno replay --json`.
"""
HEAD = Head(position=468, hash="e15beb1f437dd3d95155534932b663da246b09a90d631dda2ed87c452154295b")
"""The head that this version's `steno verify` printed."""


@pytest.fixture
def made(tmp_path: Path) -> Path:
    temporary_record(tmp_path).close()
    return tmp_path / "record.db"


def test_alembic_sees_no_difference(made: Path) -> None:
    """Nothing was declared without a migration, or migrated without a declaration."""
    with create_engine(f"sqlite:///{made}", poolclass=NullPool).connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []


def test_triggers_and_partial_indexes_are_equal_too(made: Path) -> None:
    """Alembic does not compare them, so they are compared as text; a new record is made without Alembic."""
    with closing(sqlite3.connect(made)) as connection:
        schema = {
            name: (kind, table, plain_sql(sql))
            for name, kind, table, sql in connection.execute("SELECT name, type, tbl_name, sql FROM sqlite_schema")
        }
    assert schema == expected_schema()
    with create_engine("sqlite://").begin() as migrated:
        migrate(migrated)
        assert described(migrated) == schema
        assert migrated.exec_driver_sql("PRAGMA application_id").scalar() == 0x53544E4F
    assert sorted(name for name, (kind, *_) in schema.items() if kind == "trigger") == [
        "events_no_delete", "events_no_update", "head_no_delete", "meta_no_delete", "meta_no_update",
        "outputs_no_update", "parts_no_delete", "parts_no_update", "streams_no_delete",
    ]  # fmt: skip


def test_there_is_one_line_of_revisions_and_the_code_is_at_its_end() -> None:
    """A branch would leave the schema to chance."""
    assert ScriptDirectory.from_config(alembic_config()).get_heads() == [REVISION]


def test_an_upgrade_of_a_record_that_is_up_to_date_changes_nothing(made: Path) -> None:
    """`steno db upgrade` can be run at any time, by path or URL."""
    before = made.read_bytes()
    store_at(made).upgrade()
    store_at(f"sqlite:///{made}").upgrade()
    assert made.read_bytes() == before
    with Record.open(made, clock=StandingClock()) as record:
        assert record.verify().ok


def test_an_upgrade_refuses_what_it_does_not_know(made: Path, tmp_path: Path) -> None:
    """A file that is missing, is something else, or is newer stays unchanged."""
    with pytest.raises(RecordNotFound):
        store_at(tmp_path / "none.db").upgrade()
    (tmp_path / "text").write_text("no record " * 50)
    with pytest.raises(NotARecord):
        store_at(tmp_path / "text").upgrade()
    with closing(sqlite3.connect(made)) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '0099'")
    with pytest.raises(RecordTooNew):
        store_at(made).upgrade()


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A record of format 1, schema 0001."""
    path = tmp_path / "old.db"
    path.write_bytes(_unpacked("format-1.db.zst"))
    return path


def _unpacked(name: str) -> bytes:
    return zstandard.ZstdDecompressor().decompress((RECORDS / name).read_bytes(), max_output_size=1 << 20)


def steno(*words: object) -> subprocess.CompletedProcess[str]:
    """A finished command."""
    return steno_process.run([*map(str, words)], env=os.environ)


def expect_unchanged(path: Path) -> None:
    """Every event, poll, verdict and hash is what the first version printed."""
    events = steno("events", "--json", "--record", path).stdout.splitlines()
    assert [json.loads(line) for line in events] == [
        json.loads(line) for line in _unpacked("format-1.events.jsonl.zst").splitlines()
    ]
    with Record.open(path, clock=StandingClock(), shapes=READINGS.shape) as record:
        verdict = record.verify(expect=HEAD)
        assert (verdict.ok, verdict.head) == (True, HEAD)
        for poll in record.read(types={"PollRecorded", "PollFailed"}):
            assert record.poll(poll.position).path
        assert replay_record(record).to_json() == json.loads((RECORDS / "format-1.replay.json").read_bytes())


def test_an_old_record_is_read_and_verified_as_it_is(old: Path) -> None:
    """A reader never upgrades: an archive on a read-only disk can be read for ever."""
    before = old.read_bytes()
    expect_unchanged(old)
    assert old.read_bytes() == before


def test_a_writer_is_told_how_to_upgrade_an_old_record(old: Path) -> None:
    """In one line, with the command, exit 8; nothing is written."""
    before = old.read_bytes()
    with pytest.raises(RecordTooOld, match=f"schema 0001.*steno db upgrade --record {old}"):
        Record.open(old, clock=StandingClock(), write=True)
    refused = steno("serve", "--record", old)
    assert refused.returncode == 8
    assert f"run `steno db upgrade --record {old}`" in refused.stderr
    assert old.read_bytes() == before


def test_an_old_record_survives_its_upgrade(old: Path) -> None:
    """`steno db upgrade` changes no event, no verdict and no hash; afterwards it is written to as any other."""
    assert steno("db", "upgrade", "--record", old).returncode == 0
    with closing(sqlite3.connect(old)) as connection:
        assert connection.execute("SELECT version_num FROM alembic_version").fetchall() == [(REVISION,)]
    expect_unchanged(old)
    with Record.open(old, clock=StandingClock(), write=True, shapes=READINGS.shape) as record:
        assert record.append_polls([record.poll(1)])[0].position == HEAD.position + 1
        assert record.verify().ok


@pytest.mark.parametrize("note", [None, b"4711\n"])
def test_an_old_record_is_not_upgraded_under_its_holder(old: Path, note: bytes | None) -> None:
    """Exit 5, naming the process, also if its version wrote its process id alone; once it has ended, it goes on."""
    before, store = old.read_bytes(), store_at(old)
    with store.lease("local/here") or pytest.fail("it is free"):
        if note is not None:
            Path(f"{old}.lease-local-here").write_bytes(note)
        done = steno("db", "upgrade", "--record", old)
        process = "4711" if note is not None else f"{os.getpid()} on"
        assert (done.returncode, done.stderr.count("\n")) == (5, 1), done.stderr
        assert f"is in use by process {process}" in done.stderr
        assert old.read_bytes() == before
    assert steno("db", "upgrade", "--record", old).returncode == 0
    with store.lease("local/here") or pytest.fail("it is free"):
        store.upgrade()  # there is nothing to do


@pytest.mark.parametrize("step", ["create_index", "update_to_step"])
def test_an_upgrade_that_is_killed_loses_nothing(old: Path, step: str) -> None:
    """After a statement of the upgrade, or before its end: the record is as it was, and can be upgraded again."""
    script = f"""
import os, signal, sys
from alembic import op
from alembic.runtime import migration
from steno.events.store.store import store_at

owner = {{"create_index": op, "update_to_step": migration.HeadMaintainer}}[{step!r}]
real = getattr(owner, {step!r})

def killed(*given, **named):
    real(*given, **named)
    os.kill(os.getpid(), signal.SIGKILL)

setattr(owner, {step!r}, killed)
store_at(sys.argv[1]).upgrade()
"""
    run = steno_process.run([str(old)], program=script, env=os.environ)
    assert run.returncode == -signal.SIGKILL, run.stderr
    expect_unchanged(old)
    with pytest.raises(RecordTooOld):
        Record.open(old, clock=StandingClock(), write=True)
    store_at(old).upgrade()
    expect_unchanged(old)


@pytest.fixture
def sealable(old: Path) -> Path:
    """A record of schema 0003, in which nothing is sealed."""
    with create_engine(f"sqlite:///{old}", poolclass=NullPool).begin() as connection:
        migrate(connection, "0003")
    return old


@pytest.fixture
def sealed(sealable: Path) -> Path:
    """The same after `steno seal`: its first hundred events are in a file that is elsewhere."""
    with closing(sqlite3.connect(sealable)) as connection, connection:
        digest = connection.execute("SELECT hash FROM events WHERE position = 100").fetchone()[0]
        row = (100, 1, digest, "/archive", "id/000000000001-000000000100.parquet", 1280, b"\x00" * 32)
        connection.execute("INSERT INTO sealed VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        connection.execute("DELETE FROM events WHERE position <= 100")
    return sealable


def test_a_record_that_could_be_sealed_is_read_and_upgraded(sealable: Path) -> None:
    """As long as no event is sealed."""
    expect_unchanged(sealable)
    store_at(sealable).upgrade()
    expect_unchanged(sealable)
    with closing(sqlite3.connect(sealable)) as connection, pytest.raises(sqlite3.IntegrityError, match="append-only"):
        connection.execute("DELETE FROM events WHERE position = 1")


@pytest.mark.parametrize("words", ["events", "verify", "ps", "serve", "db status", "db upgrade", "db copy"])
def test_a_sealed_record_is_refused_with_the_way_back(sealed: Path, words: str) -> None:
    """In one line, exit 8; nothing is written, nor is what finds its files dropped."""
    before = sealed.read_bytes()
    given = (sealed, sealed.with_name("new.db")) if words == "db copy" else ("--record", sealed)
    done = steno(*words.split(), *given)
    assert (done.returncode, done.stderr.count("\n")) == (8, 1), done.stderr
    assert f"run `steno db copy {sealed} NEW` with the version that sealed them" in done.stderr
    assert sealed.read_bytes() == before
    assert not sealed.with_name("new.db").exists()


def test_the_migration_itself_drops_nothing_of_a_sealed_record(sealed: Path) -> None:
    """An older version may seal after the record was opened for its upgrade."""
    with create_engine(f"sqlite:///{sealed}", poolclass=NullPool).connect() as connection:
        with pytest.raises(RecordTooOld, match="sealed files"):
            migrate(connection)
        assert connection.exec_driver_sql("SELECT last FROM sealed").scalar() == 100


def test_events_of_a_type_are_found_without_reading_the_others(made: Path) -> None:
    """The index is there for them, and SQLite uses it."""
    with closing(sqlite3.connect(made)) as connection:
        plan = connection.execute(
            "EXPLAIN QUERY PLAN SELECT position FROM events WHERE kind = ? AND kind > 1 AND position > ? "
            "AND position <= ? ORDER BY position LIMIT ?",
            (22, 0, 1 << 62, 10),
        ).fetchall()
    assert "events_kind" in plan[0][3]
