"""Predictions of what other policies would have cost, beside the recorded figures; with bounds, and with the error that
the same simulation makes of the recorded policy.
"""

from collections.abc import Callable, Iterator
from itertools import starmap
from typing import Annotated, Any, Final, Literal, NamedTuple, get_args

from msgspec import Meta

from steno.engine.errors import Conflict, NothingRecorded
from steno.engine.money.report import rank
from steno.engine.settings.values import machines, timeout
from steno.engine.state.policy import DAY
from steno.engine.state.world import World
from steno.engine.whatif.demand import Outcome, demand_of
from steno.engine.whatif.lags import ASSUMED
from steno.engine.whatif.simulator import Scenario, simulate
from steno.engine.wire import Cell, Shape, Tabled, Time, Usd, dollars, seconds
from steno.events.clock import SECOND, duration

Swept = Literal["idle-timeout", "max-vms"]
FIELDS: Final[dict[Swept, str]] = {"idle-timeout": "idle_timeout", "max-vms": "max_vms"}
DRAWS, POINTS = 6, 7  # simulations behind the bounds of a policy; policies of a sweep
WINDOW: Final = 30 * DAY


class Figures(Shape, frozen=True, kw_only=True):
    """The figures of a window; null: no run ran."""

    bill_usd: Usd
    cold_starts: int
    wait_p50_seconds: float | None
    wait_p95_seconds: float | None
    idle_share: Annotated[float, Meta(description="The part of the machines' time in which no run was on them.")]


class Prediction(Shape, frozen=True, kw_only=True):
    """A policy, and what it would have led to: best estimate, and the least and the most of each figure."""

    policy: str  # `idle-timeout=5m`
    best: Figures
    low: Figures
    high: Figures
    refused: Annotated[int, Meta(description="Runs that could never have had their machines.")]


class WhatIf(Tabled, frozen=True, kw_only=True):
    """Predictions beside the record."""

    source: str
    since: Time
    until: Time
    runs: int
    left_out: Annotated[int, Meta(description="Runs that never had a machine, or that Steno did not submit.")]
    recorded: Figures
    validation: Annotated[Figures, Meta(description="The recorded policy as the simulation predicts it.")]
    error: Annotated[float, Meta(description="Of the validation's bill, as a part of the recorded bill.")]
    predictions: tuple[Prediction, ...]
    keep_p95_seconds: float | None
    cheapest: Annotated[str | None, Meta(description="The cheapest policy whose p95 wait is short enough.")]
    assumed: Annotated[tuple[str, ...], Meta(description="Times of which the record has no example.")]
    seed: int

    def table(self) -> Iterator[tuple[Cell, ...]]:
        names = ("bill_usd", "cold_starts", "wait_p50_seconds", "wait_p95_seconds", "idle_share")
        yield "policy", "bound", *names
        rows = [("recorded", "", self.recorded), ("recorded", "predicted", self.validation)]
        rows += [(each.policy, name, getattr(each, name)) for each in self.predictions for name in _BOUNDS]
        for policy, bound, row in rows:
            yield policy, bound, dollars(row.bill_usd), *(getattr(row, name) for name in names[1:])


_BOUNDS: Final = ("best", "low", "high")


class WhatIfQuestion(NamedTuple):
    """Times are microseconds, money micro-dollars; None: as recorded, or not asked for."""

    source: str | None = None  # None: the source with most runs
    since: int | None = None
    until: int | None = None
    changes: tuple[tuple[str, Any], ...] = ()  # (field of the policy, value)
    price: int | None = None
    sweep: tuple[Swept, tuple[int | None, ...]] | None = None
    keep_p95: int | None = None
    seed: int = 1
    most: int | None = None  # runs of the window: a simulation takes 1 to 4 ms of a processor for each


