"""Every kind of event: one frozen structure a fact, past tense, with a stable name and a version.

A name and its fields never change meaning; a new shape is a new version, read through `events.upcast`. Times are
microseconds since the epoch (UTC); `bytes` fields hold JSON text whose secrets are already commitments. The union
`Event` is closed: code that matches on it ends in `assert_never`, so that a new kind fails the type check wherever it
is not handled.
"""

from typing import ClassVar, Literal

import msgspec


class _Fact(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    version: ClassVar[int] = 1


# -- what a provider said


class PollRecorded(_Fact, frozen=True, kw_only=True):
    """A source answered; the answer itself is rebuilt by `Record.poll(position)`."""


class PollFailed(_Fact, frozen=True, kw_only=True):
    """A source did not answer, or answered with something that is no answer; kept verbatim like any poll."""


class RunObserved(_Fact, frozen=True, kw_only=True):
    """The poll at `poll` showed this run otherwise than the one before it."""

    poll: int
    provider_id: str


class VmObserved(_Fact, frozen=True, kw_only=True):
    """The poll at `poll` showed this machine otherwise than the one before it."""

    poll: int
    provider_id: str


class ProviderEventSeen(_Fact, frozen=True, kw_only=True):
    """The poll at `poll` listed this entry of the provider's own event log for the first time."""

    poll: int
    provider_id: str


# -- what somebody asked for


class RunRequested(_Fact, frozen=True, kw_only=True):
    """Somebody wants this task run; nothing has been said to the provider yet."""

    run_id: str
    provider: str
    project: str
    name: str
    configuration: bytes
    """JSON text of a dstack task configuration; secret values are commitments into the vault."""
    base: str | None = None
    """The folder relative paths of the configuration start from."""
    submitter: str
    idempotency_key: str | None = None
    fallback: tuple[str, ...] = ()
    """GPU models to ask for, in this order, where the first has no capacity."""
    kernel: bytes | None = None
    """JSON text of an `engine.kernel.mark.Mark`: the task reports in framed lines of its output, and these are read.
    None: a task like any other."""


class StopRequested(_Fact, frozen=True, kw_only=True):
    """Somebody, or a policy, wants this run ended."""

    run_id: str
    provider: str
    name: str
    provider_id: str | None = None
    """Where it was known at the request; a run not handed over yet has none."""
    project: str = ""
    abort: bool = False
    by: Literal["user", "policy"] = "user"
    submitter: str


# -- what we are about to do, and what came of it


class SubmitIntended(_Fact, frozen=True, kw_only=True):
    """We are about to hand the task to the provider under this name."""

    run_id: str
    provider: str
    name: str


class SubmitSucceeded(_Fact, frozen=True, kw_only=True):
    """The provider has the task."""

    run_id: str
    provider: str
    provider_id: str
    name: str
    found: bool = False
    """True where an earlier call, whose answer was lost, had already brought it there."""


class SubmitFailed(_Fact, frozen=True, kw_only=True):
    """The provider does not have the task and will not get it from this request."""

    run_id: str
    provider: str
    error: str
    reason: Literal["rejected", "name_in_use", "no_project", "refused", "unreachable"] = "rejected"
    """`rejected` by the provider's own check, a name another active run has, a project we cannot see, a token that is
    `refused`, or a provider that was certainly not reached."""


class StopIntended(_Fact, frozen=True, kw_only=True):
    """We are about to ask the provider to end the run."""

    run_id: str
    provider: str
    provider_id: str
    abort: bool = False
    by: Literal["user", "policy"] = "user"


class StopSucceeded(_Fact, frozen=True, kw_only=True):
    """The provider took the stop; that the run has ended is for its polls to say."""

    run_id: str
    provider: str


class StopFailed(_Fact, frozen=True, kw_only=True):
    """The provider refused the stop."""

    run_id: str
    provider: str
    error: str


class FleetIntended(_Fact, frozen=True, kw_only=True):
    """We are about to create the fleet a task needs."""

    provider: str
    project: str
    name: str
    configuration: bytes
    """JSON text of the fleet's configuration."""


class FleetEnsured(_Fact, frozen=True, kw_only=True):
    """The fleet is there."""

    provider: str
    project: str
    name: str


class FleetFailed(_Fact, frozen=True, kw_only=True):
    """The fleet could not be made."""

    provider: str
    project: str
    name: str
    error: str


class IntentAbandoned(_Fact, frozen=True, kw_only=True):
    """A request or an intent will never become a call."""

    run_id: str
    provider: str
    intent: Literal["submit", "stop"]
    why: str
    policy: bool = False
    """A policy (budget, concurrency) refuses it."""


# -- what a task itself says


class TaskReported(_Fact, frozen=True, kw_only=True):
    """The task said this in a framed line of its output; or nothing more of its output will be read."""

    run_id: str
    provider: str
    provider_id: str
    """The provider's id of the attempt that said it."""
    seq: int
    """1, 2, 3 … in the order of the output."""
    frame: bytes = b""
    """The JSON text of the line, verbatim; empty where `last`."""
    last: bool = False
    """True: nothing more is read, whatever the task said or did not say."""


# -- machines: where a run goes, and when a machine goes


class PolicyAdopted(_Fact, frozen=True, kw_only=True):
    """From now on decisions about this source are made by this policy."""

    source: str
    policy: bytes
    """JSON text of an `engine.policy.Policy`."""


class RunHeld(_Fact, frozen=True, kw_only=True):
    """The run waits in Steno's queue; nothing has been said to the provider."""

    run_id: str
    provider: str
    why: Literal["cap", "capacity", "machine", "user"]
    """`cap`: as many machines as allowed; `capacity`: the provider had none; `machine`: the one it must reuse is not
    there; `user`: no idle machine is this submitter's."""
    detail: str = ""
    not_before: int | None = None
    """When it may be tried again at the earliest (microseconds, UTC)."""


class RunPlaced(_Fact, frozen=True, kw_only=True):
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


class RunRequeued(_Fact, frozen=True, kw_only=True):
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


class VmStopRequested(_Fact, frozen=True, kw_only=True):
    """Somebody wants this machine gone."""

    vm_id: str
    provider: str
    project: str
    provider_id: str
    when_idle: bool = False
    """True: only once no run is on it; False: a run on it is stopped first."""
    submitter: str


class VmDrainStarted(_Fact, frozen=True, kw_only=True):
    """No new run may be placed on this machine; if the next poll still shows it empty, it goes."""

    vm_id: str
    provider: str
    by: Literal["idle", "user", "create", "room", "orphan"]
    """Idle for too long; a user's wish; made for a run that wanted one of its own; room for a run that needs another;
    one that nobody asked for."""
    detail: str = ""


class VmDrainCancelled(_Fact, frozen=True, kw_only=True):
    """A run came, or the wish was taken back: the machine stays."""

    vm_id: str
    provider: str
    why: str


class VmStopIntended(_Fact, frozen=True, kw_only=True):
    """We are about to ask the provider to end this machine."""

    vm_id: str
    provider: str
    provider_id: str
    by: Literal["idle", "user", "create", "room", "orphan"]


class VmStopSucceeded(_Fact, frozen=True, kw_only=True):
    """The provider took it; that the machine is gone is for its polls to say."""

    vm_id: str
    provider: str


class VmStopFailed(_Fact, frozen=True, kw_only=True):
    """The provider refused: the machine stays, and is billed."""

    vm_id: str
    provider: str
    error: str


class VmGoneConfirmed(_Fact, frozen=True, kw_only=True):
    """Somebody looked in the cloud's own console: the machine ended then, whatever the provider still says."""

    vm_id: str
    provider: str
    ended_at: int
    """Microseconds, UTC."""
    submitter: str


# -- money


class BudgetCrossed(_Fact, frozen=True, kw_only=True):
    """What was spent reached a threshold of the budget, for the first time."""

    threshold: int
    """Parts per thousand of the total."""
    spent: int
    """Micro-dollars, as `total`."""
    total: int


class AlertsAdopted(_Fact, frozen=True, kw_only=True):
    """What the webhook is told of a source from here on; what was over before is never told."""

    source: str
    kinds: tuple[str, ...]
    """Empty: nothing is told any more."""


class NoticeIntended(_Fact, frozen=True, kw_only=True):
    """We are about to tell the webhook."""

    notice_id: str
    kind: Literal["budget", "orphan", "run_end", "anomaly", "test"]
    body: bytes
    """The JSON text sent."""
    about: tuple[str, ...] = ()
    """The ids of the facts that a digest tells together; empty: the notice is about one, under its own id."""


class NoticeDelivered(_Fact, frozen=True, kw_only=True):
    """The webhook took it."""

    notice_id: str
    status: int
    attempt: int


class NoticeFailed(_Fact, frozen=True, kw_only=True):
    """The webhook did not take it."""

    notice_id: str
    error: str
    attempt: int
    final: bool = False
    """True: it is not tried again."""


# -- who may ask


class TokenCreated(_Fact, frozen=True, kw_only=True):
    """Somebody may use the HTTP service from now on; the token itself is in no record, nor is its hash."""

    token_id: str
    name: str
    """What commands under this token are recorded as."""
    role: Literal["read", "submit", "admin"]
    expires_at: int | None = None
    """Microseconds, UTC; None: it holds until revoked."""
    by: str
    """Who made it."""


class TokenRevoked(_Fact, frozen=True, kw_only=True):
    """That token is worth nothing from now on."""

    token_id: str
    name: str
    role: Literal["read", "submit", "admin"]
    expires_at: int | None = None
    by: str
    """Who revoked it."""


# -- who was looking


class RecorderStarted(_Fact, frozen=True, kw_only=True):
    """A recorder began to poll this source."""

    source: str
    software: str
    """The version of Steno."""


class RecorderStopped(_Fact, frozen=True, kw_only=True):
    """A recorder stopped on purpose; a killed one leaves none of these."""

    source: str
    why: str


Event = (
    PollRecorded
    | PollFailed
    | RunObserved
    | VmObserved
    | ProviderEventSeen
    | RunRequested
    | StopRequested
    | SubmitIntended
    | SubmitSucceeded
    | SubmitFailed
    | StopIntended
    | StopSucceeded
    | StopFailed
    | FleetIntended
    | FleetEnsured
    | FleetFailed
    | IntentAbandoned
    | RecorderStarted
    | RecorderStopped
    | PolicyAdopted
    | RunHeld
    | RunPlaced
    | RunRequeued
    | VmStopRequested
    | VmDrainStarted
    | VmDrainCancelled
    | VmStopIntended
    | VmStopSucceeded
    | VmStopFailed
    | VmGoneConfirmed
    | BudgetCrossed
    | AlertsAdopted
    | NoticeIntended
    | NoticeDelivered
    | NoticeFailed
    | TaskReported
    | TokenCreated
    | TokenRevoked
)
"""Any fact."""

NAMES = frozenset(kind.__name__ for kind in Event.__args__)
"""The name of every kind of event."""
