"""Blobs and leases as files beside a SQLite record."""

import fcntl
import os
import socket
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec

from steno.events.errors import RecordNotWritable
from steno.events.store.store import Holder, Lease, new_owner, since_of, worker_of


class FileBlob:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __str__(self) -> str:
        return str(self.path)

    def stamp(self) -> object:
        try:
            status = self.path.stat()
        except FileNotFoundError:
            return None
        except OSError as error:
            return error.errno
        return status.st_ino, status.st_mtime_ns, status.st_size

    def read(self) -> bytes | None:
        with self._told("read"):
            try:
                return self.path.read_bytes()
            except FileNotFoundError:
                return None

    def replace(self, content: bytes, *, durable: bool = True) -> None:
        with self._told("written"):
            descriptor, name = tempfile.mkstemp(prefix=self.path.name, dir=self.path.parent)  # 0600 from the first byte
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(content)
                    file.flush()
                    if durable:
                        os.fsync(file.fileno())
                Path(name).replace(self.path)
            except BaseException:
                Path(name).unlink(missing_ok=True)
                raise
            if durable:
                sync_folder(self.path.parent)

    @contextmanager
    def locked(self) -> "Iterator[FileBlob]":
        with ExitStack() as stack:
            with self._told("written"):
                stack.enter_context(locked(self._lock))
            yield self

    @contextmanager
    def try_locked(self) -> "Iterator[FileBlob | None]":
        with ExitStack() as stack:
            blob: FileBlob | None = self
            with self._told("written"):
                try:
                    stack.enter_context(locked(self._lock, wait=False))
                except BlockingIOError:
                    blob = None
            yield blob

    @property
    def _lock(self) -> Path:
        return self.path.with_name(self.path.name + ".lock")

    @contextmanager
    def _told(self, done: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            raise RecordNotWritable(f"{self.path} cannot be {done} ({why}).") from error


def take_lease(path: Path, name: str) -> Lease | None:
    """The lease of a locked file, which is freed at once when its holder dies; None if another process holds it.

    The file stays: after a removal two processes could lock two files of one name. Raises RecordNotWritable if it
    cannot be made or opened.
    """
    lease = Lease()
    try:
        descriptor = lease.enter_context(locked(path, wait=False))
    except BlockingIOError:
        return None
    except OSError as error:
        message = f"The lease {path} cannot be opened ({error.strerror}): check the record's folder and permissions."
        raise RecordNotWritable(message) from None
    before, owner = last_holder(path), new_owner()
    lease.token = 1 if before is None else before.token + 1
    note = {"name": name, "process": os.getpid(), "host": socket.gethostname(), "owner": owner, "token": lease.token}
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, msgspec.json.encode(note) + b"\n", 0)
    return lease


class _Note(msgspec.Struct):
    """The note of a holder in the file of its lease; an older version wrote its process id alone."""

    name: str = ""
    process: int = 0
    host: str = ""
    owner: uuid.UUID = uuid.UUID(int=0)
    token: int = 0


def last_holder(path: Path) -> Holder | None:
    """The last holder of the lease; None: there was none, or its file cannot be read."""
    try:
        text = path.read_bytes()
        note = _Note(process=int(text)) if text.strip().isdigit() else msgspec.json.decode(text, type=_Note)
    except (OSError, msgspec.MsgspecError):
        return None
    return Holder(
        name=note.name,
        process=note.process,
        host=note.host,
        worker=worker_of(note.owner),
        token=note.token,
        since=since_of(note.owner),
        seconds_left=None if _is_locked(path) else 0,
    )


def _is_locked(path: Path) -> bool:
    """True if a process holds it. Looking takes the lock for a moment, in which a taker finds it held."""
    try:
        with locked(path, os.O_RDONLY, fcntl.LOCK_SH, wait=False):
            return False
    except OSError as error:
        return isinstance(error, BlockingIOError)


@contextmanager
def locked(
    path: Path, flags: int = os.O_CREAT | os.O_RDWR, lock: int = fcntl.LOCK_EX, *, wait: bool = True
) -> Iterator[int]:
    """Holds the lock of the file at `path`, which is made, or of a folder (`O_RDONLY`); waits for other holders.
    BlockingIOError: there is one, and `wait` is false.
    """
    descriptor = os.open(path, flags | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, lock if wait else lock | fcntl.LOCK_NB)
        yield descriptor
    finally:
        os.close(descriptor)


def sync_folder(path: Path) -> None:
    """Wait until the disk has the names of the files in a folder."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
