"""The queue of one source: who gets a place now, who waits and why, when each may start, and which runs that found no
capacity are submitted again.
"""

import heapq
from collections.abc import Iterator, Set
from itertools import islice
from math import inf
from statistics import median_low
from typing import Annotated, Final, assert_never

from msgspec import Meta

from steno.engine.decide.budget import check
from steno.engine.decide.limits import OwnerLimits
from steno.engine.decide.machine import covers
from steno.engine.decide.offers import sentence, without_offer
from steno.engine.decide.placement import Keep, Outcome, Plan, before_it, place, place_on_freed, place_schedule
from steno.engine.decide.situation import Situation, gpu_of, places, terms_of
from steno.engine.errors import RefusedByPolicy
from steno.engine.state.levers import sentence as lever_sentence
from steno.engine.state.policy import MINUTE, Policy
from steno.engine.state.run import Held, Run, waits
from steno.engine.state.states import State, VmState
from steno.engine.state.world import PlanAnswer, World, source_of
from steno.engine.wire import Shape, Time
from steno.events.clock import SECOND, backoff, duration
from steno.events.types import IntentAbandoned, RunHeld, RunPlaced, RunRequeued, SubmitFailed

BEHIND: Final = "another run is ahead in the queue"

CLOSED: Final = "`vms.max` is 0: nothing starts, and machines end once they are idle"

ONE_AT_A_TIME: Final = "another run is being handed over, and this server takes one at a time"

SAMPLE: Final = 20  # how many finished runs an estimate uses
LEARNT_FROM: Final = 200  # the newest runs, among which it looks for them

FIRST: Final = 15 * SECOND
MOST: Final = 5 * MINUTE  # the pause once every GPU was asked for: doubles, up to the most


def plan(situation: Situation) -> Plan:
    """Go through the queue once, in order of request: no run takes a place that one before it could use. So no run gets
    a new machine past a run that waits for a place under the cap, or past a run that waits for its time (`not_before`)
    and could use every machine that may be made for the later run. An existing machine goes to a later run only if the
    earlier runs cannot use it. A run for which the provider has no offer is not before any other run, nor is a run
    that a lever holds back.
    """
    back = {run.run_id: held for run in situation.queue if (held := _held_back(run, situation)) is not None}
    due = (run for run in situation.queue if is_due(run.held, situation.now) and run.run_id not in back)
    wanted = sum(places(run) for run in due if without_offer(situation, run) is None)
    result = Plan(situation, wanted, situation.free, set(situation.slots))
    limits = OwnerLimits(situation.state, situation.policy, situation.now)
    result.decided += back.values()
    for run in (run for run in situation.queue if run.run_id not in back):
        outcome = _next(run, result, limits)
        match outcome:
            case None:
                result.waiting.append(run)
            case RunPlaced() if result.keeps and outcome.vm_id is None:
                break  # a run before it gets that place at the next look, if its machine is gone by then
            case RunPlaced():
                result.take(outcome, places(run))
            case Keep():
                result.keeps.append(outcome)  # the run gets the machine at the next look
                result.claimed.add(outcome.vm_id)
            case RunHeld() if result.keeps:
                break
            case RunHeld():
                result.decided.append(outcome)
                # A run that waits for a machine needs that machine; a place does not help it.
                if outcome.why not in ("capacity", "machine", "offer", "limit") and terms_of(run).creation != "reuse":
                    result.head = result.head or run
            case IntentAbandoned() | SubmitFailed():
                result.decided.append(outcome)
                break  # until this is recorded, its worst case still counts against the runs behind it
            case _:
                assert_never(outcome)
    return result


def placements(plan: Plan) -> Iterator[RunPlaced | RunHeld | IntentAbandoned | SubmitFailed]:
    """The plan's decisions about runs of the queue. A run that waits for the same reason as before needs no event."""
    held = {run.run_id: run.held for run in plan.situation.queue if run.held is not None}
    return (
        decision
        for decision in plan.decided
        if not isinstance(decision, RunHeld) or _is_new(decision, held.get(decision.run_id))
    )


def _is_new(decision: RunHeld, before: Held | None) -> bool:
    """Why it waits has changed; of levers also which."""
    same = before is not None and before.why == decision.why
    return not same or (decision.why == "lever" and before is not None and before.detail != decision.detail)


