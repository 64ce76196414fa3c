"""What the folder of one run, or of one machine that is kept warm, says: files that are whole or absent, and locks.

A run:

- `lock`: held from the submission until the supervisor's exit; the kernel lets go of it, also when the machine stops.
- `accepted.json`: what was asked, without any secret.
- `started.json`: durable before the command exists: without it the command was never started.
- `begun.json`: the machine is up and the command is about to exist; only of a run that may have to wait for that.
- `stop.json`: somebody asked for the end.
- `ended.json`: how it ended; the supervisor's last act.
- `output`: what the command wrote. `supervisor.err`: what the supervisor itself complained of.

A machine:

- `lock`: held from its making until its process ends. `busy`: held while a run is on it.
- `made.json`: what it is (`MachineSpec`). `started.json`: its process exists. `up.json`: it can take runs.
- `stop.json`: somebody told it to go. `ended.json`: why it went; its process' last act.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from engine.errors import ProviderError
from engine.providers.local.durable import is_locked, lock, write_json
from engine.providers.local.placement import MachineSpec
from engine.providers.local.tree import kill_marked
from events.clock import Clock


class StateDamaged(ProviderError):
    """A file of a local run or machine is not what we wrote."""


_T = TypeVar("_T")
_End = TypeVar("_End", "Ended", "Gone")


def read_file(path: Path, shape: type[_T]) -> _T | None:
    """The value in this file; None if the file does not exist.

    Raises:
        OSError, StateDamaged: it cannot be read, or is damaged.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=shape)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise StateDamaged(f"{path} is damaged ({error}); move its folder away to go on without it") from None


NO_CAPACITY = "no_capacity"
_FORMER = {
    "done_by_runner": "exited",
    "container_exited_with_error": "exited",
    "terminated_by_user": "stopped",
    "aborted_by_user": "killed",
    "max_duration_exceeded": "timed_out",
    "executor_error": "not_started",
    "instance_unreachable": "machine_lost",
    "failed_to_start_due_to_no_capacity": NO_CAPACITY,
}
"""How older versions wrote the reason of an end → how we do."""


