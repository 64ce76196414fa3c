"""Stops runs and machines of one provider: intent, call, outcome, each an effect (`engine.act.executor`)."""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial

from engine.act.executor import Effect
from engine.act.journal import Journal
from engine.act.next_step import unheard
from engine.decide.decisions import CancelDrain, StartDrain, StopVm
from engine.errors import RunNotFound, VmInUse, VmNotFound
from engine.fold.outbox import OpenStop, TakenStop
from engine.fold.run import Run
from engine.fold.vm import Vm
from engine.providers.base import Provider
from engine.states import VmState
from events import types


class RunStopper:
    """Carries out stops of runs."""

    def __init__(self, journal: Journal, provider: Provider) -> None:
        self._journal = journal
        self._provider = provider

    def stop(self, stop: OpenStop, run: Run | None) -> Effect:
        """Carry out one stop as far as possible; True if it has an outcome now.

        Args:
            run: from the engine's own fold: the request may hold a false id from the read models.

        Raises:
            ProviderUnreachable, ProviderRefused, ProviderError: it stays open and is retried; a second stop of one
            run is harmless.
        """
        ledger = self._journal.ledger()
        if stop.request.run_id in ledger.submits:
            return False  # the submission is settled first, and its next step checks for a stop
        return (yield from self._stop(stop.request, None if run is None else run.provider_id))

    def unheard(self, runs: Iterable[Run]) -> Iterator[tuple[TakenStop, Effect]]:
        """Every stop that the provider accepted and lost, by the newest answers of these runs; each with its effect."""
        ledger = self._journal.ledger()
        for run in runs:
            taken = ledger.taken.get(run.run_id)
            if taken is None or run.run_id in ledger.stops or taken.request.provider != self._provider.name:
                continue
            if taken.request.project != self._provider.project:
                continue
            if unheard(taken, facts=run.facts, seen_at=run.last_at):
                yield taken, self._stop(taken.request, run.provider_id)

    def request(self, run: Run, submitter: str) -> bool:
        """Request a stop because of a policy; False if a stop is open or was accepted."""
        ledger = self._journal.ledger()
        if run.run_id in ledger.stops or run.run_id in ledger.taken:
            return False
        self._journal.run(
            run.run_id,
            types.StopRequested(
                run_id=run.run_id,
                provider=run.provider,
                project=run.project or self._provider.project,
                provider_id=run.provider_id,
                name=run.name or "",
                by="policy",
                submitter=submitter,
            ),
        )
        return True

    def _stop(self, request: types.StopRequested, folded_id: str | None) -> Effect:
        ledger = self._journal.ledger()
        provider_id = ledger.provider_ids.get(request.run_id, folded_id)
        if provider_id is None or provider_id in ledger.former_ids:
            why = "the run never reached the provider"
            self._journal.run(
                request.run_id,
                types.IntentAbandoned(run_id=request.run_id, provider=request.provider, intent="stop", why=why),
            )
            return True
        intent = types.StopIntended(
            run_id=request.run_id,
            provider=request.provider,
            provider_id=provider_id,
            abort=request.abort,
            by=request.by,
        )
        self._journal.run(request.run_id, intent)
        try:
            yield partial(self._provider.stop, provider_id, request.name, request.abort)
        except RunNotFound as error:
            self._journal.run(
                request.run_id, types.StopFailed(run_id=request.run_id, provider=request.provider, error=str(error))
            )
        else:
            self._journal.run(request.run_id, types.StopSucceeded(run_id=request.run_id, provider=request.provider))
        return True


class VmStopper:
    """Carries out decisions about machines: drains one first, then stops it."""

    def __init__(self, journal: Journal, provider: Provider) -> None:
        self._journal = journal
        self._provider = provider

    def drain(self, decision: StartDrain) -> None:
        """Place no further run on it."""
        self._journal.vm(
            decision.vm_id,
            types.VmDrainStarted(
                vm_id=decision.vm_id, provider=self._provider.name, by=decision.by, detail=decision.detail
            ),
        )

    def cancel_drain(self, decision: CancelDrain) -> None:
        """Place runs on it again."""
        self._journal.vm(
            decision.vm_id,
            types.VmDrainCancelled(vm_id=decision.vm_id, provider=self._provider.name, why=decision.why),
        )

    def stop(self, decision: StopVm) -> Effect:
        """Send the stop to the provider: True if it has an outcome; one without is retried (`retry`).

        Raises:
            ProviderUnreachable, ProviderRefused, ProviderError: it is unknown whether it arrived; it stays open.
        """
        intent = types.VmStopIntended(
            vm_id=decision.vm_id, provider=self._provider.name, provider_id=decision.provider_id, by=decision.by
        )
        self._journal.vm(decision.vm_id, intent)
        return (yield from self._call(intent))

    def open(self, vms: Mapping[str, Vm]) -> tuple[types.VmStopIntended, ...]:
        """Stops of this source's machines without an outcome."""
        found = self._journal.ledger().vm_stops.values()
        return tuple(
            one.intent
            for one in found
            if one.intent.provider == self._provider.name
            and (vm := vms.get(one.intent.vm_id)) is not None
            and vm.source == self._provider.source
        )

    def retry(self, intent: types.VmStopIntended, vm: Vm) -> Effect:
        """As `stop`, for an earlier intent: sent again, unless a run has been placed there meanwhile.

        Raises:
            ProviderUnreachable, ProviderRefused, ProviderError: it stays open.
        """
        if vm.state is VmState.BUSY or vm.occupants:
            self._outcome(intent, "a run came before the provider's answer was known; the machine stays")
            return True
        return (yield from self._call(intent))

    def _call(self, intent: types.VmStopIntended) -> Effect:
        try:
            yield partial(self._provider.stop_vm, intent.provider_id)
        except (VmInUse, VmNotFound) as error:
            self._outcome(intent, str(error))
        else:
            self._outcome(intent, None)
        return True

    def _outcome(self, intent: types.VmStopIntended, error: str | None) -> None:
        where = {"vm_id": intent.vm_id, "provider": intent.provider}
        outcome: types.Event = types.VmStopSucceeded(**where)
        if error is not None:
            outcome = types.VmStopFailed(**where, error=error)
        self._journal.vm(intent.vm_id, outcome)
