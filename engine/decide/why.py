"""Why a run got no warm machine when it was submitted, and why a machine is still up: in sentences, from the recorded
steps.
"""

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from steno.engine.decide.machine import LANDING, Timeout, comer, is_told, timeout_of, unfit
from steno.engine.decide.situation import Situation, slot_of
from steno.engine.money.prices import in_force
from steno.engine.state.archives import until_of
from steno.engine.state.levers import SHORT, sentence
from steno.engine.state.policy import Policy
from steno.engine.state.run import Run, waits
from steno.engine.state.sources import Observability, observability, open_blind
from steno.engine.state.states import VmReason, VmState
from steno.engine.state.vm import Vm
from steno.engine.state.world import World, idle_evidence, source_of
from steno.events.clock import SECOND, duration, format_second


def why_not_warm(state: World, run: Run) -> tuple[str, ...]:
    """Every reason why the run has no warm machine, the most general first; empty: it has one. One sentence for each
    machine present at submission, and one for the fitting machine that had ended last. For a run that still waits: what
    it waits for, and the machines at the last poll.
    """
    if run.start == "warm":
        return ()
    if run.terminal and not _was_handed_over(run):
        return (f"It was never submitted to {run.provider}, so no machine was chosen for it.",)
    reasons = []
    if run.held is not None:
        reasons.append(f"It waits ({run.held.why}): {waits(run.held)}.")
    if run.terms is not None and run.terms.creation == "create":
        return (*reasons, "Its creation_policy is `create`: it always gets a new machine.")
    at, source = _handed_at(state, run), source_of(run)
    policy = in_force(state.policies.get(source, ()), at) or Policy()
    situation = Situation(state=state, source=source, policy=policy, now=at)
    before = [
        vm
        for vm in state.vms.all()
        if vm.source == source
        and (vm.archive is None) == (run.archive is None)
        and vm.created < at
        and vm.made_for != run.run_id
        and vm.vm_id != run.vm_id
    ]
    there = [vm for vm in before if vm.finished_at is None or vm.finished_at > at]
    when = "" if _was_handed_over(run) else ", at the last poll"
    if not before:
        reasons.append("There was no earlier machine.")
    elif not there:
        there, when = [max(before, key=lambda vm: (vm.finished_at or 0, vm.vm_id))], ""
    # A machine's name is reused, the beginning of its id is not.
    names = [f"{vm.facts.name or 'machine'} ({vm.vm_id[:8]}){when}" for vm in there]
    return (*reasons, *(f"{name}: {_cause(situation, run, vm)}." for name, vm in zip(names, there, strict=True)))


def _handed_at(state: World, run: Run) -> int:
    """When its place was decided: at the first submission, if known; for a run that waits, at the last poll."""
    if not _was_handed_over(run) and state.last_at is not None:
        return state.last_at
    machines = (state.vms[vm_id] for vm_id in dict.fromkeys(run.links.values()))
    sinces = [stay.since for vm in machines for stay in vm.occupancies if stay.run_id == run.run_id]
    known = (run.placed.at if run.placed is not None else None, run.submitted_at, run.requested_at, run.first_at)
    return min(sinces) if sinces else next(at for at in known if at is not None)


def _was_handed_over(run: Run) -> bool:
    return run.provider_id is not None or bool(run.former_ids)


def _cause(situation: Situation, run: Run, vm: Vm) -> str:
    at, idle = situation.now, "it was idle and fits by what is recorded"
    if vm.finished_at is not None and vm.finished_at <= at:
        gone = f"it had ended {_about(at - vm.finished_at)} earlier"
        if vm.reason is not VmReason.IDLE_TIMEOUT:
            return f"{gone} ({'no reason known' if vm.reason is None else vm.reason.value})"
        idle_ends = (step.at for step in reversed(vm.steps) if step.before in (VmState.IDLE, VmState.DRAINING))
        left = next(idle_ends, None)
        over = "" if left is None or left > at else f"; its idle window had ended {_about(at - left)} earlier"
        return f"{gone} (idle timeout){over}"
    reasons = [*_state(situation, run, vm)]
    if run.terms is None:
        reasons.append("the run was not submitted through Steno, so its requirements are not known")
    else:
        before = (stay.run_id for stay in vm.occupancies if stay.since < at and stay.run_id != run.run_id)
        reasons += unfit(situation, run, replace(vm, runs=tuple(dict.fromkeys(before))))
    if reasons:
        return "; ".join(reasons)
    # It was not the run's; say why, as far as that is known.
    if not _was_handed_over(run):
        return f"{idle}; the run has not been submitted to {run.provider} yet"
    if run.vm_id is None:
        return f"{idle}; {run.provider} shows no machine for the run"
    slot = slot_of(situation.state.vms[run.vm_id])
    chosen = f"{run.provider} chose another machine" if slot is None else f"Steno had chosen {slot} for the run"
    return f"{idle}; {chosen}"


