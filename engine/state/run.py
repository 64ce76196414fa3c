"""A run as the fold knows it: the provider's words, our verdict and its evidence, kept apart; its requirements."""

from enum import StrEnum
from typing import Final, Literal

import msgspec

from steno.engine.state.changes import Missing, Moved, Tracked, Transition
from steno.engine.state.facts import RunFacts, firing_row
from steno.engine.state.gpu_use import GpuUse, idle_since
from steno.engine.state.state_machines import TERMINAL
from steno.engine.state.states import Reason, State
from steno.events.clock import format_second
from steno.events.levers import LeverPulled
from steno.events.types import RunHeld, RunIdleWarned


class Range(msgspec.Struct, frozen=True):
    """An inclusive range; None: no limit on that side."""

    least: float | None = None
    most: float | None = None

    def holds(self, value: float) -> bool:
        return (self.least is None or value >= self.least) and (self.most is None or value <= self.most)

    def contains(self, other: "Range") -> bool:
        """True if every value of the other range lies in it."""
        least = self.least is None or (other.least is not None and other.least >= self.least)
        return least and (self.most is None or (other.most is not None and other.most <= self.most))

    def __str__(self) -> str:
        if self.least == self.most and self.least is not None:
            return f"{self.least:g}"
        least = "" if self.least is None else f"{self.least:g}"
        return f"{least}.." if self.most is None else f"{least}..{self.most:g}"


ANY: Final = Range()


