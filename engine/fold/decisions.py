"""What our own decisions about machines, policies and money do to the world."""

import msgspec

from engine.fold.change import Change, VmMoved
from engine.fold.machines import Machines
from engine.fold.vm import Drain, Told, Vm, Wish
from engine.fold.world_codec import PolicyStep, WorldState
from engine.policy import load_policy
from engine.states import VmState
from events import types

_MachineEvent = (
    types.VmStopRequested
    | types.VmDrainStarted
    | types.VmDrainCancelled
    | types.VmStopIntended
    | types.VmStopSucceeded
    | types.VmStopFailed
    | types.VmGoneConfirmed
)


class Decisions:
    """Applies the events about machines, policies and money to one world."""

    __slots__ = ("machines", "state")

    def __init__(self, state: WorldState, machines: Machines) -> None:
        self.state = state
        self.machines = machines

    def apply(self, position: int, at: int, event: types.Event) -> tuple[Change, ...]:
        """What one event changes; any other kind of event changes nothing."""
        match event:
            case types.PolicyAdopted():
                self._adopted(position, at, event)
                return ()
            case types.FleetEnsured():
                self._ensured(f"{event.provider}/{event.project}/{event.name}")
                return ()
            case types.BudgetCrossed():
                self.state.crossed.setdefault(f"{event.threshold}/{event.total}", position)
                return ()
            case (
                types.VmStopRequested()
                | types.VmDrainStarted()
                | types.VmDrainCancelled()
                | types.VmStopIntended()
                | types.VmStopSucceeded()
                | types.VmStopFailed()
                | types.VmGoneConfirmed()
            ):
                vm = self.state.vms.get(event.vm_id)
                return () if vm is None else self._machine(vm, position, at, event)
            case _:
                return ()

    def _adopted(self, position: int, at: int, event: types.PolicyAdopted) -> None:
        try:
            policy = load_policy(event.policy)
        except ValueError:  # of a version that wrote other things: the one before it stays in force
            return
        step = PolicyStep(position=position, at=at, policy=policy)
        self.state.policies[event.source] = (*self.state.policies.get(event.source, ()), step)

    def _ensured(self, fleet: str) -> None:
        self.state.fleets[fleet] = None
        for vm_id in self.state.open_vms:
            vm = self.state.vms[vm_id]
            vm.ours = vm.ours or f"{vm.provider}/{vm.facts.project}/{vm.facts.fleet}" == fleet

    def _machine(self, vm: Vm, position: int, at: int, event: _MachineEvent) -> tuple[Change, ...]:
        turn = self.machines.turn(vm, position, at)
        match event:
            case types.VmStopRequested():
                vm.wish = Wish(position=position, at=at, when_idle=event.when_idle)
            case types.VmDrainStarted():
                if turn.drain():
                    vm.drain = Drain(position=position, at=at, by=event.by)
            case types.VmDrainCancelled():
                vm.drain = None
                turn.keep()
            case types.VmStopIntended():
                same = vm.told is not None and (vm.drain is None or vm.told.position > vm.drain.position)
                times = 1 + (vm.told.times if vm.told is not None and same else 0)
                vm.told = Told(position=position, intended_at=at, by=event.by, times=times)
            case types.VmStopSucceeded():
                if vm.told is not None and vm.state is not VmState.TERMINATED:
                    vm.told = msgspec.structs.replace(vm.told, taken_at=at, refused_at=None, error=None)
                    turn.begin_ending()
            case types.VmStopFailed():
                if vm.told is not None:
                    vm.told = msgspec.structs.replace(vm.told, taken_at=None, refused_at=at, error=event.error)
            case types.VmGoneConfirmed():
                turn.confirm_gone(event.ended_at)
        changes: list[Change] = []
        self.machines.settle(turn, changes)
        return tuple(changes) or (VmMoved(vm_id=vm.vm_id, step=None),)
