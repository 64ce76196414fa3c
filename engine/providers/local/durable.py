"""Small files that are whole or absent, even after a power cut. Standard library only, for the supervisor."""

import fcntl
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path


def now() -> int:
    """Microseconds, UTC."""
    return time.time_ns() // 1000


def write_json(path: Path, value: Mapping[str, object]) -> None:
    """Put `value` at `path` as JSON, private to the owner and durable on return. OSError leaves `path` unchanged."""
    partial = path.with_name(f"{path.name}.{os.getpid()}")
    file = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        write_all(file, json.dumps(value).encode())
        os.fsync(file)
        partial.rename(path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise
    finally:
        os.close(file)
    sync_folder(path.parent)


def write_all(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def sync_folder(path: Path) -> None:
    """Make the names in this folder durable."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


MACHINES = ".machines"  # the folder of machines, below the provider's; the dot keeps it apart from the runs
LIFE = "lock"  # held while a run's supervisor, or a machine's process, lives
BUSY = "busy"  # in a machine's folder: held by the supervisor of its run


def lock(folder: Path, name: str = LIFE) -> int | None:
    """Take a lock of the folder: its descriptor, or None if it is held."""
    file = os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return None
    return file


def followed(folder: Path) -> Path:
    """A path of the folder for the life of this process, right also after it or one above it was renamed (on Linux)."""
    link = Path(f"/proc/self/fd/{os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)}")
    return link if link.exists() else folder


def is_locked(folder: Path, name: str = LIFE) -> bool:
    try:
        file = os.open(folder / name, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        # shared, so that two readers do not take each other for a holder
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False
