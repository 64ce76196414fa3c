"""How our own requests, intents, outcomes and decisions change the world."""

from contextlib import suppress
from functools import singledispatch
from typing import Final

from msgspec.structs import replace

from steno.engine.fold import arrays, chains, links, machines, run_step, vm_step
from steno.engine.fold.step import FoldStep
from steno.engine.rules.rule_file import adopted_by
from steno.engine.rules.sets import Verdict
from steno.engine.state.archives import set_hidden
from steno.engine.state.changes import AnomalyKind, Transition
from steno.engine.state.gpu_use import used
from steno.engine.state.levers import Lever, lasts, stopped_by
from steno.engine.state.policy import DAY, HOUR, load_policy
from steno.engine.state.run import Held, Placed, Run, Said
from steno.engine.state.samples import unpack
from steno.engine.state.state_machines import Trigger, VmTrigger
from steno.engine.state.states import Reason, State, VmState
from steno.engine.state.vm import Drain, KeptSpan, Told, Vm, Wish
from steno.engine.state.world import PlanAnswer, PolicyStep
from steno.events import types
from steno.events.budget_moves import BudgetMoved
from steno.events.clock import format_second
from steno.events.codec import Fact
from steno.events.errors import UnreadableInput
from steno.events.levers import LeverPulled, LeverReleased
from steno.events.subjects import OfRun, OfSource, OfVm

_NEVER_RAN: Final = "never-ran"
_REFUSALS: Final = {"unreachable": Reason.UNREACHABLE, "no_offer": Reason.NO_CAPACITY}


@singledispatch
def apply(event: Fact, turn: FoldStep) -> None:
    """Fold one event; kinds without a handler here change nothing."""


@apply.register
def _requested(event: types.RunRequested, turn: FoldStep) -> None:
    state = turn.state
    if event.run_id in state.runs:
        return
    run = state.runs[event.run_id] = Run(
        run_id=event.run_id,
        provider=event.provider,
        name=event.name,
        project=event.project,
        requested_at=turn.at,
        terms=turn.fold.readings.terms(event.provider, event.configuration, event.submitter, event.fallback),
        said=None if event.kernel is None else Said(mark=event.kernel),
        first_position=turn.position,
        first_at=turn.at,
        last_position=turn.position,
        last_at=turn.at,
    )
    state.runs.open_ids[event.run_id] = None
    turn.changed(run)


@apply.register
def _submitted(event: types.SubmitSucceeded, turn: FoldStep) -> None:
    state, run = turn.state, turn.state.runs.get(event.run_id)
    if run is None:
        return
    run.submitted_from = event.submitted_at
    if run.provider_id == event.provider_id:
        return
    if run.provider_id is not None:
        _part(turn, run, run.provider_id)
    key = f"{run.provider}/{event.provider_id}"
    seen = next((other for other in chains.behind(state, key) if other is not run and _is_that(turn, run, other)), None)
    if seen is not None:
        run = _adopt(turn, run, seen, key)
    run.provider_id, run.intended = event.provider_id, None
    for other in chains.add(state, key, run):
        turn.changed(other, len(turn.changes))
    arrays.leave(turn, run)
    turn.changes.append(run.moved())


def _is_that(turn: FoldStep, requested: Run, seen: Run) -> bool:
    """True if a run that polls showed under the id of a submission is that submission: the id may have come again."""
    reading = turn.fold.readings.of(requested.provider)
    if reading is None or not reading.ids_recur or seen.facts is None:
        return True
    first = replace(seen.facts, submitted_at=seen.submitted_at)
    return seen.requested_at is None and bool(chains.is_submission(requested, first))


def _adopt(turn: FoldStep, requested: Run, seen: Run, key: str) -> Run:
    """The run a poll showed under the provider's id is the one we asked for: one run, under our id."""
    state, seen_as = turn.state, seen.run_id
    seen.transitions = _joined(requested, seen)
    seen.later_attempts = (
        *requested.later_attempts,
        *(replace(attempt, number=requested.attempts - 1 + attempt.number) for attempt in seen.later_attempts),
    )
    seen.run_id, seen.requested_at, seen.stop_by = requested.run_id, requested.requested_at, requested.stop_by
    seen.submitted_from = requested.submitted_from
    seen.first_position, seen.first_at = requested.first_position, requested.first_at
    seen.terms, seen.requeues, seen.former_ids = requested.terms, requested.requeues, requested.former_ids
    seen.said, seen.placed, seen.use = requested.said, requested.placed, seen.use or requested.use
    seen.halt = requested.halt
    links.rename(state, seen, seen_as)
    state.runs[requested.run_id] = seen
    chains.rename(state, key, seen_as, seen)
    del state.runs[seen_as]
    state.runs.open_ids.pop(seen_as, None)
    if seen.terminal:
        state.runs.open_ids.pop(seen.run_id, None)
    return seen


