"""How long one machine may idle, and who says so."""

from dataclasses import dataclass
from typing import Final, Literal

from engine.fold.vm import Vm
from engine.fold.world_codec import WorldState
from engine.policy import Policy
from engine.requirements import Requirements
from events.clock import SECOND

BACKSTOP: Final = 30 * SECOND
"""How much later than the policy's timeout the provider ends a machine, where somebody goes on recording: two polls at
the slowest pace, in which Steno drains the machine, looks once more and ends it. The provider's timer takes no drain
back."""

OFF: Final = -1
"""`idle_duration: off`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeout:
    """The longest time a machine may idle."""

    after: int | None
    """Microseconds; None: for ever."""
    source: Literal["policy", "task", "create"]
    """The policy in force, `idle_duration` of the task it was made for, or that task's `creation_policy: create`."""
    run_id: str | None = None
    """That task's run."""


def timeout_of(state: WorldState, vm: Vm, policy: Policy) -> Timeout:
    """The timeout of a machine: the policy's; a shorter one, 0 or `off` of the task it was made for wins."""
    maker = None if vm.made_for is None else state.runs.get(vm.made_for)
    terms = None if maker is None else maker.terms
    standing = 0 if policy.free else policy.idle_timeout
    if terms is None:
        return Timeout(after=standing, source="policy")
    if terms.creation == "create":
        return Timeout(after=0, source="create", run_id=vm.made_for)
    if terms.idle is None:
        return Timeout(after=standing, source="policy")
    if terms.idle == OFF:
        return Timeout(after=None, source="task", run_id=vm.made_for)
    # A machine that costs nothing is kept as long as its task says.
    if not policy.free and standing is not None and standing <= terms.idle:
        return Timeout(after=standing, source="policy")
    return Timeout(after=terms.idle, source="task", run_id=vm.made_for)


def backstop(terms: Requirements, policy: Policy, *, watched: bool = True) -> int:
    """The `idle_duration` the provider is told for a run, microseconds, -1: off. It guards where nobody records.

    Args:
        watched: who hands the run over goes on recording, and ends the machine itself.
    """
    if terms.creation == "create":
        return 0
    standing = 0 if policy.free else policy.idle_timeout
    if terms.idle == OFF or (terms.idle is None and standing is None):
        return OFF
    told = [] if terms.idle is None else [terms.idle]
    if standing is not None and not (policy.free and told):  # a machine that costs nothing is kept as its task says
        told.append(standing + BACKSTOP if standing and watched else standing)
    return min(told)
