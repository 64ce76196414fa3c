"""Stops runs and machines of one provider: intent, call, outcome, each an effect (`engine.act.executor`).

A second stop of the same run or machine is harmless. While the provider is not reached, refuses us or fails, it is not
known whether the stop arrived: it stays open and is retried.
"""

from collections.abc import Iterable, Iterator
from functools import partial

from engine.act.executor import Effect
from engine.errors import RunNotFound, VmInUse, VmNotFound
from engine.facts import RunFacts
from engine.fold.outbox import TakenStop
from engine.fold.run import Run
from engine.fold.vm import Vm
from engine.live.journal import Journal
from engine.providers.base import Provider
from engine.states import State, VmState
from events import types
from events.clock import SECOND

UNHEARD = 15 * SECOND
"""A run that still goes on this long after the provider accepted a stop was not stopped: a busy server can answer 200
and write the old status back."""


class Stopper:
    """Carries out stops; an effect returns True if the stop has an outcome now."""

    def __init__(self, journal: Journal, provider: Provider) -> None:
        self._journal = journal
        self._provider = provider

    def stop_run(self, stop: types.StopRequested, run: Run | None) -> Effect:
        """Carry out one stop of a run as far as possible. `run` is from the engine's own fold: the request may hold a
        false id from the read models.
        """
        if stop.run_id in self._journal.ledger().submits:
            return False  # the submission is settled first, and its next step checks for a stop
        return (yield from self._stop_run(stop, None if run is None else run.provider_id))

    def unheard(self, runs: Iterable[Run]) -> Iterator[tuple[TakenStop, Effect]]:
        """Every stop that the provider accepted and lost, by the newest answers of these runs; each with its effect."""
        ledger, provider = self._journal.ledger(), self._provider
        for run in runs:
            taken = ledger.taken.get(run.run_id)
            if taken is None or run.run_id in ledger.stops:
                continue
            mine = (taken.request.provider, taken.request.project) == (provider.name, provider.project)
            if mine and unheard(taken, facts=run.facts, seen_at=run.last_at):
                yield taken, self._stop_run(taken.request, run.provider_id)

    def _stop_run(self, request: types.StopRequested, folded_id: str | None) -> Effect:
        ledger, run_id, provider = self._journal.ledger(), request.run_id, request.provider
        stream = f"run/{run_id}"
        provider_id = ledger.provider_ids.get(run_id, folded_id)
        if provider_id is None or provider_id in ledger.former_ids:
            why = "the run never reached the provider"
            self._journal.write(stream, types.IntentAbandoned(run_id=run_id, provider=provider, intent="stop", why=why))
            return True
        intent = types.StopIntended(
            run_id=run_id, provider=provider, provider_id=provider_id, abort=request.abort, by=request.by
        )
        self._journal.write(stream, intent)
        try:
            yield partial(self._provider.stop, provider_id, request.name, request.abort)
        except RunNotFound as error:
            self._journal.write(stream, types.StopFailed(run_id=run_id, provider=provider, error=str(error)))
        else:
            self._journal.write(stream, types.StopSucceeded(run_id=run_id, provider=provider))
        return True

    def stop_vm(self, intent: types.VmStopIntended, vm: Vm | None = None) -> Effect:
        """Record the intent and carry it out. One of earlier, then with its machine (`vm`), is sent again unless a run
        has been placed there meanwhile.
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


def unheard(taken: TakenStop, *, facts: RunFacts | None, seen_at: int) -> bool:
    """Whether to ask for a stop once more: the newest answer, of `seen_at`, shows the run as if nobody had asked."""
    if facts is None or facts.status is None or facts.final or facts.state is State.FINISHING:
        return False
    return seen_at - taken.taken_at > UNHEARD
