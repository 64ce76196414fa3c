"""What our own events do to machines, to the queue and to the policy in force."""

import pytest
from stenotest.machines import machine_item
from stenotest.story import START, single
from stenotest.told import HANDED, OURS, REFUSED, SOURCE, TAKEN, VM, Told, drain, intended, marked, on, requested

from engine.fold.change import AnomalyKind
from engine.fold.world_codec import idle_evidence, policy_of, runs_of, source_of, vms_of
from engine.states import VmReason, VmState
from events import types

NO_CAPACITY = "failed_to_start_due_to_no_capacity"

# -- our own decisions -------------------------------------------------------------------------------------------------


def test_a_drain_waits_for_a_poll_and_a_run_in_the_last_moment_ends_it() -> None:
    """idle → draining → busy."""
    told = Told().rows(machine_item()).event(drain()).rows(machine_item())
    assert (told.vm.state, told.vm.drain is not None) == ("draining", True)
    evidence = idle_evidence(told.world.state, told.vm)
    told.event(types.VmDrainCancelled(vm_id=VM, provider="dstack", why="no more"))
    assert (told.vm.state, told.vm.drain, idle_evidence(told.world.state, told.vm)) == ("idle", None, evidence)
    told.event(drain()).rows(machine_item(status="busy"))
    assert (told.vm.state, told.vm.drain, told.vm.idle_from) == ("busy", None, None)


def test_a_busy_machine_cannot_be_drained() -> None:
    """The event changes nothing."""
    told = Told().rows(machine_item(status="busy")).event(drain())
    assert (told.vm.state, told.vm.drain) == ("busy", None)


@pytest.mark.parametrize(
    ("by", "reason"),
    [
        ("idle", "idle_timeout"),
        ("user", "stopped_by_user"),
        ("create", "stopped_by_policy"),
        ("room", "stopped_by_policy"),
        ("orphan", "stopped_by_policy"),
    ],
)
def test_what_we_told_a_machine_is_why_it_went(by: str, reason: str) -> None:
    """Whatever word the provider has for it; a stop it refused is none."""
    gone = machine_item(status="terminated", reason="terminated_by_user", finished=60)
    told = Told().rows(machine_item()).event(intended(by)).event(TAKEN).rows(gone)
    assert (told.vm.reason, told.vm.told is not None) == (reason, True)
    refused = Told().rows(machine_item()).event(intended(by)).event(REFUSED).rows(gone)
    assert refused.vm.reason is VmReason.STOPPED_BY_USER


def test_refused_stops_are_counted_and_start_no_grace() -> None:
    """The machine stays, and is billed."""
    told = Told().rows(machine_item())
    for _ in range(3):
        told.event(intended()).event(REFUSED)
    assert told.vm.told is not None
    assert (told.vm.told.times, told.vm.told.error, told.vm.ending_from) == (3, "Fleet is in use", None)
    told.watch(15, machine_item())
    assert told.vm.state is VmState.IDLE


def test_a_wish_is_kept_until_the_machine_is_gone() -> None:
    """`steno vms stop VM --when-idle`."""
    wish = types.VmStopRequested(
        vm_id=VM, provider="dstack", project="main", provider_id="x", when_idle=True, submitter="me"
    )
    told = Told().rows(machine_item(status="busy")).event(wish).rows(machine_item())
    assert told.vm.wish is not None
    assert told.vm.wish.when_idle


@pytest.mark.parametrize("event", [drain(), intended(), TAKEN, REFUSED])
def test_an_event_about_a_machine_nobody_saw_changes_nothing(event: types.Event) -> None:
    """Nor does it raise."""
    assert Told().event(event).world.state.vms == {}


# -- the queue ---------------------------------------------------------------------------------------------------------


HELD = types.RunHeld(run_id=OURS, provider="dstack", why="cap", detail="3 of 3", not_before=START + 9)
PLACED = types.RunPlaced(run_id=OURS, provider="dstack", slot="steno-slot-1", creation="reuse")


def test_a_held_run_is_queued_until_it_is_placed() -> None:
    """With why, and not before when."""
    told = Told().event(requested()).event(HELD)
    assert told.run.held is not None
    assert (told.run.state, told.run.rule, told.run.held.why, told.run.held.not_before) == (
        "queued",
        "current/held",
        "cap",
        START + 9,
    )
    assert told.run.placed is None
    told.event(PLACED)
    assert told.run.placed is not None
    assert (told.run.held, told.run.placed.slot, told.run.placed.creation) == (None, "steno-slot-1", "reuse")


def test_a_stop_of_a_held_run_shows_and_abandons_it() -> None:
    """As stopped, and the reservation is given back."""
    told = Told().event(requested()).event(HELD).event(PLACED)
    told.event(types.StopRequested(run_id=OURS, provider="dstack", name="a", submitter="me"))
    assert told.run.stop_by == "user"
    told.event(types.IntentAbandoned(run_id=OURS, provider="dstack", intent="submit", why="stopped"))
    assert (told.run.state, told.run.placed, told.run.held) == ("stopped", None, None)


