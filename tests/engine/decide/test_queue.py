"""The queue: no capacity and fallback lists, back-off, the budget, positions and estimates."""

from itertools import pairwise

import msgspec
import pytest
from stenotest.row_simulation import RowSimulation, places
from stenotest.simulation import SOURCE, Simulation, run_row

from steno.engine.decide.decisions import decide
from steno.engine.decide.machine import idle_limit
from steno.engine.decide.queue import capacity_sentence, may_be_made_again, queue
from steno.engine.providers.dstack.fleet import IdleSetting, idling
from steno.engine.providers.registry import READINGS
from steno.engine.state.policy import HOUR, MINUTE, Policy
from steno.engine.state.states import Reason, State
from steno.engine.wire import DOLLAR
from steno.events import types
from steno.events.clock import SECOND, duration

PLAIN = Policy(budget_total=None)
POOL = Policy(mode="pool", budget_total=None)


def stage(policy: Policy) -> Simulation:
    made = Simulation(policy)
    made.ensured("shared")
    return made


def fails(made: Simulation, provider_id: str) -> None:
    made.wait(1)
    made.runs(
        run_row(
            "a",
            "failed",
            reason="failed_to_start_due_to_no_capacity",
            submitted=made.now,
            finished=made.now,
            provider_id=provider_id,
        )
    )


def lacking(policy: Policy, *, after: int = 0, **task: object) -> Simulation:
    """Run `a`, for which its provider has no capacity, as it says `after` seconds."""
    made = Simulation(policy)
    made.request("a", **task)
    made.settle()
    made.taken("a", "p1")
    made.wait(after)
    fails(made, "p1")
    return made


