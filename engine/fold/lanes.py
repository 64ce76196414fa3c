"""Lanes of a fold: one question to one source each, with the times of its repeated answers."""

from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final

from steno.engine.state.reading import Listing, Reading, Scope
from steno.engine.state.run import Run
from steno.engine.state.sources import BLIND_AFTER, Source, Sweep, is_back, lists_newest, sweep_ended
from steno.engine.state.vm import Vm

NEVER: Final = -(1 << 62)
_POSITION: Final = attrgetter("position")
_SHOWN: Final = {Listing.RUNS: "run", Listing.RUN: "run", Listing.VMS: "vm", Listing.EVENTS: "provider_event"}
"""Listings whose answers are read, and what their items are."""


@dataclass(slots=True, eq=False)
class SourceLanes:
    state: Source
    lanes: dict[int | None, "Lane"] = field(default_factory=dict)  # by the part of the question
    everywhere: bool = False  # it lists other projects' things, and so what other sources list or omit
    heard: int = NEVER  # its last answer, repeated polls included; `NEVER`: the next answer ends a blind time
    newest: int = 0  # the newest `started_at` of a poll folded
    at: int = 0  # the newest `observed_at` of a poll that only repeated
    position: int = 0  # of that poll
    changes: int = 0  # how often something changed a run or a machine
    changed_at: int = 0  # `observed_at` of the newest poll that did
    doubted: bool = False  # a witness of it is or was silent: it may answer what was true before
    gap: int = BLIND_AFTER
    """How long after the last answer a poll may only repeat; negative while any poll may end a grace period."""

    def write_down(self, open_sweeps: dict[str, Sweep]) -> list["Lane"]:
        """Write the times of repeated polls to the source and to what its lanes list; the lanes that had some."""
        state = self.state
        if state.last_answered is not None and self.heard > state.last_answered:
            # No gap between those polls was long: all time between the first and the last is answered time.
            state.answered_time += self.heard - state.last_answered
            state.last_answered = self.heard
        repeated = [lane for lane in self.lanes.values() if lane.position]
        if len(repeated) > 1:
            repeated.sort(key=_POSITION)
        for lane in repeated:
            lane.write_down(open_sweeps)
        return repeated

    def changed(self, lane: "Lane | None", *, orphans: bool = False) -> None:
        """An answer in this lane changed something: read the other lanes' next answers again. Lists of machines need
        that only after a change of machines; lists of runs alone only after one of runs, unless they tell which
        machines are `orphans`. None: the source's clock changed, read all.
        """
        before = self.changes
        self.changes += 1
        if lane is None or (lane.shows == "vm" and orphans):
            return
        for other in self.lanes.values():
            unmoved = other.only_runs if lane.shows == "vm" else other.shows == "vm"
            if unmoved and other.changes == before:
                other.changes = self.changes

    def turned(self) -> None:
        """A page has changed: the pages behind it, though equal, complete another list."""
        for lane in self.lanes.values():
            if lane.page is not None and lane.changes == self.changes:
                lane.changes -= 1

    def follow(self, *, absent: bool, ending: bool) -> None:
        """Continue after an event that was folded in full. While something is missing (`absent`), a machine has been
        told to stop or is in doubt (`ending`), or old answers may come after an outage, each answer counts, so none is
        skipped.
        """
        last = self.state.last_answered
        self.heard = NEVER if last is None or self.state.failed else last
        self.changes += absent or self.doubted
        self.doubted = bool(self.state.silent) or (last is not None and is_back(self.state, last))
        self.gap = -1 if ending else BLIND_AFTER


@dataclass(slots=True, eq=False)
class Lane:
    """A question to a source, and what its last answer showed."""

    source: SourceLanes
    scope: Scope
    reading: Reading | None
    shows: str | None = None
    mute: bool = True  # its answers say nothing of runs or machines
    dates: bool = False  # its answers date events; a date never changes later
    newest: bool = False  # it lists the newest machines
    watched: bool = False
    empty: bool = True  # its last answer listed none that we know, and the time of that answer is not needed
    listing: int | None = None
    listed: tuple[Run | Vm, ...] = ()  # the runs and machines it lists
    only_runs: bool = False  # and no machines beside them
    costed: tuple[Run, ...] = ()  # those whose cost is whole in it
    page: tuple[str, ...] | None = None  # the ids it lists, if it is one page of several; the last page may be empty
    changes: int = -1
    position: int = 0  # of the newest poll that only repeated, like the next two; 0: none since the last write
    started: int = 0
    at: int = 0

    def __post_init__(self) -> None:
        self.shows = _SHOWN.get(self.scope.listing)
        self.mute = self.shows is None
        self.dates = self.shows == "provider_event"
        self.newest = lists_newest(self.scope)
        self.watched = self.scope.watched

    def write_down(self, open_sweeps: dict[str, Sweep]) -> None:
        """Write the times of repeated polls to what it lists, and continue the sweep that it is a page of."""
        if self.page is not None:
            sweep_ended(open_sweeps, self.scope, self.source.state.name, self.started, self.page)
        if self.newest:
            self.source.state.machines_position, self.source.state.machines_at = self.position, self.started
        name, witness = self.source.state.name, self.scope.witness
        for thing in self.listed:
            thing.shown_again(name, self.started, self.position, self.at)
            if witness is not None:
                thing.shown_again(f"{name} {witness}", self.started, self.position, self.at)
        for run in self.costed:
            run.cost_at = max(self.position, run.cost_at or 0)
        self.position = 0
