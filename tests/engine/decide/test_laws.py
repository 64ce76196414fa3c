"""The laws of the controller, over arbitrary histories: answers that contradict one another, gaps, failures, wishes."""

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from stenotest.segmented_world import apart
from stenotest.simulation import SOURCE, Simulation, run_row, vm_row

from steno.engine.decide.budget import account, metrics, starts_of
from steno.engine.decide.decisions import Decision, decide
from steno.engine.decide.machine import covers, timeout_of, unfit
from steno.engine.decide.queue import queue
from steno.engine.decide.situation import Situation, terms_of
from steno.engine.state.facts import RunFacts
from steno.engine.state.policy import Policy
from steno.engine.state.run import Run
from steno.engine.state.states import VmState
from steno.engine.state.world import dump, load
from steno.engine.wire import DOLLAR
from steno.events import types
from steno.events.clock import SECOND

pytestmark = pytest.mark.slow

MACHINES = ("m1", "m2", "m3", "theirs")
FLEETS = {"m1": "shared", "m2": "steno-slot-1", "m3": "shared", "theirs": "theirs"}
RUNS = ("a", "b", "c", "d")
STATUSES = ("provisioning", "idle", "idle", "idle", "busy", "terminating", "terminated")

machines = st.dictionaries(st.sampled_from(MACHINES), st.sampled_from(STATUSES))
answers = st.dictionaries(
    st.sampled_from((*RUNS, "foreign")),
    st.tuples(
        st.sampled_from(["submitted", "running", "done", "failed", "refused"]), st.sampled_from((None, *MACHINES))
    ),
)
tasks = st.fixed_dictionaries(
    {},
    optional={
        "creation_policy": st.sampled_from(["create", "reuse", "reuse-or-create"]),
        "idle_duration": st.sampled_from([0, 30, "off"]),
        "nodes": st.integers(1, 2),
        "retry": st.booleans(),
        "resources": st.sampled_from([{"gpu": "MI300X"}, {"gpu": "MI210"}]),
    },
)
steps = st.one_of(
    st.tuples(st.just("wait"), st.sampled_from([1, 5, 30, 59, 61, 4000, -100])),
    st.tuples(st.just("machines"), machines),
    st.tuples(st.just("machines"), machines),
    st.tuples(st.just("idle"), st.integers(1, 8)),
    st.tuples(st.just("serve"), st.tuples(st.sampled_from(RUNS), st.sampled_from(MACHINES))),
    st.tuples(st.just("serve"), st.tuples(st.sampled_from(RUNS), st.sampled_from(MACHINES))),
    st.tuples(st.just("idle"), st.integers(1, 8)),
    st.tuples(st.just("runs"), answers),
    st.tuples(st.just("fail"), st.none()),
    st.tuples(st.just("request"), st.tuples(st.sampled_from(RUNS), st.sampled_from(["ada", "bob"]), tasks)),
    st.tuples(st.just("taken"), st.sampled_from(RUNS)),
    st.tuples(st.just("wish"), st.tuples(st.sampled_from(MACHINES), st.booleans())),
    st.tuples(st.just("outcome"), st.tuples(st.sampled_from(MACHINES), st.booleans())),
)
histories = st.lists(steps, min_size=12, max_size=30)
scarce = st.lists(
    st.one_of(
        st.tuples(st.just("wait"), st.sampled_from([1, 5, 20])),
        st.tuples(st.just("machines"), st.dictionaries(st.sampled_from(MACHINES), st.sampled_from(["idle", "busy"]))),
        st.tuples(st.just("request"), st.tuples(st.sampled_from(RUNS), st.just("ada"), tasks)),
        st.tuples(st.just("refuse"), st.sampled_from(RUNS)),
        st.tuples(st.just("refuse"), st.sampled_from(RUNS)),
    ),
    min_size=12,
    max_size=30,
)
"""The provider often has no capacity."""
policies = st.builds(
    Policy,
    mode=st.sampled_from(["provider", "pool"]),
    max_vms=st.sampled_from([1, 2, 3]),
    idle_timeout=st.sampled_from([60 * SECOND, 120 * SECOND, None]),
    budget_total=st.none(),
) | st.builds(Policy, mode=st.just("pool"), share=st.just("user"), max_vms=st.just(2), budget_total=st.none())


