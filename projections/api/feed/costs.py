"""What single runs and machines of a fold cost, without going through all machines for each."""

from collections.abc import Iterable

import msgspec

from engine.fold.change import Change, VmMoved
from engine.fold.world_codec import WorldState
from engine.money.bill import Bill, bill_of
from engine.money.charge import run_costs


class Costs:
    """The costs of one world; `moved` must be told of everything that changes in it."""

    def __init__(self, state: WorldState) -> None:
        self._state = state
        self._on: dict[str, dict[str, None]] = {}
        """run id → the machines it was on."""
        self._counted: dict[str, int] = {}
        """vm id → how many of its runs are in `_on`."""
        self._bills: dict[str, Bill] = {}
        """Of the world as it is now."""
        for vm_id in state.vms:
            self._count(vm_id)

    def moved(self, changes: Iterable[Change] = ()) -> None:
        """The world has gone on, and this is what changed."""
        self._bills.clear()
        for change in changes:
            if isinstance(change, VmMoved):
                self._count(change.vm_id)

    def renamed(self, run_id: str) -> None:
        """A run may have another id now: it takes its machines with it."""
        run = self._state.runs.get(run_id)
        if run is not None:
            self._on.setdefault(run_id, {}).update(dict.fromkeys(run.links.values()))

    def of_run(self, run_id: str) -> int | None:
        """What a run costs so far, micro-dollars; None while its machine is not known."""
        state = self._state
        machines = {vm_id: state.vms[vm_id] for vm_id in self._on.get(run_id, ()) if vm_id in state.vms}
        part = msgspec.structs.replace(state, vms=machines, runs={run_id: state.runs[run_id]})
        return run_costs(part, {vm_id: self.bill(vm_id) for vm_id in machines}).get(run_id)

    def bill(self, vm_id: str) -> Bill:
        """The bill of a machine."""
        found = self._bills.get(vm_id)
        if found is None:
            found = self._bills[vm_id] = bill_of(self._state, self._state.vms[vm_id])
        return found

    def _count(self, vm_id: str) -> None:
        runs = self._state.vms[vm_id].runs
        for run_id in runs[self._counted.get(vm_id, 0) :]:
            self._on.setdefault(run_id, {})[vm_id] = None
        self._counted[vm_id] = len(runs)
