"""Carries out what is open and what was decided with one provider: intent, call, outcome, each an event.

Built only by the holder of the provider's lease. A crash at any point ends in exactly one run, one stop, one machine.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, assert_never

from engine.act.executor import Effect, Effects, Inline
from engine.act.journal import Journal
from engine.act.stopper import RunStopper, VmStopper
from engine.act.submitter import Submitter
from engine.decide.decisions import (
    Alert,
    CancelDrain,
    Decision,
    Hold,
    Place,
    Refuse,
    Requeue,
    StartDrain,
    StopRun,
    StopVm,
)
from engine.fold.outbox import OpenSubmit, Outbox
from engine.fold.world_codec import WorldState
from engine.notify.notices import Notices
from engine.providers.base import Provider
from events import types
from events.clock import Clock

if TYPE_CHECKING:
    from events.store.vault import Vault

STENO = "steno"
"""Who asks for a stop where a policy does."""

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
        notices: Notices | None = None,
        *,
        effects: Effects | None = None,
        asks_again: bool = False,
    ) -> None:
        """
        Args:
            notices: receives alerts; None: alerts are not sent.
            effects: carries effects on; None: each to its end, one after another.
            asks_again: as in `Submitter`.
        """
        self._journal = journal
        self._provider = provider
        self._notices = notices if notices is not None else Notices(journal, clock)
        self.effects = effects if effects is not None else Effects(Inline(clock), clock)
        self.submitter = Submitter(journal, provider, vault, clock, asks_again=asks_again)
        self.run_stopper = RunStopper(journal, provider)
        self.vm_stopper = VmStopper(journal, provider)

    # -- what is open

    def end_runs(self, state: WorldState) -> int:
        """Carry out every open stop, and end every request nobody wants any more; how many got an outcome.

        What the provider cannot answer now stays open for the next time and holds up nothing else. A provider that is
        not reached, or refuses us, is not asked again.
        """
        ledger, looked_at = self._journal.ledger(), self._looked_at(state)
        unwanted = [one for one in self.open() if one.request.run_id in ledger.stops or not _ready(one)]
        stops = [one for one in ledger.stops.values() if self._mine(one.request)]
        return self._each(
            END,
            (
                *((run_key(one.request), self.submitter.submit(one, looked_at=looked_at)) for one in unwanted),
                *(
                    (run_key(one.request), self.run_stopper.stop(one, state.runs.get(one.request.run_id)))
                    for one in stops
                ),
            ),
        )

    def stop_again(self, state: WorldState) -> None:
        """Ask once more for every stop that was taken and that the newest answers show as not heard."""
        found = list(self.run_stopper.unheard(state.runs[run_id] for run_id in state.unsettled))
        self._each(END, ((run_key(one.request), effect) for one, effect in found))

    def hand_over(self, state: WorldState) -> int:
        """Carry out every open submission that has its place, or may have reached the provider."""
        looked_at, ready = self._looked_at(state), [one for one in self.open() if _ready(one)]
        return self._each(
            BEGIN, ((run_key(one.request), self.submitter.submit(one, looked_at=looked_at)) for one in ready)
        )

    def end_machines(self, state: WorldState) -> int:
        """Ask again for every stop of a machine whose outcome is not known."""
        found = self.vm_stopper.open(state.vms)
        return self._each(
            END, ((_vm_key(one.vm_id), self.vm_stopper.retry(one, state.vms[one.vm_id])) for one in found)
        )

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
        queued = [(one, fact) for one in decisions if (fact := self._queued(one, ledger)) is not None]
        if queued:
            self._journal.queue(self._provider.source, [fact for _, fact in queued], version=version)
        done = [one for one, _ in queued]
        done += [one for one in decisions if self._apply(one, state, ledger)]
        stops = [one for one in done if isinstance(one, StopVm)]
        self._each(END, ((_vm_key(one.vm_id), self.vm_stopper.stop(one)) for one in stops))
        if any(isinstance(one, StopRun) for one in done):
            self.end_runs(state)
        self.hand_over(state)
        return tuple(done)

    def _apply(self, decision: Decision, state: WorldState, ledger: Outbox) -> bool:
        """Write down a decision that is not about the queue; whether there was anything to write, or to call."""
        match decision:
            case Hold() | Requeue() | Place():
                return False
            case Refuse():
                submit = ledger.submits.get(decision.run_id)
                if submit is None or _ready(submit):
                    return False
                self.submitter.refuse(submit, decision.why)
            case StartDrain():
                self.vm_stopper.drain(decision)
            case CancelDrain():
                self.vm_stopper.cancel_drain(decision)
            case StopRun():
                run = state.runs.get(decision.run_id)
                return run is not None and self.run_stopper.request(run, STENO)
            case StopVm():
                return decision.vm_id not in ledger.vm_stops
            case Alert():
                self._notices.alert(decision)
            case _:
                assert_never(decision)
        return True

    def _queued(self, decision: Decision, ledger: Outbox) -> types.Event | None:
        """What a decision about the queue adds to it; None where that is there already, or it is about another."""
        match decision:
            case Hold():
                submit = ledger.submits.get(decision.run_id)
                held = types.RunHeld(
                    run_id=decision.run_id,
                    provider=self._provider.name,
                    why=decision.why,
                    detail=decision.detail,
                    not_before=decision.not_before,
                )
                return held if submit is not None and not _ready(submit) and submit.held != held else None
            case Place():
                submit = ledger.submits.get(decision.run_id)
                if submit is None or _ready(submit):
                    return None
                return types.RunPlaced(
                    run_id=decision.run_id,
                    provider=self._provider.name,
                    slot=decision.slot,
                    vm_id=decision.vm_id,
                    creation=decision.creation,
                    gpu=decision.gpu,
                    idle=decision.idle,
                )
            case Requeue():
                if ledger.provider_ids.get(decision.run_id) != decision.provider_id or decision.run_id in ledger.stops:
                    return None
                return types.RunRequeued(
                    run_id=decision.run_id,
                    provider=self._provider.name,
                    provider_id=decision.provider_id,
                    attempt=decision.attempt,
                    gpu=decision.gpu,
                    not_before=decision.not_before,
                )
            case _:
                return None


def _ready(submit: OpenSubmit) -> bool:
    """It has its place, or may have reached the provider."""
    return submit.placed is not None or submit.intended is not None


def run_key(request: types.RunRequested | types.StopRequested) -> str:
    """What effects on one run have in common: they follow one another."""
    return f"run/{request.run_id}"


def _vm_key(vm_id: str) -> str:
    return f"vm/{vm_id}"
