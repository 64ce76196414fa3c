"""The files of the projections: `<record>.projections` is a link to the newest of several.

Who reads a file keeps it until it looks again, so reads never stop; the one before the newest is left for those.
Writers of a file, and builders of a new one, are serialised by lock files beside it.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from events.store.store import Where, store_at

_SIDES: Final = ("-wal", "-shm", "-journal")
_DIGITS: Final = 8


def beside(record: Where) -> Path:
    """Where the projections of a record are."""
    return Path(store_at(record).place("projections").removeprefix("sqlite:///"))


@contextmanager
def only_writer(path: Path) -> Iterator[None]:
    """Hold the lock of the projections: one process at a time writes to them or replaces them; waits for the others.

    Raises:
        OSError: the folder cannot be written.
    """
    with _locked(path.with_name(path.name + ".lock")):
        yield


@contextmanager
def only_builder(path: Path) -> Iterator[None]:
    """Hold the lock of those who build new projections, for as long as that takes: others write the old meanwhile.

    Raises:
        OSError: the folder cannot be written.
    """
    with _locked(path.with_name(path.name + ".building")):
        yield


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def unused(path: Path) -> Path:
    """Where the next file is built: a name that was never used, for whoever still reads a file that is gone takes its
    side files away by name.
    """
    return path.with_name(f"{path.name}.{os.urandom(_DIGITS // 2).hex()}")


def publish(path: Path, built: Path) -> None:
    """Let a built file be the projections; the caller is the only builder and the only writer.

    All others but the one before are removed, those of builders that died among them.
    """
    link = path.with_name(path.name + ".link")
    link.unlink(missing_ok=True)
    before = _linked(path)
    link.symlink_to(built.name)
    link.replace(path)
    if before is None:
        for side in _SIDES:  # of a file that was no link
            path.with_name(path.name + side).unlink(missing_ok=True)
    for found in _files(path):
        if found.name not in (built.name, before):
            remove(found)


def remove(path: Path) -> None:
    """Remove a file with all beside it."""
    for side in ("", *_SIDES):
        path.with_name(path.name + side).unlink(missing_ok=True)


def _linked(path: Path) -> str | None:
    """The name of the file that is in use."""
    try:
        return path.readlink().name
    except OSError:
        return None


def _files(path: Path) -> list[Path]:
    with os.scandir(path.parent) as found:
        names = [one.name for one in found if one.name.startswith(path.name + ".")]
    return [path.with_name(name) for name in names if _is_number(name.removeprefix(path.name + "."))]


def _is_number(suffix: str) -> bool:
    return len(suffix) == _DIGITS and all(letter in "0123456789abcdef" for letter in suffix)
