"""The files of a record's read models. On SQLite `<record>.projections` is a link to the newest of two files.

Readers keep their file until they look again, so reads never stop; the previous file stays for them. Lock files beside
it serialise writers and builders.
"""

import os
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Final
from urllib.parse import quote

from steno.events.store.sqlite.connection import file_id
from steno.events.store.sqlite.files import locked
from steno.events.store.store import Where, store_at
from steno.projections.read_models.store import ProjectionStore, connected

_SIDES: Final = ("-wal", "-shm", "-journal")
_DIGITS: Final = 8
_READS: Final = "PRAGMA query_only = ON", f"PRAGMA mmap_size = {1 << 28}"
"""How a reader begins. What is mapped is read without a system call for each page, in half the time."""


class ReadModels:
    def __init__(self, record: Where) -> None:
        self._path = Path(store_at(record).place("projections").removeprefix("sqlite:///"))
        self._name = str(self._path)

    def __str__(self) -> str:
        """The path, for messages."""
        return self._name

    def open(self, *, write: bool) -> ProjectionStore | None:
        """The current read models; None if missing or unreadable by this version."""
        stamp = self.stamp()
        if stamp is None:
            return None
        path = self._path.resolve()
        for mode in ("rw",) if write else ("rw", "ro", "ro&immutable=1"):
            # A reader of a WAL file creates side files; where it may not, nobody writes either.
            with suppress(sqlite3.Error):
                connection = connected(_uri(path, mode), uri=True)
                store = ProjectionStore(connection, stamp)
                # Damage in the schema's page shows in the checksum.
                if store.checkpoint() is not None and store.get("schema") == store.schema_sum():
                    for line in ("PRAGMA synchronous = NORMAL",) if write else _READS:
                        connection.execute(line)
                    return store
                store.close()
        return None

    def above(self, position: int) -> ProjectionStore | None:
        """A store in memory on top of one of the current moments; None without read models."""
        store, path = ProjectionStore.create(None), self._path.resolve()
        try:
            store.stamp = file_id(path)
            store.attach(_uri(path, "rw"), position)
        except sqlite3.Error:
            store.close()
            return None
        return store

    def stamp(self) -> object:
        """A value that changes on each publication, as `ProjectionStore.stamp`; None without read models."""
        return file_id(self._name)

    def is_current(self, store: ProjectionStore) -> bool:
        """True if an open store is current."""
        return store.stamp is not None and store.stamp == self.stamp()

    def writing(self) -> AbstractContextManager[object]:
        """Wait for and exclude other writers and replacers; raises `OSError` if the folder is not writable."""
        return locked(self._beside(".lock"))

    def building(self) -> AbstractContextManager[object]:
        """Exclude other builders, not writers of the old models; raises `OSError` if the folder is not writable."""
        return locked(self._beside(".building"))

    @contextmanager
    def fresh(self) -> Iterator[tuple[ProjectionStore, Callable[[], None]]]:
        """(a new, empty store, its publish function); removed if not published in the block. The caller is the only
        builder, and publishes as the only writer. Raises `OSError` if the folder is not writable.
        """
        # A fresh name: a reader of a deleted file removes its side files by name.
        path = self._beside(f".{os.urandom(_DIGITS // 2).hex()}")
        try:
            with ProjectionStore.create(path) as store:
                yield store, lambda: self._publish(path)
        finally:
            if self.stamp() is None or self.stamp() != file_id(path):
                _remove(path)

    def discard(self, stamp: object) -> None:
        """Remove unreadable read models if still current; others will be built."""
        with suppress(OSError), self.writing():
            if stamp is not None and self.stamp() == stamp:
                self._path.unlink()

    def _publish(self, built: Path) -> None:
        """Switch the link; remove all but the previous file, also those of dead builders."""
        link = self._beside(".link")
        link.unlink(missing_ok=True)
        before = self._path.readlink().name if self._path.is_symlink() else None
        link.symlink_to(built.name)
        link.replace(self._path)
        if before is None:
            for side in _SIDES:  # of a file that was not a link
                self._beside(side).unlink(missing_ok=True)
        made = re.compile(re.escape(self._path.name) + rf"\.[0-9a-f]{{{_DIGITS}}}")
        for path in self._path.parent.iterdir():
            if made.fullmatch(path.name) and path.name not in (built.name, before):
                _remove(path)

    def _beside(self, suffix: str) -> Path:
        return self._path.with_name(self._path.name + suffix)


def _uri(path: Path, mode: str) -> str:
    return f"file:{quote(str(path))}?mode={mode}"


def _remove(path: Path) -> None:
    for side in ("", *_SIDES):
        path.with_name(path.name + side).unlink(missing_ok=True)
