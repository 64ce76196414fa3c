"""Where one waiting run goes: a warm machine, a new one, the provider's choice, back to waiting, or never."""

from dataclasses import dataclass, field
from itertools import count
from typing import Literal, NamedTuple

from steno.engine.decide.machine import (
    backstop,
    by_idleness,
    claims,
    differences,
    in_flight,
    is_left,
    is_shared_with,
    is_told,
    looks_free,
    unfit,
)
from steno.engine.decide.situation import SLOT, Situation, gpu_of, slot_of, terms_of
from steno.engine.state.policy import Policy
from steno.engine.state.run import Requirements, Run
from steno.engine.state.states import VmState
from steno.engine.state.vm import Vm
from steno.events.types import IntentAbandoned, RunHeld, RunPlaced, SubmitFailed


class Keep(NamedTuple):
    """The run could go to this draining machine: cancel the drain first."""

    run_id: str
    vm_id: str


Outcome = RunPlaced | RunHeld | IntentAbandoned | SubmitFailed | Keep


@dataclass(slots=True)
class Plan:
    """The decision for each run in the queue, in order, and what is left of the source's places."""

    situation: Situation
    wanted: int  # machines needed by the run being placed and all that may be placed after it
    free: int | None
    slots: set[str]
    claimed: set[str] = field(default_factory=set)  # machines given away in this round, or kept for the next
    landing: list[RunPlaced] = field(default_factory=list)
    decided: list[RunPlaced | RunHeld | IntentAbandoned | SubmitFailed] = field(default_factory=list)
    keeps: list[Keep] = field(default_factory=list)
    waiting: list[Run] = field(default_factory=list)  # runs whose time has not come
    head: Run | None = None  # the run that waits for the next place
    closed: bool = False  # no run behind it gets anything

    @property
    def wanting(self) -> int:
        """How many machines must end before the head has its places."""
        if self.head is None or self.free is None:
            return 0
        return max(0, terms_of(self.head).nodes - max(0, self.free))

    @property
    def scarce(self) -> bool:
        """True if some runs get a place only if others reuse a machine and need none."""
        return self.free is not None and self.wanted > self.free

    def take(self, place: RunPlaced, nodes: int) -> None:
        self.decided.append(place)
        self.landing.append(place)
        if place.vm_id is not None:
            self.claimed.add(place.vm_id)
        if place.slot is not None:
            self.slots.add(place.slot)
        if self.free is not None and place.creation != "reuse":
            self.free -= nodes

    def offers(self, vm: Vm, state: VmState = VmState.IDLE) -> bool:
        return looks_free(vm, state) and vm.vm_id not in self.situation.reserved and vm.vm_id not in self.claimed

    def hold(
        self, run: Run, why: Literal["cap", "capacity", "machine", "user", "offer", "limit"], detail: str
    ) -> RunHeld:
        return RunHeld(run_id=run.run_id, provider=self.situation.provider, why=why, detail=detail)

    def refuse(self, run: Run, why: str) -> IntentAbandoned:
        provider = self.situation.provider
        return IntentAbandoned(run_id=run.run_id, provider=provider, intent="submit", why=why, policy=True)


def place(run: Run, plan: Plan) -> Outcome:
    """Where the run goes now; ignores money and the runs before it."""
    policy, terms = plan.situation.policy, terms_of(run)
    if policy.free:
        return _place(run, plan, creation="reuse" if terms.creation == "reuse" else "reuse-or-create")
    why = exceeds_limit(terms, policy)
    if why is not None:
        return plan.refuse(run, why)
    single = terms.nodes == 1 and not terms.fleets
    pooled = policy.mode == "pool" and single
    match terms.creation:
        case "create":
            return _new(run, plan, slot=single)
        case "reuse":
            detail = "creation_policy is `reuse`, and no idle machine fits"
            return _warm(run, plan, pooled=pooled) or _others(run, plan) or plan.hold(run, "machine", detail)
        case "reuse-or-create" if pooled:
            return _warm(run, plan, pooled=True) or _new(run, plan, slot=True)
        case "reuse-or-create":
            return _either(run, plan)


def place_schedule(run: Run, plan: Plan) -> RunPlaced | IntentAbandoned:
    """It goes to its provider at once: until a firing it needs no machine, and Steno cannot hold a firing back."""
    why = exceeds_limit(terms_of(run), plan.situation.policy)
    return _place(run, plan) if why is None else plan.refuse(run, why)


def exceeds_limit(terms: Requirements, policy: Policy) -> str | None:
    """Why a run that needs more machines than the limit can never have its place; None if it can have it."""
    if not policy.max_vms or terms.nodes <= policy.max_vms:  # at a limit of 0 it waits until that is raised
        return None
    return f"it needs {terms.nodes} machines at once, and the machine limit is {policy.max_vms} (`vms.max`)"


def place_on_freed(run: Run, plan: Plan) -> RunPlaced | None:
    """A machine for a run that waits for its time: only asking the provider for a new machine has to wait. The machine
    came free after the run was last submitted, so the run is not refused the same one again and again.
    """
    terms = terms_of(run)
    if terms.nodes > 1 or terms.creation == "create":
        return None
    pooled = plan.situation.policy.mode == "pool" and not terms.fleets
    spare = [vm for vm in _spare(run, plan, pooled=pooled) if not _was_refused(run, vm)]
    if not spare:
        return None
    vm = min(spare, key=by_idleness)
    return _place(run, plan, vm=vm, slot=slot_of(vm) if pooled else None, creation="reuse")


