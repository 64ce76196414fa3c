"""When a run may start: the range of the starts of its like, by this record alone. The k-th smallest of n times is
above the next of their kind in k of n + 1 cases, however they are spread; so the range holds 8 of 10 while a site stays
as it is, and its hit rate tells if it does not.
"""

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Annotated, Final

from msgspec import Meta

from steno.engine.decide.queue import LEARNT_FROM
from steno.engine.decide.situation import terms_of
from steno.engine.money.report import start_time
from steno.engine.state.levers import holder
from steno.engine.state.run import Run
from steno.engine.state.world import World, source_of
from steno.engine.wire import Shape, Time, seconds
from steno.events.clock import SECOND, duration, format_second

LEVEL: Final = 80  # percent of starts that the range is meant to hold
FEWEST: Final = 9  # starts: the shortest and the longest of nine hold the tenth in 8 of 10 cases
_NEWEST: Final = 60  # starts that count: a site changes
Span = tuple[int, int]


class StartEstimate(Shape, frozen=True, kw_only=True):
    """The range in which a run that waits may start."""

    among: str  # whose starts it is from: `runs of local without a GPU`
    samples: int  # of these the newest that lasted longer than this run has waited
    low: Time | None  # later than now
    high: Time | None
    low_seconds: float | None  # since its request
    high_seconds: float | None
    level_percent: Annotated[int, Meta(description="So many of 100 such ranges are meant to hold the start.")]
    checked: int  # earlier starts of its kind for which a range was known at their request
    held: int  # those that the range held
    unknown: str | None  # why there is no range

    def __str__(self) -> str:
        if self.low is None or self.high is None or self.low_seconds is None or self.high_seconds is None:
            return f"When it starts is not known: {self.unknown}."
        ends = " to ".join(duration(round(end) * SECOND) for end in (self.low_seconds, self.high_seconds))
        return (
            f"It may start between {format_second(self.low)} and {format_second(self.high)}: of {self.samples} "
            f"{self.among} that waited as long, {LEVEL} % started {ends} after their request; such ranges, made at the "
            f"request, held {self.held} of {self.checked} starts."
        )


def start_estimate(state: World, run: Run, now: int) -> StartEstimate | None:
    """The estimate at `now` (microseconds, UTC); None: the run started, ended, or never waits."""
    since = run.waiting_since
    if since is None or run.started_at is not None or run.terminal or run.is_schedule or run.archive is not None:
        return None
    newest = (each for each in islice(state.runs.newest(), LEARNT_FROM) if _kind(each) == _kind(run))
    starts = sorted(_starts(newest))
    waited = max(0, now - since)
    longer = [took for _, took in starts if took > waited][-_NEWEST:]
    unknown = _held_back(state, run, now)  # what started before says nothing of such a run
    around = None if unknown else _range(longer)
    low, high = (None, None) if around is None else around
    among, (checked, held) = _among(run), hit_rate(starts)
    if around is None and unknown is None:
        which = f" that waited longer than {duration(waited // SECOND * SECOND)}" if len(longer) < len(starts) else ""
        unknown = f"it needs {FEWEST} {among}{which}, and this record has {len(longer)}"
    return StartEstimate(
        among=among,
        samples=len(longer),
        low=None if low is None else since + low,
        high=None if high is None else since + high,
        low_seconds=seconds(low),
        high_seconds=seconds(high),
        level_percent=LEVEL,
        checked=checked,
        held=held,
        unknown=unknown,
    )


def _held_back(state: World, run: Run, now: int) -> str | None:
    if holder(state.levers.values(), run, now) is not None:
        return "somebody holds it back"
    return "a limit of its owner holds it back" if run.held is not None and run.held.why == "limit" else None


def hit_rate(starts: Sequence[Span]) -> tuple[int, int]:
    """(starts, each its request and how long it took, for which a range was known then; those that it held)."""
    checked = held = 0
    for since, took in starts:
        around = _range([before for began, before in starts if began + before <= since][-_NEWEST:])
        if around is not None:
            checked += 1
            held += around[0] <= took <= around[1]
    return checked, held


def _range(times: Sequence[int]) -> Span | None:
    """The tenth part of the times cut off at each end; None: of too few."""
    if len(times) < FEWEST:
        return None
    ordered, cut = sorted(times), (len(times) + 1) * (100 - LEVEL) // 200
    return ordered[cut - 1], ordered[-cut]


def _starts(runs: Iterable[Run]) -> Iterable[Span]:
    for run in runs:
        took = None if run.archive is not None or run.hidden else start_time(run)
        if took is not None and run.waiting_since is not None:
            yield run.waiting_since, took


def _kind(run: Run) -> tuple[str, tuple[str, ...], int]:
    terms = terms_of(run)
    return source_of(run), terms.gpu, terms.gpu_count


def _among(run: Run) -> str:
    source, gpus, count = _kind(run)
    models = "/".join(gpus) or ("any GPU" if count else "")
    return f"runs of {source} on {models}:{count or 1}" if models else f"runs of {source} without a GPU"
