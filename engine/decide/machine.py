"""Predicates about one machine: how it differs from what a run asks for, whether it is free, who may go to it, which
run may be about to come to it, and how long it may idle.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import Final, Literal, NamedTuple

from steno.engine.decide.situation import NOBODY, Situation, places, slot_of, terms_of
from steno.engine.state.policy import BACKSTOP, MINUTE, OFF, Policy
from steno.engine.state.run import Placed, Range, Requirements, Run
from steno.engine.state.states import State, VmState
from steno.engine.state.vm import Vm
from steno.engine.state.world import World
from steno.engine.wire import DOLLAR
from steno.events.clock import format_second
from steno.events.types import RunPlaced

MIB_IN_GB = 1024
_NAMES: Final = ("gpu", "backends", "regions", "instance_types", "fleets")
_RANGES: Final = ("gpu_counts", "gpu_memory", "total_gpu_memory", "cpus", "memory", "disk")
"""Requirements that are a choice of names, and requirements that are a range."""


def differences(terms: Requirements, vm: Vm) -> tuple[str, ...]:
    """How the machine differs from what the run asks for, one sentence each with both values; empty: it fits. Limits
    are inclusive, names ignore case, and facts that the machine lacks are not compared. Compares what the machine *is*;
    `steno.engine.decide.placement` checks whether it is free.
    """
    facts, memory = vm.facts, _gigabytes(vm.facts.gpu_memory_mib)
    if terms.any_machine:
        if not terms.gpu or facts.gpu is None:
            return ()
        count = _within("number of GPUs", Range(terms.gpu_count), facts.gpu_count)
        return (*_named("GPU", terms.gpu, facts.gpu), *count)
    unlike = _named("GPU", terms.gpu, facts.gpu or "none")
    # Limits on GPUs do not apply to a machine without GPUs, if the run needs none.
    if terms.gpu_counts.least or facts.gpu_count:
        unlike += _within("number of GPUs", terms.gpu_counts, facts.gpu_count)
        if terms.gpu_vendor is not None and facts.gpu is not None and _vendor_of(facts.gpu) != terms.gpu_vendor:
            unlike.append(f"GPU vendor: {terms.gpu_vendor} requested, the machine has {facts.gpu}")
        unlike += _within("memory of a GPU", terms.gpu_memory, memory, " GB")
        whole = None if memory is None else memory * facts.gpu_count
        unlike += _within("memory of all GPUs", terms.total_gpu_memory, whole, " GB")
    unlike += _within("CPUs", terms.cpus, facts.cpus)
    unlike += _within("memory", terms.memory, _gigabytes(facts.memory_mib), " GB")
    unlike += _within("disk", terms.disk, _gigabytes(facts.disk_mib) or None, " GB")
    unlike += _named("backend", terms.backends, facts.backend)
    unlike += _named("region", terms.regions, facts.region)
    unlike += _named("instance type", terms.instance_types, facts.instance_type)
    spot = _spot_of(terms)
    if spot != "auto" and facts.spot is not None and facts.spot != (spot == "spot"):
        there = "spot" if facts.spot else "on-demand"
        unlike.append(f"spot policy: {spot} requested, the machine is {there}")
    if terms.max_price is not None and facts.price is not None and facts.price > terms.max_price:
        most, price = (f"${hourly / DOLLAR:g}/h" for hourly in (terms.max_price, facts.price))
        unlike.append(f"price: at most {most} requested, the machine costs {price}")
    unlike += _named("fleet", [name.rsplit("/", 1)[-1] for name in terms.fleets], facts.fleet or "none")
    return tuple(unlike)


def covers(terms: Requirements, other: Requirements) -> bool:
    """True if every machine that may be made for `other` would suit `terms` too."""
    vendor = other.gpu_vendor
    made_by = {vendor} if vendor is not None or not other.gpu else set(map(_vendor_of, other.gpu))
    names = [(getattr(terms, name), getattr(other, name)) for name in _NAMES]
    ranges = [(getattr(terms, name), getattr(other, name)) for name in _RANGES]
    return (
        terms.nodes <= other.nodes
        and all(not wanted or (bool(given) and _lower(given) <= _lower(wanted)) for wanted, given in names)
        and all(wanted.contains(given) for wanted, given in ranges)
        and (terms.gpu_vendor is None or made_by == {terms.gpu_vendor})
        and _spot_of(terms) in ("auto", _spot_of(other))
        and (terms.max_price is None or (other.max_price is not None and other.max_price <= terms.max_price))
    )


def _lower(names: Sequence[str]) -> set[str]:
    return {name.lower() for name in names}


def _spot_of(terms: Requirements) -> str:
    """A task that says nothing of spot machines gets an on-demand one."""
    return terms.spot or "on-demand"


def _named(what: str, wanted: Sequence[str], there: str | None) -> list[str]:
    if not wanted or there is None or there.lower() in _lower(wanted):
        return []
    return [f"{what}: {' or '.join(wanted)} requested, the machine has {there}"]


def _within(what: str, wanted: Range, there: float | None, unit: str = "") -> list[str]:
    if there is None or wanted.holds(there):
        return []
    return [f"{what}: {wanted}{unit} requested, the machine has {there:g}{unit}"]


def _gigabytes(mebibytes: int | None) -> float | None:
    return None if mebibytes is None else mebibytes / MIB_IN_GB


def _vendor_of(model: str) -> str:
    """The vendor of a GPU model, judged by its name."""
    name = model.lower()
    if name.startswith(("mi", "rx", "radeon")):
        return "amd"
    if name.startswith("gaudi"):
        return "intel"
    return "google" if name[:1] == "v" and name[1:2].isdigit() and name != "v100" else "nvidia"


def unfit(situation: Situation, run: Run, vm: Vm) -> tuple[str, ...]:
    """Reasons why the run can never go to this machine, as long as neither changes; empty if it can go there."""
    terms = terms_of(run)
    if terms.creation == "create":
        return ("its creation_policy is `create`: it always gets a new machine",)
    reasons = list(differences(terms, vm))
    if not vm.ours and not terms.fleets:
        reasons.append("Steno did not create the machine")
    slot, pooled = slot_of(vm) is not None, situation.policy.mode == "pool" and terms.nodes == 1
    if not terms.fleets and slot != pooled:
        reasons.append(f"it is in a {'pool slot' if slot else 'shared fleet'}, and this run uses none of those")
    maker = None if vm.made_for is None else situation.state.runs.get(vm.made_for)
    if maker is not None and maker.terms is not None and maker.terms.creation == "create":
        reasons.append("it was created for a run with creation_policy `create`, which shares it with no other run")
    kept = vm.kept(situation.moment)
    if kept is not None and kept.by != terms.submitter:
        reasons.append(f"{kept.by} keeps it until {format_second(kept.until)}")
    if not is_shared_with(situation, terms.submitter, vm):
        reasons.append("runs of other users were on it (`vms.share` is `user`)")
    return tuple(reasons)


def looks_free(vm: Vm, state: VmState = VmState.IDLE) -> bool:
    """True if a machine of that state is free, apart from a run that may have been placed on it."""
    return vm.state is state and not _is_closed(vm) and not is_occupied(vm)


def _is_closed(vm: Vm) -> bool:
    """True if no run comes to it any more: it goes, does not answer, or its provider gives a failing machine no run."""
    gone = vm.wish is not None or vm.facts.unreachable or vm.missing is not None
    return gone or vm.facts.health == "failure"


LEFT: Final = MINUTE // 2
"""So long after the verdict of its last run a busy machine is expected to be free soon: in eight recordings it was
called busy for up to 10 s more, and a new machine took 32 to 63 s until its run ran.
"""


def is_left(situation: Situation, vm: Vm) -> bool:
    """True if its provider calls it busy, though all its runs have their verdicts, the last for less than `LEFT`."""
    if vm.state is not VmState.BUSY or _is_closed(vm) or not vm.runs:
        return False
    known = [situation.state.runs.get(run_id) for run_id in {vm.runs[-1], *(stay.run_id for stay in vm.occupants)}]
    verdicts = [run.transitions[-1].at for run in known if run is not None and run.terminal]
    return len(verdicts) == len(known) and 0 <= situation.now - max(verdicts) < LEFT


def is_occupied(vm: Vm) -> bool:
    """True if anything shows a run on it: its row, or a submission that has not ended."""
    reported = vm.state in (VmState.IDLE, VmState.DRAINING) and bool(vm.facts.busy_blocks)
    return vm.state is VmState.BUSY or reported or bool(vm.occupants)


def is_told(vm: Vm) -> bool:
    """True if the provider was told to end it and has not refused; an intent without an outcome counts."""
    stop = vm.told
    if stop is None or stop.refused_at is not None:
        return False
    return stop.taken_at is None or vm.drain is None or stop.position > vm.drain.position


def is_shared_with(situation: Situation, submitter: str, vm: Vm) -> bool:
    """True if this user's run may follow the runs that were on it."""
    if situation.policy.share == "any":
        return True
    known = (situation.state.runs.get(run_id) for run_id in vm.runs)
    return all(run is not None and run.terms is not None and run.terms.submitter == submitter for run in known)


