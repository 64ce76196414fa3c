"""When a machine's life certainly, possibly and as far as is known began and ended: the outer edges of its bill."""

from typing import Final

from engine.fold.vm import Occupancy, Vm
from engine.fold.vm_machine import Phase
from engine.fold.vm_turn import last_asked
from engine.states import VmReason, VmState
from events.clock import SECOND

NOTICE: Final = 300 * SECOND
"""What a provider takes at most to notice that a machine no longer answers.

dstack 0.22.5 marked one `unreachable` after 8 to 10 s, noticed the end of a task up to 85 s late on a busy server, and
gave a lost machine up after 2.5 to 3.5 minutes.
"""
CREATE_CALL: Final = 60 * SECOND
"""What a call that makes a machine takes at most, where nothing else says when it began."""
_NEVER: Final = 1 << 62
_PHASES: Final = frozenset(phase.value for phase in Phase)
_ENDING: Final = frozenset({VmState.TERMINATING, VmState.UNCONFIRMED, VmState.TERMINATED})
_LOST: Final = frozenset({VmReason.UNREACHABLE, VmReason.INTERRUPTED, VmReason.PROVISIONING_FAILED})


def life_end(vm: Vm, until: int) -> int:
    """Where the bill ends: the machine's end, else `until`; never before it was created."""
    if vm.state is VmState.TERMINATED and vm.finished_at is not None:
        return max(vm.created, vm.finished_at)
    return max(vm.created, until)


def possible_end(vm: Vm, until: int) -> int:
    """Up to where it can have been there: the high bound of its bill ends here.

    Later than its end only where nobody says that, and a poll first showed it when it was over.
    """
    end = life_end(vm, until)
    return max(end, vm.first_at) if vm.unseen_end and vm.state is VmState.TERMINATED else end


def possible_start(vm: Vm) -> int:
    """From where the cloud can have charged it: the high bound of its bill begins here.

    dstack 0.22.5 writes `created` before it asks the cloud. 0.19.37 writes it when the cloud's call for a run has
    returned: such a machine began somewhere between the submission and `created`.
    """
    if vm.facts.gives_end:
        return vm.created
    asked = [one.since for one in vm.occupancies if one.cold and one.run_id == vm.made_for]
    return min(vm.created, *asked) if asked else vm.created - CREATE_CALL


def certain_start(vm: Vm) -> int:
    """From where the cloud charged it at the latest: the low bound of its bill begins here.

    By then the provider said that it was being made, a poll showed it, or the first run on it was over.
    """
    if not vm.facts.gives_end and vm.made_for is not None:
        return vm.created
    dated = [date.at for date in vm.dates[:1] if date.after in _PHASES]
    over = [one.until for one in vm.occupancies[:1] if one.until is not None and _proves(one)]
    return max(vm.created, min([vm.first_at, *dated, *over]))


def certain_end(vm: Vm, until: int) -> int:
    """Up to where it was certainly there: the low bound of its bill ends here.

    An end somebody saw in the cloud's own console is certain. Otherwise its last sight, and nothing behind the moment
    in which it was told to go: the provider dates when it had the cloud's word, not when the cloud stopped charging. Of
    one that no longer answered: its last certain answer, or what the provider's notice can have taken before that.
    """
    end = life_end(vm, until)
    if vm.confirmed:
        return end
    low = _told_to_go(vm) if vm.state in _ENDING else last_asked(vm)
    if vm.finished_low is not None and vm.state is VmState.TERMINATED:
        low = min(low, vm.finished_low)
    lost = _lost_at(vm)
    if lost is not None:
        low = min(low, max(_answered(vm), lost - NOTICE))
    return min(end, max(certain_start(vm), low))


def _proves(one: Occupancy) -> bool:
    """Whether the end of a run proves that its machine was there."""
    return not (one.cut_off or one.forgotten)


def _told_to_go(vm: Vm) -> int:
    """The latest moment in which it was certainly not told to go yet."""
    ending = len(vm.steps)
    while ending and vm.steps[ending - 1].after in _ENDING:
        ending -= 1
    if ending == len(vm.steps):
        return last_asked(vm)
    step = vm.steps[ending]
    if step.after is VmState.UNCONFIRMED:
        return step.low_at
    dated = (date.at for date in vm.dates if date.after in (VmState.TERMINATING, VmState.TERMINATED))
    found = [moment for moment in dated if step.low_at <= moment <= step.at][:1]
    found += [one.until for one in vm.occupancies if one.until is not None and one.until <= step.at and _proves(one)]
    return max([step.low_at, *found])


def _lost_at(vm: Vm) -> int | None:
    """When the provider was first known to have no answer from it any more; None where it answered to the end."""
    given_up = [one.until for one in vm.occupancies if one.cut_off and one.until is not None]
    answered = _answered(vm) if given_up else 0
    found = [moment for moment in given_up if moment > answered]
    silence = silent_from(vm)
    if silence is not None:
        found.append(silence)
    if vm.reason in _LOST and vm.steps:
        found.append(vm.steps[-1].at)
    return min(found, default=None)


def silent_from(vm: Vm) -> int | None:
    """From when on it did not answer, and never did again before it was told to go; None: it answered."""
    for silence in vm.unreachable:
        going = (
            step.at
            for step in vm.steps
            if step.at >= silence.since and step.after in (VmState.TERMINATING, VmState.TERMINATED)
        )
        if silence.until is None or silence.until >= next(going, _NEVER):
            return silence.since
    return None


def _answered(vm: Vm) -> int:
    """The newest moment in which it certainly answered: it became ready, or a job on it went on."""
    found = [one.answered_at for one in vm.occupancies if one.answered_at is not None]
    for step in vm.steps:
        if step.after in (VmState.IDLE, VmState.BUSY) and step.before in (VmState.REQUESTED, VmState.PROVISIONING):
            dated = (date.at for date in vm.dates if date.before == VmState.PROVISIONING)
            ready = [moment for moment in dated if step.low_at <= moment <= step.at]
            found.append(ready[0] if ready else step.low_at)
    return max([vm.created, *found])
