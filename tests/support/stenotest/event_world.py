"""A world that is told polls and events in turn: what real servers and our own decisions do to one machine."""

from typing import Any

from steno.engine.fold.fold import Fold
from steno.engine.fold.poll_reader import PollReader
from steno.engine.providers.dstack.words import MARK
from steno.engine.providers.registry import READINGS
from steno.engine.state.run import Run
from steno.engine.state.vm import Vm
from steno.events import types
from steno.events.clock import SECOND, foreign_run_id
from stenotest.dstack_history import START, DstackHistory, Item, job, run_item, submission
from stenotest.machines import HOST, machine_item

SOURCE = "dstack/main"
OURS = "11111111-2222-4333-8444-555555555555"
VM = foreign_run_id("dstack", machine_item()["id"])


class EventWorld:
    """A world that is told polls and events in turn."""

    def __init__(self) -> None:
        self.world = Fold(READINGS)
        self.story = DstackHistory()
        self.reader = PollReader(READINGS)
        self.position = 0

    def _fold(self) -> None:
        for _, poll in self.story.polls():
            if poll is not None:
                self.position += 1
                self.world.apply(self.reader.read(self.position, poll))
        self.story.lines.clear()

    def rows(self, *rows: Item, after: float = 5) -> "EventWorld":
        """The list of machines shows these, `after` seconds after what came before."""
        self.story.wait(after).machines(*rows)
        self._fold()
        return self

    def runs(self, *items: Item, after: float = 5) -> "EventWorld":
        """The list of runs shows these."""
        self.story.wait(after).listed(*items)
        self._fold()
        return self

    def event(self, event: types.Event) -> "EventWorld":
        """Fold one of our own events."""
        self.position += 1
        self.world.apply_event(self.position, START + round(self.story.now * SECOND), event)
        return self

    def watch(self, minutes: float, *rows: Item) -> "EventWorld":
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
        (run,) = self.world.state.runs.all()
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
    newest = submission(status, submitted=submitted, hostname=host, price=1.99, **more)
    word = {"done": "done", "failed": "failed", "terminated": "terminated"}.get(status, "running")
    return run_item(name, word, job(newest), submitted=submitted)


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
