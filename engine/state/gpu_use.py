"""The use of a run's GPUs, folded from its samples: a log of stretches, the peak of each GPU and of its processes.

A sample time covers the time since the sample time before. If that is more than `APART` before, the time between is
unknown. A time is idle if every GPU with a known use was below `BUSY_FROM`, and if the whole stretch of such times
lasts `LEAST_IDLE`; a shorter stretch is working. GPUs that say nothing do not count.

The log is numbers in groups of seven bits, as in `case_log`: the second of the first sample, then for each stretch its
seconds × 4 + its kind.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from functools import reduce
from typing import Final, NamedTuple

import msgspec

from steno.engine.state.case_log import last_number, numbers_in, packed
from steno.engine.state.policy import HOUR
from steno.engine.state.samples import TASK, Sample
from steno.events.clock import SECOND

APART: Final = 60  # seconds
BUSY_FROM: Final = 5  # percent
LEAST_IDLE: Final = 60  # seconds
MOST_NAMED: Final = 16  # GPUs that are kept by name


class UseKind(StrEnum):
    """The kind of a stretch of time."""

    WORKING = "working"
    IDLE = "idle"
    UNKNOWN = "unknown"


_KINDS: Final = tuple(UseKind)
_WORKING, _IDLE, _UNKNOWN = range(3)


class DeviceUse(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """The highest that a GPU was seen at; None: never known."""

    device: str  # as `Sample.device`
    use: int | None = None  # percent
    memory: int | None = None  # MiB
    memory_total: int | None = None  # MiB, at that moment


class GpuUse(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """The use of a run's GPUs up to the newest sample."""

    log: bytes = b""
    newest: int = -1  # the second of the newest sample of a GPU; -1: there was none
    pending: int = 0  # seconds of idle behind the log that are too few to count yet
    devices: tuple[DeviceUse, ...] = ()  # in order of first sight
    more: int = 0  # the most other GPUs that one sample time had
    task_newest: int = -1  # as `newest`, of the task's processes, which another tool may measure
    task_memory: int | None = None  # the highest resident memory of the task's processes, MiB
    cpu_sum: int = 0  # percent of a core, over `cpu_count` samples
    cpu_count: int = 0

    @property
    def cpu(self) -> int | None:
        """The mean CPU of the task's processes in percent of a core; None: unknown."""
        return (2 * self.cpu_sum + self.cpu_count) // (2 * self.cpu_count) if self.cpu_count else None


class UseStretch(NamedTuple):
    """A stretch of one kind. Microseconds UTC."""

    since: int
    until: int
    kind: UseKind


class UseTimes(NamedTuple):
    """How long the GPUs did what, microseconds; in the order of `UseKind`."""

    working: int
    idle: int
    unknown: int


def used(use: GpuUse | None, samples: Iterable[Sample], at: int) -> GpuUse | None:
    """The use with some samples more, recorded `at`; None: there were none yet. Samples that are not newer than the
    newest known of the GPUs, or of the task, change nothing, nor do those of more than an hour later than `at`.
    """
    known = GpuUse() if use is None else use
    moments: dict[int, list[Sample]] = {}
    task: dict[int, Sample] = {}
    for sample in samples:
        second = sample.at // SECOND
        if sample.at > at + HOUR:
            continue
        if sample.device == TASK and second > known.task_newest:
            task[second] = sample
        elif sample.device != TASK and second > known.newest:
            moments.setdefault(second, []).append(sample)
    if not moments and not task:
        return use
    log, newest, pending, more = bytearray(known.log), known.newest, known.pending, known.more
    devices = {device.device: device for device in known.devices}
    for second in sorted(moments):
        others = set[str]()
        for sample in sorted(moments[second], key=lambda sample: (len(sample.device), sample.device)):
            if sample.device in devices or len(devices) < MOST_NAMED:
                devices[sample.device] = _peak(devices.get(sample.device), sample)
            else:
                others.add(sample.device)
        more = max(more, len(others))
        if newest < 0:
            log += packed(second)
        else:
            kind = _kind(moments[second]) if second - newest <= APART else _UNKNOWN
            pending = _cover(log, pending, second - newest, kind)
        newest = second
    cpu = [sample.use for sample in task.values() if sample.use is not None]
    return GpuUse(
        log=bytes(log),
        newest=newest,
        pending=pending,
        devices=tuple(devices.values()),
        more=more,
        task_newest=max((known.task_newest, *task)),
        task_memory=reduce(_higher, (sample.memory for sample in task.values()), known.task_memory),
        cpu_sum=known.cpu_sum + sum(cpu),
        cpu_count=known.cpu_count + len(cpu),
    )