def what_if(
    state: World, question: WhatIfQuestion, progress: Callable[[int, int], None] = lambda _done, _all: None
) -> WhatIf:
    """The predictions for a recorded world. Raises NothingRecorded: there is nothing to begin with; Conflict: the
    window has more than `most` runs.
    """
    until = (state.last_at or 0) if question.until is None else min(question.until, state.last_at or 0)
    since = max(0, until - WINDOW) if question.since is None else question.since
    demand = demand_of(state, question.source, since, until)
    if question.most is not None and len(demand.work) > question.most:
        raise Conflict(f"{len(demand.work)} runs are too many here (at most {question.most}): type `steno whatif`.")
    actual = demand.outcome
    if not actual.bill:
        raise NothingRecorded(f"Machines of {demand.source} have cost nothing: set their price (`rates`).")
    made: list[tuple[str, list[Outcome]]] = []
    scenarios = [("recorded", Scenario()), *_scenarios(question)]
    for number, (label, scenario) in enumerate(scenarios):
        made.append((label, []))
        for draw in range(1 + DRAWS):
            progress(number * (1 + DRAWS) + draw, len(scenarios) * (1 + DRAWS))
            made[-1][1].append(simulate(demand, scenario, f"{question.seed} {draw}" if draw else None))
    (_, checks), *others = made
    validation, doubt = checks[0], max(abs(outcome.bill / actual.bill - 1) for outcome in checks)
    predictions = tuple(_prediction(label, outcomes, actual, doubt) for label, outcomes in others)
    keep = (question.keep_p95 or -1) / SECOND
    short_enough = [each for each in predictions if not each.refused and 0 <= (each.best.wait_p95_seconds or 0) <= keep]
    cheapest = min(short_enough, key=lambda each: each.best.bill_usd, default=None)
    return WhatIf(
        source=demand.source,
        since=since,
        until=until,
        runs=sum(work.requested_at >= since for work in demand.work),
        left_out=demand.left_out,
        recorded=_figures(actual),
        validation=_figures(validation),
        error=validation.bill / actual.bill - 1,
        predictions=predictions,
        keep_p95_seconds=seconds(question.keep_p95),
        cheapest=None if cheapest is None else cheapest.policy,
        assumed=tuple(name for name in ASSUMED if not demand.lags.measured[name]),
        seed=question.seed,
    )


def _scenarios(question: WhatIfQuestion) -> list[tuple[str, Scenario]]:
    """Each policy to predict, and what it is called: by what differs from the recorded policy."""
    changes, price, sweep = question.changes, question.price, question.sweep
    named = list(starmap(_named, changes))
    if price is not None:
        named.append(f"price=${price / 1_000_000:g}/h")
    swept = [()] if sweep is None else [((FIELDS[sweep[0]], value),) for value in sweep[1]]
    labels = (", ".join([*named, *starmap(_named, more)]) or "as recorded" for more in swept)
    return [(label, Scenario((*changes, *more), price)) for label, more in zip(labels, swept, strict=True)]


def _named(field: str, value: Any) -> str:
    text = "off" if value is None else duration(value) if field == "idle_timeout" else str(value)
    return f"{ {'mode': 'policy'}.get(field, field.replace('_', '-')) }={text}".replace(" ", "")


def _figures(outcome: Outcome) -> Figures:
    return Figures(
        bill_usd=outcome.bill,
        cold_starts=outcome.cold,
        wait_p50_seconds=seconds(rank(outcome.waits, 50)),
        wait_p95_seconds=seconds(rank(outcome.waits, 95)),
        idle_share=round(outcome.idle_share, 4),
    )


def _prediction(label: str, outcomes: list[Outcome], actual: Outcome, doubt: float) -> Prediction:
    """The bounds are those of all draws. The bill's are wider by `doubt`, the largest error of equal draws of the
    recorded policy, and by how far the recorded bill itself is unknown.
    """
    each = [_figures(outcome) for outcome in outcomes]
    columns = {name: [getattr(figures, name) for figures in each] for name in Figures.__struct_fields__}
    ends: list[dict[str, Any]] = [
        {name: end((value for value in column if value is not None), default=None) for name, column in columns.items()}
        for end in (min, max)
    ]
    lows, highs = ends
    lows["bill_usd"] = round(lows["bill_usd"] * (1 - doubt) * actual.low / actual.bill)
    highs["bill_usd"] = round(highs["bill_usd"] * (1 + doubt) * actual.high / actual.bill)
    return Prediction(
        policy=label, best=each[0], low=Figures(**lows), high=Figures(**highs), refused=outcomes[0].refused
    )


def sweep_of(text: str) -> tuple[Swept, tuple[int | None, ...]]:
    """`idle-timeout=1m..30m`, `max-vms=1..6` or values with commas between. ValueError: what it must be."""
    name, _, values = text.partition("=")
    swept = next((known for known in get_args(Swept) if known == name.strip()), None)
    if swept is None or not values:
        raise ValueError("idle-timeout=1m..30m, max-vms=1..6, or values with commas between: idle-timeout=0,5m,off")
    parse = timeout if swept == "idle-timeout" else machines
    ends = values.split("..")
    if len(ends) != 2:
        return swept, tuple(dict.fromkeys(parse(value.strip()) for value in values.split(",")))
    low, high = map(parse, ends)
    if low is None or high is None or not 0 < low < high:
        raise ValueError("a range from less to more, both above 0: idle-timeout=1m..30m")
    if swept == "max-vms":
        return swept, tuple(range(low, high + 1, -(-(high - low) // 9)))
    steps = (low * (high / low) ** (step / (POINTS - 1)) for step in range(POINTS))
    return swept, tuple(dict.fromkeys(max(low, round(value / SECOND) * SECOND) for value in steps))
