"""Small files that are either whole or absent, also after a power cut. Standard library only, for the supervisor."""

import json
import os
from collections.abc import Mapping
from pathlib import Path


def write_json(path: Path, value: Mapping[str, object]) -> None:
    """Put `value` at `path` as JSON, readable by the owner only; on return it survives a power cut.

    Raises:
        OSError: nothing was changed at `path`.
    """
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
    """Write every byte of `data`, however many calls that takes."""
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
