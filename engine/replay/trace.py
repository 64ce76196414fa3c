"""Replay of a trace file; positions are line numbers, from 1."""

from collections.abc import Callable, Iterable, Iterator
from copy import copy
from itertools import islice, tee
from pathlib import Path

from msgspec.structs import replace

from engine.fold.record_time import NEAR
from engine.fold.tick import PollReader, Until
from engine.fold.world import World
from engine.providers.readings import READINGS, rules_named
from engine.replay.result import Replay, Step
from events.poll import Poll
from events.traces.trace import Progress, TraceReading, read_trace

NumberedPoll = tuple[int, Poll | None]
Broken = Callable[[int], object]  # gets the number of every broken line that is left out


def open_trace(
    path: str | Path, *, lenient: bool = False, broken: Broken | None = None, progress: Progress | None = None
) -> Iterator[NumberedPoll]:
    """The lines of a trace file (`.jsonl`, `.jsonl.zst`, `-` for standard input) as (1-based number, poll). None stands
    for a line that is no poll (a lab note); with `lenient` also for a broken line, which `broken` gets.

    Raises:
        UnreadableInput: the file cannot be read, or a line is broken; the message names it.
    """
    # A trace line alone says neither whose answer it is nor whether it is one.
    reading = TraceReading(source_of=READINGS.source, answered=READINGS.answered)
    return read_trace(path, reading, lenient=lenient, broken=broken, progress=progress)


def fold_polls(world: World, polls: Iterable[NumberedPoll], until: Until | None = None) -> Iterator[Step]:
    read, apply = PollReader(world.readings).read, world.apply
    limit = until if until is not None else Until()
    (lines,) = tee(polls, 1)  # so that a copy can look ahead
    for number, poll in lines:
        if limit.position is not None and number > limit.position:
            return
        if poll is None:
            continue
        at = _dated(world, number, poll, lines)
        if limit.at is None or at <= limit.at:
            tick = replace(read(number, poll), started_at=at - (poll.observed_at - poll.started_at), observed_at=at)
            yield Step(number, at, poll, apply(tick))


def _dated(world: World, number: int, poll: Poll, later: Iterator[NumberedPoll]) -> int:
    """The record time of a poll; `later`: the lines behind it, which are only looked at."""
    at, source = poll.observed_at, world.source(poll.source)
    if poll.stamp is not None:
        return world.time.of(number, at, poll.stamp, world.state.last_at, source, lambda: poll.server_time)

    def after() -> Iterator[int]:
        return (one.observed_at for _, one in islice(copy(later), NEAR) if one and one.source == poll.source)

    return world.time.of_old(number, at, source.last_answered, after)


def replay_polls(polls: Iterable[NumberedPoll], rules: str = "current", until: Until | None = None) -> Replay:
    """Fold numbered polls from nothing. UnknownRules: there is no rule set of that name."""
    world = World(READINGS, rules_named(rules))
    for _ in fold_polls(world, polls, until):
        pass
    return Replay(world)


def replay_trace(
    path: str | Path,
    rules: str = "current",
    until: Until | None = None,
    progress: Progress | None = None,
    *,
    lenient: bool = False,
    broken: Broken | None = None,
) -> Replay:
    """Fold a trace file; see `open_trace` and `replay_polls`."""
    return replay_polls(open_trace(path, lenient=lenient, broken=broken, progress=progress), rules, until)


def step_trace(
    path: str | Path, rules: str = "current", until: Until | None = None, *, lenient: bool = False
) -> Iterator[Step]:
    """As `replay_trace`, one poll at a time: what each changed."""
    return fold_polls(World(READINGS, rules_named(rules)), open_trace(path, lenient=lenient), until)


def incident_path() -> Path:
    """The shipped incident, a trace: a task that exited 0 on a real server and that the first poller called failed. The
    machine was a simulated MI300X at $1.99/h.
    """
    return Path(__file__).with_name("incident.jsonl.zst")
