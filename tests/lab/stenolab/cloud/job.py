"""A job's commands, really run: what dstack's runner does inside the container."""

from __future__ import annotations

import base64
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stenolab.cloud.journal import journal
from stenolab.cloud.upload import SetUpFailed, place, unpack_archive, unpack_code

GRACE_S = 2.0  # between the interrupt and the kill, as dstack's runner gives ten
DEFAULT_WORKING_DIR = "/workflow"


class Job:
    """A job from its submission to the last log line; the runner's requests and the job's own threads meet here."""

    def __init__(self, submitted: dict[str, Any], *, state_folder: Path, origins: dict[str, str]) -> None:
        self._submitted = submitted
        self._spec: dict[str, Any] = submitted["job_spec"]
        self._state_folder = state_folder
        self._origins = origins
        self._lock = threading.RLock()
        self._newest = 0
        self._states: list[dict[str, Any]] = []
        self._logs: list[dict[str, Any]] = []
        self._runner_logs: list[dict[str, Any]] = []
        self._archives: dict[str, bytes] = {}
        self._code = b""
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False
        self._timed_out = False
        self._sandbox = tempfile.TemporaryDirectory(prefix="job-", dir=state_folder.parent, ignore_cleanup_errors=True)
        self.finished = False

    @property
    def name(self) -> str:
        """The run's name."""
        return str(self._submitted["run"]["run_spec"]["run_name"])

    def add_archive(self, archive_id: str, tar: bytes) -> None:
        """Keeps a `files:` archive for the start."""
        self._archives[archive_id] = tar

    def add_code(self, code: bytes) -> None:
        """Keeps the repository's tar or diff for the start."""
        self._code = code

    def start(self, *, broken: bool) -> None:
        """Starts the commands in the background; `broken` plays a runner that cannot set the files up."""
        threading.Thread(target=self._run, args=(broken,), daemon=True).start()

    def stop(self) -> None:
        """Interrupts the commands, and kills them if they do not listen."""
        self._stopped = True
        self._interrupt()

    def kill(self) -> None:
        """Ends the commands at once, as the machine's power switch does."""
        self._signal(signal.SIGKILL)
        if self._process is None:
            self._sandbox.cleanup()

    def news(self, since: int) -> dict[str, Any]:
        """States and log lines after the timestamp `since`, as `/api/pull` answers."""
        with self._lock:
            return {
                "job_states": [state for state in self._states if state["timestamp"] > since],
                "job_logs": [line for line in self._logs if line["timestamp"] > since],
                "runner_logs": [line for line in self._runner_logs if line["timestamp"] > since],
                "last_updated": self._newest,
                "no_connections_secs": 0,
                "has_more": not self.finished,
            }

    def _run(self, broken: bool) -> None:
        self._log(self._runner_logs, b"Run job\n")
        try:
            if broken:
                raise SetUpFailed("Failed to set up files (lab)")
            working, home = self._set_up()
        except SetUpFailed as error:
            self._state("failed", "executor_error", str(error))
        else:
            self._state("running")
            self._execute(working, home)
        self._sandbox.cleanup()

    def _set_up(self) -> tuple[Path, Path]:
        root = Path(self._sandbox.name).resolve()
        home = root / "root"
        working = place(self._spec.get("working_dir") or DEFAULT_WORKING_DIR, root=root, working=root)
        for folder in (home, working):
            folder.mkdir(parents=True, exist_ok=True)
        repository = {**(self._spec.get("repo_data") or {}), **(self._submitted.get("repo_credentials") or {})}
        repository_folder = place(self._spec.get("repo_dir") or DEFAULT_WORKING_DIR, root=root, working=working)
        unpack_code(self._code, repository, repository_folder, self._origins)
        for mapping in self._spec.get("file_archives") or ():
            unpack_archive(self._archives[mapping["id"]], place(mapping["path"], root=root, working=working))
        return working, home

    def _execute(self, working: Path, home: Path) -> None:
        # An interactive bash without a terminal says so in the log; in the real container there is one.
        command = [word for word in self._spec["commands"] if word != "-i"]
        given = {name: value for name, value in (self._spec.get("env") or {}).items() if value is not None}
        lab = {"DSTACK_RUN_NAME": self.name, "LAB_STATE": str(self._state_folder)}
        path = f"{self._state_folder / 'bin'}:{os.environ['PATH']}"  # what the image has, if a test says so
        environment = {"PATH": path, "HOME": str(home), **given, **lab}
        with self._lock:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=working,
                start_new_session=True,
            )
        if self._stopped:
            self._interrupt()
        if self._spec.get("max_duration"):
            _later(self._spec["max_duration"], self._time_out)
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._log(self._logs, line)
        code = self._process.wait()
        if self._stopped:
            self._state("terminated")
        elif self._timed_out:
            self._state("terminated", "max_duration_exceeded", "Max duration exceeded")
        elif code:
            self._state("failed", exit_status=max(code, -1))  # Go says −1 for a process that a signal ended
        else:
            self._state("done", exit_status=0)

    def _time_out(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._timed_out = True
            self._interrupt()

    def _interrupt(self) -> None:
        self._signal(signal.SIGINT)
        _later(GRACE_S, lambda: self._signal(signal.SIGKILL))

    def _signal(self, number: signal.Signals) -> None:
        with self._lock:
            if self._process is not None and self._process.poll() is None:
                os.killpg(self._process.pid, number)

    def _state(self, state: str, reason: str = "", message: str = "", exit_status: int | None = None) -> None:
        with self._lock:
            ending = {"termination_reason": reason, "termination_message": message, "exit_status": exit_status}
            self._states.append({"state": state, "timestamp": self._tick(), **ending})
            self.finished = state != "running"
        journal("runner", run=self.name, state=state, reason=reason, exit_status=exit_status)

    def _log(self, lines: list[dict[str, Any]], line: bytes) -> None:
        with self._lock:
            lines.append({"message": base64.b64encode(line).decode(), "timestamp": self._tick()})

    def _tick(self) -> int:
        self._newest = max(self._newest + 1, int(time.time() * 1000))
        return self._newest


def _later(seconds: float, action: Callable[[], None]) -> None:
    timer = threading.Timer(seconds, action)
    timer.daemon = True
    timer.start()
