"""A genuine dstack server and its cloud, as a test holds them."""

from __future__ import annotations

import contextlib
import secrets
import shutil
import socket
import sqlite3
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import yaml
from stenotest.waiting import LIMIT_S, T, wait

from stenolab.clouds import Cloud
from stenolab.process import Process
from stenolab.rest import Answer, Refused, ask
from stenolab.versions import baked, interpreter

PACE = 0.05  # of dstack's own pauses
PATIENCE = 0.1  # of the time dstack waits before it gives up
STOP_AGAIN_S = 2.0
"""For one step that takes seconds, on a machine that is busy with other tests."""
LOOK_S = 0.3
"""Between two looks at a server: each costs it some ten milliseconds, and several tests look at once."""
ENDED = frozenset({"done", "failed", "terminated"})
IMAGE = "rocm/dev-ubuntu-24.04"
GPU = "MI300X:1"
_OURS = "1" * 32  # as a lock's token


class Lab:
    """A server with a cloud. `folder` holds its database, logs and the homes it made; nothing is outside it.

    Args:
        version: of the server, one of `stenolab.versions.VERSIONS`.
        folder: kept by the caller; a lab started again on the same folder finds its runs again.
        pace, patience: see `stenolab.server.pace`; 1 is a real server's own.
    """

    def __init__(self, version: str, folder: Path, *, pace: float = PACE, patience: float = PATIENCE) -> None:
        self.version = version
        self.folder = folder
        self._pace, self._patience = pace, patience
        self._projects = 0
        self._server: Process | None = None
        (folder / "home").mkdir(parents=True, exist_ok=True)
        if not (folder / "server").exists():
            shutil.copytree(baked(version), folder / "server")
        kept = folder / "token"
        if not kept.exists():
            kept.write_text(secrets.token_hex(16))
        self.token = kept.read_text()
        # Bound and never listening: holds the port for the server through its restarts.
        self._reservation = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._reservation.bind(("127.0.0.1", 0))
        self.port: int = self._reservation.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.cloud = Cloud(version, folder)
        try:
            self.start()
        except BaseException:
            self.close()
            raise

    # The server's life

    def be_up(self) -> None:
        """Starts the server if it does not run: a test that failed may have left it so."""
        if self._server is not None and not self._server.alive:
            self.kill()
        if self._server is None:
            self.start()

    def start(self) -> None:
        """Starts the server and waits until it answers. Its cloud and the jobs there have gone on meanwhile."""
        assert self._server is None, "it runs already"
        self._server = Process(
            interpreter(self.version),
            "stenolab.server",
            self.port,
            self.cloud.port,
            self._pace,
            self._patience,
            log=self.folder / "server.log",
            environment={
                "HOME": str(self.folder / "home"),
                "DSTACK_SERVER_DIR": str(self.folder / "server"),
                "DSTACK_SERVER_ADMIN_TOKEN": self.token,
                "DSTACK_DEFAULT_CREDS_DISABLED": "1",
                "DSTACK_SERVER_LOG_LEVEL": "INFO",
                "DSTACK_SERVER_METRICS_FINISHED_TTL_SECONDS": "5",
                "DO_NOT_TRACK": "1",
            },
        )
        wait(self._answers, what=f"dstack {self.version}, log {self._server.log}")

    def stop(self) -> None:
        """Asks the server to leave, as an administrator does, and waits for it."""
        self._end_server(lambda server: server.end(gently=True))

    def kill(self) -> None:
        """`kill -9` of the server."""
        self._end_server(Process.kill)

    def restart(self) -> None:
        """Stop and start."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Ends server, cloud and every job."""
        if self._server is not None:
            self._end_server(Process.kill)
        self.cloud.close()
        self._reservation.close()

    # Asking it

    def ask(self, path: str, body: object = None) -> Answer:
        """The raw answer to a POST with the administrator's token.

        Raises:
            OSError: no answer.
        """
        return ask(self.port, path, body, token=self.token)

    def api(self, path: str, body: object = None) -> Any:
        """The decoded answer.

        Raises:
            Refused: the server said anything but 200.
        """
        answer = self.ask(path, body)
        if answer.status != 200:
            raise Refused(path, answer)
        return answer.json

    def run(self, project: str, name: str) -> dict[str, Any]:
        """The newest run of that name, as `runs/get` answers."""
        run: dict[str, Any] = self.api(f"/api/project/{project}/runs/get", {"run_name": name})
        return run

    def runs(self, project: str) -> list[dict[str, Any]]:
        """All runs of the project, newest first."""
        runs: list[dict[str, Any]] = self.api("/api/runs/list", {"project_name": project, "limit": 100})
        return runs

    def instances(self, project: str) -> list[dict[str, Any]]:
        """All instances of the project, newest first."""
        body = {"project_names": [project], "limit": 100}
        instances: list[dict[str, Any]] = self.api("/api/instances/list", body)
        return instances

    def hostname(self, project: str, name: str) -> str | None:
        """Address of the machine the run's newest submission is on, once it has one."""
        provisioned = self.run(project, name)["latest_job_submission"]["job_provisioning_data"] or {}
        hostname: str | None = provisioned.get("hostname")
        return hostname

    def wait(self, condition: Callable[[], T | None], *, what: str = "the condition") -> T:
        """The first true value of `condition()`; see `stenotest.waiting.wait`."""
        return wait(condition, what=what, pause=LOOK_S)

    def wait_status(self, project: str, name: str, *statuses: str) -> dict[str, Any]:
        """The run as soon as its status is one of these; by default, as soon as it has ended."""
        wanted = frozenset(statuses) or ENDED

        def reached() -> dict[str, Any] | None:
            run = self.run(project, name)
            return run if run["status"] in wanted else None

        return self.wait(reached, what=f"run {name} to be {' or '.join(sorted(wanted))}")

    # Doing something with it, without Steno

    def project(self, name: str | None = None) -> str:
        """A new project with the simulated cloud as its `amddevcloud` backend, and no fleet."""
        if name is None:
            self._projects += 1
            name = f"p{self._projects}-{secrets.token_hex(3)}"
        self.api("/api/projects/create", {"project_name": name, "is_public": False})
        self.api(f"/api/project/{name}/backends/create_yaml", {"config_yaml": BACKEND})
        return name

    def fleet(self, project: str, name: str = "lab-fleet", *, nodes: tuple[int, int] = (0, 2), **more: Any) -> None:
        """A cloud fleet of `nodes` (least, most) machines, idle for 20 s unless told otherwise."""
        least, most = nodes
        wanted = {"nodes": {"min": least, "max": most}, "idle_duration": "20s", "backends": ["amddevcloud"], **more}
        spec = {"configuration": {"type": "fleet", "name": name, **wanted}, "profile": {"name": "default"}}
        self.api(f"/api/project/{project}/fleets/apply", {"plan": {"spec": spec}, "force": True})

    def submit(
        self,
        project: str,
        name: str,
        commands: Sequence[str],
        *,
        spec: Mapping[str, Any] | None = None,
        **configuration: Any,
    ) -> dict[str, Any]:
        """A task, submitted the way another program would; the run as the server answers.

        Args:
            spec: fields of dstack's run_spec beside name and configuration.
            configuration: fields of the task beside its name and commands.
        """
        task = {"type": "task", "name": name, "image": IMAGE, "resources": {"gpu": GPU}, "commands": list(commands)}
        run_spec = {"run_name": name, "configuration": {**task, **configuration}, **(spec or {})}
        plan = {"run_spec": run_spec, "current_resource": None}
        run: dict[str, Any] = self.api(f"/api/project/{project}/runs/apply", {"plan": plan, "force": False})
        return run

    def stop_run(self, project: str, name: str, *, abort: bool = False) -> dict[str, Any]:
        """As `dstack stop [--abort]`, repeated until the run has ended; the ended run."""
        body = {"runs_names": [name], "abort": abort}
        return self.stopped(project, name, lambda: self.api(f"/api/project/{project}/runs/stop", body))

    def stopped(self, project: str, name: str, stop: Callable[[], object]) -> dict[str, Any]:
        """Calls `stop` until the run has ended; the ended run.

        Repeated, because a busy 0.22.5 can forget a stop it answered with 200: a pipeline worker that fetched the run
        before writes its own status over `terminating`.
        """
        stopped_at = 0.0

        def ended() -> dict[str, Any] | None:
            nonlocal stopped_at
            run = self.run(project, name)
            if run["status"] in ENDED:
                return run
            if run["status"] != "terminating" and time.monotonic() > stopped_at + STOP_AGAIN_S:
                stop()
                stopped_at = time.monotonic()
            return None

        return self.wait(ended, what=f"run {name} to stop")

    def delete_run(self, project: str, name: str) -> None:
        """As `dstack delete`."""
        self.api(f"/api/project/{project}/runs/delete", {"runs_names": [name]})

    def repeat_run(self, project: str, name: str, times: int) -> None:
        """As if a run that has ended had been submitted so often more, a tenth of a second apart: copies of its rows.

        A server takes half a second of a processor for each run that it refuses itself.
        """
        with contextlib.closing(self._database()) as database:
            database.row_factory = sqlite3.Row
            where = "run_name = ? AND project_id = (SELECT id FROM projects WHERE name = ? AND deleted = 0)"
            (run,) = database.execute(f"SELECT * FROM runs WHERE {where}", (name, project)).fetchall()
            jobs = database.execute("SELECT * FROM jobs WHERE run_id = ?", (run["id"],)).fetchall()
            for number in range(1, times + 1):
                later = datetime.fromisoformat(run["submitted_at"]) + number * timedelta(seconds=0.1)
                changed = {
                    "id": uuid.uuid4().hex,  # dstack reads no other version
                    "run_name": f"{name}-{number}",
                    "submitted_at": later.isoformat(" ", "microseconds"),
                    "run_spec": run["run_spec"].replace(f'"{name}"', f'"{name}-{number}"'),
                }
                _insert(database, "runs", {**dict(run), **changed})
                del changed["run_spec"]
                for job in jobs:
                    ids = {"id": uuid.uuid4().hex, "run_id": changed["id"]}
                    _insert(database, "jobs", {**dict(job), **changed, **ids})
            database.commit()

    def hold_fleet(self, project: str, name: str) -> None:
        """As if a pipeline of the server were at work on that fleet, until `release_fleet`; 0.22.5 has such locks.

        The server then refuses to end machines there, in its own words: "being processed currently. Try again later".
        """
        # A pipeline that is at work there now may take the lock away once more as it ends.
        self.wait(lambda: self._lock_fleet(project, name, _OURS), what=f"fleet {name} to be held")

    def release_fleet(self, project: str, name: str) -> None:
        """The pipeline is done."""
        self._lock_fleet(project, name, None)

    def _lock_fleet(self, project: str, name: str, token: str | None) -> bool:
        """Writes the lock; true if it was there already."""
        where = "name = ? AND deleted = 0 AND project_id = (SELECT id FROM projects WHERE name = ? AND deleted = 0)"
        with contextlib.closing(self._database()) as database:
            (before,) = database.execute(f"SELECT lock_token FROM fleets WHERE {where}", (name, project)).fetchone()
            until = None if token is None else "2999-01-01 00:00:00.000000"
            lock = "lock_token = ?, lock_expires_at = ?, lock_owner = NULL"
            database.execute(f"UPDATE fleets SET {lock} WHERE {where}", (token, until, name, project))
            database.commit()
        return bool(before == token)

    def retire_fleets(self) -> None:
        """Takes away every fleet without a machine: the server goes on looking at all that ever were made."""
        empty = "NOT EXISTS (SELECT 1 FROM instances WHERE fleet_id = fleets.id AND deleted = 0)"
        with contextlib.closing(self._database()) as database:
            database.execute(f"UPDATE fleets SET deleted = 1 WHERE deleted = 0 AND {empty}")
            database.commit()

    def home(self, *projects: str) -> Path:
        """A fresh home folder whose `.dstack/config.yml` knows these projects; the first is the default."""
        home = self.folder / "homes" / secrets.token_hex(4)
        (home / ".dstack").mkdir(parents=True)
        known = [
            {"name": name, "url": self.url, "token": self.token, "default": name == projects[0]} for name in projects
        ]
        (home / ".dstack" / "config.yml").write_text(yaml.safe_dump({"projects": known}))
        return home

    def _database(self) -> sqlite3.Connection:
        return sqlite3.connect(self.folder / "server" / "data" / "sqlite.db", timeout=LIMIT_S)

    def _answers(self) -> bool:
        assert self._server is not None
        assert self._server.alive, f"dstack {self.version} did not start:\n{self._server.last_words()}"
        try:
            return ask(self.port, "/healthcheck", method="GET").status == 200
        except OSError:
            return False

    def _end_server(self, how: Callable[[Process], None]) -> None:
        assert self._server is not None, "it does not run"
        how(self._server)
        self._server = None


def _insert(database: sqlite3.Connection, table: str, row: Mapping[str, object]) -> None:
    marks = ", ".join("?" * len(row))
    database.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", tuple(row.values()))


class Gate:
    """A door a job waits at until the test opens it: what the job shows meanwhile can be awaited, not caught."""

    def __init__(self, lab: Lab, name: str) -> None:
        self._file = lab.folder / "state" / name
        self.passed = f'until [ -e "$LAB_STATE/{name}" ]; do sleep 0.2; done'
        """The command that waits."""

    def open(self) -> None:
        """Let everybody through, from now on."""
        self._file.touch()


BACKEND = yaml.safe_dump(
    {"type": "amddevcloud", "creds": {"type": "api_key", "api_key": "lab"}, "regions": ["atl1"]}, sort_keys=False
)