def _joined(requested: Run, seen: Run) -> tuple[Transition, ...]:
    """The steps of a run that waited with us first, and was then followed as a foreign run."""
    steps, state = list(requested.transitions), requested.state
    for step in seen.transitions:
        if step.after is not state:
            steps.append(replace(step, before=state))
            state = step.after
    return tuple(steps)


def _part(turn: FoldStep, run: Run, provider_id: str) -> None:
    """A poll matched the run `shown`, which carried our mark, to ours; the provider says that ours is another."""
    state, key = turn.state, f"{run.provider}/{provider_id}"
    ids = chains.foreign_ids(run.provider, provider_id, run.submitted_at)
    other_id = next((foreign_id for foreign_id in ids if foreign_id not in state.runs), ids[0])
    other = replace(
        run,
        run_id=other_id,
        requested_at=None,
        terms=None,
        said=None,
        stop_by=None,
        halt=None,
        placed=None,
        submitted_from=None,
    )
    state.runs[other_id] = other
    chains.rename(state, key, run.run_id, other)
    run.same_id, run.use = (), None
    if not other.terminal:
        state.runs.open_ids[other_id] = None
    machines.part(turn, other, run.run_id)
    run_step.ask_again(turn, run, "another-run")
    state.runs.open_ids[run.run_id] = None
    turn.changes.append(other.moved())
    detail = f"{other.name} ({provider_id}) carries the mark of run {run.run_id}, which the provider knows as another"
    turn.note(other, AnomalyKind.AMBIGUOUS_SUBMISSION, detail)


@apply.register
def _refused(event: types.SubmitFailed | types.IntentAbandoned, turn: FoldStep) -> None:
    """The provider never got the task: no poll will say so."""
    run = turn.state.runs.get(event.run_id)
    if run is None or run.provider_id is not None or run.terminal:
        return
    state, reason, rule = State.FAILED, Reason.REJECTED, "submit-abandoned"
    if isinstance(event, types.SubmitFailed):
        rule = "submit-failed"
        reason = _REFUSALS.get(event.reason, Reason.REJECTED)
    elif event.intent != "submit":
        return
    elif run.stop_by is not None:
        state = State.STOPPED
        reason = Reason.STOPPED_BY_POLICY if run.stop_by == "policy" else Reason.STOPPED_BY_USER
    run_step.settle(turn, run, Verdict(state=state, reason=reason, rule=f"{turn.rules.name}/{rule}"))
    run.placed = run.held = run.intended = None
    turn.state.runs.open_ids.pop(event.run_id, None)


@apply.register
def _run(event: OfRun, turn: FoldStep) -> None:
    run, position, at = turn.state.runs.get(event.run_id), turn.position, turn.at
    if run is None:
        return
    waits = run.provider_id is None and not run.terminal
    match event:
        case types.SubmitIntended() if waits:  # from here on until the outcome a poll may show it
            run.intended = run.name = event.name
        case types.RunHeld() if waits:
            if run.state is State.REQUESTED:
                run_step.step(turn, run, Trigger.QUEUE, f"{turn.rules.name}/held")
            placed_at = None if event.why != "lever" or run.held is None else run.held.placed_at  # it waits on after it
            run.held = Held(
                position=position,
                at=at,
                why=event.why,
                detail=event.detail,
                not_before=event.not_before,
                placed_at=placed_at,
            )
            if event.why == "ambiguous":  # it may have its machine already
                turn.note(run, AnomalyKind.AMBIGUOUS_SUBMISSION, event.detail)
            else:
                run.placed = None
        case types.RunPlaced() if not run.terminal:
            run.held = None
            run.placed = Placed(
                position=position, at=at, slot=event.slot, vm_id=event.vm_id, creation=event.creation, gpu=event.gpu
            )
        # Such a run may be about to be submitted again: the stop prevents that.
        case types.StopRequested() if not run.terminal or run.unserved:
            run.stop_by, run.stop_idle = event.by, event.idle_since is not None
            return
        case types.RunIdleWarned():
            run.idle_warning = event
            due = f"{format_second(event.stops_at)} unless they work before"
            turn.note(run, AnomalyKind.GPU_IDLE, f"idle since {format_second(event.since)}: it is stopped at {due}")
        # A report of an earlier attempt says nothing about the current attempt.
        case types.TaskReported() if run.provider_id == event.provider_id:
            run_step.hear(turn, run, event.seq, event.frame, last=event.last)
            return
        case _:
            return
    turn.changed(run)


