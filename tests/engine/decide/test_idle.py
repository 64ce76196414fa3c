"""When a machine goes, and when it does not: frozen time, the real fold, one rule a test."""

from collections.abc import Iterable
from itertools import pairwise

import pytest
from stenotest.dstack_history import START
from stenotest.simulation import Simulation, run_row, vm_row

from steno.engine.decide.decisions import Decision, decide
from steno.engine.state.policy import MINUTE, Policy
from steno.engine.state.states import VmState
from steno.events.clock import SECOND
from steno.events.types import RunPlaced, StopRequested, VmDrainCancelled, VmDrainStarted, VmStopIntended

POOL = Policy(mode="pool", budget_total=None)
SHARED = Policy(budget_total=None)


def stage(policy: Policy = SHARED) -> Simulation:
    made = Simulation(policy)
    made.ensured("shared")
    made.ensured("steno-slot-1")
    return made


def looks(made: Simulation, seconds: int, *, status: str = "idle", every: int = 5, name: str = "m") -> None:
    """A poll of the machines every few seconds, all showing the same."""
    for _ in range(0, seconds, every):
        made.wait(every)
        made.machines(vm_row(name, status))


def used_and_idle(policy: Policy = SHARED, **task: object) -> Simulation:
    """A machine that was made for run `a`, which is over; it has been idle for no time."""
    made = stage(policy)
    made.request("a", **task)
    made.settle()
    made.taken("a")
    made.wait(1)
    made.machines(vm_row("m", "busy", created=START + SECOND))
    made.runs(run_row("a", "running", on="m", submitted=START))
    made.wait(9)
    made.runs(run_row("a", "done", on="m", submitted=START, finished=made.now, exit_status=0))
    made.machines(vm_row("m", "idle", created=START + SECOND))
    assert made.vm("m").made_for == "run-a"
    return made


def kinds(decisions: Iterable[Decision]) -> list[type]:
    return [type(decision) for decision in decisions]


def drained() -> Simulation:
    made = used_and_idle()
    looks(made, 600)
    assert kinds(made.settle()) == [VmDrainStarted]
    return made


def test_a_machine_is_drained_when_its_timeout_is_over_and_not_before() -> None:
    """Ten minutes of polls that show it idle: 9 m 55 s are not enough."""
    made = used_and_idle()
    looks(made, 595)
    assert made.decide() == ()
    looks(made, 5)
    (drain,) = made.decide()
    assert drain == VmDrainStarted(
        provider="dstack", vm_id=made.vm_id("m"), by="idle", detail="seen idle for 600 s; its timeout is 600 s (policy)"
    )


def test_it_is_told_only_after_a_poll_asked_since_the_drain_shows_it_empty() -> None:
    """A poll that was under way when the drain began proves nothing."""
    made = drained()
    made.machines(vm_row("m"), started=made.now - SECOND)
    assert made.decide() == ()
    made.wait(2)
    made.machines(vm_row("m"), started=made.now)
    assert made.decide() == (VmStopIntended(provider="dstack", vm_id=made.vm_id("m"), provider_id="m", by="idle"),)


def test_it_is_told_once_and_then_waited_for() -> None:
    made = drained()
    looks(made, 5)
    assert kinds(made.settle()) == [VmStopIntended]
    looks(made, 30)
    assert made.decide() == ()  # the outcome is unknown: the actor asks again
    made.stop_taken("m")
    looks(made, 60)
    assert made.decide() == ()
    looks(made, 5, status="terminated")
    assert made.vm("m").state is VmState.TERMINATED
    assert made.decide() == ()


def test_a_run_that_came_meanwhile_keeps_it() -> None:
    """By its row, the machine leaves its drain; nothing is told."""
    made = drained()
    looks(made, 5, status="busy")
    assert made.vm("m").drain is None
    assert made.settle() == ()


def test_a_submission_on_it_keeps_it_though_its_row_says_idle() -> None:
    """The list of runs may know first."""
    made = drained()
    made.wait(5)
    made.runs(run_row("other", "provisioning", on="m", submitted=made.now))
    made.machines(vm_row("m"))
    assert made.settle() == (VmDrainCancelled(provider="dstack", vm_id=made.vm_id("m"), why="a run is on it"),)
    assert made.vm("m").state is VmState.IDLE


def test_a_run_of_ours_that_was_handed_over_and_may_come_keeps_it() -> None:
    made = drained()
    made.request("b")
    first, *rest = made.decide()
    assert (first, rest) == (VmDrainCancelled(provider="dstack", vm_id=made.vm_id("m"), why="run b can use it"), [])
    made.write([first])
    assert kinds(made.settle()) == [RunPlaced]
    looks(made, 60)
    assert made.settle() == ()


