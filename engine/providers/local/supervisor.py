"""The process that stays with a run: starts the command, keeps its output, ends it when asked, writes how it ended.

It lives apart from the engine (own session, no terminal, parent gone), standard library only, as long as the inherited
lock of the run's folder is held. `started.json` is durable before the command exists; `ended.json` is its last act. The
run waits for its machine; it ends with a warm machine (`machine`, a process of its own).
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
import sys
import time
from pathlib import Path

from steno.engine.providers.local.durable import LIFE, followed, is_locked, now, write_all, write_json
from steno.engine.providers.local.tree import LOOKS, MARK, adopt_orphans, descendants, signal_all
from steno.engine.providers.sampler import EVERY, SCRIPT

TYPE_CHECKING = False  # `typing` would double the import time
if TYPE_CHECKING:
    from typing import Any

_MACHINE = "import sys; sys.path.append(sys.argv[1]); from steno.engine.providers.local.machine import main; main()"
_PIPE_SIZE = 1 << 20
_F_SETPIPE_SZ = 1031


class OutputKeeper:
    """Moves bytes from the pipe to the file; drops and counts those over `limit`, so that the command never blocks."""

    def __init__(self, path: Path, limit: int) -> None:
        self.pipe: int | None  # the end to read; None once every writer has closed
        self.pipe, self.writer = os.pipe()
        os.set_blocking(self.pipe, False)
        if sys.platform == "linux":
            with contextlib.suppress(OSError):  # a small pipe is only slower
                fcntl.fcntl(self.pipe, _F_SETPIPE_SZ, _PIPE_SIZE)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._limit = limit
        self.kept = 0
        self.dropped = 0

    def move(self) -> bool:
        """Keep at most a pipe's worth; False if the pipe is empty."""
        if self.pipe is None:
            return False
        try:
            data = os.read(self.pipe, _PIPE_SIZE)
        except BlockingIOError:
            return False
        if not data:
            os.close(self.pipe)
            self.pipe = None
            return False
        room = self._limit - self.kept
        try:
            write_all(self._file, data[:room])
            if len(data) > room and self.dropped == 0:
                notice = f"\n[steno: the limit of {self._limit} bytes of output is reached, the rest is dropped]\n"
                write_all(self._file, notice.encode())
        except OSError:
            room = 0  # disk full: the command must not suffer for it
        self.kept += min(room, len(data))
        self.dropped += max(0, len(data) - room)
        return True

    def finish(self) -> None:
        """Keep the rest and make the file durable, as far as the disk allows."""
        while self.move():
            pass
        with contextlib.suppress(OSError):  # the exit status matters more than the last lines
            os.fsync(self._file)


_UNSAMPLED = 1.0  # seconds: of a shorter run there are no samples, and it does not pay for a sampler
_TICK = 0.2  # seconds between two looks for a stop request
_HURRY = 0.02  # the same while the run ends, or waits for its machine
_GRACES = {"killed": 0, "machine_lost": 0, "supervisor_lost": 2}
"""Seconds between SIGTERM and SIGKILL where the run's own grace does not count: a host going down waits little."""
_UNKILLABLE = 10.0  # seconds, with `LOOKS`, until a process stuck in the kernel is left behind
_DEFAULTED = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
"""Signals with their default action in the command, even if the submitter or Python ignores them."""
_MESSAGES = {
    "stopped": "stopped",
    "killed": "killed",
    "timed_out": "max duration exceeded",
    "supervisor_lost": "the supervisor was told to quit",
    "machine_lost": "instance unreachable",
}