def _state(situation: Situation, run: Run, vm: Vm) -> Iterator[str]:
    at = situation.now
    there = (stay for stay in vm.occupancies if stay.since < at and (stay.until is None or stay.until > at))
    on_it = [stay.run_id for stay in there if stay.run_id != run.run_id]
    states = [step.after for step in vm.steps if step.at <= at]
    match states[-1] if states else None:
        case _ if on_it:
            yield f"it was busy with {_names(situation.state, on_it)}"
        case VmState.BUSY:
            yield "it was busy"
        case VmState.DRAINING:
            by = "" if vm.drain is None else f" ({vm.drain})"
            yield f"it was draining{by}, so no new run was placed on it"
        case VmState.TERMINATING | VmState.UNCONFIRMED | VmState.TERMINATED:
            yield "it was being stopped"
        case VmState.PROVISIONING | VmState.REQUESTED:
            yield f"it was still being provisioned{_for_maker(situation.state, vm)}"
        case VmState.IDLE | None:
            pass
    if any(silence.since <= at and (silence.until is None or silence.until > at) for silence in vm.unreachable):
        yield "it was unreachable for the provider"
    if vm.facts.health == "failure":
        yield "its health check fails"


def why_up(state: World, vm: Vm, policy: Policy, now: int) -> tuple[str, ...]:
    """Every reason why the machine is still up; if it ended, when and why."""
    if vm.state is VmState.TERMINATED:
        why = "" if vm.reason is None else f" ({vm.reason.value})"
        ended = "is gone" if vm.finished_at is None else f"has been gone since {format_second(vm.finished_at)}"
        drained = () if vm.drain is None else (f"Steno drained it at {format_second(vm.drain.at)} ({vm.drain}).",)
        return (f"It {ended}{why}.", *drained, *_silence(vm))
    if vm.archive is not None:
        until = format_second(until_of(state, vm))
        return (f"It is part of the archive {vm.archive}, which ends at {until}.", *_silence(vm))
    reasons, source = [], state.sources.get(vm.source)
    if observability(source, now) is Observability.BLIND:
        gap = None if source is None else open_blind(source, now)
        last = "never" if gap is None else f"{_about(max(0, now - gap.since))} ago, {gap.kind.words} since"
        then = "Until it answers, no idle timer advances and nothing is stopped."
        reasons.append(f"{vm.source} is blind: last answer {last}. {then}")
    if not vm.ours:
        reasons.append("Steno did not create it: it is listed and billed, and Steno never stops it.")
    elif vm.wish is not None:
        idle = ", once it is idle" if vm.wish.when_idle else ""
        reasons.append(f"A user requested its stop at {format_second(vm.wish.at)}{idle}.")
        occupants = [(occupant.run_id, state.runs.get(occupant.run_id)) for occupant in vm.occupants]
        foreign = [run_id for run_id, run in occupants if run is None or run.requested_at is None]
        if foreign:
            foreigner = "was not submitted through Steno, so Steno stops neither the run nor the machine."
            reasons.append(f"{_names(state, foreign)} on it {foreigner}")
    reasons += _doing(Situation(state=state, source=vm.source, policy=policy, now=now), vm)
    if vm.missing is not None:
        since = format_second(vm.missing.at)
        reasons.append(f"The provider has not listed it since {since}; that alone does not end its bill.")
    return (*reasons, *_silence(vm))


def _silence(vm: Vm) -> Iterator[str]:
    if vm.facts.health is not None:
        yield f"The health check of its provider says {vm.facts.health}."
    silence = vm.silence
    if silence is not None:
        over = vm.state is VmState.TERMINATED
        subject = "The provider had not reached it" if over else "It has been unreachable for the provider"
        yield f"{subject} since {format_second(silence.since)}: it was {silence}."


