"""The queue of one source: who gets a place now, who waits and why, when each may start, and which runs that found no
capacity are submitted again.
"""

import heapq
from collections.abc import Iterator
from itertools import islice
from math import inf
from statistics import median_low
from typing import Annotated, Final, assert_never

from msgspec import Meta

from engine.decide.budget import check
from engine.decide.matching import covers
from engine.decide.offers import sentence, without_offer
from engine.decide.placement import Keep, Outcome, Plan, before_it, place, place_on_freed, place_schedule
from engine.decide.source_view import Scene, gpu_of, places, terms_of
from engine.errors import RefusedByPolicy
from engine.fold.lazy_things import some_of
from engine.fold.run import Held, Run
from engine.fold.world_codec import PlanAnswer, WorldState, source_of
from engine.policy import MINUTE, Policy
from engine.states import State, VmState
from engine.wire import Shape, Time
from events.clock import SECOND, backoff, format_second, span
from events.types import IntentAbandoned, RunHeld, RunPlaced, RunRequeued, SubmitFailed

BEHIND: Final = "another run is ahead in the queue"

ONE_AT_A_TIME: Final = "another run is being handed over, and this server takes one at a time"

SAMPLE: Final = 20  # how many finished runs an estimate uses
LEARNT_FROM: Final = 200  # the newest runs, among which it looks for them

FIRST: Final = 15 * SECOND
MOST: Final = 5 * MINUTE  # the pause once every GPU was asked for: doubles, up to the most


def plan(scene: Scene) -> Plan:
    """Go through the queue once, in order of request: no run takes a place that one before it could use. So no run gets
    a new machine past a run that waits for a place under the cap, or past one that waits for its time (`not_before`)
    and could use every machine that may be made for the later run. An existing machine goes to a later run only if the
    earlier ones cannot use it. A run for which the provider has no offer is not before anybody.
    """
    due = (run for run in scene.queue if is_due(run.held, scene.now))
    wanted = sum(places(run) for run in due if without_offer(scene, run) is None)
    result = Plan(scene, wanted, scene.free, set(scene.slots))
    for run in scene.queue:
        found = _next(run, result)
        match found:
            case None:
                result.waiting.append(run)
            case RunPlaced() if result.keeps and found.vm_id is None:
                break  # a run before it gets that place at the next look, if its machine is gone by then
            case RunPlaced():
                result.take(found, places(run))
            case Keep():
                result.keeps.append(found)  # the run gets the machine at the next look
                result.claimed.add(found.vm_id)
            case RunHeld() if result.keeps:
                break
            case RunHeld():
                result.decided.append(found)
                # A run that waits for a machine needs that one; a place does not help it.
                if found.why not in ("capacity", "machine", "offer") and terms_of(run).creation != "reuse":
                    result.head = result.head or run
            case IntentAbandoned() | SubmitFailed():
                result.decided.append(found)
                break  # until this is recorded, its worst case still counts against the runs behind it
            case _:
                assert_never(found)
    return result


def placements(plan: Plan) -> Iterator[RunPlaced | RunHeld | IntentAbandoned | SubmitFailed]:
    """What the plan decides about runs of the queue. One that waits for the same reason as before needs no event."""
    why = {run.run_id: run.held.why for run in plan.scene.queue if run.held is not None}
    return (one for one in plan.decided if not isinstance(one, RunHeld) or why.get(one.run_id) != one.why)


def _next(run: Run, plan: Plan) -> Outcome | None:
    """Where the run goes, after those before it; None: it goes on waiting for its time."""
    if run.is_schedule:
        return _affordable(run, place_schedule(run, plan), plan)
    due, answer = is_due(run.held, plan.scene.now), without_offer(plan.scene, run)
    # One that the provider refuses to plan goes out where that takes nothing from others: then it says why.
    if answer is not None and (not answer.reason or (plan.free is not None and plan.free < terms_of(run).nodes)):
        return _without_offer(run, plan, answer)
    behind = plan.hold(run, "cap", BEHIND)
    found: Outcome | None
    if plan.closed:
        return behind if due else None
    if due:
        found = place(run, plan)
        plan.closed = isinstance(found, RunHeld) and found.why == "cap"
        plan.wanted -= terms_of(run).nodes if answer is None else 0
    else:
        found = place_on_freed(run, plan)
    found = _affordable(run, found, plan)
    if isinstance(found, RunPlaced) and found.slot is None and before_it(run, plan):
        plan.closed = True
        return plan.hold(run, "machine", ONE_AT_A_TIME) if due else None
    if not isinstance(found, RunPlaced) or found.vm_id is not None:
        return found
    if plan.head is not None:
        return behind
    first = _covering(plan.waiting, run)
    if first is None:
        return found
    detail = f"{first.name or first.run_id} is ahead in the queue, asks for the same machine and waits for capacity"
    return plan.hold(run, "capacity", detail)


