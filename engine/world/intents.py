"""What our own intents and outcomes do to runs: a request, the queue, the provider's id, whose stop it was."""

import msgspec

from engine.readings.terms import read_terms
from engine.rules.moves import Verdict
from engine.rules.sets import RuleSet
from engine.run.reasons import Reason
from engine.run.states import State
from engine.run.stepper import Stepper
from engine.world.change import Change, Moved
from engine.world.decisions import Decisions
from engine.world.follow import Turn
from engine.world.machines import Machines
from engine.world.runs import Held, Placed, Run, Said
from engine.world.state import WorldState
from events import types


class Intents:
    """Applies the events about effects to one world."""

    __slots__ = ("machines", "rules", "state", "stepper")

    def __init__(self, state: WorldState, rules: RuleSet, stepper: Stepper, machines: Machines) -> None:
        self.state = state
        self.machines = machines
        self.rules = rules
        self.stepper = stepper

    def apply(self, position: int, at: int, event: types.Event) -> tuple[Change, ...]:
        """What one event about effects changes; any other kind of event changes nothing."""
        match event:
            case types.RunRequested():
                return self._requested(position, at, event)
            case types.SubmitSucceeded():
                return self._submitted(event)
            case types.SubmitFailed():
                reason = Reason.UNREACHABLE if event.reason == "unreachable" else Reason.REJECTED
                return self._refused(position, at, event.run_id, reason, "submit-failed")
            case types.IntentAbandoned(intent="submit"):
                return self._refused(position, at, event.run_id, Reason.REJECTED, "submit-abandoned")
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
            terms=read_terms(event.configuration, event.submitter, event.fallback),
            said=None if event.kernel is None else Said(mark=event.kernel),
            first_position=position,
            first_at=at,
            last_position=position,
            last_at=at,
        )
        state.unsettled[event.run_id] = None
        state.open_requests.setdefault(f"{event.provider}/{event.name}", []).append(event.run_id)
        return (Moved(run_id=event.run_id, transition=None),)

    def _submitted(self, event: types.SubmitSucceeded) -> tuple[Change, ...]:
        state, run = self.state, self.state.runs.get(event.run_id)
        if run is None or run.provider_id is not None:
            return ()
        key = f"{run.provider}/{event.provider_id}"
        foreign = state.by_provider.get(key)
        if foreign is not None and foreign != run.run_id:
            run = self._adopt(run, state.runs[foreign])
        run.provider_id = event.provider_id
        state.by_provider[key] = run.run_id
        close_request(state, run)
        return (Moved(run_id=run.run_id, transition=None),)

    def _adopt(self, asked: Run, seen: Run) -> Run:
        """The run a poll showed under the provider's id is the one we asked for: one run, under our id."""
        seen_as = seen.run_id
        seen.run_id, seen.requested_at, seen.stop_by = asked.run_id, asked.requested_at, asked.stop_by
        seen.terms, seen.requeues, seen.former_ids = asked.terms, asked.requeues, asked.former_ids
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

    def _refused(self, position: int, at: int, run_id: str, reason: Reason, rule: str) -> tuple[Change, ...]:
        """The provider never got the task: there will be no poll to say so."""
        run = self.state.runs.get(run_id)
        if run is None or run.provider_id is not None or run.terminal:
            return ()
        turn = Turn(run, position=position, at=at, rules=self.rules, stepper=self.stepper)
        state = State.FAILED
        if rule == "submit-abandoned" and run.stop_by is not None:
            state = State.STOPPED
            reason = Reason.STOPPED_BY_POLICY if run.stop_by == "policy" else Reason.STOPPED_BY_USER
        turn.settle(Verdict(state=state, reason=reason, rule=f"{self.rules.name}/{rule}"), None)
        run.placed = run.held = None
        self.state.unsettled.pop(run_id, None)
        close_request(self.state, run)
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
        run.placed = None
        return tuple(turn.changes) or (Moved(run_id=run.run_id, transition=None),)

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
        turn.ask_again()
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
        state.open_requests.setdefault(f"{run.provider}/{run.name}", []).append(run.run_id)
        return (*changes, *turn.changes)


def close_request(state: WorldState, run: Run) -> None:
    """No poll is awaited any more to show this run for the first time."""
    key = f"{run.provider}/{run.name}"
    waiting = state.open_requests.get(key)
    if waiting is not None and run.run_id in waiting:
        waiting.remove(run.run_id)
        if not waiting:
            del state.open_requests[key]