def test_a_run_that_fits_no_better_after_five_minutes_keeps_it_no_longer() -> None:
    """It was seen waiting for five minutes beside an idle machine: it does not fit, whatever its terms say."""
    made = drained()
    made.request("b")
    made.settle()
    made.taken("b")
    for _ in range(62):
        made.wait(5)
        made.runs(run_row("b", "submitted", submitted=made.now - 5 * SECOND))
        made.machines(vm_row("m"))
    assert kinds(made.settle()) == [VmDrainStarted]


def test_a_refused_stop_leaves_it_drained_and_is_made_again_ever_more_rarely() -> None:
    """15 s after the first refusal, 30 s after the second, and only on a look since then."""
    made = drained()
    looks(made, 5)
    for pause in (15, 30, 60, 120, 240, 300, 300):
        assert kinds(made.settle()) == [VmStopIntended]
        made.stop_refused("m")
        looks(made, pause - 5)
        assert made.settle() == ()
        assert made.vm("m").state is VmState.DRAINING
        looks(made, 5)


def test_a_refused_machine_that_a_run_comes_to_stays() -> None:
    made = drained()
    looks(made, 5)
    made.settle()
    made.stop_refused("m")
    looks(made, 20, status="busy")
    assert made.settle() == ()
    assert made.vm("m").state is VmState.BUSY


