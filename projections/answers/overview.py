"""The overview: active runs, costs of today, budget, spend curve, machines as lanes, and incidents."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from itertools import accumulate
from typing import Annotated, Final, cast

import msgspec
from msgspec import Meta

from steno.engine.decide.budget import Account
from steno.engine.decide.queue import Queued
from steno.engine.money.daily import day_text
from steno.engine.objects import BlindObject, RunObject, VmObject
from steno.engine.state.kernel_mark import KERNELS
from steno.engine.state.policy import DAY, Policy
from steno.engine.state.world import World
from steno.engine.wire import Position, Shape, Stretched, Time, Usd
from steno.events.clock import SECOND
from steno.events.store.output_rows import unpack
from steno.events.store.read import Reader
from steno.events.types import OutputRecorded
from steno.projections.answers import incidents
from steno.projections.read_models.cost_rows import decode_paid
from steno.projections.read_models.reader_pool import Look
from steno.projections.read_models.schema import VmRow, decode_run_object
from steno.projections.read_models.store import ProjectionStore
from steno.projections.read_models.view import SourceView

_RUNNING: Final = 500
_END: Final = 4096  # bytes at the end of a chunk that are searched for a line
_LONGEST: Final = 200  # characters of a line
_ESCAPES: Final = re.compile(r"\x1b\[[0-9;:?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|[\x00-\x08\x0b-\x1f\x7f]")
_RECENT: Final = 10
_PRINTING: Final = 20  # running runs whose last line of output is looked up
_ANOMALIES: Final = 5
WINDOW: Final = 6 * 3600 * SECOND
_MOST: Final = 100  # lanes shown: those that ended last are left out first where there are more
POINTS: Final = 120
Stretch = tuple[int, int, int]  # (since, until, micro-dollars) at one price
IDLE_DAYS: Final = 7
_stretches: Final = msgspec.msgpack.Decoder(list[Stretch])


class Today(Shape, frozen=True, kw_only=True, rename={"start": "from", "spent": "spent_usd"}):
    """The day so far, in UTC: what machines cost, and how runs ended."""

    start: Time
    spent: Usd
    succeeded: int
    failed: int
    stopped: int


class IdleDay(Shape, frozen=True, kw_only=True):
    """The cost of busy time in which GPUs were idle, on one day in UTC."""

    day: str
    idle_inside_usd: Usd


class BurnPoint(Shape, frozen=True, kw_only=True, rename={"spent": "spent_usd"}):
    """The sum spent by a moment."""

    at: Time
    spent: Usd


class Window(Stretched, frozen=True, kw_only=True):
    """The time that lanes show."""

    start: Time
    end: Time


class RunOnLane(Shape, frozen=True, kw_only=True, rename={"run_start": "start", "start": "from", "end": "to"}):
    """A run on a machine."""

    run_id: str
    name: str | None
    state: str | None
    run_start: Annotated[str | None, Meta(description="cold or warm")]
    start: Time
    end: Time | None


class LaneObject(Shape, frozen=True, kw_only=True):
    """A machine and the runs that were on it."""

    vm: VmObject
    runs: tuple[RunOnLane, ...]


class AnomalySummary(Shape, frozen=True, kw_only=True):
    """How many anomalies there are, and the newest."""

    count: int
    newest: tuple[incidents.DatedAnomaly, ...]


class Overview(Shape, frozen=True, kw_only=True):
    """Everything at a glance; lists that may be long are cut to their newest."""

    position: Position
    at: Time
    head: Position
    sources: Annotated[tuple[SourceView, ...], Meta(description="The live sources.")]
    running: tuple[RunObject, ...]
    queued: dict[str, Queued]
    recent: tuple[RunObject, ...]
    today: Today
    budget: Account
    burn: tuple[BurnPoint, ...]
    window: Window
    lanes: tuple[LaneObject, ...]
    anomalies: AnomalySummary
    blind: tuple[BlindObject, ...]
    idle_inside: Annotated[tuple[IdleDay, ...], Meta(description="The last 7 days, or nothing if none had any.")]
    last_lines: Annotated[dict[str, str], Meta(description="Running run → the last line of its recorded output.")]


def overview(look: Look, policy: Policy) -> Overview:
    """The whole page; `policy` is the one in force at that moment (`policy_then`)."""
    view, store = look.view, look.view.store
    window, machines = lanes(look)
    live = [value for _, value in store.runs.page(limit=_RUNNING, live=True)]
    return Overview(
        position=look.position,
        at=look.now,
        head=look.record.head().position,
        sources=view.sources(look.now),
        running=_stored(live),
        queued=view.queued(look.now),
        recent=_stored(store.runs.last_ended(_RECENT)),
        today=today(look),
        budget=view.account(policy, look.now),
        burn=burn(look),
        window=window,
        lanes=machines,
        anomalies=AnomalySummary(count=store.count_anomalies(), newest=incidents.newest(look, _ANOMALIES)),
        blind=view.open_gaps(look.now),
        idle_inside=idle_inside(look),
        last_lines=last_lines(look.record, _printing(live), look.position),
    )


def _printing(texts: Iterable[bytes]) -> list[str]:
    """The first `_PRINTING` runs that run."""
    return [run.run_id for run in map(decode_run_object, texts) if run.state == "running"][:_PRINTING]


def _stored(texts: Iterable[bytes]) -> tuple[RunObject, ...]:
    return cast("tuple[RunObject, ...]", tuple(map(msgspec.Raw, texts)))


def today(look: Look) -> Today:
    """The UTC day of that moment."""
    store = look.view.store
    midnight = look.now - look.now % DAY
    spent = 0
    for row in store.vms.all(since=midnight):
        if row.archive is None:
            spent += sum(part.cost for part in decode_paid(row.paid).parts if part.day * DAY >= midnight)
    ended = store.runs.ended_since(midnight)
    counts = {state: ended.get(state, 0) for state in ("succeeded", "failed", "stopped")}
    return Today(start=midnight, spent=spent, **counts)


def idle_inside(look: Look) -> tuple[IdleDay, ...]:
    """The last `IDLE_DAYS` days up to that moment, if any of them has idle time inside busy time."""
    days = range(look.now // DAY - IDLE_DAYS + 1, look.now // DAY + 1)
    costs = dict.fromkeys(days, 0)
    for machine in look.view.store.vms.days(days[0] * DAY, live=True):
        for day, cost in machine.days.idle_inside:
            if day in costs:
                costs[day] += cost
    return tuple(IdleDay(day=day_text(day), idle_inside_usd=cost) for day, cost in costs.items() if any(costs.values()))


def policy_then(state: World, default: Policy) -> Policy:
    """The policy adopted last in a world, else `default`. All sources share one budget, so any source's policy will do,
    but not that of kernels, which has none.
    """
    budgeted = (steps[-1] for name, steps in state.policies.items() if name.partition("/")[0] != KERNELS)
    newest = max(budgeted, key=lambda step: step.position, default=None)
    return msgspec.structs.replace(default if newest is None else newest.policy, free=False)


def lanes(look: Look, window: int = WINDOW) -> tuple[Window, tuple[LaneObject, ...]]:
    """Machines billed in the last `window` microseconds; if none, the newest machine's whole life."""
    store, end = look.view.store, look.now
    start = end - window
    rows = list(store.vms.all(since=start, hidden=False))
    if not rows and (newest := store.vms.newest()) is not None:
        rows, start = [newest], newest.created
        end = max(start, end if newest.ended_at is None else newest.ended_at)
    if len(rows) > _MOST:
        kept = sorted(rows, key=lambda row: (row.billed, row.ended_at or 0))[-_MOST:]
        rows = [row for row in rows if row in kept]
    return Window(start=start, end=end), tuple(_lane(store, row, start, end) for row in rows)


