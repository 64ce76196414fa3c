"""What our own intents and outcomes do to runs: a request, the queue, the provider's id, whose stop it was."""

import msgspec

from engine.fold.change import Anomaly, AnomalyKind, Change, Moved, Transition
from engine.fold.decisions import Decisions
from engine.fold.machines import Machines
from engine.fold.run import Held, Placed, Run, Said
from engine.fold.run_machine import RunStepper
from engine.fold.run_turn import Turn
from engine.fold.world_codec import WorldState
from engine.providers.reading import Readings
from engine.rules.moves import Verdict
from engine.rules.sets import RuleSet
from engine.states import Reason, State
from events import types
from events.clock import foreign_run_id


class Intents:
    """Applies the events about effects to one world."""

    __slots__ = ("machines", "readings", "rules", "state", "stepper")

    def __init__(
        self, state: WorldState, rules: RuleSet, stepper: RunStepper, machines: Machines, readings: Readings
    ) -> None:
        self.state = state
        self.readings = readings
        self.machines = machines
        self.rules = rules
        self.stepper = stepper

    def apply(self, position: int, at: int, event: types.Event) -> tuple[Change, ...]:
        """What one event about effects changes; any other kind of event changes nothing."""
        match event:
            case types.RunRequested():
                return self._requested(position, at, event)
            case types.SubmitIntended():
                return self._intended(event)
            case types.SubmitSucceeded():
                return self._submitted(position, at, event)
            case types.SubmitFailed() | types.IntentAbandoned(intent="submit"):
                return self._refused(position, at, event)
            case types.StopRequested():
                run = self.state.runs.get(event.run_id)
                # One that found no capacity may be about to be asked for again: that is what is stopped.
                if run is not None and (not run.terminal or run.reason is Reason.NO_CAPACITY):
                    run.stop_by = event.by
                return ()
            case types.RunHeld():
                return self._held(position, at, event)
            case types.RunPlaced():
                return self._placed(position, at, event)
            case types.RunRequeued():
                return self._requeued(position, at, event)
            case types.TaskReported():
                return self._reported(position, at, event)
            case _:
                return Decisions(self.state, self.machines).apply(position, at, event)

    def _requested(self, position: int, at: int, event: types.RunRequested) -> tuple[Change, ...]:
        state = self.state
        if event.run_id in state.runs:
            return ()
        state.runs[event.run_id] = Run(
            run_id=event.run_id,
            provider=event.provider,
            name=event.name,
            project=event.project,
            requested_at=at,
            terms=self.readings.terms(event.provider, event.configuration, event.submitter, event.fallback),
            said=None if event.kernel is None else Said(mark=event.kernel),
            first_position=position,
            first_at=at,
            last_position=position,
            last_at=at,
        )
        state.unsettled[event.run_id] = None
        return (Moved(run_id=event.run_id, transition=None),)

    def _intended(self, event: types.SubmitIntended) -> tuple[Change, ...]:
        """From here on until the outcome a poll may show it."""
        run = self.state.runs.get(event.run_id)
        if run is None or run.provider_id is not None or run.terminal:
            return ()
        run.intended = run.name = event.name
        return (Moved(run_id=run.run_id, transition=None),)

    def _submitted(self, position: int, at: int, event: types.SubmitSucceeded) -> tuple[Change, ...]:
        state, run = self.state, self.state.runs.get(event.run_id)
        if run is None or run.provider_id == event.provider_id:
            return ()
        changes: tuple[Change, ...] = ()
        if run.provider_id is not None:
            changes = self._part(position, at, run, run.provider_id)
        key = f"{run.provider}/{event.provider_id}"
        foreign = state.by_provider.get(key)
        if foreign is not None and foreign != run.run_id:
            run = self._adopt(run, state.runs[foreign])
        run.provider_id, run.intended = event.provider_id, None
        state.by_provider[key] = run.run_id
        return (*changes, Moved(run_id=run.run_id, transition=None))

    def _adopt(self, asked: Run, seen: Run) -> Run:
        """The run a poll showed under the provider's id is the one we asked for: one run, under our id."""
        seen_as = seen.run_id
        seen.run_id, seen.requested_at, seen.stop_by = asked.run_id, asked.requested_at, asked.stop_by
        seen.first_position, seen.first_at = asked.first_position, asked.first_at
        seen.terms, seen.requeues, seen.former_ids = asked.terms, asked.requeues, asked.former_ids
        seen.transitions = _joined(asked, seen)
        seen.said = asked.said
        seen.later_attempts = (
            *asked.later_attempts,
            *(msgspec.structs.replace(one, number=asked.attempts - 1 + one.number) for one in seen.later_attempts),
        )
        seen.placed = asked.placed
        self.machines.links.rename(seen, seen_as)
        runs = {
            run_id: seen if run_id == asked.run_id else run
            for run_id, run in self.state.runs.items()
            if run_id != seen_as
        }
        self.state.runs = runs
        self.state.unsettled.pop(seen_as, None)
        if seen.terminal:
            self.state.unsettled.pop(seen.run_id, None)
        return seen

    def _part(self, position: int, at: int, run: Run, shown: str) -> tuple[Change, ...]:
        """A poll took the run `shown`, which carried our mark, for ours; the provider says that ours is another."""
        state, other_id = self.state, foreign_run_id(run.provider, shown)
        other = msgspec.structs.replace(
            run, run_id=other_id, requested_at=None, terms=None, said=None, stop_by=None, placed=None
        )
        state.runs[other_id] = other
        state.by_provider[f"{run.provider}/{shown}"] = other_id
        if not other.terminal:
            state.unsettled[other_id] = None
        self.machines.part(other, run.run_id)
        turn = Turn(run, position=position, at=at, rules=self.rules, stepper=self.stepper)
        turn.ask_again("another-run")
        run.links, run.vm_id, run.start = {}, None, None
        state.unsettled[run.run_id] = None
        detail = f"{other.name} ({shown}) carries the mark of run {run.run_id}, which the provider knows as another"
        odd = Anomaly(
            kind=AnomalyKind.AMBIGUOUS_SUBMISSION, subject=f"run/{other_id}", position=position, detail=detail
        )
        state.anomalies.append(odd)
        return (*turn.changes, Moved(run_id=other_id, transition=None), odd)

    def _refused(self, position: int, at: int, event: types.SubmitFailed | types.IntentAbandoned) -> tuple[Change, ...]:
        """The provider never got the task: there will be no poll to say so."""
        run = self.state.runs.get(event.run_id)
        if run is None or run.provider_id is not None or run.terminal:
            return ()
        turn = Turn(run, position=position, at=at, rules=self.rules, stepper=self.stepper)
        state, reason, rule = State.FAILED, Reason.REJECTED, "submit-abandoned"
        if isinstance(event, types.SubmitFailed):
            rule = "submit-failed"
            reason = Reason.UNREACHABLE if event.reason == "unreachable" else Reason.REJECTED
        elif run.stop_by is not None:
            state = State.STOPPED
            reason = Reason.STOPPED_BY_POLICY if run.stop_by == "policy" else Reason.STOPPED_BY_USER
        turn.settle(Verdict(state=state, reason=reason, rule=f"{self.rules.name}/{rule}"), None)
        run.placed = run.held = run.intended = None
        self.state.unsettled.pop(event.run_id, None)
        return tuple(turn.changes)

    def _reported(self, position: int, at: int, event: types.TaskReported) -> tuple[Change, ...]:
        """What the task itself said; of an attempt that was made again it says nothing about this one."""
        run = self.state.runs.get(event.run_id)
        if run is None or run.provider_id != event.provider_id:
            return ()
        turn = Turn(run, position=position, at=at, rules=self.rules, stepper=self.stepper)
        turn.hear(event.seq, event.frame, last=event.last)
        return tuple(turn.changes)

    # -- the queue ---------------------------------------------------------------------------------------------------

    def _held(self, position: int, at: int, event: types.RunHeld) -> tuple[Change, ...]:
        run = self.state.runs.get(event.run_id)
        if run is None or run.terminal or run.provider_id is not None:
            return ()
        turn = Turn(run, position=position, at=at, rules=self.rules, stepper=self.stepper)
        turn.hold()
        run.held = Held(position=position, at=at, why=event.why, detail=event.detail, not_before=event.not_before)
        if event.why == "ambiguous":  # it may have its machine already
            turn.note(AnomalyKind.AMBIGUOUS_SUBMISSION, event.detail)
            self.state.anomalies += [change for change in turn.changes if isinstance(change, Anomaly)]
        else:
            run.placed = None
        if not any(isinstance(change, Moved) for change in turn.changes):
            turn.changes.append(Moved(run_id=run.run_id, transition=None))
        return tuple(turn.changes)

    def _placed(self, position: int, at: int, event: types.RunPlaced) -> tuple[Change, ...]:
        run = self.state.runs.get(event.run_id)
        if run is None or run.terminal:
            return ()
        run.held = None
        run.placed = Placed(
            position=position, at=at, slot=event.slot, vm_id=event.vm_id, creation=event.creation, gpu=event.gpu
        )
        return (Moved(run_id=run.run_id, transition=None),)

    def _requeued(self, position: int, at: int, event: types.RunRequeued) -> tuple[Change, ...]:
        """The request the provider had no capacity for is over; the run waits to be handed over again."""
        state, run = self.state, self.state.runs.get(event.run_id)
        if run is None or run.provider_id is None or run.provider_id != event.provider_id:
            return ()
        changes = self.machines.links.leave_all(run, at)
        turn = Turn(run, position=position, at=at, rules=self.rules, stepper=self.stepper)
        turn.ask_again("no-capacity")
        key = f"{run.provider}/{run.provider_id}"
        placed_at = None if run.placed is None else run.placed.at
        state.former[key] = run.run_id
        state.by_provider.pop(key, None)
        run.former_ids, run.provider_id = (*run.former_ids, run.provider_id), None
        run.links, run.vm_id, run.start, run.placed = {}, None, None, None
        run.requeues += 1
        detail = f"the provider had none; attempt {run.attempts} asks for {event.gpu or 'the same'}"
        run.held = Held(
            position=position, at=at, why="capacity", detail=detail, not_before=event.not_before, placed_at=placed_at
        )
        state.unsettled[run.run_id] = None
        return (*changes, *turn.changes)


def _joined(asked: Run, seen: Run) -> tuple[Transition, ...]:
    """How a run moved that waited with us first, and was then followed as somebody else's."""
    steps, state = list(asked.transitions), asked.state
    for step in seen.transitions:
        if step.after is not state:
            steps.append(msgspec.structs.replace(step, before=state))
            state = step.after
    return tuple(steps)
