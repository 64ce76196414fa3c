"""The queue of one source: who gets a place now, who waits and why, and when each may start."""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import median_low
from typing import Final, assert_never

from engine.decide.budget import check
from engine.decide.decisions import Hold, Place, Refuse
from engine.decide.matching import covers
from engine.decide.placement import Keep, Room, place, place_on_freed
from engine.decide.source_view import Scene, terms_of
from engine.errors import RefusedByPolicy
from engine.fold.queries import source_of
from engine.fold.run import Held, Run
from engine.fold.world_codec import WorldState
from engine.policy import Policy
from engine.states import VmState
from events.clock import format_second

BEHIND: Final = "another run is ahead in the queue"

LOOK_BACK: Final = 20
"""How many finished runs an estimate rests on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Queued:
    """One run in Steno's queue."""

    run_id: str
    position: int
    """1 is next."""
    why: str
    detail: str
    estimated_start: int | None
    """Microseconds, UTC; None: nothing is known to estimate it from."""


@dataclass(slots=True)
class Plan:
    """What is to become of each run in the queue, in its order."""

    room: Room
    decided: list[Place | Hold | Refuse] = field(default_factory=list)
    keeps: list[Keep] = field(default_factory=list)
    waiting: list[Run] = field(default_factory=list)
    """Those whose time has not come."""
    head: Run | None = None
    """The run that gets the next place and waits for one."""
    closed: bool = False
    """Nobody behind it gets anything."""

    @property
    def wanting(self) -> int:
        """How many machines must go before the head has its places."""
        if self.head is None or self.room.free is None:
            return 0
        return max(0, terms_of(self.head).nodes - max(0, self.room.free))


def plan(scene: Scene) -> Plan:
    """Go through the queue once, in the order of request: no run takes a place that one before it could use.

    So nobody gets a new machine past a run that waits for a place under the cap, or past one that waits for its time
    (`not_before`) and takes every machine that may be made for the later run. A machine that is there goes to a later
    run only if those before it cannot use it.
    """
    result = Plan(Room.of(scene, wanted=sum(terms_of(run).nodes for run in scene.queue if is_due(run.held, scene.now))))
    for run in scene.queue:
        found = _next(run, result)
        match found:
            case None:
                result.waiting.append(run)
            case Place() if result.keeps and found.vm_id is None:
                break  # a place that a run before it gets at the next look, should its machine be gone by then
            case Place():
                result.room.take(found, terms_of(run).nodes)
                result.decided.append(found)
            case Keep():
                result.keeps.append(found)  # it gets the machine at the next look
                result.room.claimed.add(found.vm_id)
            case Hold() if result.keeps:
                break
            case Hold():
                result.decided.append(found)
                # To a run that only reuses no place is of any use, but a machine.
                if found.why != "capacity" and terms_of(run).creation != "reuse":
                    result.head = result.head or run
            case Refuse():
                result.decided.append(found)
                break  # until this is written down, its worst case still counts against the runs behind it
            case _:
                assert_never(found)
    return result


def _next(run: Run, plan: Plan) -> Place | Hold | Refuse | Keep | None:
    """Where the run goes, after those before it; None: it goes on waiting for its time."""
    room, due = plan.room, is_due(run.held, plan.room.scene.now)
    behind = Hold(run_id=run.run_id, why="cap", detail=BEHIND)
    if plan.closed:
        return behind if due else None
    if due:
        found: Place | Hold | Refuse | Keep | None = place(run, room)
        plan.closed = isinstance(found, Hold) and found.why == "cap"
        room.wanted -= terms_of(run).nodes
    else:
        found = place_on_freed(run, room)
    if isinstance(found, Place | Keep) and (why := refusal(room.scene, run)) is not None:
        return Refuse(run_id=run.run_id, why=why)
    if not isinstance(found, Place) or found.vm_id is not None:
        return found
    if plan.head is not None:
        return behind
    first = _covering(plan.waiting, run)
    if first is None:
        return found
    detail = f"{first.name or first.run_id} is ahead in the queue, asks for the same machine and waits for capacity"
    return Hold(run_id=run.run_id, why="capacity", detail=detail)


def _covering(waiting: list[Run], run: Run) -> Run | None:
    """The first of these that could use any machine that may be made for the run; None: none could."""
    terms = terms_of(run)
    return next((one for one in waiting if terms_of(one).creation != "reuse" and covers(terms_of(one), terms)), None)