class Requirements(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Requirements of a run that we submitted on its machine. Sizes are GB of 1024 MiB."""

    submitter: str
    gpu: tuple[str, ...] = ()  # models it takes, as written; empty: any, or none
    gpu_count: int = 0  # the least number of GPUs a machine must have; 0: none asked for
    gpu_counts: Range = ANY  # as `gpu_count`, with the most it may have
    gpu_vendor: str | None = None
    gpu_memory: Range = ANY  # of one GPU
    total_gpu_memory: Range = ANY  # of all GPUs of a machine
    cpus: Range = ANY
    memory: Range = ANY
    disk: Range = ANY
    any_machine: bool = False  # every machine of its provider fits, unless it has other GPUs than asked for
    nodes: int = 1
    first_node_only: bool = False  # its samples leave out the other nodes
    tasks: int = 1  # runs that it is carried out as, each on a machine of its own
    backends: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    instance_types: tuple[str, ...] = ()
    fleets: tuple[str, ...] = ()  # fleets the task itself names
    spot: Literal["spot", "on-demand", "auto"] | None = None  # none: not said, which gets an on-demand machine
    creation: Literal["create", "reuse", "reuse-or-create"] = "reuse-or-create"
    retry: bool = False  # its provider itself tries it again: as it was submitted, as often as the task allows
    keep_idle: bool = False  # it is not stopped while its GPUs are idle
    idle: int | None = None  # how long its machine may idle after it, microseconds; -1: for ever; None: not said
    max_duration: int | None = None  # microseconds; None: no limit
    max_price: int | None = None  # micro-dollars an hour
    fallback: tuple[str, ...] = ()  # GPU models to ask for after the task's own
    race: str | None = None  # runs with the same value were asked for together, and only the first that runs is wanted
    plan: str = ""  # equal for tasks that its provider plans alike; empty: it plans none
    crons: tuple[str, ...] = ()  # when it is due: it is a schedule, and all else is of each firing; empty: run it once
    labels: tuple[str, ...] = ()  # `team=vision`: what its task is tagged with
    strategy: str | None = None  # what distinguishes it within its race, in a few words


class ReportedJob(msgspec.Struct, frozen=True, gc=False):
    """The provider's own words about the newest submission of one job."""

    status: str | None
    reason: str | None
    exit_status: int | None


class Reported(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The provider's own words about a run, verbatim."""

    status: str | None = None
    reason: str | None = None
    jobs: tuple[ReportedJob, ...] = ()


class Placed(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    position: int
    at: int
    slot: str | None
    vm_id: str | None
    creation: str
    gpu: str | None


class Held(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """Why a run waits in Steno's queue."""

    position: int
    at: int
    why: str
    detail: str
    not_before: int | None
    placed_at: int | None = None  # when it got the place at which the provider had no capacity for it


class ReportedPhase(StrEnum):
    """A phase of a task that reports its phases."""

    COMPILING = "compiling"
    CHECKING = "checking"
    BENCHMARKING = "benchmarking"


class PhaseStep(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Since when a task said that."""

    phase: ReportedPhase
    position: int
    at: int  # when its line was read (microseconds, UTC)


class Said(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """The output of a task about itself, in the current attempt."""

    mark: bytes  # `RunRequested.kernel`
    frames: int = 0  # how many of its lines are known, counted over the output of one attempt
    phases: tuple[PhaseStep, ...] = ()
    error: Reason | None = None  # why it will fail, or has
    error_position: int | None = None
    ended: bool = False  # it said its last word
    over: bool = False  # nothing more of its output is read


class Attempt(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """A try of the run at the provider, and the position from which it is known."""

    number: int  # 1 is the first
    position: int


class Run(Tracked, kw_only=True):
    """The state of one run. Times are microseconds UTC, money micro-dollars."""

    run_id: str
    provider_id: str | None = None
    name: str | None = None
    project: str | None = None
    state: State = State.REQUESTED
    reason: Reason | None = None
    exit_status: int | None = None
    rule: str | None = None
    evidence: tuple[int, ...] = ()
    whole_evidence: bool = False  # the verdict rests on an observation that showed the jobs
    attempt: int | None = None  # the highest attempt number seen of the request that stands
    later_attempts: tuple[Attempt, ...] = ()  # every attempt after the first, in order
    facts: RunFacts | None = None  # the newest observation
    # each source's newest view, if there are several; None: it does not list the run any more
    views: dict[str, RunFacts | None] = msgspec.field(default_factory=dict)
    unlisted: Missing | None = None
    """Since when one of several sources has not listed it, and when that last did (`at`): another may list it still."""
    news_of: str | None = None  # which source said something new last; those after it have been read since
    reported: Reported = Reported()
    submitted_at: int | None = None
    submitted_from: int | None = None  # the provider's clock before our call: its job is not older; None: not known
    same_id: tuple[str, ...] = ()  # all runs that had its provider's id, in order of submission; (): no other had it
    started_at: int | None = None
    finished_at: int | None = None
    cost: int | None = None
    """The provider's own figure; in a replay of a record filled in at the end, from the poll at `cost_at`."""
    cost_at: int | None = None  # the newest poll whose figure counts every submission
    intended: str | None = None
    """The name of its submission while the outcome is unknown: only then may a poll show the run."""
    carries: str | None = None  # the run of another provider whose machine this one is: lists and bills show that run
    requested_at: int | None = None  # when it was requested; None for a foreign run
    stop_by: str | None = None  # who asked for its newest stop: `user` or `policy`
    stop_idle: bool = False  # that stop is for idle GPUs
    halt: LeverPulled | None = None  # the lever that stops it
    idle_warning: RunIdleWarned | None = None  # the newest
    links: dict[str, str] = msgspec.field(default_factory=dict)
    """`<replica_num>/<job_num>/<attempt>` → the machine of that submission; once there it stays."""
    vm_id: str | None = None  # the machine of its first job's newest submission that has one
    start: Literal["cold", "warm"] | None = None  # of the first attempt that had a machine
    terms: Requirements | None = None  # None for a foreign run; of a firing, its schedule's
    placed: Placed | None = None  # the reserved place, or the last one before its end; None: none
    held: Held | None = None  # why it waits with us; None: it does not
    array: str | None = None  # the run that requested the whole of which it is a task
    tasks: tuple[str, ...] = ()  # the runs that are its tasks, in order of first sight
    schedule: str | None = None  # the run that is the schedule of which this is a firing
    fired: tuple[int, int] | None = None
    """For a schedule: the number of the first attempt of its newest firing, and the highest number of an attempt."""
    requeues: int = 0  # how often the request was repeated for lack of capacity
    former_ids: tuple[str, ...] = ()  # the provider's ids of the requests without capacity
    transitions: tuple[Transition, ...] = ()
    cases: bytes = b""  # what the rules saw of it, by `case_log`
    said: Said | None = None  # None: a task whose output is not read
    use: GpuUse | None = None  # what its GPUs did, in all attempts; None: no samples

    @property
    def subject(self) -> str:
        return f"run/{self.run_id}"

    def moved(self, transition: Transition | None = None) -> Moved:
        """The change to publish; without a transition only known facts have changed."""
        return Moved(run_id=self.run_id, transition=transition)

    @property
    def halted(self) -> bool:
        """True if a lever stops it and the stop is not requested yet: it is neither placed nor handed over."""
        return self.halt is not None and self.stop_by is None and not self.terminal

    @property
    def listed_as(self) -> str | None:
        """The provider's id of the row that shows it: a firing is part of its schedule's."""
        return self.provider_id if self.provider_id is None or self.schedule is None else firing_row(self.provider_id)

    @property
    def is_schedule(self) -> bool:
        """True if its provider starts it again and again: it waits until it is stopped, and needs no machine."""
        if self.facts is None:
            return self.terms is not None and bool(self.terms.crons)
        return self.facts.schedule is not None

    @property
    def unseen(self) -> bool:
        """True if it is a firing that is over and whose end no answer showed: nothing more is expected of it."""
        return self.schedule is not None and self.state is State.LOST and (self.rule or "").endswith("/not-seen")

    @property
    def terminal(self) -> bool:
        return self.state in TERMINAL

    @property
    def has_begun(self) -> bool:
        """True if it runs, or is over: it may have output and samples."""
        return self.terminal or self.state in (State.RUNNING, State.FINISHING)

    @property
    def waiting_since(self) -> int | None:
        """When it was requested; a foreign run: when its provider got it. Waiting in Steno's queue counts."""
        return self.submitted_at if self.requested_at is None else self.requested_at

    @property
    def unserved(self) -> bool:
        """It ended without capacity, or before anything of it ran: the same request may be submitted again."""
        unrun = self.facts is not None and any(attempt.unrun for attempt in self.facts.newest)
        return self.reason is Reason.NO_CAPACITY or (unrun and self.state is State.FAILED)

    @property
    def warned(self) -> RunIdleWarned | None:
        """Its warning, as long as samples show no work since."""
        warning = self.idle_warning
        return warning if warning is not None and warning.since == idle_since(self.use) else None

    @property
    def phase(self) -> ReportedPhase | None:
        if self.said is None or self.state is not State.RUNNING or not self.said.phases:
            return None
        return self.said.phases[-1].phase

    @property
    def attempts(self) -> int:
        """How often the run was tried at the provider: 1 + the highest attempt number, summed over its requests."""
        return self.later_attempts[-1].number if self.later_attempts else 1

    @property
    def retried(self) -> bool:
        """True if the provider itself tried the current request more than once."""
        return bool(self.attempt)


def phases_of(run: Run) -> tuple[tuple[str, int], ...]:
    """The phases of the run, each from when, if its provider reports that."""
    return () if run.facts is None else run.facts.phases


def waits(held: Held | RunHeld) -> str:
    """The reason why a held run waits, in words, and the earliest time."""
    if held.not_before is None:
        return held.detail
    return f"{held.detail or 'the provider had no capacity'}, not before {format_second(held.not_before)}"
