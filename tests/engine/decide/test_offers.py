"""A run for which the provider has no offer: it takes nothing from the runs that have one."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stenotest.row_simulation import RowSimulation, holds, places
from stenotest.simulation import SOURCE, Simulation, run_row, vm_row

from steno.engine.decide.offers import unanswered
from steno.engine.decide.queue import capacity_sentence, queue
from steno.engine.decide.situation import Situation
from steno.engine.rules.why_ended import cause_now
from steno.engine.state.policy import MINUTE, Policy
from steno.engine.state.states import Reason, State
from steno.events import types

CAP_2 = Policy(max_vms=2, budget_total=None)


def ask(stage: Simulation, offers: dict[str, int], reason: str = "") -> int:
    """The provider answers all questions, by the region a task names; gives their number."""
    situation = Situation(state=stage.world.state, source=SOURCE, policy=stage.policy, now=stage.now)
    questions = list(unanswered(situation))
    for run, gpu, key in questions:
        assert run.terms is not None
        count = offers.get(gpu or (run.terms.regions or ("",))[0], 1)
        stage.tell(types.PlanAnswered(source=SOURCE, requirement=key, offers=count, reason="" if count else reason))
    return len(questions)


@settings(max_examples=20)
@given(st.permutations(["good"] * 20 + ["hopeless"] * 4), st.integers(1, 3))
def test_hopeless_runs_drain_no_machine_and_every_good_one_runs(kinds: list[str], cap: int) -> None:
    """4 hopeless runs among 20 good runs, in any order: as many warm machines as the cap allows serve all of these."""
    town = RowSimulation(Policy(max_vms=cap, budget_total=None))
    for n in range(cap):
        town.warm(f"w{n}", f"m{n}")
    for n, kind in enumerate(kinds):
        town.stage.request(f"{kind}{n}", **({"regions": ["mars"]} if kind == "hopeless" else {}))
    good = [f"good{n}" for n, kind in enumerate(kinds) if kind == "good"]
    decided, ran = list[object](), list[str]()
    while len(ran) < len(good):
        town.stage.wait(20)
        ask(town.stage, {"mars": 0})
        decided += (news := town.stage.settle())
        started = [place.run_id.removeprefix("run-") for place in places(news)]
        free = [on for on, row in town.rows.items() if row["status"] == "idle"]
        assert len(started) == min(len(free), len(good) - len(ran)), "the queue stands still"
        for name, on in zip(started, free, strict=False):
            town.starts(name, on)
        for name in started:
            town.ends(name)
        ran += started
    assert ran == good
    assert not [decision for decision in decided if isinstance(decision, types.VmDrainStarted)]
    hopeless = [town.stage.run(f"{kind}{n}") for n, kind in enumerate(kinds) if kind == "hopeless"]
    assert {(run.state, run.held.why if run.held else "") for run in hopeless} == {(State.QUEUED, "offer")}


def test_a_run_gets_its_turn_once_there_is_an_offer() -> None:
    stage = Simulation(CAP_2)
    stage.request("h", regions=["mars"])
    ask(stage, {"mars": 0})
    assert holds(stage.settle()) == [("run-h", "offer")]
    stage.wait(60)
    ask(stage, {"mars": 3})
    assert [place.run_id for place in places(stage.settle())] == ["run-h"]


def test_one_requirement_is_asked_about_once_a_minute() -> None:
    stage = Simulation(CAP_2)
    for name in ("a", "b", "c"):
        stage.request(name, regions=["mars"], commands=[name], env={"N": name})
    stage.request("d", regions=["venus"])
    stage.request("e", creation_policy="reuse")
    assert ask(stage, {"mars": 0, "venus": 0}) == 2
    stage.wait(59)
    assert ask(stage, {}) == 0
    stage.wait(1)
    assert ask(stage, {}) == 2


def test_an_old_answer_says_nothing() -> None:
    """The plan cannot be had any more: as if it had never been asked."""
    stage = Simulation(CAP_2)
    stage.request("h", regions=["mars"])
    ask(stage, {"mars": 0})
    stage.settle()
    stage.wait(180)
    assert [place.run_id for place in places(stage.settle())] == ["run-h"]


def test_a_run_with_a_fallback_waits_only_if_no_gpu_has_an_offer() -> None:
    stage = Simulation(CAP_2)
    stage.request("h", regions=["mars"], fallback=("MI210",))
    ask(stage, {"mars": 0, "MI210": 2})
    assert places(stage.settle())
    stage.request("k", regions=["mars"], fallback=("MI250",))
    ask(stage, {"mars": 0, "MI250": 0})
    assert holds(stage.settle()) == [("run-k", "offer")]


def test_patience_ends_a_run_that_nothing_was_offered_for_so_long() -> None:
    """It counts from the first answer without an offer: a run that waited for others is not ended by the first."""
    stage = Simulation(Policy(queue_patience=10 * MINUTE, budget_total=None))
    stage.request("h", regions=["mars"])
    stage.wait(3600)
    for _ in range(10):
        ask(stage, {"mars": 0})
        stage.settle()
        assert stage.run("h").state is State.QUEUED
        stage.wait(60)
    ask(stage, {"mars": 0})
    stage.settle()
    run = stage.run("h")
    assert (run.state, run.reason) == (State.FAILED, Reason.NO_CAPACITY)
    assert not stage.settle()


def without_capacity(policy: Policy) -> Simulation:
    """A run `h` that was submitted once, without capacity, and waits for its next turn."""
    stage = Simulation(policy)
    stage.request("h", volumes=["v:/data"])
    stage.settle()
    stage.taken("h", "p-h")
    stage.wait(1)
    reason = "failed_to_start_due_to_no_capacity"
    stage.runs(run_row("h", "failed", reason=reason, submitted=stage.now, finished=stage.now))
    assert isinstance(stage.settle()[0], types.RunRequeued)
    return stage


def test_a_run_that_waits_for_capacity_holds_nobody_back_once_it_has_no_offer() -> None:
    stage = without_capacity(CAP_2)
    stage.request("g")
    assert holds(stage.settle()) == [("run-g", "capacity")]
    situation = Situation(state=stage.world.state, source=SOURCE, policy=stage.policy, now=stage.now)
    key = next(key for run, _, key in unanswered(situation) if run.name == "h")
    stage.tell(types.PlanAnswered(source=SOURCE, requirement=key, offers=0))
    decisions = stage.settle()
    assert holds(decisions) == [("run-h", "offer")]
    assert [place.run_id for place in places(decisions)] == ["run-g"]


def test_a_run_that_ended_in_the_queue_is_not_said_to_be_submitted_again() -> None:
    stage = without_capacity(Policy(queue_patience=10 * MINUTE, budget_total=None))
    for _ in range(11):
        situation = Situation(state=stage.world.state, source=SOURCE, policy=stage.policy, now=stage.now)
        for _, _, key in unanswered(situation):
            stage.tell(types.PlanAnswered(source=SOURCE, requirement=key, offers=0))
        stage.settle()
        stage.wait(60)
    run = stage.run("h")
    assert (run.state, run.reason, run.provider_id) == (State.FAILED, Reason.NO_CAPACITY, None)
    assert capacity_sentence(run, stage.policy, stage.now) is None
    error = "dstack has no offer for it, and `queue.patience` is 10 m"
    assert cause_now(run, stage.world.state, stage.now, error).why.startswith(f"It never ran: {error}")


def test_a_task_that_the_provider_refuses_to_plan_is_handed_over_only_into_a_free_place() -> None:
    """Its submission says at once what is wrong with it; with the cap full it drains nothing for that."""
    town = RowSimulation(Policy(max_vms=1, budget_total=None))
    town.warm("w", "m1")
    town.stage.request("bad", regions=["mars"], resources={"gpu": "H100"})
    ask(town.stage, {"mars": 0}, "Volume v not found")
    assert holds(town.stage.settle()) == [("run-bad", "offer")]
    town.rows.clear()
    town.stage.wait(1)
    town.rows["m1"] = {"status": "terminated", "finished_at": town.stage.now}
    town.look()
    ask(town.stage, {"mars": 0}, "Volume v not found")
    assert [place.run_id for place in places(town.stage.settle())] == ["run-bad"]


def test_the_sentence_says_what_was_answered_and_what_helps() -> None:
    stage = Simulation(CAP_2)
    stage.machines(vm_row("m1"))
    stage.request("h", regions=["mars"], max_price=0.5, resources={"gpu": "H100"})
    ask(stage, {"mars": 0})
    stage.settle()
    text = cause_now(stage.run("h"), stage.world.state, stage.now).why
    assert "dstack has no offer for it (max_price 0.5, regions mars, gpu H100)" in text
    assert "`steno stop h`" in text
    (queued,) = queue(stage.world.state, SOURCE, stage.policy, stage.now)
    assert (queued.why, queued.estimated_start) == ("offer", None)
    assert queued.detail in text


@pytest.mark.parametrize(
    ("terms", "limits"),
    [
        ({"max_price": 0.01}, "max_price 0.01"),
        ({"resources": {"cpu": "64", "memory": "900GB..", "disk": "2TB"}}, "cpu 64, memory 900.. GB, disk 2048 GB"),
        ({"resources": {"cpu": "..1", "memory": "4GB..", "disk": "100GB.."}}, "cpu ..1"),
        ({"spot_policy": "spot"}, "spot_policy spot"),
        *(
            ({"resources": {"gpu": gpu}}, limits)
            for gpu, limits in (
                ("mi300x", "gpu mi300x"),
                ("MI300X:1", "gpu MI300X"),
                ("amd:MI300X:1..", "gpu amd:MI300X"),
                ("nvidia", "gpu nvidia"),
                ("MI300X:16", "gpu MI300X:16"),
                ("MI300X:0", "gpu MI300X:0"),
                ("MI300X,MI210:4..6", "gpu MI300X or MI210:4..6"),
                ("MI300X:300GB..", "gpu MI300X, memory of a GPU 300.. GB"),
                ("16", "number of GPUs 16"),
            )
        ),
    ],
)
def test_without_patience_it_fails_at_once_and_names_its_limits(terms: dict[str, object], limits: str) -> None:
    """Processors, memory and disk where they ask for more than every machine has, or for less."""
    stage = Simulation(Policy(queue_patience=0, budget_total=None))
    stage.request("h", **terms)
    situation = Situation(state=stage.world.state, source=SOURCE, policy=stage.policy, now=stage.now)
    ((_, _, key),) = unanswered(situation)
    stage.tell(types.PlanAnswered(source=SOURCE, requirement=key, offers=0))
    (failed,) = stage.settle()
    assert isinstance(failed, types.SubmitFailed)
    assert failed.reason == "no_offer"
    assert failed.error == f"dstack has no offer for it ({limits}), and `queue.patience` is 0"


def test_a_plan_changes_nothing_but_what_is_known_of_offers() -> None:
    first, other = Simulation(CAP_2, now=10**15), Simulation(CAP_2, now=10**15)
    for stage in (first, other):
        stage.request("h", regions=["mars"])
    first.tell(types.PlanAnswered(source=SOURCE, requirement="r", offers=0))
    assert first.world.state.plans.pop(SOURCE)["r"].offers == 0
    for name in ("runs", "vms", "sources", "anomalies", "outbox", "policies"):
        assert getattr(first.world.state, name) == getattr(other.world.state, name)