def _without_offer(run: Run, plan: Plan, answer: PlanAnswer) -> RunHeld | SubmitFailed:
    """It waits until the offers change, for `queue.patience`, and takes neither a place nor a machine meanwhile."""
    scene, detail, patience = plan.scene, sentence(plan.scene, run, answer), plan.scene.policy.queue_patience
    if scene.now - max(answer.since, run.requested_at or 0) < patience:
        return plan.hold(run, "offer", detail)
    why = f"{detail}, and `queue.patience` is {span(patience) if patience else 0}"
    return SubmitFailed(run_id=run.run_id, provider=scene.provider, error=why, reason="no_offer")


def _affordable(run: Run, found: Outcome | None, plan: Plan) -> Outcome | None:
    """Its place, unless the budget refuses it: the runs before it count against it, those behind it do not."""
    scene = plan.scene
    if isinstance(found, RunPlaced | Keep) and scene.policy.budget_total is not None:
        try:
            check(terms_of(run), scene.policy, scene.state, scene.now, run)
        except RefusedByPolicy as error:
            return plan.refuse(run, str(error))
    return found


def _covering(waiting: list[Run], run: Run) -> Run | None:
    """The first of these that could use any machine that may be made for the run; None: none."""
    terms = terms_of(run)
    return next((one for one in waiting if terms_of(one).creation != "reuse" and covers(terms_of(one), terms)), None)


def is_due(held: Held | None, now: int) -> bool:
    """Whether a held run may be tried again. A clock behind the record cannot measure the wait: it may."""
    return held is None or held.not_before is None or now >= held.not_before or now < held.at


# -- what is shown of it -----------------------------------------------------------------------------------------------


class Queued(Shape, frozen=True):
    """A place in Steno's queue, and why the run waits there."""

    run_id: str
    position: Annotated[int, Meta(ge=1, description="In the queue, from 1.")]
    why: str
    detail: str
    estimated_start: Time | None  # later than now; None: at the next look, or not known


def queue(state: WorldState, source: str, policy: Policy, now: int) -> tuple[Queued, ...]:
    """Every run that waits in Steno for this source, in order, with the reason and the estimated start."""
    scene = Scene(state=state, source=source, policy=policy, now=now)
    if not scene.queue:
        return ()
    said = {one.run_id: one for one in plan(scene).decided if isinstance(one, RunHeld)}
    found, usual = [], _usual_duration(scene)
    running = ((one.since, state.runs.get(one.run_id)) for vm in scene.ours for one in vm.occupants)
    late = any(_end(since, run, usual, now) == inf > _lasts(run, usual) for since, run in running)
    for position, (run, start) in enumerate(zip(scene.queue, _starts(scene, usual), strict=True), start=1):
        held = said.get(run.run_id) or run.held
        if run.held is not None and held is not None and run.held.why == held.why == "machine":
            held = run.held  # it may say more: which machine is being made ready
        why = "" if held is None else held.why
        detail = "it has a place at the next look" if held is None else waits(held)
        if late and start is None and why == "cap":
            detail += "; a run there takes longer than usual"
        found.append(Queued(run.run_id, position, why, detail, start))
    return tuple(found)


def waits(held: Held | RunHeld) -> str:
    """What a held run waits for, in words, and the earliest time."""
    if held.not_before is None:
        return held.detail
    return f"{held.detail or 'the provider had no capacity'}, not before {format_second(held.not_before)}"


def _starts(scene: Scene, usual: float) -> Iterator[int | None]:
    """When each run of the queue may start: machines come free one after another, by usual durations. None: at the next
    look, or nobody knows, as where a run takes longer than usual.
    """
    now = scene.now
    frees: list[float] = [now] * max(0, scene.free or 0)
    for vm in scene.ours:
        left = [inf if vm.state is VmState.UNCONFIRMED else now]
        left += [_end(one.since, scene.state.runs.get(one.run_id), usual, now) for one in vm.occupants]
        frees.append(max(left))
    for one in scene.lacking:
        since = one.run.first_at if one.run.placed is None else one.run.placed.at
        frees += [_end(since, one.run, usual, now)] * (one.nodes if one.creates else 0)
    frees = sorted(frees)[: scene.policy.max_vms]
    heapq.heapify(frees)
    waiting: list[Run] = []
    for run in scene.queue:
        nodes, at = places(run), float(now)
        if without_offer(scene, run) is not None:
            yield None
            continue
        if scene.free is not None:
            at = max((heapq.heappop(frees) for _ in range(min(nodes, len(frees)))), default=inf)
        first = _covering(waiting, run)
        at = max([at, *(one.held.not_before or 0 for one in (run, first) if one is not None and one.held is not None)])
        if not is_due(run.held, now):
            waiting.append(run)
        for _ in range(nodes if scene.free is not None else 0):
            heapq.heappush(frees, at + _lasts(run, usual))
        yield int(at) if now < at < inf else None


