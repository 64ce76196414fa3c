"""A demand under another policy: the engine's own decisions, over a world folded from the answers of a simulated
provider. The provider makes a machine for every run, and all it does takes as long as in the record.
"""

import heapq
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from steno.engine.decide.decisions import Decision, decide
from steno.engine.decide.machine import by_idleness, looks_free, timeout_of, unfit
from steno.engine.decide.situation import Situation, slot_of
from steno.engine.fold.fold import Fold
from steno.engine.money.costs import Costs
from steno.engine.state.facts import AttemptFacts, JobFacts, RunFacts, VmFacts
from steno.engine.state.policy import OFF, Policy, dump_policy
from steno.engine.state.reading import Listing, Readings, Scope, Seen, Tick
from steno.engine.state.run import Run
from steno.engine.state.states import State, VmReason, VmState
from steno.engine.state.vm import Vm, vm_id_of
from steno.engine.state.world import idle_evidence
from steno.engine.whatif.demand import Demand, Outcome, RunDemand, outcome_of
from steno.engine.whatif.lags import Lag
from steno.events import types

_UNREAD: Final = Readings((), lambda _: None)  # the simulated provider answers in facts
_SHARED: Final = "steno-whatif"  # the fleet of all machines that are in no pool slot


class Scenario(NamedTuple):
    """The differences from the recorded policy."""

    fields: tuple[tuple[str, Any], ...] = ()  # of `Policy`
    price: int | None = None  # micro-dollars an hour of every machine; None: as recorded

    def applied(self, policy: Policy) -> Policy:
        """The policy to simulate. The budget does not count: who was refused by it made no demand."""
        rates: dict[str, Any] = {} if self.price is None else {"rates": ()}
        return replace(policy, **dict(self.fields), **rates, budget_total=None, limits=())


def simulate(demand: Demand, scenario: Scenario, seed: str | None = None) -> Outcome:
    """The outcome of a demand under a scenario; `seed` as of `Lags.of`."""
    return _Simulation(demand, scenario, seed).outcome()


