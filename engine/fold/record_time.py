"""The record time of events: the wall clock as each event has it, without what was wrong with it (docs/adr/0061).

Within one boot of one machine, record time advances by boot time, whatever the wall clock does. A boot begins at its
wall clock, but never before what was seen already. Only while nobody looked does record time follow the wall clock.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from engine.fold.sources import Source
from engine.fold.world_codec import LEAPT, BootClock, ClockStep, WorldState
from events.clock import BOOT, BOOT_BITS, SECOND, SKEW, Stamp, span

if TYPE_CHECKING:
    from events.store.record import Stored

UNSEEN: Final = 60 * SECOND  # in a longer time without a poll nobody looked; a poll further ahead is an outlier
NEAR: Final = 1_000  # positions in which the next poll of a source is looked for
_EPOCHS: Final = 16  # of a machine, whose jumps are remembered


class RecordTime:
    """Gives events their record time, in the order of the record."""

    def __init__(self, state: WorldState) -> None:
        self._state = state
        self._epoch, self._offset = -1, 0  # of the newest poll; -1: its wall clock was not record time
        self.news: list[str] = []  # what the wall clock did since a poll was folded, in sentences

    def agrees(self, wall: int, packed: bytes) -> bool:
        """Whether the wall clock of an event is its record time, as that of the newest poll of the same epoch was."""
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
                self.news.append(f"it began {span(behind)} before the newest answer: dates from here on are uncertain")
            return
        apart = server_time - source.ahead - stamp.boot - clock.offset
        if abs(apart) > UNSEEN:
            self._move(position, stamp.epoch >> 16, clock, max(clock.offset + apart, floor))

    def _move(self, position: int, machine: int, clock: BootClock, offset: int) -> None:
        clock.offset, self._epoch = offset, -1
        self._state.clock_steps.append(ClockStep(position, machine, offset))

    def _note(self, clock: BootClock, epoch: int, jump: int) -> None:
        """Note a jump that is news: every epoch has a wall clock of its own, a new one that of the one before."""
        size = jump - clock.jumps.pop(epoch, next(reversed(clock.jumps.values()), 0))
        clock.jumps[epoch] = jump
        for old in list(clock.jumps)[:-_EPOCHS]:
            del clock.jumps[old]
        if abs(size) > SKEW:
            now = f"{span(abs(jump))} {'ahead' if jump > 0 else 'behind'}" if jump else "right again"
            self.news.append(f"it jumped {'forward' if size > 0 else 'back'} by {span(abs(size))} and is {now}")


def record_time(state: WorldState, stored: "Stored") -> int:
    """The record time of any event that the world has folded."""
    steps, position, wall = state.clock_steps, stored.position, stored.observed_at
    before = steps[: bisect_right(steps, position, key=lambda one: one.position)]
    if stored.clock is None:
        return before[-1].offset if before and before[-1][:2] == (position, LEAPT) else wall
    epoch, boot, _ = Stamp.unpacked(stored.clock, wall)
    epoch = ~epoch if stored.event_id is not None and stored.type.startswith("Poll") else epoch  # it was imported
    offset = next((one.offset for one in reversed(before) if one.machine == epoch >> 16), wall - boot)
    return boot + offset if abs(wall - boot - offset) > SKEW else wall
