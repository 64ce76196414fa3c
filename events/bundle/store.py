"""A bundle as a record that is only read: unpacked to a file of this process, every event at its position."""

import secrets
import shutil
import tempfile
import weakref
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from steno.events.bundle.form import BundleEvent, BundleOutput, BundlePart, Checker
from steno.events.clock import Clock
from steno.events.errors import RecordDamaged, RecordNotWritable
from steno.events.store.chain import committer, mark
from steno.events.store.output_rows import KEEP
from steno.events.store.parts import WRITER_CACHE, Parts
from steno.events.store.sqlite.store import SqliteSession, SqliteStore
from steno.events.store.store import FORMAT, Holder, Identity, Session


class BundleStore(SqliteStore):
    """The record in a bundle. No name in the bundle names a file: it unpacks to one file in a folder of its own."""

    is_bundle = True

    def __init__(self, place: str) -> None:
        folder = tempfile.mkdtemp(prefix="steno-bundle-")
        super().__init__(f"{folder}/record.db")
        self._bundle = Path(place).expanduser()
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)

    def __str__(self) -> str:
        return str(self._bundle)

    def leases(self) -> list[Holder]:
        return []

    def open(self, *, write: bool, create: bool, check: bool, clock: Clock) -> SqliteSession:  # noqa: ARG002
        """Raises RecordDamaged at the first line that was changed, or where the file is cut."""
        if write:
            raise RecordNotWritable(f"{self} is an incident bundle, which is only read: give another record.")
        if not self.path.exists():
            checker = Checker(self._bundle)
            own, key = checker.manifest, secrets.token_bytes(32)
            identity = Identity(format=FORMAT, record_id=own.record_id, key=key, created_at=own.created_at)
            self.create(identity)
            try:
                with closing(super().open(write=True, create=False, check=False, clock=clock)) as session:
                    self._fill(session, checker)
            except BaseException:
                self.path.unlink()
                raise
        return super().open(write=False, create=False, check=check, clock=clock)

    def _fill(self, session: Session, checker: Checker) -> None:
        """Write the rows of a bundle in one transaction."""
        parts = Parts(session, committer(session.identity).shared, cache=WRITER_CACHE)
        ids: dict[int, int] = {}
        streams: dict[str, tuple[int, int]] = {}  # id and version
        rows: list[tuple[Any, ...]] = []
        outputs: list[tuple[int, bytes]] = []
        with session.guard():
            session.begin(durable=False, locked=True)
            for line in checker.lines():
                if checker.damage:
                    break
                if isinstance(line, BundlePart):
                    ids[line.part] = parts.put(line.content, tuple([ids[part] for part in line.parts]))
                elif isinstance(line, BundleOutput):
                    outputs.append((line.position, line.data))
                elif line.data is not None:
                    rows.append(_row(line, ids, streams, session))
            for damage in checker.damage:
                where = "" if damage.position is None else f" at position {damage.position}"
                raise RecordDamaged(
                    f"The bundle {self} is damaged{where} ({damage.detail}): run `steno verify {self}`."
                )
            session.add_events(rows)
            for row in outputs:
                session.run(KEEP, *row)
            head = checker.manifest.head
            session.commit(
                (head.position, bytes.fromhex(head.hash)), [(now, None, None, id_) for id_, now in streams.values()]
            )


def _row(
    event: BundleEvent, ids: dict[int, int], streams: dict[str, tuple[int, int]], session: Session
) -> tuple[Any, ...]:
    stream, before = streams.get(event.stream) or (session.add_stream(event.stream), 0)
    if event.version <= before:
        raise RecordDamaged(f"The event at position {event.position} is out of order in its stream.")
    streams[event.stream] = stream, event.version
    event_id, clock = (None if text is None else bytes.fromhex(text) for text in (event.id, event.clock))
    scope, body = (None if part is None else ids[part] for part in (event.scope, event.body))
    return (
        event.position, stream, event.version, event.type, event_id, event.at, event.took, event.after, scope, body,
        event.data, mark(event.position, bytes.fromhex(event.hash)), clock,
    )  # fmt: skip


STORE: Final = BundleStore