def refusal(scene: Scene, run: Run) -> str | None:
    """Why the budget does not bear the run at worst, with the arithmetic; None: it does, or guards nothing.

    The runs before it count against it, those behind it do not.
    """
    if scene.policy.free or scene.policy.budget_total is None:
        return None
    try:
        check(terms_of(run), scene.policy, scene.state, scene.now, run)
    except RefusedByPolicy as error:
        return str(error)
    return None


def is_due(held: Held | None, now: int) -> bool:
    """Whether a held run may be tried again. A clock behind the record says nothing of how long it has waited."""
    return held is None or held.not_before is None or now >= held.not_before or now < held.at


def queue(state: WorldState, source: str, policy: Policy, now: int) -> tuple[Queued, ...]:
    """Every run that waits in Steno for this source, in order, with why it does and when it may start."""
    scene = Scene(state=state, source=source, policy=policy, now=now)
    if not scene.queue:
        return ()
    said = {one.run_id: one for one in plan(scene).decided if isinstance(one, Hold)}
    starts = _starts(scene)
    waiting = []
    for position, run in enumerate(scene.queue, start=1):
        reason = said.get(run.run_id)
        held = Held(position=0, at=now, why=reason.why, detail=reason.detail, not_before=None) if reason else run.held
        waiting.append(
            Queued(
                run_id=run.run_id,
                position=position,
                why="" if held is None else held.why,
                detail="it has a place at the next look" if held is None else waits(held),
                estimated_start=next(starts),
            )
        )
    return tuple(waiting)


def waits(held: Held) -> str:
    """What a held run waits for, in words, and until when at least."""
    if held.not_before is None:
        return held.detail
    return f"{held.detail or 'the provider had no capacity'}, not before {format_second(held.not_before)}"


def _starts(scene: Scene) -> Iterator[int | None]:
    """When each run of the queue may start: machines come free one after another, as long as runs last."""
    usual = usual_duration(scene)
    frees: list[float] = [scene.now] * max(0, scene.free or 0)
    for vm in scene.ours:
        left: list[float] = [float("inf") if vm.state is VmState.UNCONFIRMED else scene.now]
        for one in vm.occupants:
            run = scene.state.runs.get(one.run_id)
            lasts = _lasts(run, usual)
            left.append(float("inf") if lasts is None else max(scene.now, one.since + lasts))
        frees.append(max(left))
    frees += [_over(one.run, usual, scene.now) for one in scene.lacking if one.creates for _ in range(one.nodes)]
    limit = scene.policy.max_vms
    frees = sorted(frees)[: limit if limit is not None else None]
    heapq.heapify(frees)
    waiting: list[Run] = []
    for run in scene.queue:
        at: float = scene.now
        if scene.free is not None:
            taken = [heapq.heappop(frees) for _ in range(min(terms_of(run).nodes, len(frees)))]
            at = max(taken, default=float("inf"))
        first = _covering(waiting, run)
        at = max([at, *(one.held.not_before or 0 for one in (run, first) if one is not None and one.held is not None)])
        if not is_due(run.held, scene.now):
            waiting.append(run)
        lasts = _lasts(run, usual)
        over = float("inf") if lasts is None else at + lasts
        for _ in range(terms_of(run).nodes if scene.free is not None else 0):
            heapq.heappush(frees, over)
        yield None if at == float("inf") else int(at)


def usual_duration(scene: Scene) -> int | None:
    """The median time the last finished runs of this source had a machine; None: none has finished."""
    found: list[int] = []
    for run in reversed(scene.state.runs.values()):
        if len(found) == LOOK_BACK:
            break
        if not run.terminal or source_of(run) != scene.source or run.vm_id is None:
            continue
        vm = scene.state.vms.get(run.vm_id)
        for one in vm.occupancies if vm is not None else ():
            if one.run_id == run.run_id and one.until is not None:
                found.append(max(0, one.until - one.since))
                break
    return median_low(found) if found else None


def _lasts(run: Run | None, usual: int | None) -> int | None:
    if run is None or run.terms is None or run.terms.max_duration is None:
        return usual
    return run.terms.max_duration if usual is None else min(usual, run.terms.max_duration)


def _over(run: Run, usual: int | None, now: int) -> float:
    lasts = _lasts(run, usual)
    since = run.placed.at if run.placed is not None else run.first_at
    return float("inf") if lasts is None else max(now, since + lasts)
