"""Replay of a trace file; positions are line numbers, from 1."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

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
    for number, poll in polls:
        if limit.position is not None and number > limit.position:
            return
        if poll is not None and (limit.at is None or poll.observed_at <= limit.at):
            yield Step(number, poll.observed_at, poll, apply(read(number, poll)))


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