def by_idleness(vm: Vm) -> tuple[int, str]:
    """Sort key: longest idle first; ties by id, so that the order is unique."""
    return (vm.idle_since if vm.idle_since is not None else vm.created, vm.vm_id)


LANDING: Final = 5 * MINUTE
"""A run submitted this long ago, and seen without a machine since, is not expected on an idle machine any more."""


def comer(situation: Situation, placed: Sequence[RunPlaced], vm: Vm) -> str | None:
    """The run that may be about to come to this machine; None: none. `placed`: runs that get their place in this
    decision.
    """
    return next((run.run_id for run, _, place in in_flight(situation, placed) if _could_land(run, place, vm)), None)


def claims(situation: Situation, placed: Sequence[RunPlaced], vms: Collection[Vm]) -> int:
    """How many of these machines the runs in flight take at most: each as many as it still lacks."""
    flying = in_flight(situation, placed)
    return sum(min(nodes, sum(_could_land(run, place, vm) for vm in vms)) for run, nodes, place in flying)


def _could_land(run: Run, place: RunPlaced | Placed | None, vm: Vm) -> bool:
    if place is not None and place.slot is not None:
        return slot_of(vm) == place.slot
    if place is not None and place.vm_id == vm.vm_id:
        return True
    terms = terms_of(run)
    return (slot_of(vm) is None or bool(terms.fleets)) and not differences(terms, vm)