class AnswerLog:
    """Plays a history and keeps its own count of how long each machine was shown idle."""

    def __init__(self, policy: Policy) -> None:
        self.stage = Simulation(policy)
        self.stage.ensured("shared")
        self.stage.ensured("steno-slot-1")
        self.idle: dict[str, int] = {}
        self.rows: dict[str, str] = {}
        self.seen: dict[str, int] = {}
        self.heard: int | None = None
        self.broken = False

    def play(self, step: tuple[str, Any]) -> None:
        made, (kind, value) = self.stage, step
        state = made.world.state
        match kind:
            case "wait":
                made.wait(value)
            case "machines":
                self._machines(value)
            case "idle":
                for _ in range(value):
                    made.wait(30)
                    self._machines(dict.fromkeys(self.rows, "idle"))
            case "runs":
                self._answered()
                made.runs(*(self._row(name, *row) for name, row in value.items()))
            case "serve" if f"run-{value[0]}" in state.runs and state.runs[f"run-{value[0]}"].placed is not None:
                self._serve(*value)
            case "refuse" if f"run-{value}" in state.runs and state.runs[f"run-{value}"].placed is not None:
                made.taken(value, f"p-{value}-{state.runs[f'run-{value}'].requeues}")
                made.wait(1)
                self._answered()
                made.runs(self._row(value, "refused", None))
            case "fail":
                made.machines(answered=False)
                # A poll that failed before the newest answer, by the clock, says nothing of the time since.
                self.broken = self.broken or self.heard is None or made.now >= self.heard
            case "request" if f"run-{value[0]}" not in state.runs:
                made.request(value[0], submitter=value[1], **value[2])
            case "taken" if f"run-{value}" in state.runs and state.runs[f"run-{value}"].placed is not None:
                made.taken(value, f"p-{value}-{state.runs[f'run-{value}'].requeues}")
            case "wish" if made.vm_id(value[0]) in state.vms:
                made.wish(value[0], when_idle=value[1])
            case "outcome" if made.vm_id(value[0]) in state.vms and made.vm(value[0]).told is not None:
                (made.stop_taken if value[1] else made.stop_refused)(value[0])
            case _:
                pass

    def _row(self, name: str, status: str, on: str | None) -> RunFacts:
        """A row of the run's newest request; `refused`: there was no capacity for it."""
        run = self.stage.world.state.runs.get(f"run-{name}")
        provider_id = None if run is None else run.provider_id
        if status == "refused":
            reason = "failed_to_start_due_to_no_capacity"
            return run_row(name, "failed", reason=reason, finished=self.stage.now, provider_id=provider_id)
        return run_row(name, status, on=on, provider_id=provider_id)

    def _serve(self, name: str, machine: str) -> None:
        """A run that has its place goes to a machine and ends there, as a sane provider would show it."""
        requeues = self.stage.world.state.runs[f"run-{name}"].requeues
        self.stage.taken(name, f"p-{name}-{requeues}")
        submitted = self.stage.now
        for status, row in (("running", "busy"), ("done", "idle")):
            self.stage.wait(5)
            self._machines({**self.rows, machine: row})
            self._answered()
            ended = self.stage.now if status == "done" else None
            self.stage.runs(
                run_row(
                    name,
                    status,
                    on=machine,
                    provider_id=f"p-{name}-{requeues}",
                    submitted=submitted,
                    finished=ended,
                    exit_status=None if ended is None else 0,
                )
            )

    def _machines(self, rows: dict[str, str]) -> None:
        self._answered()
        # A machine is made once; anything else a provider may say of it again and again.
        rows = {
            name: "busy" if status == "provisioning" and name in self.rows else status for name, status in rows.items()
        }
        self.stage.machines(*(vm_row(name, status, fleet=FLEETS[name]) for name, status in rows.items()))
        for name, status in rows.items():
            if self.stage.now < self.seen.get(name, self.stage.now):
                continue  # asked before the newest answer, as far as the clock tells: it moves nothing
            self.seen[name] = self.stage.now
            self.idle[name] = self.idle.get(name, 0) if self.rows.get(name) == status == "idle" else 0
            self.rows[name] = status

    def _answered(self) -> None:
        now = self.stage.now
        passed = 0 if self.heard is None else now - self.heard
        if 0 <= passed <= 60 * SECOND and not self.broken:
            for name in self.idle:
                self.idle[name] += passed
        if self.heard is None or passed >= 0:
            self.heard, self.broken = now, False


