"""The change at a position as one message of an event stream: the same bytes whenever it is made."""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import msgspec

from steno.engine.fold.fold import Fold
from steno.engine.fold.poll_reader import Until
from steno.engine.fold.record_fold import RecordFold
from steno.engine.money.costs import Costs, charges
from steno.engine.money.use_split import UseSplitter, split_of_run
from steno.engine.objects import RunObject, VmObject, run_object, vm_object
from steno.engine.replay.result import fill_costs
from steno.engine.rules.sets import CURRENT
from steno.engine.state.changes import Change, Moved, VmMoved
from steno.engine.state.world import World
from steno.events.clock import format_time
from steno.events.store.record import Record, Stored
from steno.events.types import ProviderEventSeen, RunObserved, SubmitSucceeded, VmObserved

_AHEAD: Final = 32  # events read at a time after the end, for the observations of the last poll
_OBSERVED = (RunObserved, VmObserved, ProviderEventSeen)


class Frame(NamedTuple):
    position: int
    about: frozenset[str]  # its own stream, those of its runs and machines, and of runs on these machines
    data: bytes  # `id: …`, `data: …` and an empty line


def event_id(position: int, digest: str) -> bytes:
    """The `id` of a message; the start of the chain's hash tells a restored record from the former record."""
    return b"%d-%b" % (position, digest[:8].encode())


