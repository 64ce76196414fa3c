"""The folder of one run, or of one warm machine: files that are whole or absent, and locks.

Both:

- `lock`: held from the submission until its process (supervisor, machine) ends; the kernel releases it.
- `started.json`: durable before the command, or the machine, exists.
- `stop.json`: a request to end.
- `ended.json`: how it ended; the last act of its process.

A run: `accepted.json`, what was asked, without secrets. `begun.json`: the machine is up and the command starts; only
for a run that waits for its machine. `output`: of the command. `supervisor.err`: of the supervisor.
`samples`, and `samples.old` before it: of its GPUs and processes.

A machine: `made.json`, its `MachineSpec`. `up.json`: it can take runs. `busy`: a lock, held while a run is on it.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from steno.engine.errors import ProviderError
from steno.engine.providers.local.durable import is_locked, lock, write_json
from steno.engine.providers.local.placement import MachineSpec
from steno.engine.providers.local.tree import kill_marked
from steno.events.clock import Clock


class StateDamaged(ProviderError):
    """A file of a local run or machine is not what we wrote."""


_T = TypeVar("_T")
_S = TypeVar("_S", "RunState", "MachineState")

NO_CAPACITY = "no_capacity"
_FORMER = {  # reason of an end in older versions → now
    "done_by_runner": "exited",
    "container_exited_with_error": "exited",
    "terminated_by_user": "stopped",
    "aborted_by_user": "killed",
    "max_duration_exceeded": "timed_out",
    "executor_error": "not_started",
    "instance_unreachable": "machine_lost",
    "failed_to_start_due_to_no_capacity": NO_CAPACITY,
}


class Command(msgspec.Struct, frozen=True, kw_only=True):
    argv: tuple[str, ...]
    folder: str
    max_duration: int | None  # seconds; None: no limit
    grace: int | None  # seconds between SIGTERM and SIGKILL; None: SIGKILL only on abort
    ignored: tuple[str, ...]  # fields of the task without effect on this machine
    configuration: dict[str, object]  # the task as given, every secret value null


class Accepted(Command, frozen=True, kw_only=True):
    run_id: str
    mark: str | None = None  # the run id it was submitted with (not an attempt's own); None: an older version
    name: str
    user: str
    at: int  # microseconds, UTC, as all times here
    machine: MachineSpec | None = None  # None: no place was found (or an older version)


class Stopping(msgspec.Struct, frozen=True, kw_only=True):
    at: int
    abort: bool = False

    @property
    def reason(self) -> str:
        return "killed" if self.abort else "stopped"


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    reason: str  # a key of `reading.CAUSES`; of a machine, of `reading.VM_CAUSES`
    message: str
    at: int
    exit_status: int | None = None
    detail: str | None = None  # what the message leaves out


class _Began(msgspec.Struct, frozen=True, kw_only=True):
    at: int | None = None


class _State(msgspec.Struct, frozen=True, kw_only=True):
    """How far a run or a machine is."""

    started: bool = False
    up: bool = False  # it can take runs; a waiting run's command exists, or is about to
    stopping: Stopping | None = None
    ended: Ended | None = None
    lives: bool = False  # its process lives, or is about to start

    @property
    def active(self) -> bool:
        return self.ended is None and (self.lives or self.started)

    @property
    def known(self) -> bool:
        """It came into being. What died with its submitter before the start may be made again."""
        return self.active or self.ended is not None

    @property
    def lost(self) -> bool:
        """Its process died without writing an end."""
        return self.active and not self.lives


class RunState(_State, frozen=True, kw_only=True):
    accepted: Accepted
    began: int | None = None  # when its command started, or was about to; None: it has not

    @property
    def status(self) -> str:
        """A key of `reading.STATES`."""
        if self.ended is not None or self.stopping is not None:
            return "stopping" if self.ended is None else "ended"
        return "running" if self.running else "queued" if not self.started else "provisioning"

    @property
    def reason(self) -> str | None:
        end = self.ended or self.stopping
        return None if end is None else end.reason

    @property
    def running(self) -> bool:
        """Its command exists, or is about to."""
        machine = self.accepted.machine
        return self.started and (self.up or machine is None or not machine.waited_for)


class MachineState(_State, frozen=True, kw_only=True):
    spec: MachineSpec


def read_file(path: Path, shape: type[_T]) -> _T | None:
    """The value in this file; None if it does not exist. OSError or StateDamaged: it cannot be read."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=shape)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise StateDamaged(f"{path} is damaged ({error}); move its folder away to go on without it") from None


def read_accepted(folder: Path) -> Accepted | None:
    return read_file(folder / "accepted.json", Accepted)


def read_state(folder: Path) -> RunState | None:
    """The run in this folder; see `read_file`."""
    accepted = read_accepted(folder)
    if accepted is None:
        return None
    waited = accepted.machine is not None and accepted.machine.waited_for
    began = read_file(folder / ("begun.json" if waited else "started.json"), _Began)
    return RunState(accepted=accepted, began=None if began is None else began.at, **_read(folder, "begun.json"))


def read_machine(folder: Path) -> MachineState | None:
    """The machine in this folder; see `read_file`."""
    spec = read_file(folder / "made.json", MachineSpec)
    return None if spec is None else MachineState(spec=spec, **_read(folder, "up.json"))


def _read(folder: Path, up: str) -> dict[str, Any]:
    # the lock before `ended.json`: a process writes that file before it releases the lock
    lives = is_locked(folder)
    return {
        "lives": lives,
        "started": (folder / "started.json").exists(),
        "up": (folder / up).exists(),
        "stopping": read_file(folder / "stop.json", Stopping),
        "ended": _read_end(folder),
    }


def _read_end(folder: Path) -> Ended | None:
    end = read_file(folder / "ended.json", Ended)
    return None if end is None else msgspec.structs.replace(end, reason=_FORMER.get(end.reason, end.reason))


def close_lost(folder: Path, state: _S, now: int) -> _S:
    """Ends what died without writing an end; one of several readers acts.

    The run's other processes are killed: its exit status is lost, and nothing keeps its output or limits. If the folder
    cannot be written, the same end is found again each time.
    """
    held = lock(folder) if state.lost else None
    if held is None:
        return state
    try:
        ended = _read_end(folder)
        if ended is None:
            ended = _end_of(state, now)
            with contextlib.suppress(OSError):
                write_json(folder / "ended.json", msgspec.structs.asdict(ended))
        return msgspec.structs.replace(state, ended=ended)
    finally:
        os.close(held)


def _end_of(state: RunState | MachineState, now: int) -> Ended:
    if isinstance(state, MachineState):
        return Ended(reason="unreachable", message="the machine's process is gone without a word", at=now)
    left = "" if kill_marked(state.accepted.run_id) else "; some processes live on"
    reason = "supervisor_lost" if state.stopping is None else state.stopping.reason
    return Ended(reason=reason, message=f"the supervisor is gone without an exit status{left}", at=now)


_CHUNK = 1 << 18
_PAUSE = 50_000  # microseconds between two looks at an unchanged file


def read_output(folder: Path, *, follow: bool, clock: Clock) -> Iterator[bytes]:
    """The bytes of a run's output in order; with `follow`, until the run has ended and all is delivered."""
    position = 0
    while True:
        # state before file: after an end nothing more is written
        state = read_state(folder)
        ended = state is None or state.ended is not None or not state.lives
        with contextlib.suppress(FileNotFoundError), (folder / "output").open("rb") as file:
            file.seek(position)
            while chunk := file.read(_CHUNK):
                position += len(chunk)
                yield chunk
        if ended or not follow:
            return
        clock.sleep(_PAUSE)
