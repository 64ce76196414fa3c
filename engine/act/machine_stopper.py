"""Ends machines of one provider: drained first, then intent, call, outcome, an effect (`engine.act.executor`)."""

from collections.abc import Mapping
from functools import partial

from engine.act.executor import Effect
from engine.act.journal import Journal
from engine.decide.decisions import CancelDrain, StartDrain, StopVm
from engine.errors import VmInUse, VmNotFound
from engine.fold.vm import Vm
from engine.fold.vm_machine import VmState
from engine.providers.base import Provider
from events import types


class Machines:
    """What the controller decided about machines, carried out."""

    def __init__(self, journal: Journal, provider: Provider) -> None:
        self._journal = journal
        self._provider = provider

    def drain(self, decision: StartDrain) -> None:
        """From now on no run is placed on it."""
        self._journal.vm(
            decision.vm_id,
            types.VmDrainStarted(
                vm_id=decision.vm_id, provider=self._provider.name, by=decision.by, detail=decision.detail
            ),
        )

    def keep(self, decision: CancelDrain) -> None:
        """It takes runs again."""
        self._journal.vm(
            decision.vm_id,
            types.VmDrainCancelled(vm_id=decision.vm_id, provider=self._provider.name, why=decision.why),
        )

    def stop(self, decision: StopVm) -> Effect:
        """Tell the provider to end it: True where it has an outcome; one without is asked again (`settle`).

        Raises:
            ProviderUnreachable, ProviderRefused, ProviderError: whether it was heard is not known; it stays open.
        """
        intent = types.VmStopIntended(
            vm_id=decision.vm_id, provider=self._provider.name, provider_id=decision.provider_id, by=decision.by
        )
        self._journal.vm(decision.vm_id, intent)
        return (yield from self._call(intent))

    def open(self, vms: Mapping[str, Vm]) -> tuple[types.VmStopIntended, ...]:
        """Stops of this source's machines whose outcome is not known."""
        found = self._journal.ledger().vm_stops.values()
        return tuple(
            one.intent
            for one in found
            if one.intent.provider == self._provider.name
            and (vm := vms.get(one.intent.vm_id)) is not None
            and vm.source == self._provider.source
        )

    def settle(self, intent: types.VmStopIntended, vm: Vm) -> Effect:
        """As `stop`, for one that was intended before: asks once more, but not where a run has come meanwhile.

        Raises:
            ProviderUnreachable, ProviderRefused, ProviderError: it stays open.
        """
        if vm.state is VmState.BUSY or vm.occupants:
            self._outcome(intent, "a run came before it was known whether the provider had heard; it stays")
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
