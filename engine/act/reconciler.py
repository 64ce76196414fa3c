"""Carries out what is open, and what was decided, with one provider: intent, call, outcome, each an event.

Built only by the holder of the provider's lease. A crash at any point ends in exactly one run, one stop, one machine. A
second stop of the same run or machine is harmless: while the provider is unreachable, refuses us or fails, nobody knows
whether a stop arrived, so it stays open and is retried.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Final, Literal, assert_never

from engine.act.executor import Effect, Effects
from engine.act.submitter import Submitter
from engine.decide.controller import Decision, QueueDecision
from engine.errors import Conflict, RunNotFound, VmInUse, VmNotFound
from engine.facts import RunFacts
from engine.fold.outbox import OpenSubmit, Outbox, TakenStop
from engine.fold.run import Run
from engine.fold.vm import Vm
from engine.fold.world_codec import WorldState
from engine.live.journal import Journal
from engine.notify.notices import Notices
from engine.providers.base import Provider, StopTarget
from engine.states import State, VmState
from events import types
from events.clock import SECOND

BEGIN: Final = "begin"
END: Final = "end"  # lanes of effects: nothing that ends a run or a machine waits behind submissions that hang

UNHEARD: Final = 15 * SECOND
"""A run that goes on this long after the provider accepted a stop was not stopped: a busy server can answer 200 and
write the old status back.
"""


class Actor:
    """Acts on one provider for every caller."""

    def __init__(
        self, journal: Journal, provider: Provider, submitter: Submitter, notices: Notices, effects: Effects
    ) -> None:
        self._journal = journal
        self._provider = provider
        self._notices = notices
        self.effects = effects
        self.submitter = submitter

    # -- what is open

    def end_runs(self, state: WorldState) -> int:
        """Carry out every open stop, and end every request that is no longer wanted; how many got an outcome. What the
        provider cannot answer now stays open and delays nothing else. An unreachable or refusing provider is not asked
        again.
        """
        ledger = self._journal.ledger()
        unwanted = [one for one in self.open() if one.request.run_id in ledger.stops or not one.handed]
        stops = [one for one in ledger.stops.values() if self._mine(one)]
        found = [(one.run_id, self.stop_run(one, state.runs.get(one.run_id))) for one in stops]
        return self._each(END, "run", [*self._submits(unwanted, state), *found])

    def stop_again(self, state: WorldState) -> None:
        """Ask again for every accepted stop that the newest answers show as not carried out."""
        ledger, found = self._journal.ledger(), list[tuple[str, Effect]]()
        for run in (state.runs[run_id] for run_id in state.unsettled if run_id not in ledger.stops):
            taken = ledger.taken.get(run.run_id)
            if taken is None or not self._mine(taken.request):
                continue
            if is_unheard(taken, facts=run.facts, seen_at=run.last_at):
                found.append((run.run_id, self.stop_run(taken.request, run)))
        self._each(END, "run", found)

    def hand_over(self, state: WorldState) -> int:
        """Carry out every open submission that has its place, or may have reached the provider."""
        return self._each(BEGIN, "run", self._submits([one for one in self.open() if one.handed], state))

    def end_machines(self, state: WorldState) -> int:
        """Ask again for every stop of a machine without a known outcome."""
        open_stops = [one for one in self._journal.ledger().vm_stops.values() if one.provider == self._provider.name]
        machines = [(one, state.vms.get(one.vm_id)) for one in open_stops]
        found = [(one, vm) for one, vm in machines if vm is not None and vm.source == self._provider.source]
        return self._each(END, "vm", ((vm.vm_id, self._stop_vm(one, vm)) for one, vm in found))

    def open(self) -> list[OpenSubmit]:
        """Open requests to this provider and project, in order."""
        return [one for one in self._journal.ledger().submits.values() if self._mine(one.request)]

    def _submits(self, found: Iterable[OpenSubmit], state: WorldState) -> Iterator[tuple[str, Effect]]:
        source = state.sources.get(self._provider.source)
        looked_at = None if source is None else source.last_answered
        return ((one.request.run_id, self.submitter.submit(one, looked_at=looked_at)) for one in found)

    def _each(self, lane: str, kind: Literal["run", "vm"], found: Iterable[tuple[str, Effect]]) -> int:
        """Start the effect of each run or machine, in order; how many already have an outcome."""
        settled, self.effects.unreachable = 0, False
        for subject, effect in found:
            settled += self.effects.start(lane, f"{kind}/{subject}", effect)
            if self.effects.unreachable:
                break
        return settled

    def _mine(self, request: types.RunRequested | types.StopRequested) -> bool:
        return request.provider == self._provider.name and request.project == self._provider.project

    # -- stops

    def stop_run(self, request: types.StopRequested, run: Run | None) -> Effect:
        """Carry out one stop of a run as far as possible. `run` is from the engine's own fold: the request may hold a
        wrong id from the read models.
        """
        ledger, run_id, provider = self._journal.ledger(), request.run_id, request.provider
        if run_id in ledger.submits:
            return False  # settle the submission first: its next step checks for a stop
        stream = f"run/{run_id}"
        provider_id = ledger.provider_ids.get(run_id, None if run is None else run.provider_id)
        if provider_id is None or provider_id in ledger.former_ids:
            why = "the run never reached the provider"
            self._journal.write(stream, types.IntentAbandoned(run_id=run_id, provider=provider, intent="stop", why=why))
            return True
        intent = types.StopIntended(
            run_id=run_id, provider=provider, provider_id=provider_id, abort=request.abort, by=request.by
        )
        self._journal.write(stream, intent)
        try:
            yield partial(self._provider.stop, _stop(request, run, provider_id, ours=run_id in ledger.provider_ids))
        except (RunNotFound, Conflict) as error:
            failed = types.StopFailed(
                run_id=run_id, provider=provider, error=str(error), other=isinstance(error, Conflict)
            )
            self._journal.write(stream, failed)
        else:
            self._journal.write(stream, types.StopSucceeded(run_id=run_id, provider=provider))
        return True

    def _stop_vm(self, intent: types.VmStopIntended, vm: Vm | None = None) -> Effect:
        """Record the intent and carry it out. An earlier intent comes with its machine (`vm`) and is sent again unless
        a run has been placed there meanwhile.
        """
        stream, where = f"vm/{intent.vm_id}", {"vm_id": intent.vm_id, "provider": intent.provider}
        if vm is None:
            self._journal.write(stream, intent)
        outcome: types.Event = types.VmStopSucceeded(**where)
        if vm is not None and (vm.state is VmState.BUSY or vm.occupants):
            why = "a run came before the provider's answer was known; the machine stays"
            outcome = types.VmStopFailed(**where, error=why)
        else:
            try:
                yield partial(self._provider.stop_vm, intent.provider_id)
            except (VmInUse, VmNotFound) as error:
                outcome = types.VmStopFailed(**where, error=str(error))
        self._journal.write(stream, outcome)
        return True

    # -- what was decided

    def carry_out(
        self, decisions: Sequence[Decision], state: WorldState, version: int, seen: int | None = None
    ) -> tuple[Decision, ...]:
        """Carry out what was decided about this state of the world; the decisions that were new. Places are taken all
        at once, before any call; `version` and `seen` as in `Journal.queue`.

        Raises:
            VersionConflict: another process decided meanwhile; nothing was done.
        """
        ledger = self._journal.ledger()
        news = [one for one in decisions if _is_news(one, ledger)]
        queued = [one for one in news if isinstance(one, QueueDecision)]
        if queued:
            if not any(isinstance(one, types.RunPlaced) for one in queued):
                seen = None  # only a place can be void
            self._journal.queue(self._provider.source, queued, version=version, seen=seen)
        others = [one for one in news if not isinstance(one, QueueDecision)]
        stops = []
        for one in others:
            match one:
                case types.IntentAbandoned() | types.SubmitFailed():
                    self.submitter.finish(one)
                case types.VmDrainStarted() | types.VmDrainCancelled():
                    self._journal.write(f"vm/{one.vm_id}", one)
                case types.StopRequested():
                    self._journal.write(f"run/{one.run_id}", one)
                case types.BudgetCrossed():
                    self._notices.alert(one)
                case types.VmStopIntended():
                    stops.append((one.vm_id, self._stop_vm(one)))
                case _:
                    assert_never(one)
        self._each(END, "vm", stops)
        if any(isinstance(one, types.StopRequested) for one in others):
            self.end_runs(state)
        self.hand_over(state)
        return (*queued, *others)


def _stop(request: types.StopRequested, run: Run | None, provider_id: str, *, ours: bool) -> StopTarget:
    """The stop of a run, with what the newest answer says of it: the provider compares that before it ends anything."""
    facts = None if run is None else run.facts
    ours = ours or (run is not None and run.requested_at is not None)
    return StopTarget(
        provider_id=provider_id,
        name=request.name,
        abort=request.abort,
        mark=request.run_id if ours else None,
        submitted_at=None if facts is None else facts.last_submitted_at,
        user=None if facts is None or ours else facts.user,
    )


def is_unheard(taken: TakenStop, *, facts: RunFacts | None, seen_at: int) -> bool:
    """Whether to ask for a stop again: the newest answer, of `seen_at`, shows the run as if nobody had asked."""
    if facts is None or facts.status is None or facts.final or facts.state is State.FINISHING:
        return False
    return seen_at - taken.taken_at > UNHEARD


def _is_news(decision: Decision, ledger: Outbox) -> bool:
    """Whether the record does not have it yet and nothing in the record contradicts it by now."""
    match decision:
        case types.RunHeld() | types.RunPlaced() | types.IntentAbandoned() | types.SubmitFailed():
            submit = ledger.submits.get(decision.run_id)
            return submit is not None and not submit.handed and submit.held != decision
        case types.RunRequeued():
            known = ledger.provider_ids.get(decision.run_id) == decision.provider_id
            return known and decision.run_id not in ledger.stops
        case types.StopRequested():
            return decision.run_id not in ledger.stops and decision.run_id not in ledger.taken
        case types.VmStopIntended():
            return decision.vm_id not in ledger.vm_stops
        case _:
            return True
