"""Why a machine is still up, in sentences."""

from collections.abc import Iterator

from engine.decide.candidates import LANDING, comer, is_told
from engine.decide.idle_timeout import Timeout, timeout_of
from engine.decide.source_view import Scene
from engine.fold.archives import until_of
from engine.fold.queries import idle_evidence
from engine.fold.sources import Observability, observability
from engine.fold.vm import Vm
from engine.fold.world_codec import WorldState
from engine.policy import Policy
from engine.states import VmState
from events.clock import SECOND, format_time
from events.duration import span


def why_up(state: WorldState, vm: Vm, policy: Policy, now: int) -> tuple[str, ...]:
    """Every reason for which the machine has not gone; for one that has, when and why it did."""
    if vm.state is VmState.TERMINATED:
        ended = "" if vm.finished_at is None else f" since {format_time(vm.finished_at)}"
        why = "" if vm.reason is None else f" ({vm.reason.value})"
        return (f"It has been gone{ended}{why}." if ended else f"It is gone{why}.",)
    if vm.archive is not None:
        return (f"It is part of the archive {vm.archive}, which ends at {format_time(until_of(state, vm))}.",)
    scene = Scene(state=state, source=vm.source, policy=policy, now=now)
    return (*_watched(state, vm, now), *_whose(state, vm), *_doing(scene, vm), *_odd(vm))


def _watched(state: WorldState, vm: Vm, now: int) -> Iterator[str]:
    source = state.sources.get(vm.source)
    if observability(source, now) is Observability.BLIND:
        last = None if source is None else source.last_answered
        since = "never" if last is None else f"{span(max(0, now - last) // SECOND * SECOND)} ago"
        said = "Until it answers, no idle timer advances and nothing is stopped."
        yield f"{vm.source} is blind: last answer {since}. {said}"


def _whose(state: WorldState, vm: Vm) -> Iterator[str]:
    if not vm.ours:
        yield "Steno did not create it: it is listed and billed, and Steno never stops it."
        return
    foreign = [one.run_id for one in vm.occupants if _is_foreign(state, one.run_id)]
    if vm.wish is None:
        return
    yield f"A user requested its stop at {format_time(vm.wish.at)}{', once it is idle' if vm.wish.when_idle else ''}."
    if foreign:
        names = ", ".join(_name(state, run_id) for run_id in foreign)
        yield f"{names} on it was not submitted through Steno, so Steno stops neither the run nor the machine."


def _doing(scene: Scene, vm: Vm) -> Iterator[str]:
    match vm.state:
        case VmState.BUSY:
            names = ", ".join(_name(scene.state, one.run_id) for one in vm.occupants)
            yield f"It is busy with {names}." if names else "The provider says that it is busy; no known run is on it."
        case VmState.REQUESTED | VmState.PROVISIONING:
            yield "It is being provisioned" + (f" for {_name(scene.state, vm.made_for)}." if vm.made_for else ".")
        case VmState.IDLE:
            yield from _idle(scene, vm)
        case VmState.DRAINING:
            yield from _draining(scene, vm)
        case VmState.TERMINATING:
            taken = vm.told.taken_at if vm.told is not None else None
            told = "" if taken is None else f"; the provider accepted the stop request at {format_time(taken)}"
            yield f"It is being stopped{told}. It is billed until a poll shows it gone."
        case VmState.UNCONFIRMED:
            yield (
                "It should be gone, but no poll shows that: it is still billed. Look in the cloud's own console; if it "
                "is gone there, record that with `steno vms gone`."
            )
        case VmState.TERMINATED:
            pass


def _idle(scene: Scene, vm: Vm) -> Iterator[str]:
    for one in vm.occupants:
        yield f"{_name(scene.state, one.run_id)} is on it, and the record shows no end of it."
    coming = comer(scene, (), vm)
    if coming is not None:
        yield f"{_name(scene.state, coming)} has been placed and may start on it (within {span(LANDING)})."
    timeout, seen = timeout_of(scene.state, vm, scene.policy), idle_evidence(scene.state, vm) // SECOND * SECOND
    idle = "It is idle" if vm.idle_since is None else f"It has been idle since {format_time(vm.idle_since)}"
    if timeout.after is None:
        yield f"{idle}; its timeout is off: {_says(scene.state, timeout)}."
        return
    yield f"{idle}: polls show {span(seen)} of the {span(timeout.after)} timeout ({_says(scene.state, timeout)})."
    if seen >= timeout.after and vm.ours and coming is None:
        yield "Its timeout has passed: it is drained in the next round."


def _draining(scene: Scene, vm: Vm) -> Iterator[str]:
    drain, told = vm.drain, vm.told
    if drain is None:
        yield "It is draining."
        return
    yield f"It has been draining since {format_time(drain.at)} ({drain.by}): no new run is placed on it."
    if told is not None and told.position > drain.position and told.refused_at is not None:
        tries = "once" if told.times == 1 else f"{told.times} times"
        yield f"The provider refused to stop it ({tries}): {told.error or 'no reason given'}. Steno tries again."
    elif is_told(vm):
        yield "The stop request was sent; the provider's answer is not recorded yet."
    elif vm.started.get(vm.source, 0) <= drain.at:
        yield "It is stopped once a poll that began after the drain shows it empty."
    coming = comer(scene, (), vm)
    if coming is not None:
        yield f"{_name(scene.state, coming)} has been placed and may start on it (within {span(LANDING)})."


def _odd(vm: Vm) -> Iterator[str]:
    if vm.missing is not None:
        yield f"The provider has not listed it since {format_time(vm.missing.at)}; that alone does not end its bill."
    if vm.unreachable and vm.unreachable[-1].until is None:
        yield f"It has been unreachable for the provider since {format_time(vm.unreachable[-1].since)}."


def _says(state: WorldState, timeout: Timeout) -> str:
    maker = "" if timeout.run_id is None else f" of {_name(state, timeout.run_id)}, for which it was created"
    match timeout.source:
        case "policy":
            return "`vms.idle_timeout`"
        case "task":
            return f"idle_duration{maker}"
        case "create":
            return f"creation_policy create{maker}"


def _is_foreign(state: WorldState, run_id: str) -> bool:
    run = state.runs.get(run_id)
    return run is None or run.requested_at is None


def _name(state: WorldState, run_id: str) -> str:
    run = state.runs.get(run_id)
    return f"run {run_id[:8] if run is None or run.name is None else run.name}"
