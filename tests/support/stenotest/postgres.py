"""A real PostgreSQL for the tests: one server for a whole session, whatever the number of test processes.

It is started by whoever needs it first, in a folder of its own, on a Unix socket and a port of loopback, by a user who
is not root, which PostgreSQL refuses. A process of its own (`python postgres.py`) keeps it until pytest has ended,
`kill -9` included. `STENO_TEST_POSTGRES` names another server: the URL of a user who may make databases and roles.
"""

from __future__ import annotations

import fcntl
import json
import os
import pwd
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

import psycopg
import pytest

from stenotest.waiting import wait

PACKAGE = "postgresql"
OWN_USER = "postgres"
FAST = ("fsync=off", "full_page_writes=off", "autovacuum=off", "max_connections=200", "shared_buffers=32MB")
"""Nothing here outlives a test, which is stopped by no failing disk."""


def binaries() -> Path | None:
    """The folder of the newest server's programs, or of those that STENO_TEST_POSTGRES_BIN names."""
    if given := os.environ.get("STENO_TEST_POSTGRES_BIN"):
        return Path(given)
    servers = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[-3]))
    if servers:
        return servers[-1].parent
    on_path = shutil.which("postgres")
    return None if on_path is None else Path(on_path).resolve().parent


def lacking() -> str | None:
    """Why there is no server here; None where there can be one. `STENO_TEST_SERVERS=0`: none is wanted."""
    if os.environ.get("STENO_TEST_SERVERS") == "0":
        return "STENO_TEST_SERVERS=0"
    if os.environ.get("STENO_TEST_POSTGRES") or binaries() is not None:
        return None
    return f"no PostgreSQL to test against; as root: apt-get install {PACKAGE}, or set STENO_TEST_POSTGRES to a URL"


class Server:
    """A PostgreSQL server in a folder of its own."""

    def __init__(self, folder: Path, *, options: tuple[str, ...] = FAST) -> None:
        self.folder = folder
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        self.port = _free_port()

    def url(self, database: str = "postgres", *, user: str = OWN_USER, password: str | None = None) -> str:
        """Through the socket, or with a password through loopback, which asks for one."""
        if password is not None:
            return f"postgresql://{user}:{quote(password)}@127.0.0.1:{self.port}/{database}"
        return f"postgresql://{user}@/{database}?host={quote(str(self.folder), safe='')}&port={self.port}"

    def make(self) -> None:
        """Make an empty server; it is not started."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if os.geteuid() == 0:
            shutil.chown(self.folder, *_user())
        self.run("initdb", "-D", "data", "-U", OWN_USER, "-A", "trust", "--no-sync", "-E", "UTF8", "--locale=C.UTF-8")
        hba = "local all,replication all trust\nhost all all 127.0.0.1/32 scram-sha-256\n"
        (self.folder / "data" / "pg_hba.conf").write_text(hba)

    def start(self) -> None:
        """Start it and wait until it answers. Raises AssertionError with its log if it does not."""
        log = self.folder / "log"
        given = [word for option in self._options for word in ("-c", option)]
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                [self._program("postgres"), "-D", "data", "-p", str(self.port), "-k", str(self.folder),
                 "-c", "listen_addresses=127.0.0.1", *given],
                cwd=self.folder, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True, **as_user(),
            )  # fmt: skip
        ready = [self._program("pg_isready"), "-q", "-h", self.folder, "-p", str(self.port)]
        wait(lambda: self._ended() or not subprocess.run(ready, check=False).returncode, f"PostgreSQL, log {log}")
        assert not self._ended(), log.read_text()

    def _ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """End it: SIGINT ends open connections in order, SIGQUIT as a crash does."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait()
            self._process = None

    def remove(self) -> None:
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self.folder, ignore_errors=True)

    def restore(self, backup: str, *options: str) -> None:
        """Stop it and start it on a base backup in its folder, as far as the options say.

        `options` is what it starts with from then on; `restore_command` is one of them.
        """
        self.stop()
        shutil.move(self.folder / "data", self.folder / "lost")
        shutil.move(self.folder / backup, self.folder / "data")
        signal_file = self.folder / "data" / "recovery.signal"
        signal_file.touch()
        if os.geteuid() == 0:
            shutil.chown(signal_file, *_user())
        self._options = options
        self.start()

    def standby(self) -> Server:
        """A hot standby of this server, which runs; it is made and not started."""
        made = Server(Path(tempfile.mkdtemp(prefix="steno-pg-")), options=self._options)
        if os.geteuid() == 0:
            shutil.chown(made.folder, *_user())
        self_at = ("-h", str(self.folder), "-p", str(self.port), "-U", OWN_USER)
        made.run("pg_basebackup", *self_at, "-D", "data", "-R", "-X", "stream", "-c", "fast", "--no-sync")
        return made

    def promote(self) -> None:
        """Make a standby the primary; returns when it takes writes."""
        self.run("pg_ctl", "promote", "-D", "data", "-w")

    def own(self, path: Path) -> None:
        """Give a file or folder to the server's user, who alone may read it."""
        path.chmod(0o700 if path.is_dir() else 0o600)
        if os.geteuid() == 0:
            shutil.chown(path, *_user())

    def client(self, program: str, *words: str) -> None:
        """Run a program of PostgreSQL against it."""
        self.run(program, "-h", str(self.folder), "-p", str(self.port), "-U", OWN_USER, *words)

    def run(self, *words: str) -> None:
        """Run one of the server's programs in its folder. Raises AssertionError with what it says."""
        command = [self._program(words[0]), *words[1:]]
        done = subprocess.run(command, check=False, cwd=self.folder, capture_output=True, **as_user())
        assert done.returncode == 0, done.stderr.decode()

    def _program(self, name: str) -> str:
        folder = binaries()
        assert folder is not None, lacking()
        return str(folder / name)


