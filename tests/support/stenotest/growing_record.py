"""A record that grows while its projections are read, for tests."""

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import msgspec

from steno.engine.fold.poll_reader import Until
from steno.engine.providers.registry import READINGS
from steno.engine.replay.replay import replay_record
from steno.events.clock import SystemClock
from steno.events.store.record import Record
from steno.projections.read_models.reader_pool import Behind, Look, Pool
from stenotest.big import polls as looks
from stenotest.dstack_history import START

CLOCK = SystemClock()


class Growing:
    """A record that is appended to, as by a recorder in another process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.record = Record.open(path, write=True, create=True, shapes=READINGS.shape, clock=CLOCK)
        self._looks = looks(START)

    def grow(self, count: int) -> int:
        """So many polls more; the head."""
        self.record.append_polls(list(islice(self._looks, count)))
        return self.record.head().position


@contextlib.contextmanager
def child(program: str, *words: object) -> Iterator[subprocess.Popen[str]]:
    """A Python program as a process with pipes; however the test ends, it has ended and its pipes are closed."""
    with subprocess.Popen(
        [sys.executable, "-c", program, *map(str, words)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()  # does nothing where it has ended and was waited for


def looked(pool: Pool, position: int) -> Callable[[], bool]:
    """True if a reader shows that position."""

    def is_shown() -> bool:
        with contextlib.suppress(Behind), pool.now() as look:
            return look.position >= position
        return False

    return is_shown


def same_as_replay(look: Look) -> None:
    """A look shows the same as a replay of the record up to its position."""
    with Record.open(look.record.store, clock=CLOCK, shapes=READINGS.shape) as record:
        replay = replay_record(record, until=Until(position=look.position)).to_json()
    store = look.view.store
    for name, objects in (
        ("runs", (row.object for row in store.runs.all())),
        ("vms", (row.object for row in store.vms.all())),
        ("anomalies", map(msgspec.json.encode, store.anomalies())),
    ):
        if [msgspec.json.decode(line) for line in objects] != replay[name]:
            raise AssertionError(f"the {name} shown at {look.position} are not those of a replay")