class Accepted(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked."""

    run_id: str
    mark: str | None = None
    """The run id it was submitted with, which a new attempt's own differs from; None: taken by an older version."""
    name: str
    user: str
    at: int
    """Microseconds, UTC, as all times here."""
    argv: tuple[str, ...]
    folder: str
    max_duration: int | None
    grace: int | None
    ignored: tuple[str, ...]
    configuration: dict[str, object]
    """The task as it was given, secret values null."""
    machine: MachineSpec | None = None
    """The machine it is on; None: no place was found (or it was taken before machines were told apart)."""


class Stopping(msgspec.Struct, frozen=True, kw_only=True):
    at: int
    abort: bool

    @property
    def reason(self) -> str:
        return "killed" if self.abort else "stopped"


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    reason: str
    """A key of `reading.CAUSES`."""
    exit_status: int | None
    message: str
    at: int
    output_bytes: int = 0
    output_dropped: int = 0
    detail: str | None = None
    """What the message leaves out."""


class RunState(msgspec.Struct, frozen=True, kw_only=True):
    accepted: Accepted
    started: bool = False
    begun: bool = False
    stopping: Stopping | None = None
    ended: Ended | None = None
    supervised: bool = False
    """Its supervisor lives, or its submitter is about to start one."""

    @property
    def status(self) -> str:
        """A key of `reading.STATES`."""
        if self.ended is not None or self.stopping is not None:
            return "stopping" if self.ended is None else "ended"
        return "running" if self.running else "queued" if not self.started else "provisioning"

    @property
    def reason(self) -> str | None:
        """Why it ends or ended."""
        found = self.ended or self.stopping
        return None if found is None else found.reason

    @property
    def active(self) -> bool:
        """It may still run."""
        return self.ended is None and (self.supervised or self.started)

    @property
    def running(self) -> bool:
        """Its command exists, or is about to."""
        machine = self.accepted.machine
        return self.started and (self.begun or machine is None or not machine.waited_for)

    @property
    def known(self) -> bool:
        """It was taken for good. A submission that died before the start never was, and may be made again."""
        return self.active or self.ended is not None


def _read_end(folder: Path, shape: type[_End]) -> _End | None:
    found = read_file(folder / "ended.json", shape)
    return None if found is None else msgspec.structs.replace(found, reason=_FORMER.get(found.reason, found.reason))


def read_accepted(folder: Path) -> Accepted | None:
    """What was asked in this folder; see `read_file`."""
    return read_file(folder / "accepted.json", Accepted)


def read_state(folder: Path) -> RunState | None:
    """The run in this folder; see `read_file`."""
    accepted = read_accepted(folder)
    if accepted is None:
        return None
    # looked at before `ended.json`: a supervisor that lets go of its lock in between has written it
    supervised = is_locked(folder)
    return RunState(
        accepted=accepted,
        started=(folder / "started.json").exists(),
        begun=accepted.machine is not None and accepted.machine.waited_for and (folder / "begun.json").exists(),
        stopping=read_file(folder / "stop.json", Stopping),
        ended=_read_end(folder, Ended),
        supervised=supervised,
    )


def close_lost(folder: Path, state: RunState, now: int) -> RunState:
    """A run whose supervisor died without a word, brought to its end: what is left of it is killed.

    Its exit status is lost for ever and nobody keeps its output or its limits, so it is not let run on.
    """
    if state.ended is not None or not state.started or state.supervised:
        return state

    def kill() -> Ended:
        gone = kill_marked(state.accepted.run_id)
        return Ended(
            reason=state.stopping.reason if state.stopping is not None else "supervisor_lost",
            exit_status=None,
            message=f"the supervisor is gone without an exit status{'' if gone else '; some processes live on'}",
            at=now,
        )

    ended = _end_of_lost(folder, Ended, kill)
    return state if ended is None else msgspec.structs.replace(state, ended=ended)


def _end_of_lost(folder: Path, shape: type[_End], end: Callable[[], _End]) -> _End | None:
    """The end of what died without a word; where two look at once, one acts, and the other gets None.

    Where the folder cannot be written, the end is the same but is found again each time.
    """
    held = lock(folder)
    if held is None:
        return None
    try:
        found = _read_end(folder, shape)
        if found is None:
            found = end()
            with contextlib.suppress(OSError):
                write_json(folder / "ended.json", msgspec.structs.asdict(found))
        return found
    finally:
        os.close(held)


# -- machines ----------------------------------------------------------------------------------------------------------

FOLDER = ".machines"
"""Below the provider's folder; the point keeps it apart from the runs."""


class Gone(msgspec.Struct, frozen=True, kw_only=True):
    reason: str
    """A key of `reading.VM_CAUSES`."""
    message: str
    at: int


class MachineState(msgspec.Struct, frozen=True, kw_only=True):
    spec: MachineSpec
    started: bool = False
    up: bool = False
    told: bool = False
    """Somebody told it to go."""
    gone: Gone | None = None
    lives: bool = False
    """Its process lives, or its submitter is about to start one."""

    @property
    def known(self) -> bool:
        """It came into being. One whose submitter died before that never did."""
        return self.started or self.lives or self.gone is not None

    @property
    def lost(self) -> bool:
        """Its process died without a word."""
        return self.started and not self.lives and self.gone is None


def machine_ids(root: Path) -> Iterator[str]:
    try:
        with os.scandir(root / FOLDER) as entries:
            yield from [entry.name for entry in entries]
    except FileNotFoundError:
        return  # none was ever made here


def was_kept(root: Path, machine_id: str) -> bool:
    """Whether this is, or was, a machine with a process of its own."""
    return (root / FOLDER / machine_id).is_dir()


def read_machine(folder: Path) -> MachineState | None:
    """The machine in this folder; see `read_file`."""
    spec = read_file(folder / "made.json", MachineSpec)
    if spec is None:
        return None
    # read the lock before `ended.json`: a process that releases its lock in between has written that file
    lives = is_locked(folder)
    return MachineState(
        spec=spec,
        started=(folder / "started.json").exists(),
        up=(folder / "up.json").exists(),
        told=(folder / "stop.json").exists(),
        gone=_read_end(folder, Gone),
        lives=lives,
    )


def make_machine(folder: Path, spec: MachineSpec) -> int:
    """Write down what is to be made and hold its lock, whose descriptor is given back.

    Raises:
        OSError: it cannot be written; nothing was made.
    """
    folder.parent.mkdir(mode=0o700, exist_ok=True)
    folder.mkdir(mode=0o700)
    held = lock(folder)
    if held is None:
        raise OSError(f"{folder} is held by another process")
    try:
        write_json(folder / "made.json", msgspec.structs.asdict(spec))
    except OSError:
        os.close(held)
        raise
    return held


def close_lost_machine(folder: Path, state: MachineState, now: int) -> MachineState:
    """A machine whose process died without a word, brought to its end."""
    if not state.lost:
        return state
    why = "the machine's process is gone without a word"
    gone = _end_of_lost(folder, Gone, lambda: Gone(reason="unreachable", message=why, at=now))
    return state if gone is None else msgspec.structs.replace(state, gone=gone)


# -- output ------------------------------------------------------------------------------------------------------------

_CHUNK = 1 << 18
_PAUSE = 50_000
"""Microseconds between two looks at a file that did not grow."""


def read_output(folder: Path, *, follow: bool, clock: Clock) -> Iterator[bytes]:
    """The bytes of a run's output in order, any bytes; with `follow`, until the run has ended and all is delivered."""
    position = 0
    while True:
        # asked before the file is read: what ended before has written everything before
        state = read_state(folder)
        ended = state is None or state.ended is not None or not state.supervised
        for chunk in _from(folder / "output", position):
            position += len(chunk)
            yield chunk
        if ended or not follow:
            return
        clock.sleep(_PAUSE)


def _from(path: Path, position: int) -> Iterator[bytes]:
    with contextlib.suppress(FileNotFoundError), path.open("rb") as file:  # nothing may have been started yet
        file.seek(position)
        while chunk := file.read(_CHUNK):
            yield chunk
