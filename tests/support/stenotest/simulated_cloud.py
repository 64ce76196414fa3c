"""A provider in memory that behaves as dstack was seen to, for simulations: its fleets, machines, runs and refusals.

Time is seconds as floats and moves only by `advance`. Everything that happens is drawn from one seeded generator, so
that a history can be had again from its number. It keeps no secrets from the test: `machines` and `jobs` are the truth.
"""

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from steno.engine.providers.dstack.run_reading import with_attempt_words, with_run_words
from steno.engine.providers.dstack.words import VM_STATE
from steno.engine.state.facts import AttemptFacts, JobFacts, RunFacts, VmFacts
from steno.events.clock import SECOND
from stenotest.dstack_history import START
from stenotest.simulation import PROJECT

ACTIVE = frozenset({"provisioning", "idle", "busy"})
"""States of a machine that count to a fleet's most; a terminating machine does not (both servers, observed)."""

NOTICED, AGAIN, GIVEN_UP = 150.0, 15.0, 1200.0
"""Seconds until a run on a machine that vanished is cut off, until its next try, and until the machine is given up."""

RUN_REASON = {"done": "all_jobs_done", "failed": "job_failed", "terminated": "stopped_by_user"}


@dataclass(slots=True, eq=False)
class Machine:
    """A machine; `job` is the run on it by truth, whatever a poll has shown."""

    id: str
    fleet: str
    created: float
    maker: str
    """The name of the run it was made for."""
    backstop: float
    """Seconds it may idle before the provider itself ends it."""
    state: str = "provisioning"
    unreachable: bool = False
    hostname: str | None = None
    job: "Job | None" = None
    assigned_at: float = 0
    idle_since: float = 0
    ended_at: float | None = None


@dataclass(slots=True, eq=False)
class Job:
    """A run."""

    id: str
    name: str
    fleet: str
    creation: str
    lasts: float
    submitted: float
    backstop: float
    patience: float = 0
    """Seconds in which the provider itself tries again where there is no capacity."""
    retry: bool = False
    """The provider tries it again where its machine is taken away."""
    past: list[AttemptFacts] = field(default_factory=list)
    """Its earlier tries."""
    status: str = "submitted"
    reason: str | None = None
    machine: Machine | None = None
    finished: float | None = None

    @property
    def over(self) -> bool:
        """True if it has ended."""
        return self.finished is not None


class InUse(Exception):
    """The provider refuses to end a machine."""