def in_flight(
    situation: Situation, placed: Sequence[RunPlaced]
) -> Iterator[tuple[Run, int, RunPlaced | Placed | None]]:
    """Runs with a place that may be about to come to a machine, how many machines each lacks, and its place."""
    for place in placed:
        run = situation.state.runs[place.run_id]
        yield run, places(run), place
    for run, nodes in situation.lacking:
        since = run.first_at if run.placed is None else run.placed.at
        waited = run.provider_id is not None and run.last_at - since > LANDING
        # The provider may have chosen its machine, though without an address we cannot identify it yet. For a run of
        # several nodes the provider says so as soon as one of them has an address.
        chosen = run.state not in (State.REQUESTED, State.QUEUED) and terms_of(run).nodes == 1
        if not waited and not chosen:
            yield run, nodes, run.placed


class Timeout(NamedTuple):
    """The longest time a machine may idle, microseconds (None: for ever), and who says so: the policy in force,
    `idle_duration` of the task of the run it was made for, or that task's `creation_policy: create`.
    """

    after: int | None
    source: Literal["policy", "task", "create"]
    run_id: str | None = None


def timeout_of(state: World, vm: Vm, policy: Policy) -> Timeout:
    """The timeout of a machine, by the task it was made for."""
    maker = None if vm.made_for is None else state.runs.get(vm.made_for)
    timeout = idle_limit(NOBODY if maker is None or maker.terms is None else maker.terms, policy)
    return timeout if timeout.source == "policy" else timeout._replace(run_id=vm.made_for)


def own_end(state: World, vm: Vm, policy: Policy, now: int) -> int | None:
    """When the provider itself ends the machine if it stays idle, by the `idle_duration` it was given; None: never."""
    maker = None if vm.made_for is None else state.runs.get(vm.made_for)
    after = backstop(NOBODY if maker is None or maker.terms is None else maker.terms, policy)
    return None if after == OFF else (now if vm.idle_since is None else vm.idle_since) + after


def backstop(terms: Requirements, policy: Policy, *, watched: bool = True) -> int:
    """The `idle_duration` to give the provider for a run, microseconds; -1: off. It guards while nobody records.
    `watched`: the submitting process goes on recording, and ends the machine itself.
    """
    after = idle_limit(terms, policy, later=BACKSTOP if watched else 0).after
    return OFF if after is None else after


def idle_limit(terms: Requirements, policy: Policy, *, later: int = 0) -> Timeout:
    """The policy's timeout, and `later` unless that is 0; a shorter one, 0 or `off` of the task wins."""
    standing = 0 if policy.free else policy.idle_timeout
    if standing:
        standing += later
    if terms.creation == "create":
        return Timeout(0, "create")
    if terms.idle == OFF:
        return Timeout(None, "task")
    # A machine that costs nothing is kept as long as its task says.
    if terms.idle is None or (not policy.free and standing is not None and standing <= terms.idle):
        return Timeout(standing, "policy")
    return Timeout(terms.idle, "task")