def machine_of(decision: Decision) -> str | None:
    return (
        decision.vm_id
        if isinstance(decision, types.VmDrainStarted | types.VmDrainCancelled | types.VmStopIntended)
        else None
    )


def played(policy: Policy, history: Iterable[tuple[str, Any]]) -> Iterable[tuple[AnswerLog, tuple[Decision, ...]]]:
    """After every step of the history, what is decided; then it is written down."""
    witness = AnswerLog(policy)
    for step in history:
        witness.play(step)
        decisions = witness.stage.decide()
        yield witness, decisions
        witness.stage.write(decisions)


@given(policies, histories)
def test_a_machine_with_a_run_on_it_is_never_told_to_go(policy: Policy, history: list[tuple[str, Any]]) -> None:
    """By its row, by any submission, and only after a poll asked since the drain began."""
    for witness, decisions in played(policy, history):
        for decision in decisions:
            if isinstance(decision, types.VmStopIntended):
                vm = witness.stage.world.state.vms[decision.vm_id]
                assert not vm.occupants
                assert vm.facts.status != "busy"
                if vm.state is VmState.DRAINING:
                    assert vm.facts.status == "idle"
                    assert vm.drain is not None
                    assert vm.started[vm.source] > vm.drain.at
                else:
                    assert vm.state is VmState.UNCONFIRMED
                    assert vm.told is not None
                    assert vm.told.taken_at is not None or vm.told.refused_at is not None


@given(policies, histories)
def test_no_machine_is_drained_before_its_timeout(policy: Policy, history: list[tuple[str, Any]]) -> None:
    """Counted again by hand: only time between two answers no more than a minute apart, both of which show it idle."""
    for witness, decisions in played(policy, history):
        state = witness.stage.world.state
        for decision in decisions:
            if isinstance(decision, types.VmDrainStarted) and decision.by in ("idle", "orphan", "create"):
                vm = state.vms[decision.vm_id]
                after = timeout_of(state, vm, witness.stage.policy).after
                assert after is not None
                assert witness.idle[vm.provider_id] >= after


@given(policies, histories)
def test_a_machine_that_is_not_ours_is_never_touched(policy: Policy, history: list[tuple[str, Any]]) -> None:
    for witness, decisions in played(policy, history):
        for decision in decisions:
            vm_id = machine_of(decision)
            assert vm_id is None or witness.stage.world.state.vms[vm_id].ours


@given(policies, histories)
def test_placements_never_exceed_the_cap(policy: Policy, history: list[tuple[str, Any]]) -> None:
    """Machines of ours that may be billed, and runs that were told they may have one made and have none: where a run is
    placed that may have one made, their number is at most the cap. (Machines without a run are all counted.) A
    run with `retry` has the place of the machine it is sent to: its provider makes the next once that one is gone.
    """
    for witness, decisions in played(policy, history):
        state = witness.stage.world.state
        placed = [place for place in decisions if isinstance(place, types.RunPlaced)]
        assert not any(place.creation == "reuse" and terms_of(state.runs[place.run_id]).retry for place in placed)
        making = [
            place
            for place in placed
            if place.creation != "reuse" and (place.vm_id is None or not terms_of(state.runs[place.run_id]).retry)
        ]
        if not making:
            continue
        there = sum(vm.ours and vm.billed for vm in state.vms.all())
        nodes = sum(terms.nodes for place in making if (terms := state.runs[place.run_id].terms) is not None)
        assert there + nodes <= (policy.max_vms or 99)


