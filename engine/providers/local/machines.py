"""The machines kept warm on this host: one folder each, read by any number of processes at once.

- `lock`: held from its making until its process ends. `busy`: held while a run is on it.
- `made.json`: what it is (`MachineSpec`). `started.json`: its process exists. `up.json`: it can take runs.
- `stop.json`: somebody told it to go. `ended.json`: why it went; its process' last act.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from engine.providers.local.durable import is_locked, lock, write_json
from engine.providers.local.placement import MachineSpec
from engine.providers.local.state import read_file

FOLDER = ".machines"
"""Below the provider's folder; the point keeps it apart from the runs."""


class Gone(msgspec.Struct, frozen=True, kw_only=True):
    """How a machine ended, in dstack's words for it."""

    reason: str
    message: str
    at: int


class MachineState(msgspec.Struct, frozen=True, kw_only=True):
    """Everything known about one machine that is kept warm."""

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
    """Every machine that has a folder."""
    try:
        with os.scandir(root / FOLDER) as entries:
            yield from [entry.name for entry in entries]
    except FileNotFoundError:
        return  # none was ever made here


def was_kept(root: Path, machine_id: str) -> bool:
    """Whether this is, or was, a machine with a process of its own."""
    return (root / FOLDER / machine_id).is_dir()


def read_machine(folder: Path) -> MachineState | None:
    """The machine in this folder; None if none was made there.

    Raises:
        OSError, StateDamaged: a file cannot be read, or is damaged.
    """
    spec = read_file(folder / "made.json", MachineSpec)
    if spec is None:
        return None
    # looked at before `ended.json`: a process that lets go of its lock in between has written it
    lives = is_locked(folder)
    return MachineState(
        spec=spec,
        started=(folder / "started.json").exists(),
        up=(folder / "up.json").exists(),
        told=(folder / "stop.json").exists(),
        gone=read_file(folder / "ended.json", Gone),
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
    """A machine whose process died without a word, brought to its end; where two look at once, one acts."""
    if not state.lost:
        return state
    held = lock(folder)
    if held is None:
        return state
    try:
        if (written := read_file(folder / "ended.json", Gone)) is not None:
            return msgspec.structs.replace(state, gone=written)
        gone = Gone(reason="unreachable", message="the machine's process is gone without a word", at=now)
        with contextlib.suppress(OSError):
            write_json(folder / "ended.json", msgspec.structs.asdict(gone))
        return msgspec.structs.replace(state, gone=gone)
    finally:
        os.close(held)
