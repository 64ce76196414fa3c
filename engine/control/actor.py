"""Carries out what is open, and what was decided, with one provider: intent, call, outcome, each an event.

Built only by the holder of the provider's lease. A crash at any point ends in exactly one run, one stop, one machine. A
second stop of the same run or machine is harmless: while the provider is unreachable, refuses us or fails, it is
unknown whether a stop arrived, so it stays open and is retried.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Final, Literal, assert_never

from steno.engine.control.effects import Effect, Effects
from steno.engine.control.submitter import Submitter
from steno.engine.decide.decisions import Decision, QueueDecision, is_news
from steno.engine.errors import Conflict, RunNotFound, VmInUse, VmNotFound
from steno.engine.live.journal import Journal
from steno.engine.notify.notices import Notices
from steno.engine.providers.base import Provider, StopTarget
from steno.engine.state.facts import RunFacts
from steno.engine.state.outbox import OpenSubmit, TakenStop
from steno.engine.state.run import Run
from steno.engine.state.states import State, VmState
from steno.engine.state.vm import Vm
from steno.engine.state.world import World
from steno.events import types
from steno.events.clock import SECOND

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

    def end_runs(self, state: World) -> int:
        """Carry out every open stop, and end every request that is no longer wanted; how many got an outcome. What the
        provider cannot answer now stays open and delays nothing else. An unreachable or refusing provider is not asked
        again.
        """
        outbox = self._journal.outbox()
        unwanted = [submit for submit in self.open() if submit.request.run_id in outbox.stops or not submit.handed]
        stops = [stop for stop in outbox.stops.values() if self._mine(stop)]
        effects = [(stop.run_id, self.stop_run(stop, state.runs.get(stop.run_id))) for stop in stops]
        return self._each(END, "run", [*self._submits(unwanted, state), *effects])

    def stop_again(self, state: World) -> None:
        """Ask again for every accepted stop that the newest answers show as not carried out."""
        outbox, effects = self._journal.outbox(), list[tuple[str, Effect]]()
        for run in (run for run in state.runs.open() if run.run_id not in outbox.stops):
            taken = outbox.taken.get(run.run_id)
            if taken is None or not self._mine(taken.request):
                continue
            if is_unheard(taken, facts=run.facts, seen_at=run.last_at):
                effects.append((run.run_id, self.stop_run(taken.request, run)))
        self._each(END, "run", effects)

    def hand_over(self, state: World) -> int:
        """Carry out every open submission that has its place, or may have reached the provider."""
        handed = [submit for submit in self.open() if submit.handed and not is_halted(state, submit.request.run_id)]
        return self._each(BEGIN, "run", self._submits(handed, state))

    def end_machines(self, state: World) -> int:
        """Ask again for every stop of a machine without a known outcome."""
        stops = self._journal.outbox().vm_stops.values()
        machines = [(stop, state.vms.get(stop.vm_id)) for stop in stops if stop.provider == self._provider.name]
        ours = [(stop, vm) for stop, vm in machines if vm is not None and vm.source == self._provider.source]
        return self._each(END, "vm", ((vm.vm_id, self._stop_vm(stop, vm)) for stop, vm in ours))

    def open(self) -> list[OpenSubmit]:
        """Open requests to this provider and project, in order."""
        return [submit for submit in self._journal.outbox().submits.values() if self._mine(submit.request)]

    def _submits(self, submits: Iterable[OpenSubmit], state: World) -> Iterator[tuple[str, Effect]]:
        source = state.sources.get(self._provider.source)
        looked_at = None if source is None else source.last_answered
        return ((submit.request.run_id, self.submitter.submit(submit, looked_at=looked_at)) for submit in submits)

    def _each(self, lane: str, kind: Literal["run", "vm"], effects: Iterable[tuple[str, Effect]]) -> int:
        """Start the effect of each run or machine, in order; how many already have an outcome."""
        settled, self.effects.unreachable = 0, False
        for subject, effect in effects:
            settled += self.effects.start(lane, f"{kind}/{subject}", effect)
            if self.effects.unreachable:
                break
        return settled

    def _mine(self, request: types.RunRequested | types.StopRequested) -> bool:
        return request.provider == self._provider.name and request.project == self._provider.project

    def stop_run(self, request: types.StopRequested, run: Run | None) -> Effect:
        """Carry out one stop of a run as far as possible. `run` is from the engine's own fold: the request may hold a
        wrong id from the read models.
        """
        outbox, run_id, provider = self._journal.outbox(), request.run_id, request.provider
        if run_id in outbox.submits:
            return False  # settle the submission first: its next step checks for a stop
        stream = f"run/{run_id}"
        provider_id = outbox.provider_ids.get(run_id) or (None if run is None else run.provider_id)
        if provider_id is None or provider_id in outbox.former_ids:
            why = "the run never reached the provider"
            self._journal.write(stream, types.IntentAbandoned(run_id=run_id, provider=provider, intent="stop", why=why))
            return True
        intent = types.StopIntended(
            run_id=run_id, provider=provider, provider_id=provider_id, abort=request.abort, by=request.by
        )
        self._journal.write(stream, intent)
        try:
            yield partial(self._provider.stop, _stop(request, run, provider_id, ours=run_id in outbox.provider_ids))
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

    def carry_out(
        self,
        decisions: Sequence[Decision],
        state: World,
        version: int,
        seen: int | None = None,
        *,
        spends: bool = False,
    ) -> tuple[Decision, ...]:
        """Carry out what was decided about this state of the world; the decisions that were new. Places are taken all
        at once, before any call; `version`, `seen` and `spends` as in `Journal.queue`.

        Raises:
            VersionConflict: another process decided meanwhile; nothing was done.
        """
        outbox = self._journal.outbox()
        news = [decision for decision in decisions if is_news(decision, outbox)]
        queued = [decision for decision in news if isinstance(decision, QueueDecision)]
        if queued:
            if not any(isinstance(decision, types.RunPlaced) for decision in queued):
                seen = None  # only a place can be void
            self._journal.queue(self._provider.source, queued, version=version, seen=seen, spends=spends)
        others = [decision for decision in news if not isinstance(decision, QueueDecision)]
        stops = []
        for decision in others:
            match decision:
                case types.IntentAbandoned() | types.SubmitFailed():
                    self.submitter.finish(decision)
                case types.VmDrainStarted() | types.VmDrainCancelled():
                    self._journal.write(f"vm/{decision.vm_id}", decision)
                case types.StopRequested() | types.RunIdleWarned():
                    self._journal.write(f"run/{decision.run_id}", decision)
                case types.BudgetCrossed():
                    self._notices.alert(decision)
                case types.VmStopIntended():
                    stops.append((decision.vm_id, self._stop_vm(decision)))
                case _:
                    assert_never(decision)
        self._each(END, "vm", stops)
        if any(isinstance(decision, types.StopRequested) for decision in others):
            self.end_runs(state)
        self.hand_over(state)
        return (*queued, *others)


def is_halted(state: World, run_id: str) -> bool:
    """True if a lever stops the run: its stop is requested by the next decision, and it is not handed over before."""
    run = state.runs.get(run_id)
    return run is not None and run.halted


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
    """True if the stop has to be sent again: the newest answer, of `seen_at`, shows no effect of it."""
    if facts is None or facts.status is None or facts.final or facts.state is State.FINISHING:
        return False
    return seen_at - taken.taken_at > UNHEARD