@apply.register
def _sampled(event: types.SamplesRecorded, turn: FoldStep) -> None:
    """Samples move no run and say nothing of its state."""
    run = turn.state.runs.get(event.run_id)
    if run is None:
        turn.note_drift(event.provider, f"samples of {event.source} are of runs that are not known")
        return
    try:
        run.use = used(run.use, unpack(event.block), turn.at)
    except UnreadableInput:
        turn.note(run, AnomalyKind.SCHEMA_DRIFT, f"samples of {event.source} cannot be read", once=True)


@apply.register
def _requeued(event: types.RunRequeued, turn: FoldStep) -> None:
    """The request that came to nothing is over; the run waits to be submitted again."""
    state, run = turn.state, turn.state.runs.get(event.run_id)
    if run is None or run.provider_id is None or run.provider_id != event.provider_id:
        return
    why = ask_again(turn, run, run.provider_id)
    run.held = Held(
        position=turn.position,
        at=turn.at,
        why="capacity",
        detail=f"{'nothing of it ran' if why == _NEVER_RAN else 'the provider had none'}; "
        f"attempt {run.attempts} asks for {event.gpu or 'the same'}",
        not_before=event.not_before,
        placed_at=None if run.placed is None else run.placed.at,
    )
    run.placed = None
    state.runs.open_ids[run.run_id] = None


def ask_again(turn: FoldStep, run: Run, provider_id: str) -> str:
    """The run is to be submitted once more, or was: under that id nothing of it ran. Why not, as the rule's name."""
    why = _NEVER_RAN if run.unserved and run.reason is not Reason.NO_CAPACITY else "no-capacity"
    links.leave_all(turn, run)
    run_step.ask_again(turn, run, why)
    key = f"{run.provider}/{provider_id}"
    turn.state.former[key] = run.run_id
    turn.state.by_provider.pop(key)
    run.former_ids, run.provider_id = (*run.former_ids, provider_id), None
    run.requeues += 1
    return why


@apply.register
def _machine(event: OfVm, turn: FoldStep) -> None:
    vm, position, at = turn.state.vms.get(event.vm_id), turn.position, turn.at
    if vm is None:
        return
    match event:
        case types.VmStopRequested():
            vm.wish = Wish(position=position, at=at, when_idle=event.when_idle)
        case types.VmDrainStarted():
            if vm_step.step(turn, vm, VmTrigger.DRAIN, at):
                vm.drain = Drain(position=position, at=at, by=event.by, detail=event.detail)
        case types.VmDrainCancelled():
            vm.drain = None
            vm_step.step(turn, vm, VmTrigger.KEEP, at)
        case types.VmStopIntended():
            same = vm.told is not None and (vm.drain is None or vm.told.position > vm.drain.position)
            times = 1 + (vm.told.times if vm.told is not None and same else 0)
            vm.told = Told(position=position, intended_at=at, by=event.by, times=times)
        case types.VmStopSucceeded():
            if vm.told is not None and vm.state is not VmState.TERMINATED:
                vm.told = replace(vm.told, taken_at=at, refused_at=None, error=None)
                vm_step.begin_ending(turn, vm)
        case types.VmStopFailed():
            if vm.told is not None:
                vm.told = replace(vm.told, taken_at=None, refused_at=at, error=event.error)
        case types.VmGoneConfirmed():
            vm_step.confirm_gone(turn, vm, event.ended_at)
        case _:
            return
    machines.settle(turn, vm)
    turn.changed(vm)