def test_a_place_is_given_back_when_the_run_ends() -> None:
    """By a poll."""
    told = Told().event(requested()).event(PLACED)
    assert told.run in runs_of(told.world.state, SOURCE)
    told.event(HANDED).runs(marked(on(submitted=2, status="done", exit_status=0)))
    assert (told.run.run_id, told.run.state) == (OURS, "succeeded")
    assert told.run not in runs_of(told.world.state, SOURCE)


def test_a_request_without_capacity_is_made_again_and_the_former_one_moves_nothing() -> None:
    """failed → queued by our own intent, no contradiction; the next request of that name is the run."""
    first = marked(single("a", "failed", "failed", job_reason=NO_CAPACITY, submitted=2, label="first", finished=3))
    told = Told().event(requested()).event(PLACED).event(HANDED).runs(first)
    assert (told.run.state, told.run.reason) == ("failed", "no_capacity")
    told.event(
        types.RunRequeued(
            run_id=OURS, provider="dstack", provider_id=first["id"], attempt=2, gpu="MI210", not_before=START + 77
        )
    )
    run = told.run
    assert (run.state, run.rule, run.reason, run.provider_id) == ("queued", "current/no-capacity", None, None)
    assert (run.former_ids, run.requeues, run.placed) == ((first["id"],), 1, None)
    assert run.held is not None
    assert (run.held.why, run.held.not_before) == ("capacity", START + 77)
    told.runs(first).runs({**first, "deleted": True})
    assert (told.run.state, told.anomalies) == ("queued", [])
    told.event(HANDED).runs(marked(on("a", submitted=20)), first)
    assert (told.run.state, told.run.provider_id) == ("running", on("a")["id"])
    assert told.anomalies == []


def test_a_stop_after_no_capacity_is_kept_for_who_would_ask_again() -> None:
    """It has ended, and without the stop it would be asked for once more."""
    first = marked(single("a", "failed", "failed", job_reason=NO_CAPACITY, submitted=2, finished=3))
    told = Told().event(requested()).event(PLACED).event(HANDED).runs(first)
    told.event(types.StopRequested(run_id=OURS, provider="dstack", name="a", submitter="me"))
    assert (told.run.state, told.run.reason, told.run.stop_by) == ("failed", "no_capacity", "user")


def test_an_outcome_of_the_second_request_links_it_too() -> None:
    """Before any poll shows it."""
    first = marked(single("a", "failed", "failed", job_reason=NO_CAPACITY, submitted=2, label="first"))
    told = Told().event(requested()).event(HANDED).runs(first)
    told.event(types.RunRequeued(run_id=OURS, provider="dstack", provider_id=first["id"], attempt=2, not_before=START))
    told.event(types.SubmitSucceeded(run_id=OURS, provider="dstack", provider_id="second", name="a"))
    assert (told.run.provider_id, told.run.intended) == ("second", None)


def test_what_a_run_asks_for_is_read_from_its_request() -> None:
    """Once, at the request."""
    told = Told().event(requested(configuration=b'{"idle_duration":"0s","nodes":2}', fallback=("MI210",)))
    terms = told.run.terms
    assert terms is not None
    assert (terms.submitter, terms.idle, terms.nodes, terms.fallback) == ("me", 0, 2, ("MI210",))


# -- policies, money, holdings -----------------------------------------------------------------------------------------


def test_a_policy_is_in_force_from_its_event_on() -> None:
    """The newest; one that cannot be read leaves the one before."""
    told = Told()
    assert policy_of(told.world.state, SOURCE).max_vms == 3
    told.event(types.PolicyAdopted(source=SOURCE, policy=b'{"max_vms":1}'))
    told.event(types.PolicyAdopted(source=SOURCE, policy=b'{"max_vms":"many"}'))
    assert policy_of(told.world.state, SOURCE).max_vms == 1
    assert policy_of(told.world.state, "local/here").max_vms == 3
    assert [step.position for step in told.world.state.policies[SOURCE]] == [1]


def test_a_threshold_is_crossed_once() -> None:
    """By its own total."""
    told = Told()
    for _ in range(2):
        told.event(types.BudgetCrossed(threshold=800, spent=8, total=10))
    assert told.world.state.crossed == {"800/10": 1}


def test_holdings_are_one_sources_own() -> None:
    """Machines and runs of another project are not among them."""
    told = Told().rows(machine_item(), machine_item("theirs", project="other")).runs(on(host=None))
    assert source_of(told.run) == SOURCE
    assert runs_of(told.world.state, SOURCE) == (told.run,)
    assert len(vms_of(told.world.state, SOURCE)) == 2
    assert vms_of(told.world.state, "dstack/other") == ()
    assert AnomalyKind.ORPHAN not in told.anomalies