def _doing(situation: Situation, vm: Vm) -> Iterator[str]:
    match vm.state:
        case VmState.BUSY:
            names = _names(situation.state, (occupant.run_id for occupant in vm.occupants))
            doubt = " Its provider calls it idle: one of the two is wrong." if vm.facts.state is VmState.IDLE else ""
            busy = f"It is busy with {names}." if names else "The provider says that it is busy; no known run is on it."
            yield f"{busy}{doubt}"
            yield from _kept(situation, vm)
        case VmState.REQUESTED | VmState.PROVISIONING:
            yield f"It is being provisioned{_for_maker(situation.state, vm)}."
        case VmState.IDLE:
            yield from _idle(situation, vm)
        case VmState.DRAINING:
            yield from _draining(situation, vm)
        case VmState.TERMINATING:
            taken = vm.told.taken_at if vm.told is not None else None
            accepted = "" if taken is None else f"; the provider accepted the stop request at {format_second(taken)}"
            yield f"It is being stopped{accepted}. It is billed until a poll shows it gone."
        case VmState.UNCONFIRMED if vm.facts.state is None:
            yield (
                f"Steno does not know what its provider's status `{vm.facts.status}` means: it is billed until a poll "
                "shows it gone. If it is gone in the cloud's own console, record that with `steno vms gone`."
            )
        case VmState.UNCONFIRMED:
            yield (
                "It should be gone, but no poll shows that: it is still billed. Look in the cloud's own console; if it "
                "is gone there, record that with `steno vms gone`."
            )
        case VmState.TERMINATED:
            pass


def _idle(situation: Situation, vm: Vm) -> Iterator[str]:
    for occupant in vm.occupants:
        yield f"{_name(situation.state, occupant.run_id)} is on it, and the record shows no end of it."
    if vm.kept(situation.now) is not None:
        yield from _kept(situation, vm)
        return
    coming = tuple(_coming(situation, vm))
    yield from coming
    if (kept := vm.outlasted) is not None:
        yield f"It ends once a poll shows it idle: {kept.by} kept it until {format_second(kept.until)}."
    if (lever := situation.drainer(vm)) is not None and vm.ours:
        yield f"It ends once a poll shows it idle: {sentence(lever)}."
    timeout = timeout_of(situation.state, vm, situation.policy)
    seen = idle_evidence(situation.state, vm) // SECOND * SECOND
    idle = "It is idle" if vm.idle_since is None else f"It has been idle since {format_second(vm.idle_since)}"
    if timeout.after is None:
        yield f"{idle}; its timeout is off: {_says(situation.state, timeout)}."
        return
    whole = f"{duration(timeout.after)} timeout ({_says(situation.state, timeout)})"
    yield f"{idle}: polls show {duration(seen)} of the {whole}."
    if seen >= timeout.after and vm.ours and not coming and not vm.occupants:
        yield "Its timeout has passed: it is drained in the next round."


def _kept(situation: Situation, vm: Vm) -> Iterator[str]:
    if (kept := vm.kept(situation.now)) is not None:
        yield f"{kept.by} keeps it until {format_second(kept.until)}, and pays for its idle time: {kept.why}."
        yield f"`steno resume {kept.lever_id[:SHORT]}` releases it."


def _draining(situation: Situation, vm: Vm) -> Iterator[str]:
    drain, stop = vm.drain, vm.told
    if drain is None:
        yield "It is draining."
        return
    yield f"It has been draining since {format_second(drain.at)} ({drain}): no new run is placed on it."
    if stop is not None and stop.position > drain.position and stop.refused_at is not None:
        tries = "once" if stop.times == 1 else f"{stop.times} times"
        yield f"The provider refused to stop it ({tries}): {stop.error or 'no reason given'}. Steno tries again."
    elif is_told(vm):
        yield "The stop request was sent; the provider's answer is not recorded yet."
    elif vm.started.get(vm.source, 0) <= drain.at:
        yield "It is stopped once a poll that began after the drain shows it empty."
    yield from _coming(situation, vm)


def _coming(situation: Situation, vm: Vm) -> Iterator[str]:
    run_id = comer(situation, (), vm)
    if run_id is not None:
        yield f"{_name(situation.state, run_id)} has been placed and may start on it (within {duration(LANDING)})."


def _says(state: World, timeout: Timeout) -> str:
    if timeout.source == "policy":
        return "`vms.idle_timeout`"
    maker = "" if timeout.run_id is None else f" of {_name(state, timeout.run_id)}, for which it was created"
    return f"{'idle_duration' if timeout.source == 'task' else 'creation_policy create'}{maker}"


def _about(length: int) -> str:
    """A duration to the second: nothing between two polls is known better."""
    return duration(length // SECOND * SECOND)


def _for_maker(state: World, vm: Vm) -> str:
    return f" for {_name(state, vm.made_for)}" if vm.made_for else ""


def _names(state: World, run_ids: Iterable[str]) -> str:
    return ", ".join(_name(state, run_id) for run_id in dict.fromkeys(run_ids))


def _name(state: World, run_id: str) -> str:
    run = state.runs.get(run_id)
    return f"run {run_id[:8] if run is None or run.name is None else run.name}"