class Supervisor:
    """A run, from its plan (see `launch`) to its end."""

    def __init__(self, folder: Path, plan: dict[str, Any]) -> None:
        self._folder = followed(folder)
        self._run_id = folder.name
        self._argv: list[str] = plan["argv"]
        self._cwd: str = plan["folder"]
        self._limit: int | None = plan["max_duration"]
        self._grace: int | None = plan["grace"]
        self._output = OutputKeeper(folder / "output", plan["output_limit"])
        self._machine = None if plan["machine"] is None else followed(Path(plan["machine"]))
        self._command = 0
        self._gpus = ""
        self._sampler: int | None = None  # a process and its group; 0: it ended
        self._exit: int | None = None
        self._exited_at = 0
        self._reason: str | None = None
        self._kill_at: float | None = None
        self._gave_up_at: float | None = None
        self._kills = 0
        self._told_to_quit = False
        self._began = time.monotonic()
        self._up_at = self._began + plan["boot"] / 1_000_000
        self._wake, writer = os.pipe()  # readable after SIGTERM or a child's end
        os.set_blocking(self._wake, False)
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._quit)

    @property
    def waits(self) -> bool:
        """The machine, a process of its own or the supervisor itself, is not up yet."""
        return time.monotonic() < self._up_at if self._machine is None else not (self._machine / "up.json").exists()

    def wait_for_machine(self) -> bool:
        """Wait until the machine is up; False if the run ended before, which is then written."""
        while self.waits:
            self._wait(_HURRY)
            if (reason := self._cut_short()) is not None:
                os.close(self._output.writer)  # the command has its own, or never will
                self._output.finish()
                self._settle(reason)
                return False
        if self._machine is not None or self._up_at > self._began:
            with contextlib.suppress(OSError):  # better a run that is not shown as running than none
                write_json(self._folder / "begun.json", {"at": now()})
        return True

    def start(self, environment: dict[str, str]) -> bool:
        """Start the command; False if that fails, which is then written as the run's end."""
        self._began = time.monotonic()
        os.environ["PATH"] = environment.get("PATH", os.defpath)  # where the program is looked for
        gpus = environment.get("CUDA_VISIBLE_DEVICES", "")
        self._gpus = gpus if gpus.replace(",", "").isdecimal() else ""
        try:
            os.chdir(self._cwd)
            self._command = os.posix_spawnp(
                self._argv[0],
                self._argv,
                {**environment, MARK: self._run_id},
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_DUP2, self._output.writer, 1),
                    (os.POSIX_SPAWN_DUP2, self._output.writer, 2),
                ],
                setsid=True,
                setsigmask=[],
                setsigdef=_DEFAULTED,
            )
        except OSError as error:
            self._settle("not_started", f"cannot start {self._argv[0]} in {self._cwd}: {error.strerror}")
            return False
        finally:
            os.close(self._output.writer)  # the command has its own, or never will
            os.chdir("/")
        return True

    def run(self) -> None:
        """Wait until the command and all its processes have ended, and that is durable."""
        next_look = 0.0
        while True:
            hurry = self._exit is not None or self._reason is not None
            self._wait(_HURRY if hurry else max(0.0, next_look - time.monotonic()))
            self._reap()
            moment = time.monotonic()
            if moment >= next_look or hurry:
                next_look = moment + _TICK
                self._look_for_a_reason(moment)
            if self._sampler is None and not hurry and moment - self._began >= _UNSAMPLED:
                self._sample()
            if self._is_over(moment):
                break
        self._output.finish()
        self._settle(self._reason or "exited")

    def _sample(self) -> None:
        """Start the sampler in a group of processes of its own, which does not belong to the run."""
        self._sampler = 0
        file = str(self._folder / "samples").replace("/self/", f"/{os.getpid()}/")
        words = [str(os.getpid()), file, str(EVERY), str(EVERY), self._gpus]
        with contextlib.suppress(OSError):  # a run without samples is still a run
            self._sampler = os.posix_spawn(
                "/bin/bash",
                ["bash", "-c", SCRIPT, "steno-sampler", *words],
                {"PATH": os.environ["PATH"], MARK: self._run_id},
                file_actions=[(os.POSIX_SPAWN_OPEN, number, "/dev/null", os.O_RDWR, 0) for number in range(3)],
                setsid=True,
                setsigmask=[],
                setsigdef=_DEFAULTED,
            )

    def _left(self) -> list[int]:
        return descendants(os.getpid(), self._command, self._sampler or 0)

    def abandon(self, error: str) -> None:
        """End the run because the supervisor itself failed."""
        while left := self._left():
            signal_all(left, signal.SIGKILL)
            time.sleep(_HURRY)
            self._reap()
        self._settle("supervisor_lost", error)

    def _quit(self, *_: object) -> None:
        self._told_to_quit = True

    def _wait(self, timeout: float) -> None:
        pipe = self._output.pipe
        ready, _, _ = select.select([self._wake] if pipe is None else [self._wake, pipe], [], [], timeout)
        if self._wake in ready:
            os.read(self._wake, 4096)
        if pipe in ready:
            self._output.move()

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while (child := os.waitpid(-1, os.WNOHANG))[0]:
                if child[0] == self._sampler:
                    self._sampler = 0
                if child[0] == self._command and self._exit is None:
                    code = os.waitstatus_to_exitcode(child[1])
                    self._exit = code if code >= 0 else 128 - code  # a signal, as a shell shows it
                    self._exited_at = now()

    def _look_for_a_reason(self, moment: float) -> None:
        if self._exit is not None and self._reason is None:
            return  # it ended by itself; nothing later changes that
        reason = self._cut_short()
        if reason is None and self._limit is not None and moment - self._began >= self._limit:
            reason = "timed_out"
        if reason is not None:
            self._end(reason, moment, _GRACES.get(reason, self._grace))

    def _cut_short(self) -> str | None:
        """Why the run must end, whatever its command does."""
        try:
            return "killed" if json.loads((self._folder / "stop.json").read_bytes())["abort"] else "stopped"
        except FileNotFoundError:
            pass
        except (OSError, ValueError, LookupError):
            return "stopped"  # somebody asked, even if the file is damaged
        if self._told_to_quit:
            return "supervisor_lost"
        return "machine_lost" if self._machine is not None and not is_locked(self._machine) else None

    def _end(self, reason: str, moment: float, grace: int | None) -> None:
        """Ask all processes to end and set when they are killed; afterwards only an abort changes that."""
        if self._reason is None:
            self._reason = reason
            self._kill_at = None if grace is None else moment + grace
            if grace != 0:
                pids = self._left()
                signal_all(pids, signal.SIGTERM)
                signal_all(pids, signal.SIGCONT)  # a stopped process would not get the other signal
        elif reason == "killed" != self._reason:
            self._reason = reason
            self._kill_at = moment

    def _is_over(self, moment: float) -> bool:
        """True if no process of the run is left; kills those out of time."""
        out_of_time = self._kill_at is not None and moment >= self._kill_at
        if self._exit is None and not out_of_time:
            return False
        left = self._left()
        if left and (out_of_time or self._reason is None):
            # as in a container: the rest ends with the command
            self._gave_up_at = self._gave_up_at or moment + _UNKILLABLE
            self._kills += 1
            signal_all(left, signal.SIGKILL)
            return self._kills > LOOKS and moment > self._gave_up_at
        return not left

    def _settle(self, reason: str, message: str | None = None) -> None:
        if self._sampler:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._sampler, signal.SIGKILL)
        exited = reason == "exited"
        ended = {
            "reason": reason,
            # a run that was ended has no exit status, whatever the command did
            "exit_status": self._exit if exited else None,
            "message": message or (f"exited ({self._exit})" if exited else _MESSAGES[reason]),
            "at": self._exited_at if exited else now(),
            "output_bytes": self._output.kept,
            "output_dropped": self._output.dropped,
        }
        while (self._folder / LIFE).exists():
            try:
                write_json(self._folder / "ended.json", ended)
            except OSError:
                time.sleep(1)  # a full disk may have room again; the status is not lost while we live
            else:
                return