def _held_back(run: Run, situation: Situation) -> RunHeld | None:
    """It waits because of a lever, and takes neither a place nor a machine. Its pause for capacity stays: after the
    release it is treated as if it had never been held back.
    """
    lever = situation.holder(run)
    if lever is None and not situation.is_closed:
        return None
    return RunHeld(
        run_id=run.run_id,
        provider=situation.provider,
        why="lever",
        detail=CLOSED if lever is None else lever_sentence(lever),
        not_before=None if run.held is None else run.held.not_before,
    )


def _next(run: Run, plan: Plan, limits: OwnerLimits) -> Outcome | None:
    """Where the run goes, after those before it; None: it goes on waiting for its time."""
    if run.is_schedule:
        return _affordable(run, place_schedule(run, plan), plan, limits)
    due, answer = is_due(run.held, plan.situation.now), without_offer(plan.situation, run)
    # A run that the provider refuses to plan is submitted if that takes nothing from others: the refusal says why.
    if answer is not None and (not answer.reason or (plan.free is not None and plan.free < terms_of(run).nodes)):
        return _without_offer(run, plan, answer)
    full = limits.hold(run, plan)
    if full is not None:
        plan.wanted -= terms_of(run).nodes if due and answer is None else 0
        return plan.hold(run, "limit", full) if due else None
    behind = plan.hold(run, "cap", BEHIND)
    outcome: Outcome | None
    if plan.closed:
        return behind if due else None
    if due:
        outcome = place(run, plan)
        plan.closed = isinstance(outcome, RunHeld) and outcome.why == "cap"
        plan.wanted -= terms_of(run).nodes if answer is None else 0
    else:
        outcome = place_on_freed(run, plan)
    outcome = _affordable(run, limits.within(run, outcome, plan), plan, limits)
    if isinstance(outcome, RunPlaced) and outcome.slot is None and before_it(run, plan):
        plan.closed = True
        return plan.hold(run, "machine", ONE_AT_A_TIME) if due else None
    if not isinstance(outcome, RunPlaced) or outcome.vm_id is not None:
        return outcome
    if plan.head is not None:
        return behind
    first = _covering(plan.waiting, run)
    if first is None:
        return outcome
    detail = f"{first.name or first.run_id} is ahead in the queue, asks for the same machine and waits for capacity"
    return plan.hold(run, "capacity", detail)


def _without_offer(run: Run, plan: Plan, answer: PlanAnswer) -> RunHeld | SubmitFailed:
    """It waits until the offers change, for `queue.patience`, and takes neither a place nor a machine meanwhile."""
    situation = plan.situation
    detail, patience = sentence(situation, run, answer), situation.policy.queue_patience
    if situation.now - max(answer.since, run.requested_at or 0) < patience:
        return plan.hold(run, "offer", detail)
    why = f"{detail}, and `queue.patience` is {duration(patience) if patience else 0}"
    return SubmitFailed(run_id=run.run_id, provider=situation.provider, error=why, reason="no_offer")


def _affordable(run: Run, outcome: Outcome | None, plan: Plan, limits: OwnerLimits) -> Outcome | None:
    """Its place, unless a budget refuses it: the runs before it count against it, those behind it do not."""
    situation, policy = plan.situation, plan.situation.policy
    if isinstance(outcome, RunPlaced | Keep) and policy.guarded:
        try:
            if policy.budget_total is not None:
                check(terms_of(run), policy, situation.state, situation.now, run)
            limits.check(terms_of(run), run.project, run)
        except RefusedByPolicy as error:
            return plan.refuse(run, str(error))
    return outcome


def _covering(waiting: list[Run], run: Run) -> Run | None:
    """The first of these that could use any machine that may be made for the run; None: none."""
    terms = terms_of(run)
    return next(
        (ahead for ahead in waiting if terms_of(ahead).creation != "reuse" and covers(terms_of(ahead), terms)), None
    )


def is_due(held: Held | None, now: int) -> bool:
    """True if a held run may be tried again, or if the wait cannot be measured: the clock is behind the record."""
    return held is None or held.not_before is None or now >= held.not_before or now < held.at


