"""For tests of what uses a record: a clock that stands still, a record in a folder, and given/when/then.

with temporary_record(tmp_path) as record:
    case = Case(record)
    case.given("run/1", requested)
    case.when(lambda: my_command(record))
    case.then("run/1", SubmitIntended(...))
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self, TypeVar

from steno.events.clock import SECOND, Stamp, SteadyClock
from steno.events.poll import Poll
from steno.events.shape.shape import Router, no_shapes
from steno.events.store.append import Batch
from steno.events.store.record import Record
from steno.events.store.store import Where
from steno.events.types import Event
from steno.projections.read_models.read_models import ReadModels

T = TypeVar("T")

START = 1_795_000_000 * SECOND
"""2026-11-18T11:06:40Z: when a standing clock starts, if nobody says otherwise."""


class StandingClock:
    """A clock that moves only when it is told to, or asked to sleep."""

    def __init__(self, now: int = START) -> None:
        self._now = now

    def now(self) -> int:
        """Where the clock stands, microseconds."""
        return self._now

    def sleep(self, duration: int) -> None:
        """Move on by `duration` microseconds, at once."""
        self._now += max(0, duration)


class MachineClock(StandingClock, SteadyClock):
    """A standing clock of a machine with a wall clock that a test sets: `wrong` is how far it is ahead."""

    def __init__(self, now: int = START, *, epoch: int = 0x00010001, booted: int = START - 40 * 3600 * SECOND) -> None:
        super().__init__(now)
        self.wrong, self.epoch, self._booted = 0, epoch, booted

    def stamp(self, moment: int) -> Stamp:
        """The readings of the machine's clocks."""
        return Stamp(self.epoch, moment - self._booted, moment + self.wrong)


def temporary_record(
    folder: Path, *, shapes: Router = no_shapes, clock: StandingClock | None = None, name: str = "record.db"
) -> Record:
    """A writable record in `folder`, made if it is not there."""
    return Record.open(folder / name, clock=clock or StandingClock(), write=True, create=True, shapes=shapes)


def read_models_file(record: Where) -> Path:
    """Where SQLite keeps the read models of a record."""
    return Path(str(ReadModels(record)))


def poll_of(
    body: bytes | None,
    *,
    path: str = "/api/runs/list",
    req: bytes = b'{"project_name":"main"}',
    at: int = START,
    took: int = 20_000,
    status: int | None = 200,
    answered: bool = True,
    source: str = "dstack/main",
    error: str | None = None,
) -> Poll:
    """A poll whose answer came at `at`."""
    return Poll(
        source=source,
        path=path,
        req=req,
        started_at=at - took,
        observed_at=at,
        status=status,
        error=error,
        body=body,
        text=body is not None and body.startswith(b'"'),
        answered=answered,
    )


class Case:
    """Given, when, then: the past, an action, and the events that it must record."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self._before = record.head().position

    def given(self, stream: str, *events: Event) -> Self:
        """Record events that are the past."""
        self.record.append_many([Batch(stream, events)])
        self._before = self.record.head().position
        return self

    def when(self, act: Callable[[], T]) -> T:
        """Do it; what it gives."""
        return act()

    def then(self, stream: str, *expected: Event) -> Self:
        """Exactly these events were recorded on the stream since the past.

        Raises:
            AssertionError: others were.
        """
        recorded: Sequence[Event] = [stored.data for stored in self.record.read(after=self._before, stream=stream)]
        if list(recorded) != list(expected):
            raise AssertionError(f"{stream}: expected {list(expected)}, found {list(recorded)}")
        return self