def main() -> None:
    """Arguments: the folder to import from, the run's folder, the lock's descriptor. Standard input: the plan."""
    folder, lock = Path(sys.argv[2]), int(sys.argv[3])
    os.set_inheritable(lock, False)  # noqa: FBT003 - the command must not look like its supervisor
    try:
        plan = json.loads(sys.stdin.buffer.read())
    except ValueError:
        os._exit(1)  # the submitter died while writing: nothing was started
    if plan["busy"] is not None:
        os.set_inheritable(plan["busy"], False)  # noqa: FBT003 - nor the machine like one with a run on it
    if plan["life"] is not None:
        _start_machine(Path(plan["machine"]), plan["life"], plan["gate"])
    if os.fork():
        os._exit(0)  # nobody has to wait for us, and without a session we gain no terminal
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    environment = plan.pop("environment")
    supervisor = Supervisor(folder, plan)
    adopt_orphans()
    # from here on there is an end; if that cannot be written, start nothing
    write_json(folder / "started.json", {"at": now(), "supervisor": os.getpid()})
    try:
        waited = supervisor.waits
        if waited:
            _acknowledge()
        alive = supervisor.wait_for_machine() and supervisor.start(environment)
        environment.clear()
        if not waited:
            _acknowledge()
        if alive:
            supervisor.run()
    except Exception as error:
        supervisor.abandon(f"the supervisor failed: {error!r}")
        raise


def _start_machine(folder: Path, life: int, gate: str) -> None:
    """Start the process that is a machine; only it holds its lock `life` from here on.

    It is not a child of the supervisor, which ends all of its own.
    """
    os.posix_spawn(
        sys.executable,
        [sys.executable, "-I", "-S", "-c", _MACHINE, sys.argv[1], str(folder), str(life), gate],
        os.environ,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0),
            (os.POSIX_SPAWN_OPEN, 2, str(folder / "machine.err"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
        ],
        setsid=True,
    )
    os.close(life)


def _acknowledge() -> None:
    with contextlib.suppress(OSError):  # the submitter may be gone; the run goes on
        os.write(1, b"started")
    null = os.open("/dev/null", os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.close(null)
