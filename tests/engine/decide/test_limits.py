"""Limits by owner: who waits, who is refused, who pays for idle time; and that no place exceeds a limit."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from stenotest.bills import a_run as bare_run
from stenotest.bills import at, machine, on, world
from stenotest.simulation import SOURCE, Simulation, run_row, vm_row

from steno.engine.decide.decisions import Decision, QueueDecision, decide
from steno.engine.decide.limits import OwnerLimits, owners_of_run, spent_by, unknown_owners
from steno.engine.decide.queue import queue
from steno.engine.decide.start_estimate import start_estimate
from steno.engine.money.bill import bill_vm
from steno.engine.money.prices import Book, GpuHours
from steno.engine.state.policy import HOUR, OwnerLimit, Policy, dump_policy, load_policy
from steno.engine.state.run import Requirements
from steno.engine.state.states import VmState
from steno.engine.wire import DOLLAR
from steno.events.budget_moves import BudgetMoved
from steno.events.types import IntentAbandoned, RunHeld, RunPlaced

ADA, GPU = "user/ada", {"gpu": "MI300X"}
COST = 2_338_250  # of an hour at worst, the idle timeout included


def limited(owner: str = ADA, mode: str = "provider", **most: int) -> Policy:
    return Policy(mode=mode, max_vms=None, limits=(OwnerLimit(owner=owner, **most),))  # type: ignore[arg-type]


class Site:
    """A provider that does with placed runs what a history says, and each step's decisions."""

    def __init__(self, policy: Policy) -> None:
        self.stage = Simulation(policy)
        self.stage.ensured("shared")
        self.rows: dict[str, str] = {}
        self.on: dict[str, str] = {}
        self.ended: dict[str, int] = {}
        self.count = 0

    def ask(self, user: str = "ada", **task: Any) -> str:
        self.count += 1
        task = {"max_duration": "1h", "resources": GPU} | task
        return self.stage.request(f"r{self.count}", submitter=user, **task)

    def start(self) -> None:
        """The first run that has its place, and no machine yet, gets it."""
        state = self.stage.world.state
        for run in state.runs.open():
            name = run.run_id.removeprefix("run-")
            if run.placed is not None and name not in self.on:
                idle = [vm for vm, status in self.rows.items() if status == "idle"]
                self.on[name] = vm = idle[0] if idle else f"m{len(self.rows)}"
                self.rows[vm] = "busy"
                self.stage.taken(name)
                return self.look()
        return None

    def finish(self) -> None:
        """The first run on a machine ends."""
        name = next((name for name in self.on if name not in self.ended), None)
        if name is not None:
            self.stage.wait(1)
            self.ended[name], self.rows[self.on[name]] = self.stage.now, "idle"
            self.look()

    def look(self) -> None:
        self.stage.wait(5)
        self.stage.machines(*(vm_row(vm, status) for vm, status in self.rows.items()))
        runs = [(name, vm, self.ended.get(name)) for name, vm in self.on.items()]
        self.stage.runs(
            *(
                run_row(name, "done", on=vm, finished=end, exit_status=0) if end else run_row(name, on=vm)
                for name, vm, end in reversed(runs)
            )
        )

    def decide(self) -> tuple[Decision, ...]:
        decisions = self.stage.decide()
        self.stage.write(decisions)
        return decisions


def placed(decisions: tuple[Decision, ...]) -> list[str]:
    return [decision.run_id for decision in decisions if isinstance(decision, RunPlaced)]


def test_a_run_above_its_owners_limit_waits_and_blocks_nobody() -> None:
    """The third of ada waits with a sentence that names the limit; bob's run behind it has its place at once."""
    site = Site(limited(runs=2))
    first, second, third, bobs = site.ask(), site.ask(), site.ask(), site.ask("bob")
    decisions = site.decide()
    assert placed(decisions) == [first, second, bobs]
    (held,) = (decision for decision in decisions if isinstance(decision, RunHeld))
    assert (held.run_id, held.why) == (third, "limit")
    assert held.detail == "user ada may have 2 runs at once (`limits.user.ada.runs`)"
    for step in (site.start, site.finish):
        step()
    assert third in placed(site.decide())


def test_a_full_source_is_not_kept_for_a_run_that_its_limit_holds() -> None:
    """Bob gets the place that ada may not have."""
    site = Site(msgspec.structs.replace(limited(runs=1), max_vms=2))
    site.ask()
    site.decide()
    site.ask(nodes=2)
    assert placed(site.decide()) == []
    bobs = site.ask("bob")
    assert placed(site.decide()) == [bobs]


