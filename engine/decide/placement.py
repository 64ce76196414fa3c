"""Where one waiting run goes: a warm machine, a new one, the provider's choice, back to waiting, or never."""

from dataclasses import dataclass, field

from engine.decide.candidates import by_idleness, claims, hindrances, is_shared_with, is_told, looks_idle, unfit
from engine.decide.decisions import Creation, Hold, Place, Refuse
from engine.decide.idle_timeout import backstop
from engine.decide.matching import differences
from engine.decide.source_view import Scene, fleet_slot, gpu_of, terms_of
from engine.fold.run import Run
from engine.fold.vm import Vm
from engine.policy import Policy
from engine.requirements import Requirements
from engine.states import VmState


@dataclass(frozen=True, slots=True)
class Keep:
    """It could go to this machine, which is draining: take the drain back first."""

    run_id: str
    vm_id: str


@dataclass(slots=True)
class Room:
    """What is left of the source's places while one run after another is given one."""

    scene: Scene
    free: int | None = None
    claimed: set[str] = field(default_factory=set)
    """Machines given away in this round, or being kept for the next."""
    slots: set[str] = field(default_factory=set)
    landing: list[Place] = field(default_factory=list)
    wanted: int = 0
    """How many machines are asked for by the run that is placed now and all that may be placed after it."""

    @classmethod
    def of(cls, scene: Scene, wanted: int) -> "Room":
        """The room there is before anybody is placed."""
        return cls(scene=scene, free=scene.free, slots=set(scene.slots), wanted=wanted)

    @property
    def scarce(self) -> bool:
        """Whether some of them get a place only if others reuse a machine and take none."""
        return self.free is not None and self.wanted > self.free

    def take(self, place: Place, nodes: int) -> None:
        """One run has been placed."""
        self.landing.append(place)
        if place.vm_id is not None:
            self.claimed.add(place.vm_id)
        if place.slot is not None:
            self.slots.add(place.slot)
        if self.free is not None and place.creation != "reuse":
            self.free -= nodes


def place(run: Run, room: Room) -> Place | Hold | Refuse | Keep:
    """Where the run goes now. Nothing is asked here of money or of the runs before it."""
    policy, terms = room.scene.policy, terms_of(run)
    if policy.free:
        return _place(run, room, creation="reuse" if terms.creation == "reuse" else "reuse-or-create")
    why = exceeds_limit(terms, policy)
    if why is not None:
        return Refuse(run_id=run.run_id, why=why)
    pooled = policy.mode == "pool" and terms.nodes == 1 and not terms.fleets
    match terms.creation:
        case "create":
            return _new(run, room, slot=terms.nodes == 1 and not terms.fleets)
        case "reuse":
            return _warm(run, room, pooled=pooled) or _wait_for_machine(run, room)
        case "reuse-or-create":
            return _either(run, room, pooled=pooled)


def exceeds_limit(terms: Requirements, policy: Policy) -> str | None:
    """Why a run that needs more machines than the limit can never have its place; None if it can."""
    if policy.max_vms is None or terms.nodes <= policy.max_vms:
        return None
    return f"it needs {terms.nodes} machines at once, and the machine limit is {policy.max_vms} (`vms.max`)"


def place_on_freed(run: Run, room: Room) -> Place | None:
    """A machine for a run that waits for its time: only asking the provider for a new one has to wait.

    The machine came free after the run was last handed over, so that the run is not refused the same one over and over.
    """
    terms = terms_of(run)
    if terms.nodes > 1 or terms.creation == "create":
        return None
    pooled = room.scene.policy.mode == "pool" and not terms.fleets
    found = [vm for vm in _spare(run, room, pooled=pooled) if not _was_refused(run, vm)]
    if not found:
        return None
    vm = min(found, key=by_idleness)
    return _place(run, room, vm=vm, slot=vm.facts.fleet if pooled else None, creation="reuse")


def _either(run: Run, room: Room, *, pooled: bool) -> Place | Hold | Keep:
    terms = terms_of(run)
    below = room.free is None or room.free >= terms.nodes
    if pooled:
        return _warm(run, room, pooled=True) or (_new(run, room, slot=True) if below else _at_the_cap(run, room))
    if terms.nodes > 1:
        return _place(run, room) if below else _at_the_cap(run, room)
    if not _idle(run, room) and (draining := _draining(run, room)) is not None:
        return draining
    if not below or room.scarce:
        warm = _warm(run, room, pooled=False)
        # A drain is taken back only where nothing else is left: an idle machine is on its way to somebody.
        if isinstance(warm, Place) or (warm is not None and not below):
            return warm
    # The provider takes an idle machine of its own choosing if it finds one.
    return _place(run, room) if below else _at_the_cap(run, room)


