"""Carries out what is open and what was decided with one provider: intent, call, outcome, each an event.

Built only by the holder of the provider's lease. A crash at any point ends in exactly one run, one stop, one machine.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, assert_never

from engine.act.executor import Effect, Effects
from engine.act.stopper import Stopper
from engine.act.submitter import Submitter
from engine.decide.controller import Decision, QueueDecision
from engine.fold.outbox import OpenSubmit, Outbox
from engine.fold.world_codec import WorldState
from engine.live.journal import Journal
from engine.notify.notices import Notices
from engine.providers.base import Provider
from events import types
from events.clock import Clock

if TYPE_CHECKING:
    from events.store.vault import Vault

BEGIN: Final = "begin"
END: Final = "end"
"""Lanes of effects: nothing that ends a run or a machine waits behind submissions that hang."""


class Actor:
    """Acts on one provider for everybody who asked."""

    def __init__(
        self,
        journal: Journal,
        provider: Provider,
        vault: "Vault",
        clock: Clock,
        notices: Notices,
        effects: Effects,
        *,
        asks_again: bool = False,
    ) -> None:
        """`notices` receives alerts, `effects` carries effects on; `asks_again` as in `Submitter`."""
        self._journal = journal
        self._provider = provider
        self._notices = notices
        self.effects = effects
        self.submitter = Submitter(journal, provider, vault, clock, asks_again=asks_again)
        self.stopper = Stopper(journal, provider)

    # -- what is open

    def end_runs(self, state: WorldState) -> int:
        """Carry out every open stop, and end every request nobody wants any more; how many got an outcome.

        What the provider cannot answer now stays open for the next time and holds up nothing else. A provider that is
        not reached, or refuses us, is not asked again.
        """
        ledger, looked_at = self._journal.ledger(), self._looked_at(state)
        unwanted = [one for one in self.open() if one.request.run_id in ledger.stops or not one.handed]
        found = [(f"run/{one.request.run_id}", self.submitter.submit(one, looked_at=looked_at)) for one in unwanted]
        for stop in ledger.stops.values():
            if self._mine(stop):
                run = state.runs.get(stop.run_id)
                found.append((f"run/{stop.run_id}", self.stopper.stop_run(stop, run)))
        return self._each(END, found)

    def stop_again(self, state: WorldState) -> None:
        """Ask once more for every stop that was taken and that the newest answers show as not heard."""
        found = list(self.stopper.unheard(state.runs[run_id] for run_id in state.unsettled))
        self._each(END, ((f"run/{one.request.run_id}", effect) for one, effect in found))

    def hand_over(self, state: WorldState) -> int:
        """Carry out every open submission that has its place, or may have reached the provider."""
        looked_at, ready = self._looked_at(state), [one for one in self.open() if one.handed]
        return self._each(
            BEGIN, ((f"run/{one.request.run_id}", self.submitter.submit(one, looked_at=looked_at)) for one in ready)
        )

    def end_machines(self, state: WorldState) -> int:
        """Ask again for every stop of a machine whose outcome is not known."""
        found = [
            (one, vm)
            for one in self._journal.ledger().vm_stops.values()
            if one.provider == self._provider.name
            and (vm := state.vms.get(one.vm_id)) is not None
            and vm.source == self._provider.source
        ]
        return self._each(END, ((f"vm/{vm.vm_id}", self.stopper.stop_vm(intent, vm)) for intent, vm in found))

    def open(self) -> list[OpenSubmit]:
        """Requests to this provider and project without an outcome, in order."""
        return [one for one in self._journal.ledger().submits.values() if self._mine(one.request)]

    def _each(self, lane: str, found: Iterable[tuple[str, Effect]]) -> int:
        """Start each effect, in order; how many have their outcome already.

        What the provider cannot answer holds up nothing else; one that is not reached, or refuses us, is not asked
        again before the next time.
        """
        settled, self.effects.unreachable = 0, False
        for key, effect in found:
            settled += self.effects.start(lane, key, effect)
            if self.effects.unreachable:
                break
        return settled

    def _mine(self, request: types.RunRequested | types.StopRequested) -> bool:
        return request.provider == self._provider.name and request.project == self._provider.project

    def _looked_at(self, state: WorldState) -> int | None:
        """When somebody last saw the provider, and so worked on its queue."""
        source = state.sources.get(self._provider.source)
        return None if source is None else source.last_answered

    # -- what was decided

    def carry_out(self, decisions: Sequence[Decision], state: WorldState, version: int) -> tuple[Decision, ...]:
        """Carry out what was decided about this state of the world; the decisions that were news.

        Places are taken all at once, at the version of the queue they were decided on, and before anything is called.

        Args:
            version: of the queue, read before the world was folded.

        Raises:
            VersionConflict: another process decided meanwhile; nothing was done.
        """
        ledger = self._journal.ledger()
        news = [one for one in decisions if _is_news(one, ledger)]
        queued = [one for one in news if isinstance(one, QueueDecision)]
        if queued:
            self._journal.queue(self._provider.source, queued, version=version)
        others = [one for one in news if not isinstance(one, QueueDecision)]
        for one in others:
            match one:
                case types.IntentAbandoned():
                    self.submitter.finish(one)
                case types.VmDrainStarted() | types.VmDrainCancelled():
                    self._journal.write(f"vm/{one.vm_id}", one)
                case types.StopRequested():
                    self._journal.write(f"run/{one.run_id}", one)
                case types.BudgetCrossed():
                    self._notices.alert(one)
                case types.VmStopIntended():
                    pass  # its effect writes it
                case _:
                    assert_never(one)
        stops = [one for one in others if isinstance(one, types.VmStopIntended)]
        self._each(END, ((f"vm/{one.vm_id}", self.stopper.stop_vm(one)) for one in stops))
        if any(isinstance(one, types.StopRequested) for one in others):
            self.end_runs(state)
        self.hand_over(state)
        return (*queued, *others)


def _is_news(decision: Decision, ledger: Outbox) -> bool:
    """Whether the record does not say so yet, and nothing in it speaks against it by now."""
    match decision:
        case types.RunHeld() | types.RunPlaced() | types.IntentAbandoned():
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
