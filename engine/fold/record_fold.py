"""The fold of a record. Most polls repeat the one before; those are folded without reading their answer again.

A lane is one question to one source. If a poll repeats its lane's last answer and nothing else has changed at that
source, only times move: they are collected, and written to the lane's runs and machines at the next change. A property
test compares this with a fold of every poll in full.
"""

from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from steno.engine.fold.chains import foreign_ids
from steno.engine.fold.fold import Fold
from steno.engine.fold.lanes import NEVER, Lane, SourceLanes
from steno.engine.fold.machines import ending_due, outlives
from steno.engine.fold.poll_reader import PollReader, Until
from steno.engine.fold.record_time import NEAR, UNSEEN, shows_new
from steno.engine.fold.run_step import cost_is_whole
from steno.engine.fold.vm_step import is_doubtful
from steno.engine.rules.sets import ObservationFilter
from steno.engine.state.archives import polled
from steno.engine.state.changes import Change, Moved, Touched, VmMoved
from steno.engine.state.reading import Seen, Tick
from steno.engine.state.run import Run
from steno.engine.state.sources import Source, is_page
from steno.engine.state.states import VmState
from steno.events.clock import foreign_run_id
from steno.events.poll import Poll
from steno.events.types import Event, SamplesRecorded, SourceHidden, SourceShown, SubmitSucceeded

if TYPE_CHECKING:
    from steno.events.store.record import Record

_RECORDED: Final = 1
_FAILED: Final = 2
_LANES: Final = 512
_SOURCE: Final = "source/"
_POLLS: Final = frozenset({"PollRecorded", "PollFailed"})
_NOBODY: Final = SourceLanes(Source(name=""))  # stands for a source without a folded poll