def new_server(*options: str) -> Server:
    """A server of its own for a test that stops or crashes it; its folder's path is short, as a socket's must be."""
    server = Server(Path(tempfile.mkdtemp(prefix="steno-pg-")), options=options)
    server.make()
    return server


def shared_server(base: Path) -> str:
    """The URL of the session's server, its database left open as `{}`; `base` is the session's folder."""
    given = os.environ.get("STENO_TEST_POSTGRES")
    if given:
        head, mark, options = given.partition("?")
        return head.rsplit("/", 1)[0] + "/{}" + mark + options
    note = base / "postgres.json"
    with (base / "postgres.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not note.exists():
            session = os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()
            keeper = subprocess.Popen(
                [sys.executable, "-m", __name__, str(session), str(note)],
                cwd=Path(__file__).parents[1],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
            wait(lambda: keeper.poll() is not None or note.exists(), "PostgreSQL")
            assert keeper.poll() is None, "PostgreSQL did not start"
            keeper.returncode = 0  # it ends after this process, which is not to wait for it
    url: str = json.loads(note.read_text())["url"]
    return url


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of the session's server, its database left open as `{}`."""
    why = lacking()
    if why is not None and os.environ.get("STENO_REQUIRE_LAB") == "1":
        pytest.fail(why)
    if why is not None:
        pytest.skip(why)
    base = tmp_path_factory.getbasetemp()
    return shared_server(base.parent if "PYTEST_XDIST_WORKER" in os.environ else base)


@pytest.fixture
def postgres_url(postgres_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of an empty database; this machine's folders of its record are the test's."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    name = f"steno_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(postgres_server.format("postgres"), autocommit=True) as server:
        server.execute(f"CREATE DATABASE {name} TEMPLATE template0")
        yield postgres_server.format(name)
        server.execute(f"DROP DATABASE {name} WITH (FORCE)")


class MakeRole(Protocol):
    """`make_role(appends=…)`: a new role's name and its URL; without arguments it may only connect."""

    def __call__(self, **rights: bool) -> tuple[str, str]: ...


@pytest.fixture
def make_role(postgres_url: str) -> Iterator[MakeRole]:
    """Roles of the test's database, with rights to its record."""
    from steno.events.store.store import store_at

    made: list[str] = []

    def make(**rights: bool) -> tuple[str, str]:
        name = f"steno_role_{uuid.uuid4().hex[:8]}"
        with psycopg.connect(postgres_url, autocommit=True) as owner:
            owner.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'secret'")
            made.append(name)
            port, database = owner.info.port, owner.info.dbname
        if rights:
            store_at(postgres_url).admit(name, **rights)
        return name, f"postgresql://{name}:secret@127.0.0.1:{port}/{database}"

    yield make
    with psycopg.connect(postgres_url, autocommit=True) as owner:
        for name in made:
            owner.execute(f"DROP OWNED BY {name}")
            owner.execute(f"DROP ROLE {name}")


def keep(session: int, note: Path) -> None:
    """Hold a server until the process `session` has ended."""
    watched = os.pidfd_open(session)
    server = new_server(*FAST)
    try:
        server.start()
        draft = note.with_suffix(".draft")
        draft.write_text(json.dumps({"url": server.url("{}")}))
        draft.rename(note)
        select.select([watched], [], [])
    finally:
        server.remove()


def _user() -> tuple[int, int]:
    """The user of PostgreSQL's package, else nobody."""
    for name in (OWN_USER, "nobody"):
        try:
            user = pwd.getpwnam(name)
        except KeyError:
            continue
        return user.pw_uid, user.pw_gid
    raise AssertionError("there is no user to run PostgreSQL as")


def as_user() -> dict[str, Any]:
    if os.geteuid() != 0:
        return {}
    uid, gid = _user()
    return {"user": uid, "group": gid, "extra_groups": []}


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


if __name__ == "__main__":
    keep(int(sys.argv[1]), Path(sys.argv[2]))
