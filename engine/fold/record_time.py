"""The record time of events, and provider times by our clock. Record time is the wall clock as each event has it,
without what was wrong with it (docs/adr/0061).

Within one boot of one machine, record time advances by boot time, whatever the wall clock does. A boot begins at its
wall clock, but never before what was seen already. Only while nobody looked does record time follow the wall clock.

A provider's offset from our clock is measured by the HTTP `Date` of answers that show something new. A `Date` has whole
seconds and may be old: a loaded server sent one of 18 s ago. So a date ahead of our clock proves that the provider's is
ahead; one behind it proves nothing until it is older than any server makes it. Provider times are shifted to our clock
only if the two clocks are more than 2 s apart for certain.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, TypeVar

from msgspec.structs import replace

from steno.engine.fold.step import FoldStep
from steno.engine.state.changes import AnomalyKind
from steno.engine.state.facts import AttemptFacts, RunFacts, Schedule, VmFacts
from steno.engine.state.reading import Seen, Tick
from steno.engine.state.sources import Source, skew_of
from steno.engine.state.vm import vm_id_of
from steno.engine.state.world import LEAPT, BootClock, ClockStep, World
from steno.events.clock import BOOT, BOOT_BITS, SECOND, SKEW, Stamp, duration

if TYPE_CHECKING:
    from steno.events.store.record import Stored

UNSEEN: Final = 60 * SECOND  # in a longer time without a poll nobody looked; a poll further ahead is an outlier
NEAR: Final = 1_000  # positions in which the next poll of a source is looked for
_EPOCHS: Final = 16  # of a machine, whose jumps are remembered


class RecordTime:
    """Gives events their record time, in the order of the record."""

    def __init__(self, state: World) -> None:
        self._state = state
        self._epoch, self._offset = -1, 0  # of the newest poll; -1: its wall clock was not record time
        self.news: list[str] = []  # what the wall clock did since a poll was folded, in sentences

    def agrees(self, wall: int, packed: bytes) -> bool:
        """True if the wall clock of an event is its record time, as that of the newest poll of the same epoch was."""
        number = int.from_bytes(packed)
        boot = (number & BOOT) * 1000
        return number >> BOOT_BITS == self._epoch and -SKEW <= wall - boot - self._offset <= SKEW

    def of(
        self,
        position: int,
        wall: int,
        packed: bytes,
        newest: int | None,
        source: Source | None = None,
        server_time: Callable[[], int | None] = lambda: None,
    ) -> int:
        """The record time of the event at `position`. `newest`: that of the newest poll. Of a poll, `source` is who was
        asked, and `server_time` gives the provider's clock.
        """
        if self.agrees(wall, packed):
            return wall
        stamp = Stamp.unpacked(packed, wall)
        archive = source is not None and bool(source.archive)
        if archive:
            stamp = stamp._replace(epoch=~stamp.epoch)  # whatever is imported sets no clock of ours
        floor = -stamp.boot if archive or not newest else newest - stamp.boot  # an import may be older than others
        clock = self._clock(position, stamp, newest, floor)
        if source is not None and not clock.checked:
            clock.checked = True
            self._check(position, stamp, clock, floor, source, server_time())
        jump = wall - stamp.boot - clock.offset
        jump = jump if abs(jump) > SKEW else 0
        if source is not None:
            self._epoch, self._offset = -1 if jump or archive else stamp.epoch, clock.offset
            self._note(clock, stamp.epoch, jump)
        return stamp.boot + clock.offset if jump else wall

    def of_old(self, position: int, at: int, before: int | None, after: Callable[[], Iterator[int]]) -> int:
        """The record time of a poll without a stamp: that of its successor if it is far ahead of the polls of its
        source `before` and `after` it; those after it are asked for only where it matters.
        """
        if before is not None and at - before <= UNSEEN:
            return at
        following = next(after(), at)
        if at - following <= UNSEEN or (before is not None and before - following > UNSEEN):
            return at
        self._state.clock_steps.append(ClockStep(position, LEAPT, following))
        return following

    def _clock(self, position: int, stamp: Stamp, newest: int | None, floor: int) -> BootClock:
        """The clock of the boot that a stamp is of, moved on where nobody looked."""
        machine, own = stamp.epoch >> 16, stamp.wall - stamp.boot
        clock = self._state.clocks.get(machine)
        if clock is None:
            clock = self._state.clocks[machine] = BootClock(offset=max(own, floor))
            self._move(position, machine, clock, clock.offset)
            return clock
        ahead = own - clock.offset
        unseen = not newest or stamp.boot + clock.offset - newest > UNSEEN
        follows = unseen and (ahead > SKEW or (ahead < -SKEW and stamp.epoch not in clock.jumps))
        if follows or floor - clock.offset > UNSEEN:
            self._move(position, machine, clock, max(own, floor))
        return clock

    def _check(
        self, position: int, stamp: Stamp, clock: BootClock, floor: int, source: Source, server_time: int | None
    ) -> None:
        """Compare the start of a boot with the clock of a provider that was compared with ours before."""
        if source.ahead is None or server_time is None:
            if (behind := floor + stamp.boot - stamp.wall) > SKEW:
                self.news.append(
                    f"it began {duration(behind)} before the newest answer: dates from here on are uncertain"
                )
            return
        apart = server_time - source.ahead - stamp.boot - clock.offset
        if abs(apart) > UNSEEN:
            self._move(position, stamp.epoch >> 16, clock, max(clock.offset + apart, floor))

    def _move(self, position: int, machine: int, clock: BootClock, offset: int) -> None:
        clock.offset, self._epoch = offset, -1
        self._state.clock_steps.append(ClockStep(position, machine, offset))

    def _note(self, clock: BootClock, epoch: int, jump: int) -> None:
        """Note a jump that is news: every epoch has a wall clock of its own, a new epoch that of the epoch before."""
        size = jump - clock.jumps.pop(epoch, next(reversed(clock.jumps.values()), 0))
        clock.jumps[epoch] = jump
        for old in list(clock.jumps)[:-_EPOCHS]:
            del clock.jumps[old]
        if abs(size) > SKEW:
            now = f"{duration(abs(jump))} {'ahead' if jump > 0 else 'behind'}" if jump else "right again"
            self.news.append(f"it jumped {'forward' if size > 0 else 'back'} by {duration(abs(size))} and is {now}")


def record_time(state: World, stored: "Stored") -> int:
    """The record time of any event that the world has folded."""
    steps, position, wall = state.clock_steps, stored.position, stored.observed_at
    before = steps[: bisect_right(steps, position, key=lambda step: step.position)]
    if stored.clock is None:
        return before[-1].offset if before and before[-1][:2] == (position, LEAPT) else wall
    epoch, boot, _ = Stamp.unpacked(stored.clock, wall)
    epoch = ~epoch if stored.event_id is not None and stored.type.startswith("Poll") else epoch  # it was imported
    offset = next((step.offset for step in reversed(before) if step.machine == epoch >> 16), wall - boot)
    return boot + offset if abs(wall - boot - offset) > SKEW else wall


Facts = TypeVar("Facts", RunFacts, AttemptFacts, Schedule, VmFacts)


def shows_new(state: World, provider: str, runs: tuple[Seen, ...], vms: tuple[VmFacts, ...]) -> bool:
    """True if an answer shows a run or machine for the first time; placeholders are none."""
    for seen in runs:
        key = f"{provider}/{seen.facts.provider_id}"
        if key not in state.by_provider and key not in state.former:
            return True
    return any(facts.price is not None and vm_id_of(provider, facts.provider_id) not in state.vms for facts in vms)


def compare_clocks(turn: FoldStep, source: Source, tick: Tick) -> None:
    """Measure how far the source's clock is ahead of ours, and record changes."""
    if tick.server_time is None or not shows_new(turn.state, tick.scope.provider, tick.runs, tick.vms):
        return
    source.ahead = tick.server_time - tick.observed_at
    skew = skew_of(tick.server_time, tick.started_at, tick.observed_at, known=source.skew)
    if skew == source.skew:
        return
    source.skew = skew
    apart = tick.server_time - tick.observed_at if skew > 0 else -skew
    detail = f"its clock is {apart / SECOND:.0f} s {'ahead of' if skew > 0 else 'behind'} ours"
    turn.note_source(tick.source, AnomalyKind.CLOCK_SKEW, detail if skew else "its clock is ours again")


def shifted(tick: Tick, skew: int) -> Tick:
    """The poll with its provider's times shifted to our clock."""
    return replace(
        tick,
        runs=tuple(Seen(facts=_run(seen.facts, skew), cost=seen.cost) for seen in tick.runs),
        vms=tuple(_back(facts, skew, "created", "finished_at") for facts in tick.vms),
    )


def _run(facts: RunFacts, skew: int) -> RunFacts:
    jobs = tuple(
        replace(job, attempts=tuple(_back(attempt, skew, "submitted_at", "finished_at") for attempt in job.attempts))
        for job in facts.jobs
    )
    due = None if facts.schedule is None else _back(facts.schedule, skew, "next_at")
    return replace(_back(facts, skew, "submitted_at"), jobs=jobs, schedule=due)


def _back(facts: Facts, skew: int, *times: str) -> Facts:
    known = {name: moment for name in times if (moment := getattr(facts, name)) is not None}
    return replace(facts, **{name: moment - skew for name, moment in known.items()})