def test_without_capacity_the_fallback_list_is_gone_through_and_begins_again() -> None:
    """MI300X, then at once MI210; then, after 15 s, 30 s, 60 s …, from the start."""
    made = Simulation(PLAIN)
    made.request("a", fallback=("MI210",), resources={"gpu": "MI300X"})
    requests: list[tuple[str | None, int]] = []
    for attempt in range(1, 8):
        while not places(decisions := made.settle()):
            made.wait(1)
        (place,) = places(decisions)
        requests.append((place.gpu, made.now))
        made.taken("a", f"p-a-{attempt}")
        fails(made, f"p-a-{attempt}")
    assert [gpu for gpu, _ in requests] == [None, "MI210", None, "MI210", None, "MI210", None]
    pauses = [(after - before) // SECOND for (_, before), (_, after) in pairwise(requests)]
    assert pauses == [1, 16, 1, 31, 1, 61]


def test_the_next_request_says_which_gpu_and_when() -> None:
    made = lacking(PLAIN, fallback=("MI210", "MI250"))
    first = made.decide()[0]
    assert first == types.RunRequeued(
        provider="dstack", run_id="run-a", provider_id="p1", attempt=2, gpu="MI210", not_before=made.now
    )
    assert may_be_made_again(made.run("a"), made.policy.queue_patience, made.now), "who waits for it waits on"
    made.write([first])
    assert made.run("a").state is State.QUEUED
    assert not [decision for decision in made.settle() if isinstance(decision, types.RunRequeued)]


def test_patience_is_bounded() -> None:
    made = lacking(Policy(queue_patience=10 * MINUTE, budget_total=None), after=600)
    assert made.decide() == ()
    assert made.run("a").state is State.FAILED


def test_the_tries_and_the_limit_are_named() -> None:
    """While it is still submitted again, and after patience ran out."""
    made = Simulation(Policy(queue_patience=60 * SECOND, budget_total=None))
    made.request("a")

    def why() -> str | None:
        return capacity_sentence(made.run("a"), made.policy, made.now)

    for attempt in (1, 2, 3):
        while not places(made.settle()):
            made.wait(1)
        made.taken("a", f"p-{attempt}")
        fails(made, f"p-{attempt}")
        tries = "once" if attempt == 1 else f"{attempt} times"
        limit = "1 m after the request (`queue.patience`)"
        assert why() == f"Steno submitted it {tries}; it is submitted again until {limit}."
    made.wait(60)
    assert made.decide() == ()
    assert why() == f"Steno submitted it 3 times; it is not submitted again, because the limit of {limit} has passed."


def test_what_is_not_submitted_again_says_so() -> None:
    """Without patience, or after a stop; of other ends nothing is said."""
    made = Simulation(Policy(queue_patience=0, budget_total=None))
    made.request("a")
    assert capacity_sentence(made.run("a"), made.policy, made.now) is None
    made.settle()
    made.taken("a", "p1")
    fails(made, "p1")
    none = "Steno submitted it once; it is not submitted again, because `queue.patience` is 0."
    assert capacity_sentence(made.run("a"), made.policy, made.now) == none
    assert made.decide() == ()
    made.tell(types.StopRequested(run_id="run-a", provider="dstack", name="a", submitter="ada"))
    stopped = "Steno submitted it once; it is not submitted again, because a stop was requested."
    assert capacity_sentence(made.run("a"), PLAIN, made.now) == stopped


def test_a_run_that_was_told_to_stop_or_had_run_is_not_asked_for_again() -> None:
    made = Simulation(PLAIN)
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


@pytest.mark.parametrize(("patience", "times"), [(30 * 60, 1), (0, 0)])
def test_a_run_of_which_nothing_ever_ran_is_asked_for_again(patience: int, times: int) -> None:
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
    assert may_be_made_again(made.run("a"), made.policy.queue_patience, made.now) is bool(times)
    again = [decision for decision in made.settle() if isinstance(decision, types.RunRequeued)]
    assert [decision.run_id for decision in again] == ["run-a"] * times
    if times:
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
    made = lacking(PLAIN)
    made.write(made.decide())
    assert made.decide() == ()
    assert len(places(made.decide(now=made.now - 86_400 * SECOND))) == 1


def test_a_stopped_run_leaves_the_queue() -> None:
    made = Simulation(Policy(max_vms=1, budget_total=None))
    made.request("a")
    made.request("b")
    made.settle()
    made.tell(types.StopRequested(run_id="run-b", provider="dstack", name="b", submitter="ada"))
    assert queue(made.world.state, SOURCE, made.policy, made.now) == ()


# -- money -------------------------------------------------------------------------------------------------------------


def test_a_run_the_budget_does_not_bear_is_refused_with_the_arithmetic() -> None:
    """Two hours at $1.99 and ten idle minutes do not fit into four dollars; one hour does."""
    made = Simulation(Policy(budget_total=4 * DOLLAR))
    made.request("a", resources={"gpu": "MI300X"}, max_duration="2h")
    made.request("b", resources={"gpu": "MI300X"}, max_duration="1h")
    refuse, place = made.settle()
    assert isinstance(refuse, types.IntentAbandoned)
    assert "$1.99/h" in refuse.why
    assert isinstance(place, types.RunPlaced)
    assert place.run_id == "run-b"


def test_runs_placed_in_one_go_do_not_overrun_the_budget_together() -> None:
    """Each bears the worst case of those before it."""
    made = Simulation(Policy(budget_total=5 * DOLLAR))
    for number in range(3):
        made.request(f"r{number}", resources={"gpu": "MI300X"}, max_duration="1h")
    assert [type(decision) for decision in made.settle()] == [types.RunPlaced, types.RunPlaced, types.IntentAbandoned]


# -- the queue as shown ------------------------------------------------------------------------------------------------


def test_the_queue_has_positions_reasons_and_estimates() -> None:
    """A machine, runs of a minute (the median of those that have finished): each waits for the runs before it."""
    town = RowSimulation(Policy(max_vms=1, mode="pool", budget_total=None))
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
    waiting = queue(town.stage.world.state, SOURCE, town.stage.policy, town.stage.now)
    assert [(queued.run_id, queued.position, queued.why) for queued in waiting] == [
        ("run-b", 1, "cap"),
        ("run-c", 2, "cap"),
    ]
    first, second = (queued.estimated_start for queued in waiting)
    assert first is not None
    assert second is not None
    assert 55 * SECOND < first - town.stage.now < 62 * SECOND
    assert 55 * SECOND < second - first < 65 * SECOND
    town.stage.wait(70)
    late = queue(town.stage.world.state, SOURCE, town.stage.policy, town.stage.now)
    assert [queued.estimated_start for queued in late] == [None, None]
    late_first = "the machine limit (1, `vms.max`) is reached; a run there takes longer than usual"
    assert late[0].detail == late_first


def test_without_experience_the_longest_duration_is_the_estimate_or_there_is_none() -> None:
    for task, known in (({"max_duration": "1h"}, True), ({}, False)):
        made = Simulation(Policy(max_vms=1, budget_total=None))
        made.request("a", **task)
        made.settle()
        made.request("b")
        made.settle()
        (queued,) = queue(made.world.state, SOURCE, made.policy, made.now)
        assert (queued.estimated_start is not None) == known
        if queued.estimated_start is not None:
            assert queued.estimated_start == made.now + HOUR


def test_the_provider_is_told_the_tightest_timeout_that_leaves_ours_its_turn() -> None:
    """The backstop ends a machine where nobody records. Who goes on recording ends it first, and can take a drain back;
    who only hands the run over leaves only the provider's timer.
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
        made = Simulation(policy)
        made.request("a", **task)
        for stays, seconds in ((True, watched), (False, alone)):
            (place,) = places(decide(made.world.state, SOURCE, policy, made.now, stays))
            assert place.idle == (-1 if seconds < 0 else seconds * SECOND)


@pytest.mark.parametrize("limit", [600, 0, None])
@pytest.mark.parametrize("wanted", [{}, *({"idle_duration": own} for own in (0, 90, 3600, "off"))])
@pytest.mark.parametrize("creation", ["reuse-or-create", "create"])
def test_the_doctor_promises_what_the_rule_decides(limit: int | None, wanted: dict[str, object], creation: str) -> None:
    """`steno doctor` words the rule for dstack, with arithmetic of its own: a changed rule has to change both."""
    task, timeout = {**wanted, "creation_policy": creation}, None if limit is None else limit * SECOND
    terms = READINGS.terms("dstack", msgspec.json.encode({"type": "task", "commands": ["true"], **task}), "")
    after = idle_limit(terms, Policy(idle_timeout=timeout)).after
    promise = idling(task, (), IdleSetting(limit=timeout, origin="default")).message
    ends = "never ends an idle machine" if after is None else f"ends an idle machine after {duration(after)}"
    assert promise.startswith(f"Steno {ends} (")
