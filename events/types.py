"""Every kind of event: one frozen structure a fact, past tense, with a stable name and a version.

A name and its fields never change meaning; a new shape is a new version, read through `events.codec`. Times are
microseconds since the epoch (UTC); `bytes` fields hold JSON text whose secrets are already commitments. The union
`Event` is closed: code that matches on it ends in `assert_never`, so that a new kind fails the type check wherever it
is not handled.
"""

from typing import Literal

from events.machine_types import (
    Fact,
    PolicyAdopted,
    RunHeld,
    RunPlaced,
    RunRequeued,
    VmDrainCancelled,
    VmDrainStarted,
    VmGoneConfirmed,
    VmStopFailed,
    VmStopIntended,
    VmStopRequested,
    VmStopSucceeded,
)

__all__ = [
    "NAMES", "AlertsAdopted", "BudgetCrossed", "Event", "FleetEnsured", "FleetFailed", "FleetIntended",
    "IntentAbandoned", "NoticeDelivered", "NoticeFailed", "NoticeIntended", "PolicyAdopted", "PollFailed",
    "PollRecorded", "ProviderEventSeen", "RecorderStarted", "RecorderStopped", "RunHeld", "RunObserved", "RunPlaced",
    "RunRequested", "RunRequeued", "SourceHidden", "SourceShown", "StopFailed", "StopIntended", "StopRequested",
    "StopSucceeded", "SubmitFailed", "SubmitIntended", "SubmitSucceeded", "TaskReported", "TokenCreated",
    "TokenRevoked", "VmDrainCancelled", "VmDrainStarted", "VmGoneConfirmed", "VmObserved", "VmStopFailed",
    "VmStopIntended", "VmStopRequested", "VmStopSucceeded",
]  # fmt: skip

# -- what a provider said


class PollRecorded(Fact, frozen=True, kw_only=True):
    """A source answered; the answer itself is rebuilt by `Record.poll(position)`."""


class PollFailed(Fact, frozen=True, kw_only=True):
    """A source did not answer, or answered with something that is no answer; kept verbatim like any poll."""


class RunObserved(Fact, frozen=True, kw_only=True):
    """The poll at `poll` showed this run otherwise than the one before it."""

    poll: int
    provider_id: str


class VmObserved(Fact, frozen=True, kw_only=True):
    """The poll at `poll` showed this machine otherwise than the one before it."""

    poll: int
    provider_id: str


class ProviderEventSeen(Fact, frozen=True, kw_only=True):
    """The poll at `poll` listed this entry of the provider's own event log for the first time."""

    poll: int
    provider_id: str


# -- what somebody asked for


class RunRequested(Fact, frozen=True, kw_only=True):
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


class StopRequested(Fact, frozen=True, kw_only=True):
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


class SubmitIntended(Fact, frozen=True, kw_only=True):
    """We are about to hand the task to the provider under this name."""

    run_id: str
    provider: str
    name: str
    marked: bool = False
    """The provider is told to keep our run id with the run. False: written before it was told."""


class SubmitSucceeded(Fact, frozen=True, kw_only=True):
    """The provider has the task."""

    run_id: str
    provider: str
    provider_id: str
    name: str
    found: bool = False
    """True where an earlier call, whose answer was lost, had already brought it there."""


class SubmitFailed(Fact, frozen=True, kw_only=True):
    """The provider does not have the task and will not get it from this request."""

    run_id: str
    provider: str
    error: str
    reason: Literal["rejected", "name_in_use", "no_project", "refused", "unreachable"] = "rejected"
    """`rejected` by the provider's own check, a name another active run has, a project we cannot see, a token that is
    `refused`, or a provider that was certainly not reached."""


class StopIntended(Fact, frozen=True, kw_only=True):
    """We are about to ask the provider to end the run."""

    run_id: str
    provider: str
    provider_id: str
    abort: bool = False
    by: Literal["user", "policy"] = "user"