class Queued(Shape, frozen=True):
    """A place in Steno's queue, and why the run waits there."""

    run_id: str
    position: Annotated[int, Meta(ge=1, description="In the queue, from 1.")]
    why: str
    detail: str
    estimated_start: Time | None  # later than now; None: at the next look, or not known


def queue(state: World, source: str, policy: Policy, now: int) -> tuple[Queued, ...]:
    """Every run that waits in Steno for this source, in order, with the reason and the estimated start."""
    situation = Situation(state=state, source=source, policy=policy, now=now)
    if not situation.queue:
        return ()
    holds = {held.run_id: held for held in plan(situation).decided if isinstance(held, RunHeld)}
    entries, usual = [], _usual_duration(situation)
    running = ((occupant.since, state.runs.get(occupant.run_id)) for vm in situation.ours for occupant in vm.occupants)
    late = any(_end(since, run, usual, now) == inf > _lasts(run, usual) for since, run in running)
    limited = {run_id for run_id, held in holds.items() if held.why == "limit"}
    starts = _starts(situation, usual, limited)
    for position, (run, start) in enumerate(zip(situation.queue, starts, strict=True), start=1):
        held = holds.get(run.run_id) or run.held
        if run.held is not None and held is not None and run.held.why == held.why == "machine":
            held = run.held  # it may say more: which machine is being made ready
        why = "" if held is None else held.why
        detail = "it has a place at the next look" if held is None else waits(held)
        if late and start is None and why == "cap":
            detail += "; a run there takes longer than usual"
        entries.append(Queued(run.run_id, position, why, detail, start))
    return tuple(entries)


def _starts(situation: Situation, usual: float, limited: Set[str]) -> Iterator[int | None]:
    """When each run of the queue may start: machines come free one after another, by usual durations. None: at the next
    look, or unknown, as where a run takes longer than usual, or a limit of its owner holds the run.
    """
    now = situation.now
    frees: list[float] = [now] * max(0, situation.free or 0)
    for vm in situation.ours:
        left = [inf if vm.state is VmState.UNCONFIRMED else now]
        left += [_end(stay.since, situation.state.runs.get(stay.run_id), usual, now) for stay in vm.occupants]
        frees.append(max(left))
    for lacking in situation.lacking:
        since = lacking.run.first_at if lacking.run.placed is None else lacking.run.placed.at
        frees += [_end(since, lacking.run, usual, now)] * (lacking.nodes if lacking.creates else 0)
    frees = sorted(frees)[: situation.policy.max_vms]
    heapq.heapify(frees)
    waiting: list[Run] = []
    for run in situation.queue:
        nodes, at = places(run), float(now)
        if run.run_id in limited or situation.holds_back(run) or without_offer(situation, run) is not None:
            lever = situation.holder(run)
            yield None if lever is None else lever.pulled.until
            continue
        if situation.free is not None:
            at = max((heapq.heappop(frees) for _ in range(min(nodes, len(frees)))), default=inf)
        first = _covering(waiting, run)
        holds = [each.held for each in (run, first) if each is not None]
        at = max([at, *(held.not_before or 0 for held in holds if held is not None)])
        if not is_due(run.held, now):
            waiting.append(run)
        for _ in range(nodes if situation.free is not None else 0):
            heapq.heappush(frees, at + _lasts(run, usual))
        yield int(at) if now < at < inf else None


def _usual_duration(situation: Situation) -> float:
    """The median time the last finished runs of this source had a machine; infinite: none has finished."""
    times: list[int] = []
    for run in islice(situation.state.runs.newest(), LEARNT_FROM):
        if len(times) == SAMPLE:
            break
        vm = situation.state.vms.get(run.vm_id or "")
        if vm is None or not run.terminal or source_of(run) != situation.source:
            continue
        ends = (
            stay.until - stay.since for stay in vm.occupancies if stay.run_id == run.run_id and stay.until is not None
        )
        times += [max(0, time) for time in ends][:1]
    return median_low(times) if times else inf


def _end(since: int, run: Run | None, usual: float, now: int) -> float:
    """When a run that began then is expected to end; infinite: unknown, or it should have ended before."""
    end = since + _lasts(run, usual)
    return end if end > now else inf


