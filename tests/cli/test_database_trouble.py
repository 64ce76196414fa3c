"""A database that is read-only, full, older, or not who it says: one line, and what was acknowledged is there."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import psycopg
import pytest
from stenotest.command_line import Background, Steno, refused
from stenotest.postgres import FAST, Server, lacking, new_server
from stenotest.records import StandingClock
from stenotest.waiting import wait

from steno.events.clock import SystemClock
from steno.events.errors import RecordPaused
from steno.events.store import schema
from steno.events.store.record import Batch, Record
from steno.events.store.store import new_identity, store_at
from steno.events.types import RecorderStopped

TRACE = Path(__file__).parents[1] / "traces" / "dstack-0.22.5" / "name_reuse.jsonl.zst"
SUBMIT = ("submit", "--provider", "local")
pytestmark = pytest.mark.slow


def need(lack: str | None) -> None:
    """Skip with this line; fail where the tests must have everything."""
    if lack is not None:
        pytest.fail(lack) if os.environ.get("STENO_REQUIRE_LAB") == "1" else pytest.skip(lack)


@pytest.fixture
def server() -> Iterator[Server]:
    """An own server, made and not started."""
    need(lacking())
    made = new_server(*FAST)
    try:
        yield made
    finally:
        made.remove()


def test_a_read_only_database_answers_and_a_recorder_waits_until_it_takes_writes(
    steno: Steno, background: Background, postgres_url: str, environment: dict[str, str], home: Path
) -> None:
    """As hosts make it when its disk is nearly full: the setting of new sessions. Writes say so in one line."""
    environment["STENO_RECORD"] = postgres_url
    assert steno("import", TRACE).returncode == 0
    log = home / "recorder.log"
    with log.open("w") as out:
        controller = background("record", "--provider", "local", out=out, err=out)
    wait(lambda: "RecorderStarted" in steno("events").stdout)  # its first round
    with psycopg.connect(postgres_url, autocommit=True) as database:
        name = database.info.dbname
        database.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s AND pid <> pg_backend_pid()"
        database.execute(others, (name,))
        wait(lambda: "is read-only" in log.read_text())
        for question in ("ps --all", "costs", "workers", "verify", "db status", "rebuild", "events"):
            assert steno(*question.split()).returncode == 0, question
        for words in (
            (*SUBMIT, "--", "true"),
            ("token", "create", "--role", "read", "--name", "a"),
            ("db", "grant", "x"),
        ):
            assert "is read-only" in refused(steno(*words), 8), words
        done = steno("record", "--provider", "local")
        assert (done.returncode, done.stderr.splitlines()[-1].startswith("steno: The database of the record")) == (
            8,
            True,
        )
        assert controller.poll() is None
        database.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")
    done = steno(*SUBMIT, "--wait", "--", "true")
    assert done.returncode == 0, done.stderr + log.read_text()
    controller.terminate()
    assert controller.wait() == 0, log.read_text()
    assert steno("verify").returncode == 0


@pytest.fixture
def small_disk(server: Server, tmp_path: Path) -> Iterator[Path]:
    """A disk of 16 MB, the server's."""
    need(None if os.geteuid() == 0 else "needs root, to mount a small disk")
    folder = server.folder / "small"
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "none", folder], check=False, capture_output=True)
    need(None if done.returncode == 0 else "needs the right to mount a small disk")
    server.own(folder)
    yield folder
    server.stop(signal.SIGQUIT)
    subprocess.run(["umount", folder], check=True)


def fill(disk: Path) -> None:
    """Leave no byte free."""
    with suppress(OSError), (disk / "ballast").open("ab", buffering=0) as out:
        while out.write(bytes(4096)):
            pass


NOTE = RecorderStopped(source="a/b", why="noted")


def fill_pages(record: Record, disk: Path) -> int:
    """Append into what room the last pages have, so that nobody else has any; the position of the last event."""
    noted = 0
    while True:
        try:
            noted = record.append_many([Batch("source/a/b", [NOTE])])[-1]
        except RecordPaused:
            return noted
        fill(disk)


def test_a_recorder_goes_on_when_a_full_disk_has_room_again(
    server: Server,
    small_disk: Path,
    steno: Steno,
    background: Background,
    environment: dict[str, str],
    home: Path,
) -> None:
    """Runs that were acknowledged are there, run once; what was not is refused in one line, exit 8."""
    server.start()
    with psycopg.connect(server.url(), autocommit=True) as database:
        database.execute(f"CREATE TABLESPACE small LOCATION '{small_disk}'")
        database.execute("CREATE DATABASE steno TABLESPACE small")
    environment["STENO_RECORD"] = server.url("steno")
    log = home / "recorder.log"
    with log.open("w") as out:
        controller = background("record", "--provider", "local", out=out, err=out)
    wait(lambda: "RecorderStarted" in steno("events").stdout)

    def submit(number: int, size: int) -> subprocess.CompletedProcess[str]:
        task = f"echo n{number} >>{home}/ran #{os.urandom(size).hex()}"
        return steno(*SUBMIT, "--name", f"n{number}", "--", "sh", "-c", task)

    def acknowledged(done: subprocess.CompletedProcess[str]) -> bool:
        """Also what the recorder, which has no room any more, could not act on yet."""
        return done.returncode == 0 or (done.returncode == 5 and "the request stays recorded" in done.stderr)

    accepted: list[str] = []
    while acknowledged(done := submit(len(accepted), 30_000)):
        accepted.append(f"n{len(accepted)}")
        fill(small_disk)
    assert "is full" in refused(done, 8)
    assert "make room" in done.stderr
    with Record.open(server.url("steno"), write=True, clock=SystemClock()) as record:
        noted = fill_pages(record, small_disk)
        assert record.event(noted) == NOTE
    wait(lambda: "is full" in log.read_text())
    assert "is full" in refused(submit(len(accepted), 100), 8)
    assert steno("ps", "--all").returncode == 0
    assert steno("verify").returncode == 0
    (small_disk / "ballast").unlink()
    done = steno(*SUBMIT, "--wait", "--name", "last", "--", "sh", "-c", f"echo last >>{home}/ran")
    assert done.returncode == 0, done.stderr + log.read_text()
    wait(lambda: len((home / "ran").read_text().split()) > len(accepted))
    controller.terminate()
    assert controller.wait() == 0, log.read_text()
    with Record.open(server.url("steno"), clock=SystemClock()) as record:
        assert record.event(noted) == NOTE
    assert sorted((home / "ran").read_text().split()) == sorted([*accepted, "last"])
    assert set(steno("ps", "--all").stdout.split()) >= {*accepted, "last"}
    assert steno("verify").returncode == 0


