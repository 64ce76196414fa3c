"""A record that is told polls and events step by step, and the read models that a writer makes of it."""

from collections.abc import Sequence
from pathlib import Path

from steno.engine.providers.registry import READINGS
from steno.engine.state.policy import Policy, dump_policy
from steno.events import types
from steno.events.clock import SECOND, SystemClock
from steno.events.store.record import ANY, Batch, Record
from steno.projections.read_models.projection_writer import ProjectionWriter
from steno.projections.read_models.store import ProjectionStore
from stenotest.dstack_history import START, DstackHistory, Item

SOURCE = "dstack/main"
STEP = 5


class Standing(SystemClock):
    """A clock that stands, until it is set."""

    def __init__(self) -> None:
        self.moment = START

    def now(self) -> int:
        """Always the same."""
        return self.moment


class Telling:
    """A record that is told polls and events, and the projections that one keeper makes of it."""

    def __init__(self, path: Path) -> None:
        self.clock = Standing()
        self.story = DstackHistory()
        self.record = Record.open(path, write=True, create=True, shapes=READINGS.shape, clock=self.clock)
        self.store = ProjectionStore.create(None)
        self.keeper = ProjectionWriter(self.record, self.store, spacing=1 << 62)

    def __enter__(self) -> "Telling":
        return self

    def __exit__(self, *_: object) -> None:
        self.store.close()
        self.record.close()

    def event(self, stream: str, event: types.Event) -> None:
        """Something we did ourselves, at the story's moment."""
        self.clock.moment = START + round(self.story.now * SECOND)
        self.record.append_many([Batch(stream=stream, events=[event], expected_version=ANY)])

    def adopted(self, policy: Policy) -> None:
        """A policy is in force from now on."""
        self.event(f"queue/{SOURCE}", types.PolicyAdopted(source=SOURCE, policy=dump_policy(policy)))

    def look(
        self,
        runs: Sequence[Item] = (),
        machines: Sequence[Item] = (),
        after: float = STEP,
        *,
        log: Sequence[Item] = (),
    ) -> None:
        """The next answers of both lists, some seconds later, and the provider's log where it has one."""
        self.story.wait(after).listed(*runs).machines(*machines)
        if log:
            self.story.logged(*log)
        self.record.append_polls([poll for _, poll in self.story.polls() if poll is not None])
        self.story.lines.clear()

    def caught_up(self, *, restarted: bool = False) -> ProjectionStore:
        """The projections, up to the head."""
        if restarted:
            self.keeper = ProjectionWriter(self.record, self.store, spacing=1 << 62)
        self.keeper.advance(self.record.head().position)
        return self.store
