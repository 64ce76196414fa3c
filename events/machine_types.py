"""The base of all events, and those about machines: where a run goes, when a machine goes. See `events.types`."""

from typing import ClassVar, Literal

import msgspec


class Fact(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A frozen structure; what is as by default is not written."""

    version: ClassVar[int] = 1


class PolicyAdopted(Fact, frozen=True, kw_only=True):
    """From now on decisions about this source are made by this policy."""

    source: str
    policy: bytes
    """JSON text of an `engine.policy.Policy`."""


class RunHeld(Fact, frozen=True, kw_only=True):
    """The run waits in Steno's queue; but for `ambiguous`, nothing has been said to the provider."""

    run_id: str
    provider: str
    why: Literal["cap", "capacity", "machine", "user", "ambiguous"]
    """`cap`: as many machines as allowed; `capacity`: the provider had none; `machine`: the one it must reuse is not
    there; `user`: no idle machine is this submitter's; `ambiguous`: the answer to the call was lost, and the provider
    has a run that may be this one."""
    detail: str = ""
    not_before: int | None = None
    """When it may be tried again at the earliest (microseconds, UTC)."""


class RunPlaced(Fact, frozen=True, kw_only=True):
    """The run may be handed over: a place under the cap is reserved for it until it has a machine or ends."""

    run_id: str
    provider: str
    slot: str | None = None
    """The fleet of one machine it goes to; None where the provider chooses among its own."""
    vm_id: str | None = None
    """The warm machine it is meant for; None where one may be made."""
    creation: Literal["reuse", "reuse-or-create"] = "reuse-or-create"
    """What the provider is told."""
    gpu: str | None = None
    """The GPU model asked for instead of the task's own, from its fallback list."""
    idle: int | None = None
    """The `idle_duration` the provider is told, microseconds (-1: off); None: left to the provider."""


class RunRequeued(Fact, frozen=True, kw_only=True):
    """The provider had no capacity for the run `provider_id`; the same request is going to be made again."""

    run_id: str
    provider: str
    provider_id: str
    attempt: int
    """Which attempt comes next, counted from 2."""
    gpu: str | None = None
    """The GPU model to be asked for next; None: the task's own."""
    not_before: int
    """When, at the earliest (microseconds, UTC)."""


class VmStopRequested(Fact, frozen=True, kw_only=True):
    """Somebody wants this machine gone."""

    vm_id: str
    provider: str
    project: str
    provider_id: str
    when_idle: bool = False
    """True: only once no run is on it; False: a run on it is stopped first."""
    submitter: str


class VmDrainStarted(Fact, frozen=True, kw_only=True):
    """No new run may be placed on this machine; if the next poll still shows it empty, it goes."""

    vm_id: str
    provider: str
    by: Literal["idle", "user", "create", "room", "orphan"]
    """Idle for too long; a user's wish; made for a run that wanted one of its own; room for a run that needs another;
    one that nobody asked for."""
    detail: str = ""


class VmDrainCancelled(Fact, frozen=True, kw_only=True):
    """A run came, or the wish was taken back: the machine stays."""

    vm_id: str
    provider: str
    why: str


class VmStopIntended(Fact, frozen=True, kw_only=True):
    """We are about to ask the provider to end this machine."""

    vm_id: str
    provider: str
    provider_id: str
    by: Literal["idle", "user", "create", "room", "orphan"]


class VmStopSucceeded(Fact, frozen=True, kw_only=True):
    """The provider took it; that the machine is gone is for its polls to say."""

    vm_id: str
    provider: str


class VmStopFailed(Fact, frozen=True, kw_only=True):
    """The provider refused: the machine stays, and is billed."""

    vm_id: str
    provider: str
    error: str


class VmGoneConfirmed(Fact, frozen=True, kw_only=True):
    """Somebody looked in the cloud's own console: the machine ended then, whatever the provider still says."""

    vm_id: str
    provider: str
    ended_at: int
    """Microseconds, UTC."""
    submitter: str
