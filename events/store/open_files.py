"""Which files this process has open with SQLite: nobody else may open and close them meanwhile.

POSIX gives up all locks of a process on a file as soon as it closes any descriptor of it. A second look at a record
with `open()` would silently take the locks of every connection in this process, and the next process to close the
record would believe itself the last one and remove the log under them (https://sqlite.org/howtocorrupt.html, 2.2).
"""

import sqlite3
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_guard = threading.Lock()
_held: Counter[tuple[int, int]] = Counter()


class HeldConnection(sqlite3.Connection):
    """A connection that is counted from before it is made until it is closed; by `connect` alone."""

    file: tuple[int, int] | None = None

    def close(self) -> None:
        """Close it; a second call does nothing."""
        super().close()
        file, self.file = self.file, None
        _let_go(file)


def connect(path: Path, uri: str, timeout: float) -> sqlite3.Connection:
    """A connection to the file, by a URI that names it; any thread may use it, without transactions of its own."""
    file = _file(path)
    with _guard:
        if file is not None:
            _held[file] += 1
    try:
        made = sqlite3.connect(
            uri,
            uri=True,
            isolation_level=None,
            timeout=timeout,
            check_same_thread=False,
            cached_statements=64,
            factory=HeldConnection,
        )
    except BaseException:
        _let_go(file)
        raise
    made.file = file
    return made


@contextmanager
def before_anybody(path: Path) -> Iterator[bool]:
    """Whether no connection of this process has the file, so that it may be opened and closed inside the block."""
    with _guard:
        yield _file(path) not in _held


def _let_go(file: tuple[int, int] | None) -> None:
    if file is not None:
        with _guard:
            _held[file] -= 1
            if _held[file] <= 0:
                del _held[file]


def _file(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