class _Simulation:
    def __init__(self, demand: Demand, scenario: Scenario, seed: str | None) -> None:
        self._demand, self._scenario, self._seed = demand, scenario, seed
        self._provider, _, self._project = demand.source.partition("/")
        self._fold, self._policy = Fold(_UNREAD), Policy()
        self._state = self._fold.state
        self._work = {work.run_id: work for work in demand.work}
        self._now, self._position, self._count = demand.begins, 0, 0
        self._due: list[tuple[int, int, Callable[[int], object]]] = []
        self._machines: dict[str, VmFacts] = {}  # the rows of the next poll, as `_jobs`
        self._jobs: dict[str, RunFacts] = {}
        self._woken: dict[str, int] = {}  # vm_id → when it is looked at next
        self._drains: dict[str, int] = {}  # machine and idle phase → when its drain is decided
        self._over: tuple[list[Vm], list[Run]] = [], []  # not in the world any more, so that it stays small

    def outcome(self) -> Outcome:
        """Run it to the end of the window."""
        demand = self._demand
        first = next((step for step in reversed(demand.policies) if step.at <= self._now), demand.policies[0])
        self._adopt(first.policy, self._now)
        self._look()
        for step in demand.policies:
            if step.at > demand.begins:
                self._later(step.at, partial(self._adopt, step.policy))
        for work in demand.work:
            self._later(work.requested_at + self._lag("admission", work.run_id), partial(self._request, work))
        while self._due and (now := demand.blind.after(self._due[0][0])) < demand.until:
            self._now = now
            while self._due and self._due[0][0] <= now:
                at, _, happen = heapq.heappop(self._due)
                happen(at)
            self._look()
            self._act()
        self._now = demand.until
        self._look()
        vms, runs = [*self._over[0], *self._state.vms.all()], [*self._over[1], *self._state.runs.all()]
        return outcome_of(Costs(self._state), vms, runs, demand.since, demand.until)

    def _later(self, at: int, happen: Callable[[int], object]) -> None:
        self._count += 1
        heapq.heappush(self._due, (at, self._count, happen))

    def _lag(self, name: Lag, run_id: str) -> int:
        return self._demand.lags.of(name, run_id, self._seed)

    def _tell(self, event: types.Event, at: int | None = None) -> None:
        self._position += 1
        self._fold.apply_event(self._position, self._now if at is None else at, event)

    def _adopt(self, policy: Policy, _: int) -> None:
        self._policy = self._scenario.applied(policy)
        self._tell(types.PolicyAdopted(source=self._demand.source, policy=dump_policy(self._policy)))

    def _request(self, work: RunDemand, _: int) -> None:
        request: dict[str, Any] = {
            "run_id": work.run_id,
            "provider": self._provider,
            "project": self._project,
            "name": work.name,
        }
        event = types.RunRequested(**request, configuration=b"{}", submitter=work.terms.submitter)
        self._tell(event, work.requested_at)
        self._state.runs[work.run_id].terms = work.terms

    def _look(self) -> None:
        """A poll of all machines and one of all runs. Since the last look the source answered all the time, but for the
        recorded times in which it did not: nothing changed in between.
        """
        source, state = self._fold.source(self._demand.source), self._state
        if source.last_answered is not None:
            source.answered_time += self._demand.blind.seen(source.last_answered, self._now)
            source.last_answered = self._now
        self._poll(Listing.VMS, vms=tuple(self._machines.values()))
        self._poll(Listing.RUNS, runs=tuple(Seen(facts=facts) for facts in self._jobs.values()))
        self._jobs = {run_id: facts for run_id, facts in self._jobs.items() if not facts.final}
        for facts in [facts for facts in self._machines.values() if facts.state is VmState.TERMINATED]:
            del self._machines[facts.provider_id]
            vm = state.vms[vm_id_of(self._provider, facts.provider_id)]
            self._over[0].append(vm)
            del state.vms[vm.vm_id]
            state.by_host.pop(f"{self._provider}/{facts.project}/{facts.hostname}", None)
            needed = {run_id for other in state.vms.all() for run_id in (*other.runs, other.made_for)}
            for run in [state.runs[run_id] for run_id in vm.runs if run_id in state.runs and run_id not in needed]:
                if run.terminal:
                    self._over[1].append(run)
                    del state.runs[run.run_id]

    def _poll(self, listing: Listing, **rows: Any) -> None:
        self._position += 1
        source, project = self._demand.source, self._project or None
        scope = Scope(provider=self._provider, source=source, listing=listing, watched=True, project=project)
        times: dict[str, Any] = {"position": self._position, "started_at": self._now, "observed_at": self._now}
        self._fold.apply(Tick(source=source, scope=scope, answered=True, **times, **rows))

    def _act(self) -> None:
        """Decide until nothing is left to decide that is due, and carry it out."""
        while True:
            decided = decide(self._state, self._demand.source, self._policy, self._now)
            due = [decision for decision in decided if self._is_due(decision)]
            if not due:
                break
            for decision in due:
                self._carry_out(decision)
        for vm in self._state.vms.open():
            if vm.state is VmState.IDLE:
                self._drain_due(vm)

    def _is_due(self, decision: Decision) -> bool:
        """False for a step towards the end of a machine that the recorder took longer to decide."""
        match decision:
            case types.VmDrainStarted() if decision.by != "room":
                return self._now >= self._drain_due(self._state.vms[decision.vm_id])
            case types.VmStopIntended():
                return self._now >= self._woken.get(decision.vm_id, 0)
            case _:
                return True

    def _drain_due(self, vm: Vm) -> int:
        """When the drain of an idle machine is decided."""
        after, evidence = timeout_of(self._state, vm, self._policy).after, idle_evidence(self._state, vm)
        if after is None:
            return self._demand.until
        key = f"{vm.vm_id} {vm.idle_since}"
        if key not in self._drains or evidence < after:
            self._drains[key] = self._now + max(0, after - evidence) + self._lag("late", (*vm.runs, "")[-1])
        return self._wake(vm, self._drains[key])

    def _wake(self, vm: Vm, due: int) -> int:
        """Look at a machine at a moment, which is returned."""
        if due > max(self._now, self._woken.get(vm.vm_id, 0)):
            self._woken[vm.vm_id] = due
            self._later(due, int)
        return due

    def _carry_out(self, decision: Decision) -> None:
        self._tell(decision)
        match decision:
            case types.RunPlaced():
                self._submit(decision, self._work[decision.run_id])
            case types.VmDrainStarted():
                vm = self._state.vms[decision.vm_id]
                self._wake(vm, self._now + max(1, self._lag("confirmation", (*vm.runs, "")[-1])))
            case types.VmStopIntended():
                vm = self._state.vms[decision.vm_id]
                self._tell(types.VmStopSucceeded(vm_id=vm.vm_id, provider=self._provider))
                self._end_machine(vm.provider_id, vm.facts.instance_num, self._now)
            case _:
                pass  # the provider has nothing to do

    def _submit(self, place: types.RunPlaced, work: RunDemand) -> None:
        """It gets the machine it was placed on, else those that idle longest, and new machines for what it lacks."""
        run, fleet = self._state.runs[work.run_id], place.slot or next(iter(work.terms.fleets), _SHARED)
        situation = Situation(state=self._state, source=self._demand.source, policy=self._policy, now=self._now)
        idle = [vm for vm in sorted(situation.vms, key=by_idleness) if looks_free(vm)]
        idle = [vm for vm in idle if (vm.vm_id == place.vm_id if place.vm_id else slot_of(vm) == place.slot)]
        names = [vm.provider_id for vm in idle if not unfit(situation, run, vm)]
        names = [name for name in names if self._machines[name].state is VmState.IDLE][: work.terms.nodes]
        new = work.terms.nodes - len(names)
        starts = self._now + self._lag("cold" if new else "warm", work.run_id)
        for name in names:
            self._show(name, state=VmState.BUSY)
        created = min(starts, self._now + self._lag("creation", work.run_id))
        self._tell(types.FleetEnsured(provider=self._provider, project=self._project, name=fleet.rpartition("/")[2]))
        for _ in range(new):
            self._count += 1
            named: dict[str, Any] = dict.fromkeys(("provider_id", "name", "hostname"), f"whatif-{self._count}")
            price = work.made.price if self._scenario.price is None else self._scenario.price
            made = replace(work.made, **named, fleet=fleet.rpartition("/")[2], created=created, price=price)
            names.append(made.provider_id)
            self._later(created, partial(self._create, replace(made, state=VmState.PROVISIONING)))
        taken: dict[str, Any] = {"run_id": work.run_id, "provider": self._provider, "name": work.name}
        self._tell(types.SubmitSucceeded(**taken, provider_id=work.run_id))
        self._row(work, names, AttemptFacts(state=State.PROVISIONING, submitted_at=self._now))
        self._later(starts, partial(self._start, work, names, OFF if place.idle is None else place.idle, self._now))

    def _row(self, work: RunDemand, names: list[str], attempt: AttemptFacts) -> None:
        """Let polls show a run so from now on, with a job on each of these machines."""
        jobs = tuple(
            JobFacts(job_num=number, attempts=(replace(attempt, hostname=name),)) for number, name in enumerate(names)
        )
        known: dict[str, Any] = {"provider_id": work.run_id, "name": work.name, "project": self._project or None}
        self._jobs[work.run_id] = RunFacts(**known, submitted_at=attempt.submitted_at, final=attempt.over, jobs=jobs)

    def _show(self, name: str, **facts: Any) -> None:
        self._machines[name] = replace(self._machines[name], **facts)

    def _create(self, made: VmFacts, _: int) -> None:
        self._machines[made.provider_id] = made

    def _start(self, work: RunDemand, names: list[str], backstop: int, submitted_at: int, at: int) -> None:
        for name in names:
            self._show(name, state=VmState.BUSY)
        attempt = AttemptFacts(state=State.RUNNING, submitted_at=submitted_at)
        if work.starts:
            self._row(work, names, attempt)
        if work.lasts is not None:
            ended = replace(attempt, over=True, exit_status=0, finished_at=at + work.lasts)
            self._later(at + work.lasts, lambda _: self._row(work, names, ended))
            idle = at + work.lasts + self._lag("release", work.run_id)
            self._later(idle, partial(self._idle, names, backstop))

    def _idle(self, names: list[str], backstop: int, at: int) -> None:
        """Its run is over; after `backstop` its provider ends it, unless a run came (`instance_num` counts them)."""
        for name in names:
            number = (self._machines[name].instance_num or 0) + 1
            self._show(name, state=VmState.IDLE, instance_num=number)
            if backstop != OFF:
                self._later(at + backstop, partial(self._end_machine, name, number))

    def _end_machine(self, name: str, number: int | None, at: int) -> None:
        facts = self._machines.get(name)
        if facts is not None and facts.state is VmState.IDLE and facts.instance_num == number:
            self._show(name, state=VmState.TERMINATING, cause=VmReason.IDLE_TIMEOUT)
            vm = self._state.vms.get(vm_id_of(self._provider, name))  # None: made in a time without polls
            end = at + self._lag("teardown", "" if vm is None else (*vm.runs, "")[-1])
            self._later(end, lambda _: self._show(name, state=VmState.TERMINATED, finished_at=end))