def _usual_duration(scene: Scene) -> float:
    """The median time the last finished runs of this source had a machine; infinite: none has finished."""
    found: list[int] = []
    for run in islice(reversed(scene.state.runs.values()), LEARNT_FROM):
        if len(found) == SAMPLE:
            break
        vm = scene.state.vms.get(run.vm_id or "")
        if vm is None or not run.terminal or source_of(run) != scene.source:
            continue
        ends = (one.until - one.since for one in vm.occupancies if one.run_id == run.run_id and one.until is not None)
        found += [max(0, time) for time in ends][:1]
    return median_low(found) if found else inf


def _end(since: int, run: Run | None, usual: float, now: int) -> float:
    """When a run that began then is expected to end; infinite: unknown, or it should have ended before."""
    end = since + _lasts(run, usual)
    return end if end > now else inf


def _lasts(run: Run | None, usual: float) -> float:
    """How long a run is expected to last; infinite: unknown."""
    limit = None if run is None or run.terms is None else run.terms.max_duration
    return usual if limit is None else min(usual, limit)


def over_limit(state: WorldState, source: str, policy: Policy, now: int) -> str | None:
    """That firings of schedules need more machines than the limit allows; None: they do not."""
    scene = Scene(state=state, source=source, policy=policy, now=now)
    names = dict.fromkeys(run.name or run.run_id for run in scene.live if run.schedule is not None and not run.terminal)
    if not names or scene.free is None or scene.free >= 0:
        return None
    return (
        f"{source} is {-scene.free} above its machine limit ({policy.max_vms}, `vms.max`): "
        f"{scene.provider} itself starts what has a schedule ({', '.join(names)})"
    )


# -- no capacity -------------------------------------------------------------------------------------------------------


def requeues(plan: Plan) -> Iterator[RunRequeued]:
    """Runs without capacity that are to be submitted again, in order of request."""
    scene = plan.scene
    since = scene.now - scene.policy.queue_patience
    for run in some_of(scene.state.runs, lambda brief: brief.lacked and brief.at > since):
        # The record may be ahead of a clock that jumped back.
        now = max(scene.now, run.last_at)
        if run.provider_id is None or not _found_no_capacity(run) or source_of(run) != scene.source:
            continue
        if _why_no_more(run, scene.policy.queue_patience, now) is not None:
            continue
        asked, gpus = run.requeues + 1, 1 + (0 if run.terms is None else len(run.terms.fallback))
        pause = 0
        if asked % gpus == 0 and not _was_forestalled(scene, run):
            pause = backoff(asked // gpus, first=FIRST, most=MOST)
        yield RunRequeued(
            run_id=run.run_id,
            provider=scene.provider,
            provider_id=run.provider_id,
            attempt=asked + 1,
            gpu=gpu_of(run, asked),
            not_before=scene.now + pause,
        )


def capacity_sentence(run: Run, policy: Policy, now: int) -> str | None:
    """How often a run of ours without capacity was submitted, and why it is not submitted again, or until when it is.
    None: it did not fail for lack of capacity, was not submitted through Steno, or ended in Steno's queue.
    """
    if not _found_no_capacity(run) or run.provider_id is None:
        return None
    tries = "once" if run.requeues == 0 else f"{run.requeues + 1} times"
    patience = policy.queue_patience
    why = _why_no_more(run, patience, now)
    more = f"is submitted again until {_limit(patience)}" if why is None else f"is not submitted again, because {why}"
    return f"Steno submitted it {tries}; it {more}."


def _limit(patience: int) -> str:
    return f"{span(patience)} after the request (`queue.patience`)"


def _why_no_more(run: Run, patience: int, now: int) -> str | None:
    if run.stop_by is not None:
        return "a stop was requested"
    if _has_started(run):
        return "it had started"
    if patience == 0:
        return "`queue.patience` is 0"
    over = now - (run.requested_at or 0) >= patience
    return f"the limit of {_limit(patience)} has passed" if over else None


def _has_started(run: Run) -> bool:
    """Whether a job of it was seen running, or has an exit status: it ran between two polls."""
    exited = run.facts is not None and any(one.exit_status is not None for one in run.facts.newest)
    return exited or run.started_at is not None or any(step.after is State.RUNNING for step in run.transitions)


def may_be_made_again(run: Run, patience: int, now: int) -> bool:
    """Whether the same request may be submitted again, because there was no capacity or nothing of it ran: for
    `patience` microseconds after its request, and never once it has started.
    """
    open_ = run.requested_at is not None and (not run.terminal or run.unserved)
    return open_ and _why_no_more(run, patience, now) is None


def _found_no_capacity(run: Run) -> bool:
    return run.state is State.FAILED and run.unserved and run.requested_at is not None


def _was_forestalled(scene: Scene, run: Run) -> bool:
    """Whether its idle machine went to another run, or ended: no cloud was asked for one."""
    if run.placed is None or run.placed.creation != "reuse" or run.placed.vm_id is None:
        return False
    vm = scene.state.vms.get(run.placed.vm_id)
    return vm is None or vm.state is not VmState.IDLE
