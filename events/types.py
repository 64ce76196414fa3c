"""Every kind of event: one frozen structure a fact, past tense, with a stable name and number.

A name and its fields never change meaning; a new shape is a new version, read through `steno.events.codec`. Times are
microseconds (UTC); `bytes` fields are JSON text with secrets as commitments. `Event` is closed, for `assert_never`.
"""

from typing import Final, Literal

from steno.events.budget_moves import BudgetMoved
from steno.events.codec import KINDS, Fact
from steno.events.levers import LeverEvent
from steno.events.subjects import (
    DecidedAt,
    NoticeKind,
    OfArchive,
    OfFleet,
    OfNotice,
    OfRun,
    OfSource,
    OfToken,
    OfVm,
    RunDecision,
    VmDecision,
)

# -- what a provider said


class PollRecorded(Fact, kind=1):
    """A source answered; `Record.poll(position)` rebuilds the answer."""


class PollFailed(Fact, kind=2):
    """A source did not answer, or its answer is not usable; kept verbatim like any poll."""


class Observed(Fact):
    """The poll at `poll` differs from the one before it in this thing."""

    poll: int
    provider_id: str


class RunObserved(Observed, kind=3):
    """A run changed."""


class VmObserved(Observed, kind=4):
    """A machine changed."""


class ProviderEventSeen(Observed, kind=5):
    """The poll listed this entry of the provider's own event log for the first time."""


# -- what somebody asked for


class RunRequested(OfRun, kind=10):
    """Somebody wants this task run; nothing has been said to the provider yet."""

    project: str
    name: str
    configuration: bytes  # a task configuration; secret values are commitments into the vault
    base: str | None = None  # the folder relative paths of the configuration start from
    submitter: str
    idempotency_key: str | None = None  # a commitment to it; in old records its text
    fallback: tuple[str, ...] = ()  # GPU models to ask for, in this order, where the first has no capacity
    kernel: bytes | None = None  # a `steno.engine.state.kernel_mark.KernelMark`: framed output is read; None: no frames


class StopRequested(RunDecision, kind=11):
    """Somebody, or a policy, wants this run ended."""

    name: str
    provider_id: str | None = None  # None: the run was not handed over yet
    project: str = ""
    abort: bool = False
    by: Literal["user", "policy"] = "user"
    submitter: str
    idle_since: int | None = None  # since when its GPUs are idle, if a policy stops it for that
    lever: str | None = None  # the lever (`LeverPulled`) that stops it


class VmStopRequested(OfVm, kind=28):
    """Somebody wants this machine gone."""

    project: str
    provider_id: str
    when_idle: bool = False  # True: only without a run on it; False: a run on it is stopped first
    submitter: str


# -- what we are about to do, and what came of it


class SubmitIntended(OfRun, kind=12):
    """We are about to hand the task to the provider under this name."""

    name: str
    marked: bool = False  # the provider is told to keep our run id; False: an older version


class SubmitSucceeded(OfRun, kind=13):
    """The provider has the task."""

    provider_id: str
    name: str
    found: bool = False  # an earlier call, whose answer was lost, had already brought it there
    sent: str | None = None  # what the provider was handed in place of the task, without secret values
    submitted_at: int | None = None  # or just before, by the provider's own clock; None: it gives none


class SubmitFailed(RunDecision, kind=14):
    """The provider does not have the task and will not get it from this request."""

    error: str
    reason: Literal["rejected", "name_in_use", "no_project", "refused", "unreachable", "no_offer"] = "rejected"
    """`rejected` by the provider's own check, a name another active run has, a project we cannot see, a token that is
    `refused`, a provider that was certainly not reached, or a provider without a machine that the task could get.
    """


class StopIntended(OfRun, kind=15):
    """We are about to ask the provider to end the run."""

    provider_id: str
    abort: bool = False
    by: Literal["user", "policy"] = "user"


class StopSucceeded(OfRun, kind=16):
    """The provider accepted the stop; only its polls say that the run has ended."""


class StopFailed(OfRun, kind=17):
    """The provider refused the stop."""

    error: str
    other: bool = False  # nothing proves that what has the run's id now is the run: it was left alone


class FleetIntended(OfFleet, kind=18):
    """We are about to create the fleet."""

    configuration: bytes


class FleetEnsured(OfFleet, kind=19):
    """The fleet is there."""


