"""A record that grows while its projections are read, for tests."""

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import msgspec

from engine.fold.tick import Until
from engine.providers.readings import READINGS
from engine.replay.record import replay_record
from events.clock import SystemClock
from events.store.record import Record
from projections.models.reader_pool import Behind, Look, Pool
from stenotest.big import polls as looks
from stenotest.story import START

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


def patiently(wanted: Callable[[], bool], seconds: float = 120) -> None:
    """Wait until it is so."""
    end = time.monotonic() + seconds
    while not wanted():
        if time.monotonic() >= end:
            raise AssertionError("it never came")
        time.sleep(0.01)


def looked(pool: Pool, position: int) -> Callable[[], bool]:
    """Whether a reader shows that position."""

    def shown() -> bool:
        with contextlib.suppress(Behind), pool.now() as look:
            return look.position >= position
        return False

    return shown


def same_as_replay(look: Look) -> None:
    """What a look shows is what a replay of the record up to it says."""
    with Record.open(look.record.store, clock=CLOCK, shapes=READINGS.shape) as record:
        found = replay_record(record, until=Until(position=look.position)).to_json()
    store = look.view.store
    for name, shown in (
        ("runs", (row.object for row in store.runs.all())),
        ("vms", (row.object for row in store.vms.all())),
        ("anomalies", store.anomalies()),
    ):
        if [msgspec.json.decode(one) for one in shown] != found[name]:
            raise AssertionError(f"the {name} shown at {look.position} are not those of a replay")
