"""The content of one observation, in our own words: the output of a provider's reading, the input of every rule.
`status`, `reason` and the like are the provider's own words: for people, no rule looks at them. Times are microseconds
since the epoch, UTC, as the provider gave them; money is micro-dollars.
"""

from collections.abc import Iterator
from enum import StrEnum

import msgspec

from steno.engine.state.states import Reason, State, VmReason, VmState


class Waits(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """Why a run waits at its provider, in plain words: for people; no rule looks at it."""

    why: str
    remedy: str | None = None  # what to do about it
    never: bool = False  # it can never run as requested
    starts_by: str | None = None  # the provider's own estimate, ISO 8601, UTC: others may end before their limits

    def __str__(self) -> str:
        sentence = f"never runs as it is: {self.why}" if self.never else self.why
        until = None if self.starts_by is None else f"expected to start by {self.starts_by[:16].replace('T', ' ')}Z"
        return "; ".join(part for part in (sentence, self.remedy, until) if part)


class Blame(StrEnum):
    """Where the cause of an end lies, and so who can change it."""

    USER = "user"  # a person, or a policy that a person set, ended it
    TASK = "task"  # the task's own commands or settings
    SITE = "site"  # what is set up around the provider: fleets, accounts, volumes, limits
    PROVIDER = "provider"  # the provider, or a machine of it
    STENO = "steno"


class Finding(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """Why a run is where it is, and what to do: for people; no rule looks at it."""

    why: str
    remedy: str = ""  # what to do or change; "": nothing has to be
    blame: Blame | None = None  # None: nothing went wrong, or it is unknown
    again: bool = False  # the same task, run again unchanged, may succeed
    word: str | None = None  # the provider's own word for it
    message: str | None = None  # what the provider says beside it


class Carrier(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """A run of another provider that is the machine of an attempt."""

    provider: str
    provider_id: str
    name: str  # as that provider calls it: an id alone may come again


class Schedule(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """A schedule: a run that the provider starts again and again by a schedule: each of its firings is a run."""

    next_at: int | None = None  # when the next firing is due; None: not said


class AttemptFacts(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """An attempt at a job: the provider may try a job again."""

    num: int = 0  # counts the attempts from 0
    status: str | None = None
    reason: str | None = None
    state: State | None = None  # before its end; None: not said, or an unknown word
    over: bool = False  # by its status nothing more comes
    failed: bool = False  # by its status it failed
    cause: Reason | None = None  # why it failed, by the provider's reason; None: that names no failure
    retried: bool = False  # the task's own retry policy covers its end: the provider tries again
    unrun: bool = False  # nothing of it ran, and another try may succeed
    cut_off: bool = False  # it ended because the machine, or the provider's agent on it, stopped answering
    exit_status: int | None = None
    submitted_at: int | None = None
    started_at: int | None = None  # when it got what it runs on, if the provider says
    finished_at: int | None = None
    hosts: str | None = None  # what it runs on, as people call it: one host, or several
    hostname: str | None = None
    carrier: Carrier | None = None  # what it runs on, if that is a run of another provider rather than a machine
    price: int | None = None  # micro-dollars an hour of its machine, if the provider says
    unpriced: str | None = None  # why what it runs on has no price: `no rate for A100`
    blocks: int | None = None  # of the machine's blocks (a machine can be shared), if the provider says
    firing: int | None = None  # the number of the first attempt of its firing; None: of no schedule
    ending: Finding | None = None  # as `RunFacts.ending`; of a firing only

    @property
    def ended(self) -> bool:
        """It has an exit status, or a final status."""
        return self.over or self.exit_status is not None


class JobFacts(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    replica_num: int = 0
    job_num: int = 0
    retry_on: frozenset[str] = frozenset()  # what the task's own retry policy covers, in the provider's words
    decides: bool = True  # its exit status counts; false for a worker of a task that ends with its master
    attempts: tuple[AttemptFacts, ...] = ()  # every attempt the answer carried, in order of `num`

    @property
    def newest(self) -> AttemptFacts | None:
        return self.attempts[-1] if self.attempts else None

    @property
    def failed(self) -> bool:
        """Its newest attempt failed, by its reason or status, or by its exit status if that counts."""
        newest = self.newest
        return newest is not None and (
            newest.cause is not None or newest.failed or (self.decides and bool(newest.exit_status))
        )


class RunFacts(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    provider_id: str
    name: str | None = None
    project: str | None = None
    realm: str | None = None  # within which the provider's ids are unique at one time: its cluster; None: not said
    user: str | None = None
    status: str | None = None
    reason: str | None = None
    state: State | None = None
    """The state of the run itself before its end; it may lag behind its jobs. None: as `AttemptFacts.state`."""
    requeued: bool = False  # the provider has it in its queue, whatever it did before
    final: bool = False  # by its status nothing more comes
    failed: bool = False  # by its status it failed
    cause: Reason | None = None
    """Why it ends, by its own status and reason: `exit_zero` if all is done, who stopped it, whose fault it was,
    `unknown_reason` for any other failure; None: it says nothing.
    """
    finite: bool = True  # it ends by itself: a task, not a service
    waits: Waits | None = None  # what it waits for; None: it does not, or the provider does not say
    ending: Finding | None = None  # why it ended, where the provider's own words say more than the reason
    group: str | None = None  # what it was submitted as a part of: runs of one group fold up in lists
    task: int | None = None  # its number in the group
    group_cut: bool = False  # the answer leaves out other runs of its group: that it lists them not proves nothing
    mark: str | None = None  # the run id that its submitter gave to the provider; None: it carries none
    submitted_at: int | None = None
    jobs: tuple[JobFacts, ...] = ()  # in order of (replica_num, job_num)
    latest_exit_status: int | None = None  # of the first job's newest attempt, as the provider gives it beside the jobs
    drift: tuple[str, ...] = ()  # paths whose value had an unknown word or the wrong type
    mismatch: str | None = None
    """How the GPUs that the run itself found differ from the requested GPUs; None: they do not, or it did not say."""
    phases: tuple[tuple[str, int], ...] = ()  # what the run says it does, each from when
    schedule: Schedule | None = None  # it is started again and again; None: once
    firing_of: str | None = None  # the provider's id of the schedule of which it is a firing; None: a run of its own

    @property
    def attempts(self) -> Iterator[AttemptFacts]:
        """Every attempt of every job."""
        return (attempt for job in self.jobs for attempt in job.attempts)

    @property
    def newest(self) -> list[AttemptFacts]:
        """The newest attempt of every job that shows one."""
        return [job.attempts[-1] for job in self.jobs if job.attempts]

    @property
    def last_submitted_at(self) -> int | None:
        """When its newest attempt was submitted; without attempts, the run."""
        times = (attempt.submitted_at for attempt in self.attempts)
        return max((at for at in times if at is not None), default=self.submitted_at)


class VmEvent(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """A move of a machine that the provider dates in its own log."""

    provider_id: str
    at: int
    before: VmState
    after: VmState


class VmFacts(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    provider_id: str
    name: str | None = None  # reused by the next machine, so never a key
    project: str | None = None
    fleet: str | None = None
    instance_num: int | None = None
    hostname: str | None = None  # None until it has an address; the only link from a run to its machine
    backend: str | None = None
    region: str | None = None
    status: str | None = None
    reason: str | None = None
    message: str | None = None
    state: VmState | None = None  # its state; `requested`: no machine yet; None: not said, or an unknown word
    cause: VmReason = VmReason.UNKNOWN_REASON  # why it ends or ended, by the provider's reason
    by_request: bool = True  # the only reason the provider gives is that somebody asked for its end
    unreachable: bool = False
    health: str | None = None  # `warning` or `failure`: what a health check found; None: nothing, or nobody checked it
    created: int | None = None
    finished_at: int | None = None
    gives_end: bool = True  # the provider says when a machine ended
    one_at_a_time: bool = False  # of several runs handed over in one moment, the provider may put two on it
    charged: bool = False  # its times are those it is charged by
    suspended: int = 0  # how long of its life so far it is not charged, because it was suspended
    limit: int | None = None  # the longest that it may live; None: not said, or no limit
    price: int | None = None  # micro-dollars an hour of the whole machine; None: a placeholder, no machine
    spot: bool | None = None
    instance_type: str | None = None
    gpu: str | None = None  # model of its GPUs, as the provider spells it; None: it has none
    gpu_count: int = 0
    gpu_memory_mib: int | None = None
    cpus: int | None = None
    memory_mib: int | None = None
    disk_mib: int | None = None
    total_blocks: int | None = None
    busy_blocks: int | None = None
    drift: tuple[str, ...] = ()  # paths whose value had an unknown word or the wrong type


def firing_row(provider_id: str) -> str:
    """The provider's own id behind that of a firing, `<its id>#<number of the first attempt>`; else the id itself."""
    return provider_id.partition("#")[0]