class FleetFailed(OfFleet, kind=20):
    """The fleet could not be made."""

    error: str


class IntentAbandoned(RunDecision, kind=21):
    """A request or an intent will never become a call."""

    intent: Literal["submit", "stop"]
    why: str
    policy: bool = False  # a policy (budget, concurrency) refuses it


DrainCause = Literal["idle", "user", "create", "room", "orphan", "lever"]
"""Idle too long; a user; made for a run that wants its own; room for another; without a request; a lever."""


class VmDrainStarted(VmDecision, kind=29):
    """No new run may be placed on this machine; if the next poll still shows it empty, it is stopped."""

    by: DrainCause
    detail: str = ""


class VmDrainCancelled(VmDecision, kind=30):
    """A run came, or the request was withdrawn: the machine stays."""

    why: str


class VmStopIntended(VmDecision, kind=31):
    """We are about to ask the provider to end this machine."""

    provider_id: str
    by: DrainCause


class VmStopSucceeded(OfVm, kind=32):
    """The provider accepted it; only its polls say that the machine is gone."""


class VmStopFailed(OfVm, kind=33):
    """The provider refused: the machine stays, and is billed."""

    error: str


class VmGoneConfirmed(OfVm, kind=34):
    """Somebody looked in the cloud's own console: the machine ended then, whatever the provider still says."""

    ended_at: int
    submitter: str


# -- where a run goes


class PolicyAdopted(OfSource, kind=24):
    """From now on decisions about this source are made by this policy."""

    policy: bytes  # an `steno.engine.state.policy.Policy`


class RunHeld(RunDecision, kind=25):
    """The run waits in Steno's queue; except for `ambiguous`, nothing has been said to the provider."""

    why: Literal["cap", "capacity", "machine", "user", "ambiguous", "offer", "lever", "limit"]
    """`cap`: no more machines are allowed; `capacity`: the provider had none; `machine`: its machine is not
    there; `user`: no idle machine is this submitter's; `ambiguous`: the answer to the call was lost, and the provider
    has a run that may be it; `offer`: it has no such machine; `lever`: held back; `limit`: a limit of its owner."""
    detail: str = ""
    not_before: int | None = None  # earliest time of the next try


class RunPlaced(RunDecision, kind=26):
    """The run may be handed over: a place under the cap is reserved for it until it has a machine or ends."""

    slot: str | None = None  # the fleet of one machine it goes to; None: the provider chooses
    vm_id: str | None = None  # the warm machine it is meant for; None: one may be made
    creation: Literal["reuse", "reuse-or-create"] = "reuse-or-create"  # what the provider is told
    gpu: str | None = None  # the GPU model asked for instead of the task's own, from its fallback list
    idle: int | None = None  # `idle_duration` for the provider, microseconds (-1: off); None: its default


class RunIdleWarned(RunDecision, kind=52):
    """The GPUs of the run are idle: it is stopped unless samples show that they work before then."""

    since: int  # by the clock of its samples
    stops_at: int


class RunRequeued(RunDecision, kind=27):
    """The provider had no capacity for the run `provider_id`; the same request is going to be made again."""

    provider_id: str
    attempt: int  # the number of the next attempt, from 2
    gpu: str | None = None  # the GPU model to be asked for next; None: the task's own
    not_before: int


class PlanAnswered(OfSource, kind=47):
    """The provider was asked what it could start a task on."""

    requirement: str  # equal for tasks that ask for the same machine
    offers: int  # how many machines it could make, or has
    reason: str = ""  # it refuses to plan the task at all, in its own words


# -- what a task itself says


class TaskReported(OfRun, kind=41):
    """The task said this in a framed line of its output; or nothing more of its output will be read."""

    provider_id: str
    seq: int  # 1, 2, 3 … in the order of the output
    frame: bytes = b""  # the JSON text of the line, verbatim; empty if `last`
    last: bool = False  # True: nothing more is read


class SamplesRecorded(OfRun, kind=50):
    """Samples of the devices of a run: one answer of the provider, or of a sampler beside the task."""

    provider_id: str
    source: str  # what measured: the provider, the tool of the GPU vendor, `processes`
    block: bytes  # `steno.engine.state.samples.pack`; not JSON