@given(policies, histories | scarce)
def test_nobody_overtakes_the_head(policy: Policy, history: list[tuple[str, Any]]) -> None:
    """A run is placed before an earlier one only where that one waits for a machine to reuse, for one its user may use,
    or for its time; past the last two only where the earlier one could not use the machine.
    """
    for witness, decisions in played(policy, history):
        state = witness.stage.world.state
        placed = {place.run_id: place for place in decisions if isinstance(place, types.RunPlaced)}
        held_whys = {decision.run_id: decision.why for decision in decisions if isinstance(decision, types.RunHeld)}
        gone = {
            decision.run_id
            for decision in decisions
            if not isinstance(decision, types.RunHeld) and hasattr(decision, "run_id")
        }
        waiting = [run for run in state.runs.all() if run.requested_at and not run.terminal and not run.placed]
        ahead: list[tuple[str, Run]] = []
        for run in sorted(waiting, key=lambda run: run.first_position):
            if run.run_id in placed:
                whys = [why for why, _ in ahead]
                assert "cap" not in whys
                assert "user" not in whys or placed[run.run_id].vm_id is not None
                situation = Situation(state=state, source=SOURCE, policy=witness.stage.policy, now=witness.stage.now)
                assert not any(
                    could_use(situation, earlier, run, placed[run.run_id])
                    for why, earlier in ahead
                    if why == "capacity"
                )
            elif run.run_id not in gone and run.provider_id is None:
                why = held_whys.get(run.run_id) or (run.held.why if run.held is not None else "")
                ahead.append((why, run))


def could_use(situation: Situation, earlier: Run, later: Run, place: types.RunPlaced) -> bool:
    """True if the earlier run, which waits for its time, could use the place the later one gets."""
    first, second = terms_of(earlier), terms_of(later)
    if place.vm_id is None:
        return first.creation != "reuse" and covers(first, second)
    vm, held = situation.state.vms[place.vm_id], earlier.held
    if held is None or held.placed_at is None or vm.idle_since is None or vm.idle_since <= held.placed_at:
        return False  # it was refused while that machine was there
    return situation.policy.mode == "pool" and first.nodes == 1 and not unfit(situation, earlier, vm)


@given(policies, histories)
def test_deciding_again_adds_nothing(policy: Policy, history: list[tuple[str, Any]]) -> None:
    """Twice without a new event is the same; what is written down is not decided again, and it comes to rest."""
    witness = AnswerLog(policy)
    for step in history:
        witness.play(step)
        assert witness.stage.decide() == witness.stage.decide()
        decided = witness.stage.settle()
        assert len(set(decided)) == len(decided)
        assert witness.stage.decide() == ()


@pytest.mark.parametrize("jump", [-(10**7), 10**7])
@given(policies, histories)
def test_the_clock_of_a_decision_ends_no_machine(jump: int, policy: Policy, history: list[tuple[str, Any]]) -> None:
    """Whatever time it is said to be, no drain begins that would not begin now."""
    for witness, decisions in played(policy, history):
        now = {
            machine_of(decision)
            for decision in decisions
            if isinstance(decision, types.VmDrainStarted) and decision.by != "room"
        }
        later = witness.stage.decide(now=witness.stage.now + jump * SECOND)
        assert {
            machine_of(decision)
            for decision in later
            if isinstance(decision, types.VmDrainStarted) and decision.by != "room"
        } == now


@given(policies, histories | scarce, st.sampled_from([0, 3, 90, 5000]))
def test_decisions_from_a_snapshot_are_those_from_the_whole_world(
    policy: Policy, history: list[tuple[str, Any]], later: int
) -> None:
    """After every step, at once and later; and from the snapshot of a world that was itself loaded and looked at."""
    witness = AnswerLog(policy)
    for step in history:
        witness.play(step)
        state, now = witness.stage.world.state, witness.stage.now + later * SECOND
        lazy = apart(state)
        decided = decide(load(dump(state)), SOURCE, policy, now)
        assert decide(lazy, SOURCE, policy, now) == decided
        again = apart(lazy)
        assert decide(again, SOURCE, policy, now) == decided
        assert queue(again, SOURCE, policy, now) == queue(state, SOURCE, policy, now)
        for rich in (msgspec.structs.replace(policy, budget_total=total * DOLLAR) for total in (1, 1_000)):
            assert decide(again, SOURCE, rich, now) == decide(state, SOURCE, rich, now)
            books = account(state, rich, now)
            assert account(again, rich, now) == account(again, rich, now) == books
            assert metrics(again, books, starts_of(again)) == metrics(state, books, starts_of(state))
        assert lazy == state == again
        witness.stage.write(witness.stage.decide())