def _either(run: Run, plan: Plan) -> Outcome:
    """On a machine of the provider's choice; on one of ours if there are not places for all."""
    terms = terms_of(run)
    if terms.nodes == 1:
        if not _idle(run, plan) and (draining := _draining(run, plan)) is not None:
            return draining
        below = plan.free is None or plan.free >= terms.nodes
        warm = _warm(run, plan, pooled=False) if not below or plan.scarce else None
        # Cancel a drain only if nothing else is left: an idle machine will get a run anyway.
        if isinstance(warm, RunPlaced) or (warm is not None and not below):
            return warm
    # The provider takes an idle machine of its own choice if it finds one.
    return _new(run, plan, slot=False)


def _warm(run: Run, plan: Plan, *, pooled: bool) -> RunPlaced | Keep | None:
    """On the machine that has idled longest, else on a draining machine; None: there is none."""
    idle = _spare(run, plan, pooled=pooled)
    if terms_of(run).creation != "reuse" and (plan.free is None or plan.free > 0):
        idle = [vm for vm in idle if not _was_refused(run, vm)]  # its provider sees a difference that we do not
    if not idle:
        return _draining(run, plan)
    vm = min(idle, key=by_idleness)
    # Such a run takes no place: a machine that ends in the last moment is not replaced while it is still billed.
    reuse = plan.scarce or not pooled or terms_of(run).creation == "reuse"
    slot = slot_of(vm) if pooled else None
    return _place(run, plan, vm=vm, slot=slot, creation="reuse" if reuse else "reuse-or-create")


def _spare(run: Run, plan: Plan, *, pooled: bool) -> list[Vm]:
    """Idle machines it can be sent to; none if the provider chooses and may give each to a run before it."""
    if not pooled:
        fitting = [vm for vm in plan.situation.vms if looks_free(vm) and not unfit(plan.situation, run, vm)]
        if len(fitting) <= claims(plan.situation, plan.landing, fitting):
            return []
    return _idle(run, plan)


def _was_refused(run: Run, vm: Vm) -> bool:
    """True if the provider had no capacity for the run while this machine was already idle."""
    if run.held is None or run.held.not_before is None:
        return False
    placed_at = run.held.placed_at
    return placed_at is None or vm.idle_since is None or vm.idle_since <= placed_at


def _new(run: Run, plan: Plan, *, slot: bool) -> RunPlaced | RunHeld:
    if plan.free is not None and plan.free < terms_of(run).nodes:
        detail = f"the machine limit ({plan.situation.policy.max_vms}, `vms.max`) is reached"
        return _others(run, plan) or plan.hold(run, "cap", detail)
    left = [vm for vm in plan.situation.ours if _comes_free(run, plan, vm)]
    if left:
        plan.claimed.add(min(left, key=by_idleness).vm_id)
        return plan.hold(run, "machine", "a machine that fits is about to be free: its run has just ended")
    empty = (name for number in count(1) if (name := f"{SLOT}{number}") not in plan.slots)
    return _place(run, plan, slot=next(empty) if slot else None)


def _comes_free(run: Run, plan: Plan, vm: Vm) -> bool:
    """True if waiting some seconds gives the run this machine. Who does not go on recording would not see it free."""
    free = vm.vm_id not in plan.situation.reserved and vm.vm_id not in plan.claimed
    waits = plan.situation.watched and terms_of(run).nodes == 1 and free
    return waits and is_left(plan.situation, vm) and not unfit(plan.situation, run, vm)


def _idle(run: Run, plan: Plan) -> list[Vm]:
    return [vm for vm in plan.situation.vms if plan.offers(vm) and not unfit(plan.situation, run, vm)]


def _draining(run: Run, plan: Plan) -> Keep | None:
    """A machine it could go to if its drain were cancelled, which is possible until the provider was told."""
    for vm in sorted(plan.situation.ours, key=by_idleness):
        cancellable = vm.drain is not None and vm.drain.by not in ("user", "create") and not is_told(vm)
        if cancellable and plan.offers(vm, VmState.DRAINING) and not unfit(plan.situation, run, vm):
            return Keep(run.run_id, vm.vm_id)
    return None


def _others(run: Run, plan: Plan) -> RunHeld | None:
    """Held for its user if an idle machine fits on which only other users' runs were."""
    terms = terms_of(run)
    if terms.creation == "create" or plan.situation.policy.share == "any":
        return None
    for vm in plan.situation.ours:
        if plan.offers(vm) and not differences(terms, vm) and not is_shared_with(plan.situation, terms.submitter, vm):
            detail = "runs of other users were on the idle machine that fits (`vms.share` is `user`)"
            return plan.hold(run, "user", detail)
    return None


def _place(
    run: Run,
    plan: Plan,
    *,
    vm: Vm | None = None,
    slot: str | None = None,
    creation: Literal["reuse", "reuse-or-create"] = "reuse-or-create",
) -> RunPlaced:
    if terms_of(run).retry:  # its later tries ask for the same: told `reuse`, it never gets another machine
        creation = "reuse-or-create"
    return RunPlaced(
        run_id=run.run_id,
        provider=plan.situation.provider,
        slot=slot,
        vm_id=None if vm is None else vm.vm_id,
        creation=creation,
        gpu=gpu_of(run),
        idle=backstop(terms_of(run), plan.situation.policy, watched=plan.situation.watched),
    )


def before_it(run: Run, plan: Plan) -> bool:
    """True if a run of the same fleet must be on its machine first: the provider may put both on one."""
    if not any(vm.facts.one_at_a_time for vm in plan.situation.vms):
        return False
    fleets = terms_of(run).fleets
    return any(
        (place is None or place.slot is None)
        and terms_of(flying).fleets == fleets
        and not (flying.placed is not None and flying.held is not None)  # only a person can say whether it is there
        for flying, _, place in in_flight(plan.situation, plan.landing)
    )