def _lane(store: ProjectionStore, row: VmRow, start: int, end: int) -> LaneObject:
    vm = row.decoded
    runs = []
    for stay in vm.occupancies:
        if stay.since > end or (stay.until is not None and stay.until < start):
            continue
        known = store.runs.get(stay.run_id)
        run = None if known is None else known.public
        runs.append(
            RunOnLane(
                run_id=stay.run_id,
                name=None if run is None else run.name,
                state=None if run is None else run.state,
                run_start=None if run is None else run.start,
                start=max(vm.created, stay.since),
                end=None if stay.until is None else max(vm.created, stay.until),
            )
        )
    return LaneObject(vm=row.public, runs=tuple(runs))


def burn(look: Look, points: int = POINTS) -> tuple[BurnPoint, ...]:
    """At most `points` points from the first machine's start to now."""
    stretches = [stretch for spans in look.view.store.vms.spans() for stretch in _stretches.decode(spans)]
    if not stretches:
        return ()
    first, last = min(stretch[0] for stretch in stretches), max(look.now, *(stretch[1] for stretch in stretches))
    moments = moments_between(first, last, points)
    sums = spent_at(moments, stretches)
    return tuple(BurnPoint(at=at, spent=cost) for at, cost in zip(moments, sums, strict=True))


def moments_between(first: int, last: int, points: int) -> list[int]:
    """At most `points` moments, evenly spaced, both ends included; ascending, distinct."""
    steps = max(1, points - 1)
    return sorted({first + (last - first) * step // steps for step in range(steps + 1)})


def spent_at(moments: list[int], stretches: Iterable[Stretch]) -> list[int]:
    """Micro-dollars spent by each moment (ascending); the last includes every stretch whole."""
    partly, whole = [0.0] * len(moments), [0] * (len(moments) + 1)
    for since, until, cost in stretches:
        over = bisect_left(moments, until)
        whole[over] += cost
        for index in range(bisect_right(moments, since), over):
            partly[index] += cost * (moments[index] - since) / (until - since)
    return [round(part) + done for part, done in zip(partly, accumulate(whole[:-1]), strict=True)]


# -- the last line of an output


def last_lines(record: Reader, run_ids: Iterable[str], until: int) -> dict[str, str]:
    """run id → the last line that is not blank, of runs with output recorded up to a position."""
    lines = ((run_id, _last_line(record, run_id, until)) for run_id in run_ids)
    return {run_id: line for run_id, line in lines if line}


def _last_line(record: Reader, run_id: str, until: int) -> str | None:
    stored = next(
        record.read(stream=f"run/{run_id}", types={"OutputRecorded"}, until=until, backwards=True, limit=1), None
    )
    if stored is None or not isinstance(stored.data, OutputRecorded):
        return None
    packed = record.packed_output(stored.position)
    return None if packed is None else text_of(unpack(packed, stored.data)[-_END:])


def text_of(data: bytes) -> str | None:
    """The last line of some output as a terminal shows it, without colours; None: all lines are blank."""
    text = data.decode(errors="replace").replace("\r\n", "\n")
    for line in reversed(text.split("\n")):
        parts = (_ESCAPES.sub("", part).strip() for part in reversed(line.split("\r")))  # the last one overwrites
        if last := next(filter(None, parts), None):
            return last[:_LONGEST]
    return None