class StopSucceeded(Fact, frozen=True, kw_only=True):
    """The provider took the stop; that the run has ended is for its polls to say."""

    run_id: str
    provider: str


class StopFailed(Fact, frozen=True, kw_only=True):
    """The provider refused the stop."""

    run_id: str
    provider: str
    error: str


class FleetIntended(Fact, frozen=True, kw_only=True):
    """We are about to create the fleet a task needs."""

    provider: str
    project: str
    name: str
    configuration: bytes
    """JSON text of the fleet's configuration."""


class FleetEnsured(Fact, frozen=True, kw_only=True):
    """The fleet is there."""

    provider: str
    project: str
    name: str


class FleetFailed(Fact, frozen=True, kw_only=True):
    """The fleet could not be made."""

    provider: str
    project: str
    name: str
    error: str


class IntentAbandoned(Fact, frozen=True, kw_only=True):
    """A request or an intent will never become a call."""

    run_id: str
    provider: str
    intent: Literal["submit", "stop"]
    why: str
    policy: bool = False
    """A policy (budget, concurrency) refuses it."""


# -- what a task itself says


class TaskReported(Fact, frozen=True, kw_only=True):
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


# -- money


class BudgetCrossed(Fact, frozen=True, kw_only=True):
    """What was spent reached a threshold of the budget, for the first time."""

    threshold: int
    """Parts per thousand of the total."""
    spent: int
    """Micro-dollars, as `total`."""
    total: int


class AlertsAdopted(Fact, frozen=True, kw_only=True):
    """The notices sent about a source from here on; nothing that ended before is ever sent."""

    source: str
    kinds: tuple[str, ...]
    """Empty: nothing is told any more."""


class NoticeIntended(Fact, frozen=True, kw_only=True):
    """We are about to tell the webhook."""

    notice_id: str
    kind: Literal["budget", "orphan", "run_end", "anomaly", "test"]
    body: bytes
    """The JSON text sent."""
    about: tuple[str, ...] = ()
    """The ids of the facts that a digest tells together; empty: the notice is about one, under its own id."""


class NoticeDelivered(Fact, frozen=True, kw_only=True):
    """The webhook took it."""

    notice_id: str
    status: int
    attempt: int


class NoticeFailed(Fact, frozen=True, kw_only=True):
    """The webhook did not take it."""

    notice_id: str
    error: str
    attempt: int
    final: bool = False
    """True: it is not tried again."""


# -- who may ask


class RecorderStarted(Fact, frozen=True, kw_only=True):
    """A recorder began to poll this source."""

    source: str
    software: str
    """The version of Steno."""


class RecorderStopped(Fact, frozen=True, kw_only=True):
    """A recorder stopped on purpose; a killed one leaves none of these."""

    source: str
    why: str


class SourceHidden(Fact, frozen=True, kw_only=True):
    """Lists leave out what was imported as this source, from now on."""

    source: str
    by: str
    """Who asked for it."""


class SourceShown(Fact, frozen=True, kw_only=True):
    """Lists show what was imported as this source again."""

    source: str
    by: str
    """Who asked for it."""


class TokenCreated(Fact, frozen=True, kw_only=True):
    """Somebody may use the HTTP service from now on; the token itself is in no record, nor is its hash."""

    token_id: str
    name: str
    """What commands under this token are recorded as."""
    role: Literal["read", "submit", "admin"]
    expires_at: int | None = None
    """Microseconds, UTC; None: it holds until revoked."""
    by: str
    """Who made it."""


class TokenRevoked(Fact, frozen=True, kw_only=True):
    """That token is worth nothing from now on."""

    token_id: str
    name: str
    role: Literal["read", "submit", "admin"]
    expires_at: int | None = None
    by: str
    """Who revoked it."""


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
    | SourceHidden
    | SourceShown
)
"""Any fact."""

NAMES = frozenset(kind.__name__ for kind in Event.__args__)
"""The name of every kind of event."""