@apply.register
def _ensured(event: types.FleetEnsured, turn: FoldStep) -> None:
    fleet = f"{event.provider}/{event.project}/{event.name}"
    turn.state.fleets[fleet] = None
    for vm in turn.state.vms.open():
        vm.ours = vm.ours or f"{vm.provider}/{vm.facts.project}/{vm.facts.fleet}" == fleet


@apply.register
def _rules(event: types.RulesAdopted, turn: FoldStep) -> None:
    if turn.fold.follows and (rules := adopted_by(event)) is not None:  # else the rules before stay in force
        turn.fold.rules = rules
        turn.state.rules, turn.state.rule_texts = rules.name, rules.texts


@apply.register
def _pulled(event: LeverPulled, turn: FoldStep) -> None:
    state, vm = turn.state, turn.state.vms.get(event.vm_id or "")
    state.levers = {name: lever for name, lever in state.levers.items() if lever.holds(turn.at)}
    if event.action == "keep":
        if vm is None or vm.state is VmState.TERMINATED or event.until is None or event.until <= turn.at:
            return
        for lever_id in [name for name, lever in state.levers.items() if _keeps(lever, vm)]:
            del state.levers[lever_id]
        _end_keep(vm, turn.at)
        span = KeptSpan(lever_id=event.lever_id, by=event.by, why=event.why, since=turn.at, until=event.until)
        vm.keeps = (*vm.keeps, span)
        turn.changed(vm)
    lacking = state.runs.ended(lambda brief: brief.lacked and brief.at > turn.at - DAY)
    for run in stopped_by(event, (*state.runs.open(), *lacking)) if event.action == "stop" else ():
        run.halt = event
        turn.changed(run)
    if lasts(event):
        state.levers[event.lever_id] = Lever(position=turn.position, at=turn.at, pulled=event)


def _keeps(lever: Lever, vm: Vm) -> bool:
    return lever.pulled.action == "keep" and lever.pulled.vm_id == vm.vm_id


def _end_keep(vm: Vm, at: int) -> None:
    """End the newest kept time, if it goes on."""
    if vm.kept(at) is not None:
        vm.keeps = (*vm.keeps[:-1], replace(vm.keeps[-1], until=at, released=True))


@apply.register
def _released(event: LeverReleased, turn: FoldStep) -> None:
    """A run that it stopped stays stopped, unless the stop is not requested yet."""
    lever = turn.state.levers.pop(event.lever_id, None)
    if lever is None:
        return
    vm = turn.state.vms.get(lever.pulled.vm_id or "")
    if vm is not None and vm.keeps and vm.keeps[-1].lever_id == event.lever_id:
        _end_keep(vm, turn.at)
        turn.changed(vm)
    for run in turn.state.runs.open():
        if run.halted and run.halt is not None and run.halt.lever_id == event.lever_id:
            run.halt = None
            turn.changed(run)


@apply.register
def _crossed(event: types.BudgetCrossed, turn: FoldStep) -> None:
    turn.state.crossed.setdefault(f"{event.threshold}/{event.total}", turn.position)


@apply.register
def _moved(event: BudgetMoved, turn: FoldStep) -> None:
    moved = turn.state.moved_budget
    for owner, amount in ((event.from_owner, -event.amount), (event.to_owner, event.amount)):
        moved[owner] = moved.get(owner, 0) + amount


@apply.register
def _source(event: OfSource, turn: FoldStep) -> None:
    match event:
        case types.RecorderStarted():  # what was imported before stays an archive
            turn.source(event.source).archive = False
        case types.SourceHidden() | types.SourceShown():
            set_hidden(turn.state, event.source, hidden=isinstance(event, types.SourceHidden))
        case types.PlanAnswered():
            known, at = turn.state.plans.get(event.source, {}), turn.at
            before = known.get(event.requirement)
            since = at if before is None or bool(before.offers) != bool(event.offers) else before.since
            answer = PlanAnswer(at=at, since=since, offers=event.offers, reason=event.reason)
            kept = {key: answer for key, answer in known.items() if at - answer.at < HOUR}  # nobody asks that any more
            turn.state.plans[event.source] = {**kept, event.requirement: answer}
        case types.PolicyAdopted():
            with suppress(ValueError):  # from a version that wrote other things: the policy before stays in force
                step = PolicyStep(position=turn.position, at=turn.at, policy=load_policy(event.policy))
                turn.state.policies[event.source] = (*turn.state.policies.get(event.source, ()), step)
        case _:
            pass
