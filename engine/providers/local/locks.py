"""Locks that the kernel lets go of when their holder dies: the sign that a process lives. Standard library only."""

import fcntl
import os
from pathlib import Path

LIFE = "lock"
"""Held while the supervisor of a run, or the process that is a machine, lives."""
BUSY = "busy"
"""Held in a machine's folder by the supervisor of the run that is on it."""


def lock(folder: Path, name: str = LIFE) -> int | None:
    """Take a lock of the folder: its descriptor, or None if it is held."""
    file = os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return None
    return file


def is_locked(folder: Path, name: str = LIFE) -> bool:
    """Whether somebody holds that lock of the folder."""
    try:
        file = os.open(folder / name, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        # shared, so that two who look do not take each other for a holder
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False