def _warm(run: Run, room: Room, *, pooled: bool) -> Place | Keep | None:
    """On the machine that has idled longest; else on one whose drain can be taken back; None: there is none."""
    idle = _spare(run, room, pooled=pooled)
    if terms_of(run).creation != "reuse" and (room.free is None or room.free > 0):
        idle = [vm for vm in idle if not _was_refused(run, vm)]  # its provider sees a difference that we do not
    if not idle:
        return _draining(run, room)
    vm = min(idle, key=by_idleness)
    # Such a run takes no place, and a machine that goes in the last moment is not replaced while it is still billed.
    reuse = room.scarce or not pooled or terms_of(run).creation == "reuse"
    creation: Creation = "reuse" if reuse else "reuse-or-create"
    return _place(run, room, vm=vm, slot=vm.facts.fleet if pooled else None, creation=creation)


def _spare(run: Run, room: Room, *, pooled: bool) -> list[Vm]:
    """Idle machines it can be sent to; none where the provider, which chooses, may give each to a run before it."""
    if not pooled:
        fitting = [vm for vm in room.scene.vms if looks_idle(vm) and not unfit(room.scene, run, vm)]
        if len(fitting) <= claims(room.scene, room.landing, fitting):
            return []
    return _idle(run, room)


def _was_refused(run: Run, vm: Vm) -> bool:
    """Whether the provider had no capacity for the run while this machine was idle already."""
    if run.held is None or run.held.not_before is None:
        return False
    placed_at = run.held.placed_at
    return placed_at is None or vm.idle_since is None or vm.idle_since <= placed_at


def _new(run: Run, room: Room, *, slot: bool) -> Place | Hold:
    terms = terms_of(run)
    if room.free is not None and room.free < terms.nodes:
        return _at_the_cap(run, room)
    return _place(run, room, slot=_empty_slot(room) if slot else None)


def _empty_slot(room: Room) -> str:
    number = 1
    while fleet_slot(number) in room.slots:
        number += 1
    return fleet_slot(number)


def _idle(run: Run, room: Room) -> list[Vm]:
    return [
        vm
        for vm in room.scene.vms
        if vm.vm_id not in room.claimed and not hindrances(room.scene, vm) and not unfit(room.scene, run, vm)
    ]


def _draining(run: Run, room: Room) -> Keep | None:
    """A machine it could go to if its drain were taken back, which it can be until the provider was told."""
    for vm in sorted(room.scene.ours, key=by_idleness):
        if vm.state is not VmState.DRAINING or vm.drain is None or vm.drain.by in ("user", "create"):
            continue
        busy = len(hindrances(room.scene, vm)) > 1 or vm.vm_id in room.claimed
        if not is_told(vm) and not busy and not unfit(room.scene, run, vm):
            return Keep(run.run_id, vm.vm_id)
    return None


def _wait_for_machine(run: Run, room: Room) -> Hold:
    hold = _others(run, room)
    detail = "creation_policy is `reuse`, and no idle machine fits"
    return hold or Hold(run_id=run.run_id, why="machine", detail=detail)


def _at_the_cap(run: Run, room: Room) -> Hold:
    detail = f"the machine limit ({room.scene.policy.max_vms}, `vms.max`) is reached"
    return _others(run, room) or Hold(run_id=run.run_id, why="cap", detail=detail)


def _others(run: Run, room: Room) -> Hold | None:
    """Held for its user where an idle machine would do that only other users' runs were on."""
    terms = terms_of(run)
    if terms.creation == "create" or room.scene.policy.share == "any":
        return None
    for vm in room.scene.ours:
        free = not hindrances(room.scene, vm) and vm.vm_id not in room.claimed
        if free and not differences(terms, vm) and not is_shared_with(room.scene, terms.submitter, vm):
            detail = "runs of other users were on the idle machine that fits (`vms.share` is `user`)"
            return Hold(run_id=run.run_id, why="user", detail=detail)
    return None


def _place(
    run: Run,
    room: Room,
    *,
    vm: Vm | None = None,
    slot: str | None = None,
    creation: Creation = "reuse-or-create",
) -> Place:
    return Place(
        run_id=run.run_id,
        slot=slot,
        vm_id=None if vm is None else vm.vm_id,
        creation=creation,
        gpu=gpu_of(run),
        idle=backstop(terms_of(run), room.scene.policy, watched=room.scene.watched),
    )
