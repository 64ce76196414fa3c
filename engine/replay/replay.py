"""Replay of a trace file (positions are line numbers, from 1) and of a record (positions are those of its events)."""

from collections.abc import Callable, Iterable, Iterator
from copy import copy
from itertools import islice, tee
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from steno.engine.fold.fold import Fold
from steno.engine.fold.poll_reader import PollReader, Until
from steno.engine.fold.record_fold import RecordFold
from steno.engine.fold.record_time import NEAR, record_time
from steno.engine.providers.registry import READINGS, rules_named
from steno.engine.replay.result import Replay, Step, fill_costs
from steno.engine.state.changes import Change
from steno.events.poll import Poll
from steno.events.traces.trace import Progress, TraceReading, read_trace
from steno.events.types import PollEvent

if TYPE_CHECKING:
    from steno.events.store.record import Record
    from steno.events.store.verify_pieces import WorkPool

NumberedPoll = tuple[int, Poll | None]
Broken = Callable[[int], object]  # gets the number of every broken line that is left out


def open_trace(
    path: str | Path, *, lenient: bool = False, broken: Broken | None = None, progress: Progress | None = None
) -> Iterator[NumberedPoll]:
    """The lines of a trace file (`.jsonl`, `.jsonl.zst`, `-` for standard input) as (1-based number, poll). None stands
    for a line that is not a poll (a lab note); with `lenient` also for a broken line, which `broken` gets.

    Raises:
        UnreadableInput: the file cannot be read, or a line is broken; the message names it.
    """
    # A trace line alone says neither whose answer it is nor whether it is one.
    reading = TraceReading(source_of=READINGS.source, answered=READINGS.answered)
    return read_trace(path, reading, lenient=lenient, broken=broken, progress=progress)


def fold_polls(world: Fold, polls: Iterable[NumberedPoll], until: Until | None = None) -> Iterator[Step]:
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


def _dated(world: Fold, number: int, poll: Poll, later: Iterator[NumberedPoll]) -> int:
    """The record time of a poll; `later`: the lines behind it, which are only looked at."""
    at, source = poll.observed_at, world.source(poll.source)
    if poll.stamp is not None:
        return world.time.of(number, at, poll.stamp, world.state.last_at, source, lambda: poll.server_time)

    def after() -> Iterator[int]:
        return (ahead.observed_at for _, ahead in islice(copy(later), NEAR) if ahead and ahead.source == poll.source)

    return world.time.of_old(number, at, source.last_answered, after)


def replay_polls(polls: Iterable[NumberedPoll], rules: str = "adopted", until: Until | None = None) -> Replay:
    """Fold numbered polls from nothing. UnknownRules: there is no rule set of that name."""
    world = Fold(READINGS, rules_named(rules, files=True))
    for _ in fold_polls(world, polls, until):
        pass
    return Replay(world)


def replay_trace(
    path: str | Path,
    rules: str = "adopted",
    until: Until | None = None,
    progress: Progress | None = None,
    *,
    lenient: bool = False,
    broken: Broken | None = None,
) -> Replay:
    """Fold a trace file; see `open_trace` and `replay_polls`."""
    return replay_polls(open_trace(path, lenient=lenient, broken=broken, progress=progress), rules, until)


def step_trace(
    path: str | Path, rules: str = "adopted", until: Until | None = None, *, lenient: bool = False
) -> Iterator[Step]:
    """As `replay_trace`, one poll at a time: what each changed."""
    return fold_polls(Fold(READINGS, rules_named(rules, files=True)), open_trace(path, lenient=lenient), until)


def incident_path() -> Path:
    """The shipped incident, a trace: a task that exited 0 on a real server and that the first poller called failed. The
    machine was a simulated MI300X at $1.99/h.
    """
    return Path(__file__).with_name("incident.jsonl.zst")


_STEP: Final = 4_096  # positions between two reports of progress


def replay_record(
    record: "Record",
    rules: str = "adopted",
    until: Until | None = None,
    progress: Progress | None = None,
    pool: "WorkPool | None" = None,
) -> Replay:
    """Fold a record from its start to its end or `until`, in pieces in a pool if the record has independent pieces.

    UnknownRules: there is no rule set of that name.
    """
    if pool is not None:
        from steno.engine.replay.pieces import folded_apart  # SQLAlchemy with it: a trace needs none

        joined = folded_apart(record, rules, until, progress, pool)
        if joined is not None:
            return Replay(joined)
    world = world_of(record, rules, until, progress)
    fill_costs(record, world.state.runs.all())
    return Replay(world)


def world_of(
    record: "Record", rules: str = "adopted", until: Until | None = None, progress: Progress | None = None
) -> Fold:
    """As `replay_record`, the world itself; the provider's costs are not read yet (`fill_costs`)."""
    world = Fold(READINGS, rules_named(rules, files=True))
    fold, limit = RecordFold(record, world), until if until is not None else Until()
    if progress is not None:
        end = record.head().position if limit.position is None else min(limit.position, record.head().position)
        for position in range(_STEP, end, _STEP):
            fold.run(Until(position=position, at=limit.at))
            progress(position, end)
    fold.run(limit)
    return world


def step_record(record: "Record", rules: str = "adopted", until: Until | None = None) -> Iterator[Step]:
    """As `replay_record`, the events that changed something one at a time, with their changes."""
    world, changed = Fold(READINGS, rules_named(rules, files=True)), list[tuple[int, tuple[Change, ...]]]()
    RecordFold(record, world).run(until, lambda *step: changed.append(step) if step[1] else None, repeats=False)
    for position, changes in changed:
        stored = record.at(position)
        assert stored is not None  # noqa: S101 - it was folded
        poll = record.poll(position) if isinstance(stored.data, PollEvent) else None
        yield Step(position, record_time(world.state, stored), poll, changes)