class OutputRecorded(OfRun, kind=51):
    """A piece of a run's output; its bytes are beside the chain (`events.store.outputs`) until they are dropped."""

    provider_id: str
    offset: int  # the bytes of the output before it
    size: int
    sha256: str  # of its bytes, in which secrets are replaced; in hexadecimal
    skipped: int = 0  # bytes right before it that were not kept
    last: bool = False  # the run has ended, and its output was read to the end


# -- money and notices


class BudgetCrossed(Fact, kind=35):
    """Spending reached a threshold of the budget, for the first time."""

    threshold: int  # parts per thousand of the total
    spent: int  # micro-dollars, as `total`
    total: int
    decided_at: DecidedAt | None = None


class AlertsAdopted(OfSource, kind=42):
    """The notices sent about a source from here on; nothing that ended before is ever sent."""

    kinds: tuple[str, ...]  # of a route `<route>/<kind>`; empty: no more notices are sent


class NoticeIntended(OfNotice, kind=36):
    """We are about to call the webhook, or another route."""

    kind: NoticeKind
    body: bytes
    about: tuple[str, ...] = ()  # the ids of the facts in a digest; empty: one fact, under its own id
    route: str = ""  # its name in the settings; "": the webhook


class NoticeDelivered(OfNotice, kind=37):
    """The webhook accepted it."""

    status: int
    attempt: int


class NoticeFailed(OfNotice, kind=38):
    """The webhook did not accept it."""

    error: str
    attempt: int
    final: bool = False  # True: it is not tried again


# -- sources and tokens


class RecorderStarted(OfSource, kind=22):
    """A recorder began to poll this source."""

    software: str


class RecorderStopped(OfSource, kind=23):
    """A recorder stopped on purpose; a killed one leaves none of these."""

    why: str


class RecordRestored(Fact, kind=48):
    """`steno db restore` put a copy in the place of the record."""

    common: int  # the newest position that was the same in both; what follows is not what it was
    lost: int | None = None  # where the record ended before; None: it could not be read


class SourceHidden(OfArchive, kind=45):
    """Lists leave it out from now on."""


class SourceShown(OfArchive, kind=46):
    """Lists show it again."""


class TokenCreated(OfToken, kind=39):
    """Somebody may use the HTTP service from now on."""


class TokenRevoked(OfToken, kind=40):
    """The token is not accepted from now on."""


class RulesAdopted(Fact, kind=49):
    """From now on observations are judged by these rules; runs stay as they were judged until they change."""

    name: str
    text: str  # of the rule file; "" for `current`
    extends: tuple[str, ...] = ()  # the texts of the sets that it extends, the nearest first
    hash: str  # SHA-256 of all texts in a row, in hexadecimal
    why: str
    by: str


PollEvent = PollRecorded | PollFailed
ObservedEvent = RunObserved | VmObserved | ProviderEventSeen
SubmitEvent = RunRequested | SubmitIntended | SubmitSucceeded | SubmitFailed | IntentAbandoned
ReportEvent = TaskReported | SamplesRecorded | OutputRecorded
StopEvent = StopRequested | StopIntended | StopSucceeded | StopFailed
QueueEvent = PolicyAdopted | RunHeld | RunPlaced | RunRequeued | RunIdleWarned | PlanAnswered | RulesAdopted
PlaceEvent = FleetIntended | FleetEnsured | FleetFailed | VmDrainStarted | VmDrainCancelled | VmGoneConfirmed
VmStopEvent = VmStopRequested | VmStopIntended | VmStopSucceeded | VmStopFailed | LeverEvent
NoticeEvent = BudgetCrossed | BudgetMoved | AlertsAdopted | NoticeIntended | NoticeDelivered | NoticeFailed
TokenEvent = TokenCreated | TokenRevoked
SourceEvent = RecorderStarted | RecorderStopped | RecordRestored | SourceHidden | SourceShown | TokenEvent
OwnEvent = SubmitEvent | ReportEvent | StopEvent | QueueEvent | PlaceEvent | VmStopEvent | NoticeEvent | SourceEvent
Event = PollEvent | ObservedEvent | OwnEvent

NAMES: Final = frozenset(name for name, _ in KINDS.values())
_ByKind = dict[str, type[ObservedEvent]]
OBSERVED: Final[_ByKind] = {"run": RunObserved, "vm": VmObserved, "provider_event": ProviderEventSeen}  # by shape kind
