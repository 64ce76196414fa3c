"""The right to act on a provider: at most one process holds it, and it falls with the process.

Every process may append to the record; only the holder of a provider's lease calls the provider. The lease is a
locked file beside the record, so a killed holder leaves it free at once.
"""

import fcntl
import os
from pathlib import Path
from types import TracebackType

from events.errors import RecordNotWritable


class Lease:
    """A held lease; free it with `release` or by leaving the `with` block."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor: int | None = descriptor

    @classmethod
    def take(cls, path: Path) -> "Lease | None":
        """The lease, or None where another process holds it.

        The file stays when the lease is freed: removing it would let two processes lock two files of one name.

        Raises:
            RecordNotWritable: the file cannot be made or opened.
        """
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            message = f"The lease {path} cannot be opened ({error.strerror}): check the permissions beside the record."
            raise RecordNotWritable(message) from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        return cls(path, descriptor)

    def release(self) -> None:
        """Let it go; a second call does nothing."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> "Lease":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def lease_path(record: Path, source: str) -> Path:
    """Where the lease of that source lies: beside the record it is for.

    A lease is for one source (`dstack/<project>`, `local/<host>`): who records one project does not act for another.
    """
    return record.with_name(f"{record.name}.lease-{source.replace('/', '-')}")


def holder(path: Path) -> int | None:
    """The process id the last holder wrote, for a message; None where nobody ever held it."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
