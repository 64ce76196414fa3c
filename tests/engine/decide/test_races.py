"""Thousands of seeded histories of one engine and one provider, with everything that can go wrong between them.

Polls are late, dropped or fail; other people's runs come in the last moment; deletes are refused or forgotten;
capacity is missing; clocks jump; the engine is killed between any two steps. Fold and decisions are real; the provider
is `stenotest.simulated_cloud`. To see one history again: `Race(SEED).play()`.
"""

import random
from collections.abc import Iterator

import pytest
from stenotest.dstack_history import START
from stenotest.simulated_cloud import ACTIVE, InUse, Machine, Rented
from stenotest.simulation import PROJECT, PROVIDER, Simulation

from steno.engine.state.policy import Policy
from steno.engine.state.states import VmState
from steno.engine.state.vm import Vm
from steno.events import types
from steno.events.clock import SECOND

pytestmark = pytest.mark.slow

SCHEDULES = 3200
IDLE = 20
"""Seconds a machine may idle here."""


class Killed(Exception):
    """The engine dies here."""


class Race:
    """A history."""

    def __init__(self, seed: int) -> None:
        self.draw = draw = random.Random(seed)
        self.policy = Policy(
            mode=draw.choice(["provider", "pool"]),
            max_vms=draw.choice([1, 1, 2, 3]),
            idle_timeout=IDLE * SECOND,
            share="any",
            budget_total=None,
        )
        if self.policy.mode == "pool" and draw.random() < 0.3:
            self.policy = Policy(
                mode="pool", max_vms=self.policy.max_vms, idle_timeout=IDLE * SECOND, share="user", budget_total=None
            )
        faults = draw.choice([0.0, 0.05, 0.15])
        self.dropped, self.failed, self.late, self.killed, self.unheard = faults, faults, 2 * faults, faults / 4, faults
        self.lands = draw.choice([0.0, 0.0, 0.3])
        """How often somebody's run comes to a machine just before it is told to go."""
        self.rented = Rented(
            draw,
            most=draw.choice([1, 2, 5, 5]),
            limits={f"steno-slot-{n}": 1 for n in range(1, 9)},
            no_capacity=draw.choice([0.0, 0.0, 0.3]),
            forgets=draw.choice([0.0] * 9 + [0.5]),
            refuses=draw.choice([0.0, 0.0, 0.3]),
            interrupts=draw.choice([0.0, 0.0, 0.3]),
        )
        self.rented.made.append(self._made)
        self.retries = seed % 4 == 3
        """Tasks have `retry` here, and machines vanish under them."""
        if self.retries:
            self.rented.vanishes = 0.4
            # A fleet that is made for a task; slots beside it (`create`) would not count to its most.
            self.rented.limits["shared"] = self.policy.max_vms or 99
        elif seed % 4 == 1:
            self.rented.crowds = 0.2
        self.stage = Simulation(self.policy)
        self.ahead = 0.0
        """How far the engine's clock is ahead of the provider's."""
        self.names: dict[str, float] = {}
        """Our runs and how long each lasts."""
        self.shown_at = -1.0
        """The provider's time of the answer the engine knows its machines from."""
        self.hits = 0
        """Ends that came to a machine with a run on it, and were refused."""

    # -- the truth -----------------------------------------------------------------------------------------------------

    def _made(self, machine: Machine) -> None:
        # Of two machines that a run with `retry` has one after the other, the first may still be terminating.
        counted = ACTIVE if self.retries else {*ACTIVE, "terminating"}
        ours = [machine for machine in self.rented.machines if machine.state in counted and machine.maker in self.names]
        assert len(ours) <= (self.policy.max_vms or 99), "more machines than allowed"

    def _pass(self, seconds: float) -> None:
        self.rented.advance(seconds)
        self.stage.now = START + round((self.rented.now + self.ahead) * SECOND)

    # -- the engine ----------------------------------------------------------------------------------------------------

    def _step(self) -> None:
        """A boundary between two steps: time passes, and the engine may die."""
        self._pass(self.draw.random())
        if self.draw.random() < self.killed:
            raise Killed

    def _round(self) -> None:
        self._settle()
        for endpoint in ("runs", "machines"):
            self._poll(endpoint)
        for decision in self.stage.decide():
            self._step()
            self._check(decision)
            self.stage.write([decision])
            match decision:
                case types.VmStopIntended():
                    self._stop_vm(self.stage.world.state.vms[decision.vm_id])
                case types.StopRequested():
                    self._stop_run(decision.run_id)
                case _:
                    pass
        self._hand_over()

    def _check(self, decision: object) -> None:
        """Assert the laws of a decision that is about to be carried out, by the record."""
        state = self.stage.world.state
        match decision:
            case types.VmStopIntended():
                vm = state.vms[decision.vm_id]
                assert vm.ours, "a stop of a machine that is not ours"
                stop = vm.told
                again = stop is None or stop.refused_at is not None or vm.state is VmState.UNCONFIRMED
                assert again or (vm.drain is not None and stop is not None and stop.position < vm.drain.position)
                assert stop is None or stop.refused_at is not None or stop.taken_at is not None, "two stops at once"
            case types.VmDrainStarted():
                assert state.vms[decision.vm_id].ours, "drained a machine that is not ours"
            case types.RunPlaced(vm_id=str()):
                assert state.vms[decision.vm_id or ""].state is VmState.IDLE
            case _:
                pass

    def _poll(self, endpoint: str) -> None:
        draw, started = self.draw, self.stage.now
        if draw.random() < self.dropped:
            return
        self._pass(draw.random() / 2)
        seen_at = self.rented.now
        rows = self.rented.run_rows() if endpoint == "runs" else self.rented.vm_rows()
        self._pass(draw.uniform(1, 8) if draw.random() < self.late else 0.05)
        answered = draw.random() >= self.failed
        if endpoint == "runs":
            self.stage.runs(*rows, started=started, answered=answered)  # type: ignore[arg-type]
        else:
            self.stage.machines(*rows, started=started, answered=answered)  # type: ignore[arg-type]
            if answered:
                self.shown_at = seen_at
        self._step()

    def _settle(self) -> None:
        """Settle intents without outcome: after a crash, or because no answer came."""
        for vm in list(self.stage.world.state.vms.all()):
            stop = vm.told
            if stop is not None and stop.taken_at is None and stop.refused_at is None:
                if vm.state is VmState.BUSY or vm.occupants or vm.state is VmState.TERMINATED:
                    self.stage.stop_refused(vm.provider_id)
                else:
                    self._stop_vm(vm)

    def _stop_vm(self, vm: Vm) -> None:
        self._step()
        if self.draw.random() < self.lands:
            self.rented.land(vm.provider_id, lasts=self.draw.uniform(1, 20))
        machine = self.rented.machine(vm.provider_id)
        if machine.job is not None:
            self.hits += 1
            assert machine.assigned_at >= self.shown_at, "a stop of a machine that our newest poll had seen busy"
        elif machine.state == "idle" and vm.told is not None and vm.told.by in ("idle", "orphan") and vm.wish is None:
            maker = self.stage.world.state.runs.get(vm.made_for or "")
            own = maker is not None and maker.terms is not None and maker.terms.idle == 0
            unseen = machine.assigned_at >= self.shown_at  # a run that came and went since our newest poll
            assert own or unseen or self.rented.now - machine.idle_since >= IDLE - 1e-6, "told before its timeout"
        try:
            self.rented.delete(vm.provider_id)
        except InUse:
            self._step()
            self.stage.stop_refused(vm.provider_id)
            return
        if self.draw.random() < self.unheard:
            raise Killed  # it was done, and nobody heard the answer
        self._step()
        self.stage.stop_taken(vm.provider_id)

    def _stop_run(self, run_id: str) -> None:
        job = self.rented.find(self.stage.world.state.runs[run_id].name or "")
        if job is not None:
            self.rented.stop(job)

    def _hand_over(self) -> None:
        state = self.stage.world.state
        for run in list(state.runs.all()):
            if run.placed is None or run.provider_id is not None or run.terminal or run.name is None:
                continue
            self._step()
            job = self.rented.find(run.name)
            if job is None or job.id in run.former_ids:
                fleet = run.placed.slot or "shared"
                if f"{PROVIDER}/{PROJECT}/{fleet}" not in state.fleets:
                    self.stage.ensured(fleet)
                lasts, timeout = self.names[run.name], run.terms.idle if run.terms is not None else None
                job = self.rented.submit(
                    run.name,
                    fleet=fleet,
                    creation=run.placed.creation,
                    lasts=lasts,
                    backstop=IDLE + 30.0 if timeout is None else timeout / SECOND,
                    patience=self.draw.choice([0.0, 0.0, 0.0, 60.0, 1000.0]),
                    retry=run.terms is not None and run.terms.retry,
                )
                if self.draw.random() < self.unheard:
                    raise Killed
                self._step()
            self.stage.taken(run.name, job.id)

    # -- the history ---------------------------------------------------------------------------------------------------

    def _happenings(self) -> Iterator[float]:
        """Actions of people, each with the quiet time before it."""
        draw = self.draw
        for number in range(draw.randint(2, 5)):
            yield draw.choice([0.0, 0.0, 3.0, IDLE, IDLE + 6.0, 45.0]) * draw.random()
            if draw.random() < 0.3:
                theirs = draw.choice(["shared", "theirs"])
                self.rented.submit(f"theirs-{number}", fleet=theirs, creation="reuse-or-create", lasts=9, backstop=30)
            name = f"r{number}"
            self.names[name] = draw.uniform(1, 20)
            own = ["reuse"] if self.retries and self.policy.mode == "provider" else ["create", "reuse"]
            task: dict[str, object] = {"creation_policy": draw.choice(["reuse-or-create"] * 6 + own)}
            if draw.random() < 0.1:
                task["idle_duration"] = 0
            if self.retries:
                task["retry"] = draw.random() < 0.7
            fallback = draw.choice([(), (), ("MI210",)])
            self.stage.request(name, submitter=draw.choice(["ada", "bob"]), fallback=fallback, **task)
            if draw.random() < 0.05:
                self.ahead += draw.choice([-30.0, 3600.0])

    def play(self) -> None:
        """Everything that happens, and then quiet rounds until all is over."""
        for pause in self._happenings():
            until = self.rented.now + pause
            while self.rented.now < until:
                self._live(self.draw.uniform(1, 6))
            if self.draw.random() < 0.2:
                self._interfere()
        for _ in range(self.draw.randint(2, 8)):
            self._live(self.draw.uniform(1, 8))
        self._quiet()

    def _interfere(self) -> None:
        """A user wants a machine gone, or somebody else's run comes to a machine that is about to go."""
        state = self.stage.world.state
        vms = [vm for vm in state.vms.all() if vm.state is not VmState.TERMINATED]
        if vms and self.draw.random() < 0.5:
            self.stage.wish(self.draw.choice(vms).provider_id, when_idle=self.draw.random() < 0.5)
        elif draining := [vm for vm in vms if vm.drain is not None]:
            fleet = draining[0].facts.fleet or ""
            self.rented.submit(f"late-{self.rented.now}", fleet=fleet, creation="reuse", lasts=5, backstop=30)

    def _live(self, seconds: float) -> None:
        self._pass(seconds)
        try:
            self._round()
        except Killed:
            self._pass(self.draw.choice([1, 5, 90]) * self.draw.random())

    def _quiet(self) -> None:
        self.dropped = self.failed = self.late = self.killed = self.unheard = self.lands = 0.0
        self.rented.forgets = self.rented.refuses = self.rented.interrupts = self.rented.no_capacity = (
            self.rented.vanishes
        ) = 0.0
        for _ in range(120):
            for run in self.stage.world.state.runs.all():
                if run.requested_at is not None and run.terms is not None and run.terms.creation == "reuse":
                    self._give_up(run.run_id)
            if self._over():
                break
            self._live(20)
        assert self._over(), "it never comes to rest"
        for name in self.names:
            run = self.stage.run(name)
            made = sum(job.name == name for job in self.rented.jobs)
            assert made <= run.requeues + 1, "a run was handed over twice"

    def _give_up(self, run_id: str) -> None:
        """A run that must reuse a machine may wait for ever: its user stops it."""
        run = self.stage.world.state.runs[run_id]
        if run.terminal:
            return
        self.stage.tell(types.StopRequested(run_id=run_id, provider=PROVIDER, name=run.name or "", submitter="ada"))
        if run.provider_id is None and run.placed is None:
            self.stage.tell(types.IntentAbandoned(run_id=run_id, provider=PROVIDER, intent="submit", why="stopped"))

    def _over(self) -> bool:
        state = self.stage.world.state
        ours = [machine for machine in self.rented.machines if machine.maker in self.names]
        if self.stage.decide():
            return False
        return all(self.stage.run(name).terminal for name in self.names) and all(
            machine.state == "terminated" and state.vms[self.stage.vm_id(machine.id)].state is VmState.TERMINATED
            for machine in ours
            if self.stage.vm_id(machine.id) in state.vms or machine.state != "terminated"
        )


@pytest.mark.parametrize("part", [pytest.param(n, marks=() if n < 1 else pytest.mark.long) for n in range(8)])
def test_no_history_ends_a_run_or_leaves_a_machine(part: int) -> None:
    """Laws: no stop of a machine a poll of ours showed busy; never more machines of ours than allowed, by the truth at
    every moment, also where the provider tries runs again whose machines vanish; one stop at a time; none before its
    timeout; none of a foreign machine; every run ends and every machine of ours goes; no run is handed over twice.
    """
    for seed in range(part * SCHEDULES // 8, (part + 1) * SCHEDULES // 8):
        race = Race(seed)
        try:
            race.play()
        except Exception as error:
            raise AssertionError(f"Race({seed}).play(): {error}") from error