def _lasts(run: Run | None, usual: float) -> float:
    """How long a run is expected to last; infinite: unknown."""
    limit = None if run is None or run.terms is None else run.terms.max_duration
    return usual if limit is None else min(usual, limit)


def over_limit(state: World, source: str, policy: Policy, now: int) -> str | None:
    """That firings of schedules need more machines than the limit allows; None: they do not."""
    situation = Situation(state=state, source=source, policy=policy, now=now)
    names = dict.fromkeys(
        run.name or run.run_id for run in situation.live if run.schedule is not None and not run.terminal
    )
    if not names or situation.free is None or situation.free >= 0:
        return None
    return (
        f"{source} is {-situation.free} above its machine limit ({policy.max_vms}, `vms.max`): "
        f"{situation.provider} itself starts what has a schedule ({', '.join(names)})"
    )


def requeues(plan: Plan) -> Iterator[RunRequeued]:
    """Runs without capacity that are to be submitted again, in order of request."""
    situation = plan.situation
    since = situation.now - situation.policy.queue_patience
    for run in situation.state.runs.ended(lambda brief: brief.lacked and brief.at > since):
        # The record may be ahead of a clock that jumped back.
        now = max(situation.now, run.last_at)
        if run.provider_id is None or source_of(run) != situation.source:
            continue
        if not may_be_made_again(run, situation.policy.queue_patience, now):
            continue
        tries, gpus = run.requeues + 1, 1 + (0 if run.terms is None else len(run.terms.fallback))
        pause = 0
        if tries % gpus == 0 and not _was_forestalled(situation, run):
            pause = backoff(tries // gpus, first=FIRST, most=MOST)
        yield RunRequeued(
            run_id=run.run_id,
            provider=situation.provider,
            provider_id=run.provider_id,
            attempt=tries + 1,
            gpu=gpu_of(run, tries),
            not_before=situation.now + pause,
        )


def capacity_sentence(run: Run, policy: Policy, now: int) -> str | None:
    """How often Steno submitted a run without capacity, and until when it submits the run again, or why it does not.
    None: the run did not fail for lack of capacity, was not submitted through Steno, or ended in Steno's queue.
    """
    if not _found_no_capacity(run):
        return None
    tries = "once" if run.requeues == 0 else f"{run.requeues + 1} times"
    patience = policy.queue_patience
    why = _why_no_more(run, patience, now)
    more = f"is submitted again until {_limit(patience)}" if why is None else f"is not submitted again, because {why}"
    return f"Steno submitted it {tries}; it {more}."


def _limit(patience: int) -> str:
    return f"{duration(patience)} after the request (`queue.patience`)"


def _why_no_more(run: Run, patience: int, now: int) -> str | None:
    if run.stop_by is not None or run.halt is not None:
        return "a stop was requested"
    if _has_started(run):
        return "it had started"
    if patience == 0:
        return "`queue.patience` is 0"
    over = now - (run.requested_at or 0) >= patience
    return f"the limit of {_limit(patience)} has passed" if over else None


def _has_started(run: Run) -> bool:
    """True if a job of it was seen running, or has an exit status: it ran between two polls."""
    exited = run.facts is not None and any(job.exit_status is not None for job in run.facts.newest)
    return exited or run.started_at is not None or any(step.after is State.RUNNING for step in run.transitions)


def may_be_made_again(run: Run, patience: int, now: int) -> bool:
    """True if the same request may be submitted again, because there was no capacity or nothing of it ran: for
    `patience` microseconds after its request, and never once it has started.
    """
    open_ = _found_no_capacity(run) if run.terminal else run.requested_at is not None
    return open_ and _why_no_more(run, patience, now) is None


def _found_no_capacity(run: Run) -> bool:
    return run.state is State.FAILED and run.unserved and None not in (run.requested_at, run.provider_id)


def _was_forestalled(situation: Situation, run: Run) -> bool:
    """True if its idle machine went to another run, or ended: no cloud was asked for a machine."""
    if run.placed is None or run.placed.creation != "reuse" or run.placed.vm_id is None:
        return False
    vm = situation.state.vms.get(run.placed.vm_id)
    return vm is None or vm.state is not VmState.IDLE