def test_a_run_that_its_limit_holds_has_no_estimated_start_and_delays_none() -> None:
    """Machines that come free say nothing of it; the run behind it is estimated as if it were not there."""
    site = Site(msgspec.structs.replace(limited(runs=1), max_vms=2))
    for user in ("ada", "bob"):
        site.ask(user)
        site.decide()
        site.start()
    held, behind = site.ask(), site.ask("bob")
    site.decide()
    state, now = site.stage.world.state, site.stage.now
    waiting = queue(state, SOURCE, site.stage.policy, now)
    assert [(queued.run_id, queued.why) for queued in waiting] == [(held, "limit"), (behind, "cap")]
    assert waiting[0].estimated_start is None
    begun = min(stay.since for vm in state.vms.open() for stay in vm.occupants)
    assert waiting[1].estimated_start == begun + HOUR
    estimate = start_estimate(state, state.runs[held], now)
    assert estimate is not None
    assert estimate.unknown == "a limit of its owner holds it back"


@pytest.mark.parametrize("owner", [ADA, "project/main", "gpu/MI300X", "label/team=vision"])
def test_every_kind_of_owner_is_limited(owner: str) -> None:
    """A label is a tag of a dstack task."""
    site = Site(limited(owner, runs=1))
    for _ in range(2):
        site.ask(tags={"team": "vision"})
    assert len(placed(site.decide())) == 1


def test_an_owner_at_its_machines_goes_to_its_own_idle_machine() -> None:
    """A task that fits is sent there; a task that needs another machine waits, idle machines counted."""
    site = Site(limited(machines=1))
    site.ask()
    site.decide()
    site.start()
    site.finish()
    second, other = site.ask(), site.ask(resources={"gpu": "H100"})
    decisions = site.decide()
    assert placed(decisions) == [second]
    place = next(decision for decision in decisions if isinstance(decision, RunPlaced))
    assert (place.vm_id, place.creation) == (site.stage.vm_id("m0"), "reuse")
    held = site.stage.world.state.runs[other].held
    assert held is not None
    assert held.detail == "user ada may have 1 machine at once, idle machines included (`limits.user.ada.machines`)"


def test_a_daily_limit_lets_the_next_day_begin_again() -> None:
    """Two hours fit into $5 a day; the third run waits for midnight, UTC."""
    site = Site(limited(daily=5 * DOLLAR))
    first, second, third = site.ask(), site.ask(), site.ask()
    assert placed(site.decide()) == [first, second]
    for _ in range(2):
        site.start()
    site.stage.wait(3_500)
    for _ in range(2):
        site.finish()
    assert placed(site.decide()) == []
    site.rows = dict.fromkeys(site.rows, "terminated")
    site.look()
    assert placed(site.decide()) == []
    site.stage.wait(24 * 3_600)
    assert placed(site.decide()) == [third]


def test_a_run_that_exceeds_its_owners_budget_is_refused_until_budget_is_moved() -> None:
    """With the arithmetic; a move is in force at once, and takes what it gives."""
    policy = Policy(limits=(OwnerLimit(owner=ADA, budget=COST), OwnerLimit(owner="user/bob", budget=COST)))
    site = Site(policy)
    site.ask()
    second = site.ask()
    (refused,) = (decision for decision in site.decide() if isinstance(decision, IntentAbandoned))
    assert refused.run_id == second
    assert "The budget of user ada does not allow this run. run: 1 h (max_duration) × $1.99/h" in refused.why
    site.stage.tell(BudgetMoved(amount=COST, from_owner="user/bob", to_owner=ADA, why="deadline", by="root"))
    third, bobs = site.ask(), site.ask("bob")
    decisions = site.decide()
    assert placed(decisions) == [third]
    assert [each.run_id for each in decisions if isinstance(each, IntentAbandoned)] == [bobs]


def test_idle_time_belongs_to_the_run_before() -> None:
    """Half an hour of ada, an hour idle after it, half an hour of bob: every dollar has an owner."""
    runs = [bare_run(name, terms=Requirements(submitter=name)) for name in ("ada", "bob")]
    stays = [on("ada", 0, 1800), on("bob", 5400, 7200)]
    steps = [(0, VmState.BUSY), (1800, VmState.IDLE), (5400, VmState.BUSY), (7200, VmState.IDLE)]
    vm = machine("vm", *steps, last=7200, prices=[(0, 2)], occupancies=stays, gpus=4)
    state = world(vm, last=7200, runs=runs)
    spent, used = spent_by(state, Book.of(state)), spent_by(state, GpuHours())
    assert spent["user/bob"] == pytest.approx(DOLLAR, abs=40_000)
    assert spent["user/ada"] == pytest.approx(3 * DOLLAR, abs=40_000)
    assert spent["gpu/MI300X"] >= bill_vm(vm, until=at(7200), book=Book.of(state)).cost
    assert used["user/ada"] == pytest.approx(6 * DOLLAR, abs=200_000)
    since_last_hour = spent_by(state, Book.of(state), at(3600))
    assert since_last_hour["user/ada"] == pytest.approx(DOLLAR, abs=40_000)