@dataclass(slots=True)
class Rented:
    """The provider. `most` is the number of machines its cloud has; `limits` the most active machines of a fleet."""

    draw: random.Random
    most: int = 4
    limits: dict[str, int] = field(default_factory=dict)
    no_capacity: float = 0.0
    """How often the cloud has none though there would be room."""
    forgets: float = 0.0
    """How often it takes an end and does nothing."""
    refuses: float = 0.0
    """How often it refuses to end an empty machine."""
    interrupts: float = 0.0
    """How often the cloud takes a machine away while a run is on it."""
    vanishes: float = 0.0
    """How often a machine stops answering while a run is on it; its row stays for twenty minutes."""
    crowds: float = 0.0
    """For how many seconds after a machine was taken another run may be put on it too, which fails (0.19.37)."""
    now: float = 0.0
    machines: list[Machine] = field(default_factory=list)
    jobs: list[Job] = field(default_factory=list)
    made: list[Callable[[Machine], None]] = field(default_factory=list)
    """Called with every machine that is made."""
    _due: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    _count: int = 0

    def advance(self, seconds: float) -> None:
        """Time passes, and what is due happens in its order."""
        until = self.now + seconds
        while self._due and self._due[0][0] <= until:
            self.now, _, happen = heapq.heappop(self._due)
            happen()
        self.now = until

    # -- what one can ask of it ----------------------------------------------------------------------------------------

    def submit(
        self,
        name: str,
        *,
        fleet: str,
        creation: str,
        lasts: float,
        backstop: float,
        patience: float = 0,
        retry: bool = False,
    ) -> Job:
        """Take a run; a machine is looked for a little later."""
        job = Job(f"j{len(self.jobs)}", name, fleet, creation, lasts, self.now, backstop, patience, retry)
        self.jobs.append(job)
        self._later(self.draw.uniform(0.2, 6), lambda: self._assign(job))
        return job

    def find(self, name: str) -> Job | None:
        """The newest run of that name."""
        return next((job for job in reversed(self.jobs) if job.name == name), None)

    def stop(self, job: Job) -> None:
        """End a run, unless it has ended."""
        self._later(self.draw.uniform(0.5, 3), lambda: self._end(job, "terminated", "terminated_by_user"))

    def machine(self, machine_id: str) -> Machine:
        """The machine of that id."""
        return next(machine for machine in self.machines if machine.id == machine_id)

    def land(self, machine_id: str, *, lasts: float) -> None:
        """Somebody else's run comes to this idle machine at this very moment."""
        machine = self.machine(machine_id)
        if machine.state == "idle":
            job = Job(f"j{len(self.jobs)}", f"land-{len(self.jobs)}", machine.fleet, "reuse", lasts, self.now, 0)
            self.jobs.append(job)
            self._occupy(machine, job)

    def delete(self, machine_id: str) -> None:
        """End a machine.

        Raises:
            InUse: a run is on it, or the provider is busy with it.
        """
        machine = self.machine(machine_id)
        if self.draw.random() < self.refuses:
            raise InUse("Fleet is being changed")
        if machine.state in ("busy", "provisioning") or machine.job is not None:
            raise InUse("Fleet is in use")
        if machine.state == "idle" and self.draw.random() >= self.forgets:
            self._go(machine)

    def vm_rows(self) -> tuple[VmFacts, ...]:
        """The rows of a poll of all machines now; the provider's time 0 is `START`."""
        return tuple(
            VmFacts(
                provider_id=machine.id,
                project=PROJECT,
                fleet=machine.fleet,
                hostname=machine.hostname,
                status=machine.state,
                state=VM_STATE.get(machine.state),
                created=_moment(machine.created),
                finished_at=None if machine.ended_at is None else _moment(machine.ended_at),
                price=1_990_000,
                spot=False,
                gpu="MI300X",
                gpu_count=1,
                busy_blocks=1 if machine.job is not None else 0,
                unreachable=machine.unreachable,
                one_at_a_time=bool(self.crowds),
            )
            for machine in self.machines
        )

    def run_rows(self) -> tuple[RunFacts, ...]:
        """The rows of a poll of all runs now, newest first."""
        return tuple(_run_row(job) for job in reversed(self.jobs))

    # -- what happens --------------------------------------------------------------------------------------------------

    def _later(self, seconds: float, happen: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._due, (self.now + seconds, self._count, happen))

    def _assign(self, job: Job) -> None:
        if job.over:
            return
        there = [machine for machine in self.machines if machine.fleet == job.fleet]
        idle = [machine for machine in there if machine.state == "idle" and not machine.unreachable]
        taken = [
            machine for machine in there if machine.state == "busy" and self.now - machine.assigned_at < self.crowds
        ]
        if idle or taken:
            machine = self.draw.choice(idle + taken)
            if machine in taken:
                self._end(job, "failed", "executor_error")
            else:
                self._occupy(machine, job)
            return
        active = sum(machine.state in ACTIVE for machine in there)
        alive = sum(machine.state != "terminated" for machine in self.machines)
        full = active >= self.limits.get(job.fleet, 100) or alive >= self.most
        if job.creation == "reuse" or full or self.draw.random() < self.no_capacity:
            if self.now - job.submitted < job.patience:
                self._later(5, lambda: self._assign(job))
                return
            if job.past:  # its first try had a machine: the next has to wait for one
                self._later(AGAIN, lambda: self._assign(job))
                return
            self._end(job, "failed", "failed_to_start_due_to_no_capacity")
            return
        machine = Machine(f"m{len(self.machines)}", job.fleet, self.now, job.name, job.backstop)
        self.machines.append(machine)
        for notice in self.made:
            notice(machine)
        machine.job, job.machine, job.status, machine.assigned_at = job, machine, "provisioning", self.now
        boot = self.draw.uniform(2, 15)
        self._later(boot * self.draw.random(), lambda: setattr(machine, "hostname", f"host-{machine.id}"))
        self._later(boot, lambda: self._boot(machine, job))

    def _boot(self, machine: Machine, job: Job) -> None:
        if machine.job is job:
            machine.state = "busy"
            self._run(job)
        elif machine.state == "provisioning":
            self._idle(machine)

    def _occupy(self, machine: Machine, job: Job) -> None:
        machine.state, machine.job, machine.assigned_at = "busy", job, self.now
        job.machine, job.status = machine, "provisioning"
        self._later(self.draw.uniform(0.1, 2), lambda: self._run(job))

    def _run(self, job: Job) -> None:
        if not job.over:
            job.status, machine = "running", job.machine
            if machine is not None and self.vanishes and self.draw.random() < self.vanishes:
                machine.unreachable = True
                self._later(NOTICED, lambda: self._cut_off(job, machine))
                return
            self._later(job.lasts, lambda: self._end(job, "done", "done_by_runner"))
            if self.draw.random() < self.interrupts:
                self._later(job.lasts * self.draw.random(), lambda: self._interrupt(job))

    def _interrupt(self, job: Job) -> None:
        machine = job.machine
        if machine is not None and machine.job is job:
            self._end(job, "failed", "interrupted_by_no_capacity")
            self._go(machine)

    def _cut_off(self, job: Job, machine: Machine) -> None:
        """The provider notices that the machine is gone."""
        if job.machine is machine and not job.over:
            self._end(job, "failed", "instance_unreachable")
            if job.retry:
                job.past.append(_attempt(job, frozenset({"interruption"})))
                job.status, job.reason, job.finished, job.machine = "pending", None, None, None
                job.submitted = self.now
                self._later(AGAIN, lambda: self._assign(job))
        self._later(GIVEN_UP, lambda: self._go(machine) if machine.state == "idle" else None)

    def _end(self, job: Job, status: str, reason: str) -> None:
        if job.over:
            return
        job.status, job.reason, job.finished = status, reason, self.now
        machine = job.machine
        if machine is not None and machine.job is job:
            machine.job = None
            if machine.state == "busy":
                self._idle(machine)

    def _idle(self, machine: Machine) -> None:
        machine.state, machine.idle_since = "idle", self.now
        since = self.now

        def backstop() -> None:
            if not machine.unreachable and machine.state == "idle" and machine.idle_since == since:
                self._go(machine)

        self._later(machine.backstop, backstop)

    def _go(self, machine: Machine) -> None:
        machine.state = "terminating"
        self._later(self.draw.uniform(0.1, 15), lambda: self._gone(machine))

    def _gone(self, machine: Machine) -> None:
        machine.state, machine.ended_at = "terminated", self.now


def _attempt(job: Job, retry_on: frozenset[str]) -> AttemptFacts:
    attempt = AttemptFacts(
        num=len(job.past),
        submitted_at=_moment(job.submitted),
        finished_at=None if job.finished is None else _moment(job.finished),
        hostname=None if job.machine is None else job.machine.hostname,
        unrun=job.reason == "executor_error",
    )
    status = "submitted" if job.status == "pending" else job.status
    return with_attempt_words(attempt, status, job.reason, 0 if status == "done" else None, retry_on)


def _run_row(job: Job) -> RunFacts:
    run = RunFacts(
        provider_id=job.id,
        name=job.name,
        project=PROJECT,
        submitted_at=job.past[0].submitted_at if job.past else _moment(job.submitted),
    )
    attempts = (*job.past, _attempt(job, frozenset()))
    return with_run_words(run, job.status, RUN_REASON.get(job.status), (JobFacts(attempts=attempts),))


def _moment(at: float) -> int:
    return START + round(at * SECOND)