def stretches(use: GpuUse | None) -> Iterator[UseStretch]:
    """The stretches from the first sample to the newest, in order; two neighbours differ in kind."""
    if use is None or not use.log:
        return
    log = bytearray(use.log)
    if use.pending:
        _add(log, use.pending, _WORKING)
    numbers = numbers_in(bytes(log))
    since = next(numbers) * SECOND
    for code in numbers:
        until = since + code // 4 * SECOND
        yield UseStretch(since, until, _KINDS[code % 4])
        since = until


def idle_since(use: GpuUse | None) -> int | None:
    """Since when the GPUs are idle, up to the newest sample, microseconds UTC; None: they are not, or it is unknown."""
    code = len(_KINDS) if use is None else _last(bytearray(use.log))[1]
    return (use.newest - code // 4) * SECOND if use is not None and code % 4 == _IDLE else None


def times_within(of: Sequence[UseStretch], since: int, until: int) -> UseTimes:
    """The time of each kind between two moments, by all stretches of a run; they sum to the time between. What no
    stretch covers is unknown.
    """
    times = dict.fromkeys(UseKind, 0)
    for place in range(bisect_right(of, since, key=lambda stretch: stretch.until), len(of)):
        if of[place].since >= until:
            break
        times[of[place].kind] += min(until, of[place].until) - max(since, of[place].since)
    working, idle = times[UseKind.WORKING], times[UseKind.IDLE]
    return UseTimes(working, idle, until - since - working - idle)


def _kind(moment: Iterable[Sample]) -> int:
    uses = [sample.use for sample in moment if sample.use is not None]
    return _UNKNOWN if not uses else _WORKING if max(uses) >= BUSY_FROM else _IDLE


def _cover(log: bytearray, pending: int, length: int, kind: int) -> int:
    """Log a time that one sample time covers; the idle time that is pending then."""
    if kind == _IDLE:
        pending += length
        if pending < LEAST_IDLE and _last(log)[1] % 4 != _IDLE:
            return pending
        _add(log, pending, _IDLE)
        return 0
    if pending:
        _add(log, pending, _WORKING)
    _add(log, length, kind)
    return 0


def _add(log: bytearray, length: int, kind: int) -> None:
    """Log a stretch, as a part of the last stretch if that is of its kind."""
    begin, last = _last(log)
    if last % 4 == kind:
        length += last // 4
        del log[begin:]
    log += packed(length * 4 + kind)


def _last(log: bytearray) -> tuple[int, int]:
    """Where the last stretch of a log begins, and its number; that of no kind if there is none."""
    begin = last_number(log)
    return begin, next(numbers_in(bytes(log[begin:]))) if begin else len(_KINDS)


def _peak(before: DeviceUse | None, sample: Sample) -> DeviceUse:
    use, memory, total = (None, None, None) if before is None else (before.use, before.memory, before.memory_total)
    if sample.memory is not None and (memory is None or sample.memory > memory):
        memory, total = sample.memory, sample.memory_total
    return DeviceUse(device=sample.device, use=_higher(use, sample.use), memory=memory, memory_total=total)


def _higher(before: int | None, now: int | None) -> int | None:
    return max((number for number in (before, now) if number is not None), default=None)
