"""What the folder of one run says: files that are whole or absent, and a lock that is held while its supervisor lives.

- `lock`: held from the submission until the supervisor's exit; the kernel lets go of it, also when the machine stops.
- `accepted.json`: what was asked, without any secret.
- `started.json`: durable before the command exists: without it the command was never started.
- `begun.json`: the machine is up and the command is about to exist; only of a run that may have to wait for that.
- `stop.json`: somebody asked for the end.
- `ended.json`: how it ended; the supervisor's last act.
- `output`: what the command wrote. `supervisor.err`: what the supervisor itself complained of.
"""

import contextlib
import os
from collections.abc import Iterator
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


NO_CAPACITY = "failed_to_start_due_to_no_capacity"
"""dstack's word for a run that found no machine."""


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


class Started(msgspec.Struct, frozen=True, kw_only=True):
    """The command exists, or is about to."""

    at: int
    supervisor: int
    """Process id of the supervisor, for a person to look at; the lock tells whether it lives."""


class Stopping(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody asked for the end."""

    at: int
    abort: bool

    @property
    def reason(self) -> str:
        """dstack's word for the end of the job."""
        return "aborted_by_user" if self.abort else "terminated_by_user"


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """How it ended, in dstack's words for a job's termination, or `supervisor_lost`."""

    reason: str
    exit_status: int | None
    message: str
    at: int
    output_bytes: int = 0
    output_dropped: int = 0
    detail: str | None = None
    """What the message leaves out."""


class RunState(msgspec.Struct, frozen=True, kw_only=True):
    """Everything known about one run."""

    accepted: Accepted
    started: Started | None = None
    begun: bool = False
    stopping: Stopping | None = None
    ended: Ended | None = None
    supervised: bool = False
    """Its supervisor lives, or its submitter is about to start one."""

    @property
    def active(self) -> bool:
        """It may still run."""
        return self.ended is None and (self.supervised or self.started is not None)

    @property
    def running(self) -> bool:
        """Its command exists, or is about to."""
        machine = self.accepted.machine
        return self.started is not None and (self.begun or machine is None or not machine.waited_for)

    @property
    def known(self) -> bool:
        """It was taken for good. A submission that died before the start never was, and may be made again."""
        return self.active or self.ended is not None


def read_accepted(folder: Path) -> Accepted | None:
    """What was asked in this folder; None if nothing was.

    Raises:
        OSError, StateDamaged: the file cannot be read, or is damaged.
    """
    return read_file(folder / "accepted.json", Accepted)


def read_state(folder: Path) -> RunState | None:
    """The run in this folder; None if nothing was accepted there.

    Raises:
        OSError, StateDamaged: a file cannot be read, or is damaged.
    """
    accepted = read_accepted(folder)
    if accepted is None:
        return None
    # looked at before `ended.json`: a supervisor that lets go of its lock in between has written it
    supervised = is_locked(folder)
    return RunState(
        accepted=accepted,
        started=read_file(folder / "started.json", Started),
        begun=accepted.machine is not None and accepted.machine.waited_for and (folder / "begun.json").exists(),
        stopping=read_file(folder / "stop.json", Stopping),
        ended=read_file(folder / "ended.json", Ended),
        supervised=supervised,
    )


def close_lost(folder: Path, state: RunState, now: int) -> RunState:
    """A run whose supervisor died without a word, brought to its end: what is left of it is killed.

    Its exit status is lost for ever and nobody keeps its output or its limits, so it is not let run on. Where two look
    at once, one acts. Where the folder cannot be written, the answer is the same but is found again each time.
    """
    if state.ended is not None or state.started is None or state.supervised:
        return state
    held = lock(folder)
    if held is None:
        return state
    try:
        if (written := read_file(folder / "ended.json", Ended)) is not None:
            return msgspec.structs.replace(state, ended=written)
        gone = kill_marked(state.accepted.run_id)
        ended = Ended(
            reason=state.stopping.reason if state.stopping is not None else "supervisor_lost",
            exit_status=None,
            message=f"the supervisor is gone without an exit status{'' if gone else '; some processes live on'}",
            at=now,
        )
        with contextlib.suppress(OSError):
            write_json(folder / "ended.json", msgspec.structs.asdict(ended))
        return msgspec.structs.replace(state, ended=ended)
    finally:
        os.close(held)


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
    try:
        with path.open("rb") as file:
            file.seek(position)
            while chunk := file.read(_CHUNK):
                yield chunk
    except FileNotFoundError:
        return  # nothing was started yet
