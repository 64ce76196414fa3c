"""Start-up times, and a run's phases beside those of runs with the same name. Times are microseconds."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from statistics import median
from typing import Annotated, Final, Literal, get_args

from msgspec import Meta

from steno.engine.money.report import rank, start_time
from steno.engine.state.run import Run
from steno.engine.state.states import State
from steno.engine.wire import Cell, Shape, Tabled, Usd, seconds
from steno.events.clock import SECOND

EDGES: Final = (0, 1, 2, 5, 10, 15, 30, 60, 120, 180, 300, 600, 900, 1800, 3600)
"""Seconds at which the buckets of start-up times begin; the last has no end."""
Start = Literal["cold", "warm"]
_BEFORE: Final = frozenset({State.REQUESTED, State.QUEUED})


class StartBucket(Shape, frozen=True, kw_only=True):
    """How many runs took so long from submission to running; `to_seconds` is excluded, null: no limit."""

    from_seconds: int
    to_seconds: int | None
    cold: int
    warm: int


class StartFigures(Shape, frozen=True, kw_only=True):
    """Start-up times of one kind in seconds; null: there are none."""

    count: int
    median_seconds: float | None
    p95_seconds: Annotated[float | None, Meta(description="The nearest rank: 95 % of the times are at most this.")]
    worst_seconds: float | None


class Starts(Tabled, frozen=True, kw_only=True):
    """Start-up times of runs whose machine was made for them (cold) or there already (warm)."""

    buckets: tuple[StartBucket, ...]  # from the first to the last that has a run
    cold: StartFigures
    warm: StartFigures

    def table(self) -> Iterator[tuple[Cell, ...]]:
        yield "from_seconds", "to_seconds", "cold", "warm"
        yield from ((bucket.from_seconds, bucket.to_seconds, bucket.cold, bucket.warm) for bucket in self.buckets)


def starts_of(times: Iterable[tuple[str, int]]) -> Starts:
    """The distribution of (cold or warm, microseconds)."""
    kinds: dict[str, list[int]] = {"cold": [], "warm": []}
    for kind, took in times:
        kinds[kind].append(took)
    cold, warm = sorted(kinds["cold"]), sorted(kinds["warm"])
    edges = [edge * SECOND for edge in EDGES]
    counts = [[0, 0] for _ in EDGES]
    for which, times_of_kind in enumerate((cold, warm)):
        for took in times_of_kind:
            counts[bisect_right(edges, took) - 1][which] += 1
    used = [place for place, count in enumerate(counts) if any(count)]
    ends = [*EDGES[1:], None]
    places = range(used[0], used[-1] + 1) if used else range(0)
    return Starts(
        buckets=tuple(
            StartBucket(from_seconds=EDGES[place], to_seconds=ends[place], cold=counts[place][0], warm=counts[place][1])
            for place in places
        ),
        cold=_figures(cold),
        warm=_figures(warm),
    )


def _figures(ordered: Sequence[int]) -> StartFigures:
    return StartFigures(
        count=len(ordered),
        median_seconds=median(ordered) / SECOND if ordered else None,
        p95_seconds=seconds(rank(ordered, 95)),
        worst_seconds=seconds(ordered[-1]) if ordered else None,
    )


Span = Literal["queue", "provisioning", "running"]
SPANS: Final[tuple[Span, ...]] = get_args(Span)


class LikeSpan(Shape, frozen=True, kw_only=True):
    """How long a part of the run took, and the median of the same part of the others; null: unknown."""

    phase: Span
    seconds: float | None
    median_seconds: float | None
    count: Annotated[int, Meta(description="Of how many runs the median is.")]


class Like(Tabled, frozen=True, kw_only=True):
    """A run compared with others that have its name and have ended."""

    run_id: str
    name: str | None
    runs: Annotated[int, Meta(description="How many such runs there are, at most the newest 200.")]
    phases: tuple[LikeSpan, ...]
    cost_usd: Usd | None
    median_cost_usd: Usd | None

    def table(self) -> Iterator[tuple[Cell, ...]]:
        yield "phase", "seconds", "median_seconds", "count"
        yield from ((part.phase, part.seconds, part.median_seconds, part.count) for part in self.phases)


def like_of(run: Run, others: Sequence[Run], *, cost: int | None, costs: Sequence[int]) -> Like:
    """The run and its cost beside others and the costs that are known of them, in micro-dollars."""
    own, theirs = spans_of(run), [spans_of(other) for other in others]
    phases = []
    for place, name in enumerate(SPANS):
        known = [length for spans in theirs if (length := spans[place]) is not None]
        phases.append(
            LikeSpan(
                phase=name,
                seconds=seconds(own[place]),
                median_seconds=median(known) / SECOND if known else None,
                count=len(known),
            )
        )
    return Like(
        run_id=run.run_id,
        name=run.name,
        runs=len(others),
        phases=tuple(phases),
        cost_usd=cost,
        median_cost_usd=round(median(costs)) if costs else None,
    )


def spans_of(run: Run) -> tuple[int | None, int | None, int | None]:
    """(queue, provisioning, running): until it got a machine, until it ran, until it ended. Without the first two where
    the provider tried it again: `started_at` is then the last attempt's.
    """
    ran = None
    if run.terminal and run.started_at is not None and run.finished_at is not None:
        ran = max(0, run.finished_at - run.started_at)
    whole = start_time(run)
    left = next((step.at for step in run.transitions if step.before in _BEFORE and step.after not in _BEFORE), None)
    if whole is None or left is None or run.waiting_since is None:
        return None, None, ran
    queued = min(whole, max(0, left - run.waiting_since))
    return queued, whole - queued, ran
