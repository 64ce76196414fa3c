"""A world that is told polls and events in turn: what real servers and our own decisions do to one machine."""

from typing import Any

from engine.fold.run import Run
from engine.fold.tick import PollReader
from engine.fold.vm import Vm
from engine.fold.world import World
from engine.providers.dstack.words import MARK
from engine.providers.readings import READINGS
from events import types
from events.clock import SECOND, foreign_run_id
from stenotest.machines import HOST, machine_item
from stenotest.story import START, Item, Story, job, run_item, submission

SOURCE = "dstack/main"
OURS = "11111111-2222-4333-8444-555555555555"
VM = foreign_run_id("dstack", machine_item()["id"])


class Told:
    """A world that is told polls and events in turn."""

    def __init__(self) -> None:
        self.world = World(READINGS)
        self.story = Story()
        self.reader = PollReader(READINGS)
        self.position = 0

    def _fold(self) -> None:
        for _, poll in self.story.polls():
            if poll is not None:
                self.position += 1
                self.world.apply(self.reader.read(self.position, poll))
        self.story.lines.clear()

    def rows(self, *rows: Item, after: float = 5) -> "Told":
        """The list of machines shows these, `after` seconds after what came before."""
        self.story.wait(after).machines(*rows)
        self._fold()
        return self

    def runs(self, *items: Item, after: float = 5) -> "Told":
        """The list of runs shows these."""
        self.story.wait(after).listed(*items)
        self._fold()
        return self

    def event(self, event: types.Event) -> "Told":
        """One of our own events."""
        self.position += 1
        self.world.apply_event(self.position, START + round(self.story.now * SECOND), event)
        return self

    def watch(self, minutes: float, *rows: Item) -> "Told":
        """The same rows every 30 s for so long."""
        for _ in range(round(minutes * 2)):
            self.rows(*rows, after=30)
        return self

    @property
    def vm(self) -> Vm:
        """The machine `VM`."""
        return self.world.state.vms[VM]

    @property
    def run(self) -> Run:
        """The only run."""
        (run,) = self.world.state.runs.values()
        return run

    @property
    def anomalies(self) -> list[str]:
        """The kinds told so far."""
        return [anomaly.kind.value for anomaly in self.world.state.anomalies]

    def at(self, seconds: float) -> int:
        """The moment so many seconds after the start (microseconds, UTC)."""
        return START + round(seconds * SECOND)


def on(
    name: str = "a", status: str = "running", *, submitted: float = -10, host: str | None = HOST, **more: Any
) -> Item:
    """A run whose one submission is on a machine."""
    shown = submission(status, submitted=submitted, hostname=host, price=1.99, **more)
    word = {"done": "done", "failed": "failed", "terminated": "terminated"}.get(status, "running")
    return run_item(name, word, job(shown), submitted=submitted)


def marked(item: Item, mark: object = OURS) -> Item:
    """The same run, submitted with our mark."""
    spec = item["run_spec"]
    return {**item, "run_spec": {**spec, "configuration": {**spec["configuration"], "tags": {MARK: mark}}}}


def drain(**more: Any) -> types.VmDrainStarted:
    """A drain of `VM`, for idleness unless said otherwise."""
    return types.VmDrainStarted(vm_id=VM, provider="dstack", **{"by": "idle", **more})


def intended(by: Any = "idle") -> types.VmStopIntended:
    """We are about to tell `VM` to end."""
    return types.VmStopIntended(vm_id=VM, provider="dstack", provider_id=machine_item()["id"], by=by)


TAKEN = types.VmStopSucceeded(vm_id=VM, provider="dstack")
HANDED = types.SubmitIntended(run_id=OURS, provider="dstack", name="a", marked=True)
"""We are about to hand the run `OURS` over."""
REFUSED = types.VmStopFailed(vm_id=VM, provider="dstack", error="Fleet is in use")


def requested(**more: Any) -> types.RunRequested:
    """A request for the run `OURS`, named a."""
    given = {"configuration": b'{"resources":{"gpu":"MI300X"}}', "submitter": "me", "fallback": ()}
    return types.RunRequested(run_id=OURS, provider="dstack", project="main", name="a", **{**given, **more})