def certify(folder: Path, name: str, *by: str) -> None:
    """Make NAME.key and NAME.crt, signed by itself or with `-CA` and `-CAkey`."""
    words = f"req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout {name}.key -out {name}.crt -days 2"
    subprocess.run(
        ["openssl", *words.split(), "-subj", f"/CN={name}", *by], cwd=folder, check=True, capture_output=True
    )


def test_a_server_proves_who_it_is(server: Server, steno: Steno, tmp_path: Path) -> None:
    """`sslmode=verify-full`: with its own CA it works; another CA, none, or another host name is one line, exit 3."""
    need(None if shutil.which("openssl") else "needs openssl (apt-get install openssl)")
    certify(tmp_path, "ca")
    certify(tmp_path, "other")
    certify(tmp_path, "localhost", "-CA", "ca.crt", "-CAkey", "ca.key")
    data = server.folder / "data"
    for end in ("crt", "key"):
        server.own(Path(shutil.copy(tmp_path / f"localhost.{end}", data / f"server.{end}")))
    (data / "pg_hba.conf").write_text("local all all trust\nhostssl all all 127.0.0.1/32 trust\n")
    with (data / "postgresql.conf").open("a") as settings:
        settings.write("ssl = on\n")
    server.start()

    def ask(host: str, mode: str, ca: str) -> subprocess.CompletedProcess[str]:
        options = f"sslmode={mode}&sslrootcert={tmp_path}/{ca}.crt"
        return steno("ps", STENO_RECORD=f"postgresql://postgres@{host}:{server.port}/postgres?{options}")

    store_at(server.url()).create(new_identity(StandingClock()))
    assert ask("localhost", "verify-full", "ca").returncode == 0
    assert "certificate verify failed" in refused(ask("localhost", "verify-full", "other"), 3)
    assert "does not exist" in refused(ask("localhost", "verify-full", "none"), 3)
    assert 'does not match host name "127.0.0.1"' in refused(ask("127.0.0.1", "verify-full", "ca"), 3)
    assert "no encryption" in refused(ask("localhost", "disable", "ca"), 3)


def test_an_upgrade_that_was_interrupted_is_completed_by_the_next(
    steno: Steno,
    background: Background,
    postgres_url: str,
    environment: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its connection is ended, then the process is killed, in the middle of the second revision of three."""
    environment["STENO_RECORD"] = postgres_url
    with monkeypatch.context() as older:
        older.setattr("steno.events.store.postgres.store.migrate", lambda database: schema.migrate(database, "0001"))
        store_at(postgres_url).create(new_identity(StandingClock()))
    assert "steno db upgrade" in refused(steno("import", TRACE), 8)
    assert steno("ps").returncode == 0
    assert steno("verify").returncode == 0

    with psycopg.connect(postgres_url) as holder, psycopg.connect(postgres_url, autocommit=True) as looking:
        holder.execute("LOCK TABLE steno.events IN ACCESS EXCLUSIVE MODE")  # the new index waits for it

        def waiting() -> int | None:
            query = (
                "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
                " AND query LIKE 'CREATE INDEX%'"
            )
            row = looking.execute(query).fetchone()
            return None if row is None else int(row[0])

        def started(process: subprocess.Popen[str]) -> bool:
            return waiting() is not None or process.poll() is not None

        def begun() -> tuple[subprocess.Popen[str], int]:
            while True:  # it waits for 5 s, which a crowded machine may sleep over
                process = background("db", "upgrade", err=subprocess.PIPE)
                wait(partial(started, process))
                if (pid := waiting()) is not None:
                    return process, pid

        ended, pid = begun()
        looking.execute("SELECT pg_terminate_backend(%s)", (pid,))
        assert ended.wait() == 3
        assert ended.stderr is not None
        assert len(ended.stderr.read().splitlines()) == 1
        killed, _ = begun()
        killed.kill()
        killed.wait()
        assert "held by another process" in refused(steno("db", "upgrade"), 5)
        holder.rollback()
        wait(lambda: waiting() is None)
    assert steno("db", "upgrade").returncode == 0
    assert steno("import", TRACE).returncode == 0
    assert steno("verify").returncode == 0