def test_a_limit_of_an_unknown_owner_is_named_with_the_nearest() -> None:
    site = Site(limited("user/aad", runs=1))
    site.ask()
    assert unknown_owners(site.stage.world.state, site.stage.policy) == [
        "limits.user.aad: no run of that user is in the record yet; did you mean ada?"
    ]
    assert unknown_owners(site.stage.world.state, limited(runs=1)) == []


def test_a_policy_of_before_has_no_limits() -> None:
    """An old policy is read as it was, and a policy with limits comes back whole."""
    before = {key: value for key, value in msgspec.json.decode(dump_policy(Policy())).items() if key != "limits"}
    assert load_policy(msgspec.json.encode(before)) == Policy()
    assert load_policy(dump_policy(limited(budget=1, runs=0))) == limited(budget=1, runs=0)


amounts = st.sampled_from([0, 3, 3, 6, 6]).map(lambda dollars: dollars * DOLLAR)
counts = st.sampled_from([1, 1, 2])
limits = st.one_of(
    *(
        st.builds(OwnerLimit, owner=st.sampled_from([ADA, "project/main", "gpu/MI300X"]), **{key: values})
        for key, values in {
            "machines": counts,
            "runs": counts,
            **dict.fromkeys(("budget", "daily", "gpu_hours"), amounts),
        }.items()
    )
)
policies = st.builds(
    Policy,
    max_vms=st.sampled_from([2, None]),
    limits=st.lists(limits, min_size=1, max_size=3, unique_by=lambda limit: limit.owner).map(tuple),
)
histories = st.lists(
    st.one_of(
        st.tuples(
            st.just("ask"), st.sampled_from(["ada", "bob"]), st.sampled_from([{}, {"nodes": 2}, {"max_duration": "2h"}])
        ),
        st.tuples(st.just("ask"), st.just("ada"), st.sampled_from([{}, {"creation_policy": "create"}])),
        st.tuples(st.just("wait"), st.sampled_from([60, 1_800, 30_000]), st.just({})),
        st.tuples(st.sampled_from(["start", "start", "finish"]), st.none(), st.just({})),
    ),
    min_size=8,
    max_size=24,
)


def play(site: Site, step: tuple[str, Any, dict[str, Any]]) -> None:
    match step:
        case ("ask", user, task):
            for _ in range(2):
                site.ask(user, **task)
        case ("wait", seconds, _):
            site.stage.wait(seconds)
            site.look()
        case (kind, _, _):
            getattr(site, kind)()


@pytest.mark.slow
@given(policies, histories)
def test_no_place_takes_an_owner_above_a_limit(policy: Policy, history: list[tuple[str, Any, dict[str, Any]]]) -> None:
    """In the append that gives a run of an owner its place, what the owner has spent at most and what its runs with a
    place may still cost, its runs and its machines are within each of its limits.
    """
    site = Site(policy)
    for step in history:
        play(site, step)
        decisions = site.stage.decide()
        later = [each for each in decisions if not isinstance(each, QueueDecision)]  # a drain may add to its bill
        site.stage.write(each for each in decisions if each not in later)
        state = site.stage.world.state
        facts = OwnerLimits(state, policy, site.stage.now)
        owners = {owner for run_id in placed(decisions) for owner in owners_of_run(state.runs[run_id])}
        for limit in (limit for limit in policy.limits if limit.owner in owners):
            owner = limit.owner
            gpu_time = facts.gpu_time[owner] + facts.committed(GpuHours(), placed=True)[owner]
            assert limit.budget is None or facts.spent[owner] + facts.reserved[owner] <= limit.budget
            assert limit.daily is None or facts.today[owner] + facts.reserved[owner] <= limit.daily
            assert limit.gpu_hours is None or gpu_time <= limit.gpu_hours
            assert limit.machines is None or facts.machines[owner] <= limit.machines
            mine = [run for run in state.runs.open() if owner in owners_of_run(run) and run.placed is not None]
            assert limit.runs is None or len(mine) <= limit.runs
            assert len(mine) == facts.runs[owner]
        site.stage.write(later)


@pytest.mark.slow
@given(policies, histories)
def test_limits_that_nobody_reaches_change_no_decision(
    policy: Policy, history: list[tuple[str, Any, dict[str, Any]]]
) -> None:
    """Every decision is as without limits."""
    free = msgspec.structs.replace(policy, limits=())
    high = {"budget": 10**12, "daily": 10**12, "gpu_hours": 10**12, "machines": 99, "runs": 99}
    wide = tuple(OwnerLimit(owner=limit.owner, **high) for limit in policy.limits)
    site = Site(free)
    for step in history:
        play(site, step)
        with_limits = msgspec.structs.replace(free, limits=wide)
        assert decide(site.stage.world.state, SOURCE, with_limits, site.stage.now) == site.decide()