class RecordFold:
    """Folds the polls and intents of a record into a world, from the world's position on."""

    def __init__(
        self,
        record: "Record",
        world: Fold,
        touched: Touched | None = None,
        *,
        polls_of: Collection[str] | None = None,
    ) -> None:
        """`touched` collects every run and machine that may have changed; `polls_of`: the streams whose polls are
        folded, None for all.
        """
        self.record = record
        self._polls_of = polls_of
        self._touched = touched
        self.world = world
        self._sources: dict[int, SourceLanes] = {}
        self._lanes = 0  # of all sources
        self._reader = PollReader(world.readings)
        self._repeats = world.rules.watch is not ObservationFilter.CLOCK
        self._follow()

    def run(
        self,
        until: Until | None = None,
        each: Callable[[int, tuple[Change, ...]], None] | None = None,
        *,
        repeats: bool = True,
    ) -> None:
        """Fold everything after the world's position, up to `until`. `each` gets the changes of every event, with the
        world as it is after it; without `repeats`, not of polls that only repeat the one before: they change
        nothing.
        """
        limit = until if until is not None else Until()
        state = self.world.state
        sources = self._sources if self._repeats and (each is None or not repeats) else {}
        current, source, lanes = -1, _NOBODY, _NOBODY.lanes
        repeated, folded = 0, state.position
        end, time = limit.at, self.world.time
        rows = self.record.scan(after=state.position, until=limit.position, polls_of=self._polls_of)
        # Most rows end in the first branch, which runs a million times: keep it short.
        for position, kind, stream, at, took, scope_id, listing_id, clock in rows:
            if clock is not None and not time.agrees(at, clock):
                at = self.dated(position, kind, stream, at, clock)  # noqa: PLW2901 - the record time from here on
            if end is not None and at > end:
                continue
            if stream != current:
                current, source = stream, sources.get(stream, _NOBODY)
                lanes = source.lanes
            lane = lanes.get(scope_id)
            if (
                lane is not None
                and kind == _RECORDED
                and not time.news
                and 0 <= at - source.heard <= source.gap
                and (
                    lane.mute
                    or (
                        lane.listing == listing_id
                        and (lane.changes == source.changes or lane.dates)
                        and (lane.empty or at - took >= source.newest)
                    )
                )
            ):
                if lane.watched:
                    source.heard = at
                if not lane.empty:
                    source.newest = lane.started = at - took
                    lane.position, lane.at = position, at
                if at > source.at:
                    source.at, source.position = at, position
                repeated += 1
                folded = position
                continue
            folded = position
            if kind > _FAILED:
                changes = self._event(position, at)
            else:
                if clock is None and at - max(source.heard, source.newest) > UNSEEN:
                    at = self.dated(position, kind, stream, at, clock)  # noqa: PLW2901
                changes = self._whole(position, kind, stream, at, took, scope_id, listing_id)
                current = -1
            if each is not None:
                each(position, changes)
        self._write_down()
        state.events += repeated
        state.position = max(state.position, folded)

    def stream_of(self, provider: str, poll: Poll, kind: str, provider_id: str, item: int) -> str:
        """The stream of an item that is being appended, as folding it would decide: it is read once, here."""
        scope, reading = self.world.readings.asked(poll.path, poll.req)
        if kind == "run" and reading is not None:
            try:
                contents = self._reader.item(scope, reading, item, self.record.item, costs=False)
            except ValueError:  # unreadable without its volatile values
                contents = self._reader.read(0, poll).runs
            for seen in contents:
                if isinstance(seen, Seen) and seen.facts.provider_id == provider_id:
                    return f"run/{self.world.identify(provider, seen.facts)}"
        return f"{kind}/{foreign_run_id(provider, provider_id)}"

    def forget_items(self) -> None:
        """An append was rolled back: the ids of its items may be used again."""
        self._reader.forget()

    def dated(self, position: int, kind: int, stream: int, at: int, clock: bytes | None) -> int:
        """The record time of an event."""
        time = self.world.time
        if kind > _FAILED:
            return at if clock is None else time.of(position, at, clock, self._newest())
        lanes = self._sources.get(stream)
        name = self.record.stream_name(stream).removeprefix(_SOURCE) if lanes is None else lanes.state.name
        source = self.world.source(name)
        if clock is None:
            before = max(source.last_answered or NEVER, source.imported_to or NEVER, lanes.newest if lanes else NEVER)
            return time.of_old(position, at, before if before > 0 else None, lambda: self._later(position, name))
        if source.archive is None:
            source.archive = self.record.is_imported(position)
        newest = self._newest() if not source.archive else max(source.imported_to or 0, lanes.at if lanes else 0)
        return time.of(position, at, clock, newest, source, lambda: self.record.server_time(position))

    def _later(self, position: int, source: str) -> Iterator[int]:
        """When the next poll of a source was observed, if it is near and has no stamp."""
        polls = self.record.read(after=position, stream=_SOURCE + source, types=_POLLS, until=position + NEAR, limit=1)
        return (poll.observed_at for poll in polls if poll.clock is None)

    def _newest(self) -> int:
        """The record time of the newest poll of any live source; 0: there is none."""
        pending = (source.at for source in self._sources.values() if not source.state.archive)
        return max(self.world.state.last_at or 0, *pending, 0)

    def clear_lanes(self) -> None:
        """Drop every reference to a run or machine. The next answer of each lane is read in full."""
        self._write_down()
        for source in self._sources.values():
            source.lanes.clear()
        self._lanes = 0
        self.world.listed = []

    def _whole(
        self, position: int, kind: int, stream: int, at: int, took: int, scope_id: int | None, listing_id: int | None
    ) -> tuple[Change, ...]:
        """Fold one poll in full."""
        lane = self._lane(stream, scope_id)
        source = lane.source
        self._write_down()
        tick = self._tick(lane, position, kind, at, took, listing_id)
        skew, changed_at = source.state.skew, source.changed_at
        changes = self.world.apply(tick)
        if changes or self.world.found_again:
            orphans = source.state.name in self.world.state.policies
            source.changed(lane if source.state.skew == skew else None, orphans=orphans)
            source.changed_at = at
        if len(self._sources) > 1:
            self._tell_others(source, changes, at)
        if lane.shows is not None and kind == _RECORDED:
            listed, paged = lane.listing, lane.page
            # A late answer may have moved nothing: what it shows was not used, so an equal one may not be skipped.
            # Nor one asked before what it leaves out was known: an equal one may prove absence.
            late = tick.started_at < source.newest or (lane.scope.covers is not None and tick.started_at < changed_at)
            lane.listing = None if late else listing_id
            lane.changes = source.changes
            source.newest = max(source.newest, tick.started_at)
            lane.listed = tuple(self.world.listed)
            runs = [thing for thing in lane.listed if isinstance(thing, Run)]
            lane.only_runs = lane.shows == "run" and len(runs) == len(lane.listed)
            lane.costed = tuple([run for run in runs if run.facts is not None and cost_is_whole(run.facts, tick.scope)])
            lane.page = tick.ids if is_page(tick.scope, len(tick.runs) or len(tick.vms)) else None
            if lane.listing != listed and (paged, lane.page) != (None, None):
                source.turned()
            lane.empty = not (lane.listed or lane.newest or lane.page is not None)
            self._touch(lane)
        self._follow()
        return changes

    def _tell_others(self, source: SourceLanes, changes: tuple[Change, ...], at: int) -> None:
        """Read the answers of other sources again if they list what this one changed, or just left out."""
        state, names = self.world.state, set[str]()
        for change in changes:
            if isinstance(change, Moved):
                names.update(state.runs[change.run_id].started)
            elif isinstance(change, VmMoved):
                names.update(state.vms[change.vm_id].started)
        for vm in state.vms.open():
            if vm.missing is not None and (vm.missing.source, vm.missing.at) == (source.state.name, at):
                names.update(vm.started)
        for other in self._sources.values():
            shared = other.state.name in names or (bool(names) and (source.everywhere or other.everywhere))
            if other is not source and shared:
                other.changed(None)

    def _event(self, position: int, at: int) -> tuple[Change, ...]:
        """Fold one of our own events; the next poll of every lane is read again."""
        self._write_down()
        event = self.record.event(position)
        changes = self.world.apply_event(position, at, event)
        if self._touched is not None:
            self._touch_event(event, self._touched)
        if not isinstance(event, SamplesRecorded):  # no reading of a poll depends on samples
            for source in self._sources.values():
                source.changes += 1
            self._follow()
        return changes

    def _touch(self, lane: Lane) -> None:
        if self._touched is not None:
            self._touched.add(thing.run_id if isinstance(thing, Run) else thing.vm_id for thing in lane.listed)

    def _touch_event(self, event: Event, touched: Touched) -> None:
        """Note the changes of an event beside those that `apply_event` reports."""
        state = self.world.state
        match event:
            case SourceHidden() | SourceShown():
                touched.add(run.run_id for run in state.runs.all() if run.archive == event.source)
                touched.add(vm.vm_id for vm in state.vms.all() if vm.archive == event.source)
            case SubmitSucceeded():
                # A foreign run may turn out to be this run: it disappears, and its machines become this run's.
                run = state.runs.get(event.run_id)
                submitted_at = None if run is None else run.submitted_at
                touched.add((event.run_id, *foreign_ids(event.provider, event.provider_id, submitted_at)))
                touched.add(() if run is None else run.links.values())
            case _:
                touched.add(filter(None, (getattr(event, name, None) for name in ("run_id", "vm_id"))))

    def _write_down(self) -> None:
        for source in self._sources.values():
            for lane in source.write_down(self.world.state.sweeps):
                self._touch(lane)
            if source.at:
                polled(self.world.state, source.state, source.at, source.position)
                source.at = 0

    def _follow(self) -> None:
        """Continue each source from the world's position; a machine's graces count in the time of its own source."""
        state, absent, ending = self.world.state, False, set[str]()
        for run in state.runs.open():
            if run.missing is not None or outlives(state, run):
                absent = True
                break
        for vm in state.vms.open():
            if vm.missing is not None and vm.state is not VmState.UNCONFIRMED:
                absent = True
            if is_doubtful(vm) or (vm.ending_from is not None and ending_due(vm) is not None):
                ending.add(vm.source)
        for source in self._sources.values():
            source.follow(absent=absent, ending=source.state.name in ending)

    def _lane(self, stream: int, scope_id: int | None) -> Lane:
        source = self._sources.get(stream)
        if source is None:
            name = self.record.stream_name(stream).removeprefix(_SOURCE)
            source = self._sources[stream] = SourceLanes(self.world.source(name))
        lane = source.lanes.get(scope_id)
        if lane is None:
            if self._lanes >= _LANES:
                self.clear_lanes()
            question = self.record.scope(scope_id) if scope_id is not None else None
            path, req = (question.path, bytes(question.req)) if question is not None else ("", b"null")
            scope, reading = self.world.readings.asked(path, req)
            lane = source.lanes[scope_id] = Lane(source, scope, reading)
            source.everywhere = source.everywhere or (lane.shows is not None and scope.project is None)
            self._lanes += 1
        return lane

    def _tick(self, lane: Lane, position: int, kind: int, at: int, took: int, listing_id: int | None) -> Tick:
        """The facts of a poll; only new items are read."""
        source, scope, reading = lane.source.state, lane.scope, lane.reading
        answered, fields = kind == _RECORDED, dict[str, Any]()
        # Checked at a source's first poll only.
        imported = source.archive is None and self.record.is_imported(position)
        if answered and reading is not None and lane.shows is not None and listing_id is not None:
            listing, items = self.record.children(listing_id)
            if listing == lane.shows:
                fields = self._reader.items(scope, reading, items, self.record.item, costs=False)
            if listing != lane.shows or fields["odd"]:
                read = self._reader.read(position, self.record.poll(position))
                return replace(read, started_at=at - took, observed_at=at, imported=imported)
        new = shows_new(self.world.state, scope.provider, fields.get("runs", ()), fields.get("vms", ()))
        return Tick(
            position=position,
            source=source.name,
            scope=scope,
            started_at=at - took,
            observed_at=at,
            answered=answered,
            imported=imported,
            server_time=self.record.server_time(position) if new else None,
            **fields,
        )