class FrameMaker:
    """Makes frames during a fold, as an `steno.engine.live.live_world.Observer`."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []  # of the positions that `begin` named, in order
        self.events: list[Stored] = []  # the events of those positions
        self._at: dict[int, Stored] = {}  # position → event
        self._groups: dict[int, list[Stored]] = {}  # poll → its observations
        self._seen_with: dict[int, set[str]] = {}  # poll → the streams of its observations

    def start(self, record: Record, state: World, position: int) -> None:  # noqa: ARG002
        """Observe another world, or the same after changes that were not observed; it is at `position`."""
        self.record, self.state, self._costs = record, state, Costs(state)

    def begin(self, after: int, until: int, *, more: bool = True) -> tuple[int, ...]:
        """Announce the fold of `(after, until]`; returns its polls with observations, after each of which to call
        `reached`.
        """
        self.frames = []
        self._costs.moved()
        self.events = list(self.record.read(after=after, until=until))
        self._at = {event.position: event for event in self.events}
        self._groups = {}
        for stored in self.events:
            if isinstance(stored.data, _OBSERVED):
                self._groups.setdefault(stored.data.poll, []).append(stored)
        self._seen_with = {poll: {event.stream for event in group} for poll, group in self._groups.items()}
        if more:
            self._look_ahead(after, until)
        for poll in self._groups:
            if poll <= after:
                self.reached(poll)
        return tuple(poll for poll in self._groups if poll > after)

    def reached(self, poll: int) -> None:
        self._costs.moved()
        self._fill(event.stream.removeprefix("run/") for event in self._groups[poll])
        for observation in self._groups[poll]:
            self._add(observation, (), ())

    def _look_ahead(self, after: int, until: int) -> None:
        """Read the last poll's observations behind `until`: they report their changes, not the poll."""
        place, more = until, True
        while more:
            more = False
            for event in self.record.read(after=place, limit=_AHEAD):
                if not isinstance(event.data, _OBSERVED) or event.data.poll > until:
                    return
                if event.data.poll > after:
                    self._seen_with.setdefault(event.data.poll, set()).add(event.stream)
                place, more = event.position, True

    # -- one position ------------------------------------------------------------------------------------------------

    def changed(self, position: int, changes: tuple[Change, ...]) -> None:
        """Process an event that is not an observation, after it is folded."""
        event = self._at[position]
        self._costs.moved()
        if event.type == "PollRecorded":  # it gives a message only where it moved something by itself
            runs, vms = self._changed(changes, self._seen_with.get(position, set()))
            if runs or vms:
                self._add(event, runs, vms)
            return
        runs, vms = self._changed(changes, {event.stream})
        named: str = getattr(event.data, "run_id", None) or ""
        if named in self.state.runs and named not in runs and event.stream != f"run/{named}":
            runs = (*runs, named)  # what is made again loses its provider's id, though it may not move
        if isinstance(event.data, SubmitSucceeded) and named in self.state.runs:
            # its machines may have had another id until now
            vms = (*vms, *dict.fromkeys(self.state.runs[named].links.values()))
        self._add(event, runs, vms)

    def _changed(self, changes: Iterable[Change], reported: set[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """(runs, machines) that changed, in order, without those in `reported`, whose own events report them."""
        runs: dict[str, None] = {}
        vms: dict[str, None] = {}
        for change in changes:
            if isinstance(change, Moved):
                if f"run/{change.run_id}" not in reported and change.run_id in self.state.runs:
                    runs[change.run_id] = None
            elif isinstance(change, VmMoved) and f"vm/{change.vm_id}" not in reported:
                vms[change.vm_id] = None
        return tuple(runs), tuple(vms)

    def _add(self, event: Stored, runs: tuple[str, ...], vms: tuple[str, ...]) -> None:
        """Make the frame of an event, with the objects that it changed."""
        about = {event.stream}
        message: dict[str, Any] = {
            "position": event.position,
            "event": event.type,
            "stream": event.stream,
            "at": format_time(event.observed_at),
        }
        kind, _, own = event.stream.partition("/")
        if not isinstance(event.data, RunObserved):
            self._fill((own, *runs))
        if kind == "run" and own in self.state.runs:
            message["run"] = self._run_object(own)
        elif kind == "vm" and own in self.state.vms:
            message["vm"] = self._vm_object(own, about)
        if runs:
            message["runs"] = [self._run_object(run_id) for run_id in runs]
            about.update(f"run/{run_id}" for run_id in runs)
        if vms:
            message["vms"] = [self._vm_object(vm_id, about) for vm_id in vms]
        data = b"id: %b\ndata: %b\n\n" % (event_id(event.position, event.hash), msgspec.json.encode(message))
        self.frames.append(Frame(event.position, frozenset(about), data))

    def _fill(self, run_ids: Iterable[str]) -> None:
        runs = self.state.runs
        fill_costs(self.record, [run for run_id in run_ids if (run := runs.get(run_id)) is not None])

    def _run_object(self, run_id: str) -> RunObject:
        costs = self._costs
        return run_object(self.state.runs[run_id], CURRENT, costs.of_run(run_id), split_of_run(costs, run_id))

    def _vm_object(self, vm_id: str, about: set[str]) -> VmObject:
        vm = self.state.vms[vm_id]
        about.add(f"vm/{vm_id}")
        about.update(f"run/{occupant.run_id}" for occupant in vm.occupants)
        made_for = self.state.runs.get(vm.made_for or "")
        if made_for is not None and not made_for.terminal:
            about.add(f"run/{made_for.run_id}")
        bill = self._costs.bill(vm_id)
        return vm_object(vm, bill, UseSplitter(self.state).total(charges(bill)))


class Framer(FrameMaker):
    """A separate fold that makes frames, for a part of the record that is not being folded now."""

    def __init__(self, record: Record, world: Fold, position: int) -> None:
        super().__init__()
        self.position = position
        self.used_at = 0.0  # when it last made frames, seconds of the monotonic clock
        self._fold = RecordFold(record, world)
        self.start(record, world.state, position)

    def skip(self, until: int) -> None:
        if until > self.position:
            self._fold.run(Until(position=until))
            self.position = until
            self.start(self.record, self.state, until)

    def advance(self, until: int) -> list[Frame]:
        """Advance to `until`, at most the record's head, and return the frames on the way."""
        for poll in self.begin(self.position, until):
            self._fold.run(Until(position=poll), self.changed, repeats=False)
            self.reached(poll)
        self._fold.run(Until(position=until), self.changed, repeats=False)
        self.position = until
        return self.frames