def test_one_that_was_told_and_does_not_go_is_told_again_ever_more_rarely_for_a_day() -> None:
    """14 answered minutes after the provider took it; then after as long as it has been going already."""
    made = drained()
    looks(made, 5)
    made.settle()
    made.stop_taken("m")
    stops = [made.now]
    for minute in range(3 * 24 * 60):
        looks(made, 60, every=60)
        decisions = made.settle()
        assert kinds(decisions) in ([], [VmStopIntended])
        if decisions:
            stops.append(made.now)
            (made.stop_refused if minute % 2 else made.stop_taken)("m")
    pauses = [(after - before) // MINUTE for before, after in pairwise(stops)]
    assert pauses[:5] == [14, 14, 28, 56, 112]
    assert max(pauses) == 240
    assert 23 * 60 < (stops[-1] - stops[0]) // MINUTE <= 24 * 60
    assert made.vm("m").state is VmState.UNCONFIRMED


# -- timers ----------------------------------------------------------------------------------------------------------


def test_blind_time_advances_no_timer() -> None:
    """An hour without an answer is not an idle hour."""
    made = used_and_idle()
    looks(made, 300)
    made.wait(3600)
    made.machines(vm_row("m"))
    assert made.decide() == ()
    looks(made, 295)
    assert made.decide() == ()
    looks(made, 5)
    assert kinds(made.decide()) == [VmDrainStarted]


def test_failed_polls_advance_no_timer() -> None:
    made = used_and_idle()
    for _ in range(300):
        made.wait(5)
        made.machines(answered=False)
    made.machines(vm_row("m"))
    assert made.decide() == ()


@pytest.mark.parametrize("jump", [-86_400, -3600, 3600, 10 * 365 * 86_400])
def test_a_clock_that_jumps_shortens_no_timer(jump: int) -> None:
    """Neither the clock of the decision nor that of the polls: what counts is recorded time in which polls answered."""
    made = used_and_idle()
    looks(made, 300)
    assert made.decide(now=made.now + jump * SECOND) == ()
    made.wait(jump)
    looks(made, 290)
    assert made.decide() == ()


def test_no_machine_is_told_to_go_on_the_word_of_an_old_poll() -> None:
    """The drain was confirmed, and then nobody looked for five minutes."""
    made = drained()
    looks(made, 5)
    made.wait(300)
    assert made.decide() == ()
    made.machines(vm_row("m"))
    assert kinds(made.decide()) == [VmStopIntended]


def test_nothing_is_told_of_a_machine_that_is_no_longer_listed() -> None:
    made = drained()
    made.wait(5)
    made.machines()
    assert made.decide() == ()


@pytest.mark.parametrize(
    ("policy", "task", "seconds"),
    [
        (SHARED, {}, 600),
        (SHARED, {"idle_duration": "2m"}, 120),
        (SHARED, {"idle_duration": "2h"}, 600),
        (Policy(idle_timeout=None, budget_total=None), {"idle_duration": "2m"}, 120),
        (Policy(idle_timeout=300 * SECOND, budget_total=None), {}, 300),
    ],
)
def test_the_shorter_of_the_policys_and_the_tasks_timeout_counts(
    policy: Policy, task: dict[str, object], seconds: int
) -> None:
    made = used_and_idle(policy, **task)
    looks(made, seconds - 5)
    assert made.decide() == ()
    looks(made, 5)
    assert kinds(made.decide()) == [VmDrainStarted]


def test_zero_is_not_unset() -> None:
    """`idle_duration: 0m`: it is drained at the first look that shows it idle."""
    (drain,) = used_and_idle(SHARED, idle_duration="0m").decide()
    assert isinstance(drain, VmDrainStarted)


@pytest.mark.parametrize(
    ("policy", "task"), [(SHARED, {"idle_duration": "off"}), (Policy(idle_timeout=None, budget_total=None), {})]
)
def test_off_means_never(policy: Policy, task: dict[str, object]) -> None:
    made = used_and_idle(policy, **task)
    looks(made, 7200, every=50)
    assert made.decide() == ()


def test_a_machine_made_for_a_run_that_shares_with_nobody_goes_at_once() -> None:
    (drain,) = used_and_idle(SHARED, creation_policy="create").decide()
    assert isinstance(drain, VmDrainStarted)
    assert drain.by == "create"


def test_a_longer_timeout_adopted_meanwhile_takes_the_drain_back() -> None:
    made = drained()
    made.adopt(Policy(idle_timeout=3600 * SECOND, budget_total=None))
    assert kinds(made.settle()) == [VmDrainCancelled]


# -- whose machine ----------------------------------------------------------------------------------------------------


def test_a_machine_that_is_not_ours_is_never_touched() -> None:
    """Not by a timeout and not by a wish."""
    made = Simulation(SHARED)
    made.machines(vm_row("m", fleet="somebody"))
    made.wish("m")
    for _ in range(100):
        made.wait(50)
        made.machines(vm_row("m", fleet="somebody"))
        assert made.decide() == ()


def test_an_orphan_of_ours_is_drained_as_one() -> None:
    """In a fleet of ours, idle, and no run was ever on it."""
    made = stage()
    made.machines(vm_row("m"))
    looks(made, 600)
    (drain,) = made.decide()
    assert isinstance(drain, VmDrainStarted)
    assert drain.by == "orphan"


# -- wishes ------------------------------------------------------------------------------------------------------------


def busy_with(name: str, *, ours: bool) -> Simulation:
    made = stage()
    if ours:
        made.request(name)
        made.settle()
        made.taken(name)
    made.wait(1)
    made.machines(vm_row("m", "busy", created=START + SECOND))
    made.runs(run_row(name, "running", on="m", submitted=START))
    return made


def test_a_wish_for_once_it_is_idle_waits_for_the_run() -> None:
    made = busy_with("a", ours=True)
    made.wish("m", when_idle=True)
    assert made.settle() == ()
    made.wait(5)
    made.runs(run_row("a", "done", on="m", submitted=START, finished=made.now, exit_status=0))
    made.machines(vm_row("m"))
    (drain,) = made.settle()
    assert isinstance(drain, VmDrainStarted)
    assert drain.by == "user"
    looks(made, 5)
    assert kinds(made.settle()) == [VmStopIntended]


def test_a_wish_for_now_ends_our_runs_first() -> None:
    """The run, then the drain, then the machine."""
    made = busy_with("a", ours=True)
    made.wish("m")
    assert [(type(decision), decision.run_id, decision.by) for decision in made.settle()] == [
        (StopRequested, "run-a", "policy")
    ]
    made.wait(5)
    made.runs(run_row("a", "terminated", on="m", submitted=START, finished=made.now))
    made.machines(vm_row("m"))
    assert kinds(made.settle()) == [VmDrainStarted]
    looks(made, 5)
    assert kinds(made.settle()) == [VmStopIntended]


def test_a_wish_never_ends_somebody_elses_run() -> None:
    made = busy_with("theirs", ours=False)
    made.wish("m")
    looks(made, 60, status="busy")
    assert made.settle() == ()


def test_no_run_is_placed_on_a_machine_that_a_user_wants_gone() -> None:
    made = used_and_idle(POOL)
    made.wish("m")
    made.settle()
    made.request("b")
    (place,) = made.settle()
    assert isinstance(place, RunPlaced)
    assert place.vm_id is None


def test_a_machine_that_lives_on_after_all_is_drained_again() -> None:
    """Told, unconfirmed, and then used by somebody: its timer restarts, and it goes in the end."""
    made = drained()
    looks(made, 5)
    made.settle()
    made.stop_taken("m")
    looks(made, 15 * 60)
    assert made.vm("m").state is VmState.UNCONFIRMED
    looks(made, 5, status="busy")
    looks(made, 600)
    assert kinds(made.settle()) in ([], [VmDrainStarted])
    looks(made, 10)
    made.settle()
    assert made.vm("m").drain is not None


def test_the_policy_is_what_was_adopted_and_not_what_a_decision_is_told_of_another_source() -> None:
    """Machines of another source are not decided about."""
    made = used_and_idle()
    looks(made, 700)
    assert decide(made.world.state, "dstack/other", SHARED, made.now) == ()


def test_a_drain_that_the_record_does_not_know_is_no_drain() -> None:
    """The same decision twice is the same; once written down it is not decided again."""
    made = used_and_idle()
    looks(made, 600)
    assert made.decide() == made.decide()
    made.write(made.decide())
    assert made.decide() == ()
    assert made.vm("m").drain is not None
    made.tell(VmDrainCancelled(vm_id=made.vm_id("m"), provider="dstack", why="by hand"))
    assert kinds(made.decide()) == [VmDrainStarted]
