"""The queue: no capacity and fallback lists, back-off, the budget, positions and estimates."""

from itertools import pairwise

import pytest
from stenotest.stage import SOURCE, Stage, run_row
from stenotest.town import Town, places

from engine.decide.controller import decide
from engine.decide.queue import capacity_sentence, may_be_made_again, queue
from engine.policy import DOLLAR, HOUR, MINUTE, Policy
from engine.states import Reason, State
from events import types
from events.clock import SECOND

PLAIN = Policy(budget_total=None)
POOL = Policy(mode="pool", budget_total=None)


def stage(policy: Policy, fleet: str = "shared") -> Stage:
    made = Stage(policy)
    made.ensured(fleet)
    return made


def fails(made: Stage, name: str, provider_id: str) -> None:
    made.wait(1)
    made.runs(
        run_row(
            name,
            "failed",
            reason="failed_to_start_due_to_no_capacity",
            submitted=made.now,
            finished=made.now,
            provider_id=provider_id,
        )
    )


def test_without_capacity_the_fallback_list_is_gone_through_and_begins_again() -> None:
    """MI300X, then at once MI210; then, after 15 s, 30 s, 60 s …, from the start."""
    made = Stage(PLAIN)
    made.request("a", fallback=("MI210",), resources={"gpu": "MI300X"})
    asked: list[tuple[str | None, int]] = []
    for attempt in range(1, 8):
        while not places(decisions := made.settle()):
            made.wait(1)
        (place,) = places(decisions)
        asked.append((place.gpu, made.now))
        made.taken("a", f"p-a-{attempt}")
        fails(made, "a", f"p-a-{attempt}")
    assert [gpu for gpu, _ in asked] == [None, "MI210", None, "MI210", None, "MI210", None]
    pauses = [(after - before) // SECOND for (_, before), (_, after) in pairwise(asked)]
    assert pauses == [1, 16, 1, 31, 1, 61]


def test_the_next_request_says_which_gpu_and_when() -> None:
    made = Stage(PLAIN)
    made.request("a", fallback=("MI210", "MI250"))
    made.settle()
    made.taken("a", "p1")
    fails(made, "a", "p1")
    first = made.decide()[0]
    assert first == types.RunRequeued(
        provider="dstack", run_id="run-a", provider_id="p1", attempt=2, gpu="MI210", not_before=made.now
    )
    made.write([first])
    assert made.run("a").state is State.QUEUED
    assert not [one for one in made.settle() if isinstance(one, types.RunRequeued)]


def test_patience_is_bounded() -> None:
    made = Stage(Policy(queue_patience=10 * MINUTE, budget_total=None))
    made.request("a")
    made.settle()
    made.taken("a", "p1")
    made.wait(600)
    fails(made, "a", "p1")
    assert made.decide() == ()
    assert made.run("a").state is State.FAILED


@pytest.mark.parametrize("policy", [Policy(queue_patience=0, budget_total=None)])
def test_no_patience_at_all_fails_at_once(policy: Policy) -> None:
    made = Stage(policy)
    made.request("a")
    made.settle()
    made.taken("a", "p1")
    fails(made, "a", "p1")
    assert made.decide() == ()


def test_the_tries_and_the_limit_are_named() -> None:
    """While it is still submitted again, and after patience ran out."""
    made = Stage(Policy(queue_patience=60 * SECOND, budget_total=None))
    made.request("a")

    def why() -> str | None:
        return capacity_sentence(made.run("a"), made.policy, made.now)

    for attempt in (1, 2, 3):
        while not places(made.settle()):
            made.wait(1)
        made.taken("a", f"p-{attempt}")
        fails(made, "a", f"p-{attempt}")
        tries = "once" if attempt == 1 else f"{attempt} times"
        limit = "1m after the request (`queue.patience`)"
        assert why() == f"Steno submitted it {tries}; it is submitted again until {limit}."
    made.wait(60)
    assert made.decide() == ()
    assert why() == f"Steno submitted it 3 times; it is not submitted again, because the limit of {limit} has passed."


def test_what_is_not_submitted_again_says_so() -> None:
    """Without patience, or after a stop; of other ends nothing is said."""
    made = Stage(Policy(queue_patience=0, budget_total=None))
    made.request("a")
    assert capacity_sentence(made.run("a"), made.policy, made.now) is None
    made.settle()
    made.taken("a", "p1")
    fails(made, "a", "p1")
    none = "Steno submitted it once; it is not submitted again, because `queue.patience` is 0."
    assert capacity_sentence(made.run("a"), made.policy, made.now) == none
    made.tell(types.StopRequested(run_id="run-a", provider="dstack", name="a", submitter="ada"))
    stopped = "Steno submitted it once; it is not submitted again, because a stop was requested."
    assert capacity_sentence(made.run("a"), PLAIN, made.now) == stopped


def test_a_run_that_was_told_to_stop_or_had_run_is_not_asked_for_again() -> None:
    made = Stage(PLAIN)
    for name in ("a", "b", "c"):
        made.request(name)
    made.settle()
    for name in ("a", "b", "c"):
        made.taken(name)
    made.tell(types.StopRequested(run_id="run-a", provider="dstack", name="a", submitter="ada"))
    made.runs(run_row("b", "running", submitted=made.now))
    made.wait(1)
    rows = [
        run_row(name, "failed", reason="failed_to_start_due_to_no_capacity", submitted=made.now, finished=made.now)
        for name in ("b", "a")
    ]
    made.runs(*rows, run_row("c", "failed", reason="container_exited_with_error", submitted=made.now, exit_status=1))
    assert made.decide() == ()


@pytest.mark.parametrize(("patience", "asked"), [(30 * 60, 1), (0, 0)])
def test_a_run_of_which_nothing_ever_ran_is_asked_for_again(patience: int, asked: int) -> None:
    """As one without capacity, for as long; not once it was seen running."""
    made = stage(Policy(budget_total=None, queue_patience=patience * SECOND))
    for name in ("a", "b"):
        made.request(name)
    made.settle()
    for name in ("a", "b"):
        made.taken(name)
    made.wait(5)
    made.runs(run_row("b", "running", on="m"), run_row("a", "provisioning", on="m"))
    made.wait(5)
    ends = {"reason": "executor_error", "finished": made.now, "on": "m", "unrun": True}
    made.runs(run_row("b", "failed", **ends), run_row("a", "failed", **ends))
    assert (made.run("a").state, made.run("a").reason) == (State.FAILED, Reason.PROVIDER_ERROR)
    assert may_be_made_again(made.run("a"), made.policy.queue_patience, made.now) is bool(asked)
    again = [one for one in made.settle() if isinstance(one, types.RunRequeued)]
    assert [one.run_id for one in again] == ["run-a"] * asked
    if asked:
        assert queue(made.world.state, SOURCE, made.policy, made.now)[0].detail.startswith("nothing of it ran")


def test_a_run_of_which_nothing_ran_is_not_asked_for_again_once_a_stop_was_requested() -> None:
    """Also if it ended before that."""
    made = stage(Policy(budget_total=None))
    made.request("a")
    made.settle()
    made.taken("a")
    made.wait(5)
    made.runs(run_row("a", "failed", reason="executor_error", finished=made.now, unrun=True))
    made.tell(types.StopRequested(run_id="run-a", provider="dstack", name="a", submitter="ada"))
    assert made.settle() == ()


def test_a_clock_that_jumps_back_makes_nobody_wait_for_ever() -> None:
    made = Stage(PLAIN)
    made.request("a")
    made.settle()
    made.taken("a", "p1")
    fails(made, "a", "p1")
    made.write(made.decide())
    assert made.decide() == ()
    assert len(places(made.decide(now=made.now - 86_400 * SECOND))) == 1


def test_a_stopped_run_leaves_the_queue() -> None:
    made = Stage(Policy(max_vms=1, budget_total=None))
    made.request("a")
    made.request("b")
    made.settle()
    made.tell(types.StopRequested(run_id="run-b", provider="dstack", name="b", submitter="ada"))
    assert queue(made.world.state, SOURCE, made.policy, made.now) == ()


# -- money -------------------------------------------------------------------------------------------------------------


def test_a_run_the_budget_does_not_bear_is_refused_with_the_arithmetic() -> None:
    """Two hours at $1.99 and ten idle minutes do not fit into four dollars; one hour does."""
    made = Stage(Policy(budget_total=4 * DOLLAR))
    made.request("a", resources={"gpu": "MI300X"}, max_duration="2h")
    made.request("b", resources={"gpu": "MI300X"}, max_duration="1h")
    refuse, place = made.settle()
    assert isinstance(refuse, types.IntentAbandoned)
    assert "$1.99/h" in refuse.why
    assert isinstance(place, types.RunPlaced)
    assert place.run_id == "run-b"


def test_runs_placed_in_one_go_do_not_overrun_the_budget_together() -> None:
    """Each bears the worst case of those before it."""
    made = Stage(Policy(budget_total=5 * DOLLAR))
    for number in range(3):
        made.request(f"r{number}", resources={"gpu": "MI300X"}, max_duration="1h")
    assert [type(one) for one in made.settle()] == [types.RunPlaced, types.RunPlaced, types.IntentAbandoned]


# -- the queue as shown ------------------------------------------------------------------------------------------------


def test_the_queue_has_positions_reasons_and_estimates() -> None:
    """One machine, runs of a minute (the median of those that have finished): each waits for the ones before it."""
    town = Town(Policy(max_vms=1, mode="pool", budget_total=None))
    for number in range(3):
        town.stage.request(f"old{number}")
        town.stage.tell(types.RunPlaced(run_id=f"run-old{number}", provider="dstack", slot="steno-slot-1"))
        town.starts(f"old{number}", "m", fleet="steno-slot-1")
        town.stage.wait(58)
        town.ends(f"old{number}")
    town.stage.request("a")
    town.stage.settle()
    town.starts("a", "m")
    for name in ("b", "c"):
        town.stage.request(name)
    town.stage.settle()
    found = queue(town.stage.world.state, SOURCE, town.stage.policy, town.stage.now)
    assert [(one.run_id, one.position, one.why) for one in found] == [("run-b", 1, "cap"), ("run-c", 2, "cap")]
    first, second = (one.estimated_start for one in found)
    assert first is not None
    assert second is not None
    assert 55 * SECOND < first - town.stage.now < 62 * SECOND
    assert 55 * SECOND < second - first < 65 * SECOND
    town.stage.wait(70)
    late = queue(town.stage.world.state, SOURCE, town.stage.policy, town.stage.now)
    assert [one.estimated_start for one in late] == [None, None]
    late_first = "the machine limit (1, `vms.max`) is reached; a run there takes longer than usual"
    assert late[0].detail == late_first


def test_without_experience_the_longest_duration_is_the_estimate_or_there_is_none() -> None:
    for task, known in (({"max_duration": "1h"}, True), ({}, False)):
        made = Stage(Policy(max_vms=1, budget_total=None))
        made.request("a", **task)
        made.settle()
        made.request("b")
        made.settle()
        (found,) = queue(made.world.state, SOURCE, made.policy, made.now)
        assert (found.estimated_start is not None) == known
        if found.estimated_start is not None:
            assert found.estimated_start == made.now + HOUR


def test_the_provider_is_told_the_tightest_timeout_that_leaves_ours_its_turn() -> None:
    """The backstop ends a machine where nobody records. Who goes on recording ends it first, and can take a drain back;
    who only hands the run over leaves the provider's timer as the only one.
    """
    for task, policy, watched, alone in (
        ({}, PLAIN, 630, 600),
        ({}, Policy(idle_timeout=2 * SECOND, budget_total=None), 32, 2),
        ({"idle_duration": "5m"}, PLAIN, 300, 300),
        ({"idle_duration": "605s"}, PLAIN, 605, 600),
        ({"idle_duration": "1h"}, PLAIN, 630, 600),
        ({"idle_duration": "1h"}, Policy(idle_timeout=None, budget_total=None), 3600, 3600),
        ({"idle_duration": "0s"}, PLAIN, 0, 0),
        ({"idle_duration": "off"}, PLAIN, -1, -1),
        ({}, Policy(idle_timeout=None, budget_total=None), -1, -1),
        ({}, Policy(idle_timeout=0, budget_total=None), 0, 0),
        ({"creation_policy": "create"}, PLAIN, 0, 0),
        ({"idle_duration": "1h"}, Policy(free=True), 3600, 3600),
    ):
        made = Stage(policy)
        made.request("a", **task)
        for stays, seconds in ((True, watched), (False, alone)):
            (place,) = places(decide(made.world.state, SOURCE, policy, made.now, stays))
            assert place.idle == (-1 if seconds < 0 else seconds * SECOND)
