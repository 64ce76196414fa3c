"""The effect of our own events on machines, on the queue and on the policy in force."""

import pytest
from stenotest.dstack_history import START, single
from stenotest.event_world import (
    HANDED,
    OURS,
    REFUSED,
    SOURCE,
    TAKEN,
    VM,
    EventWorld,
    drain,
    intended,
    marked,
    on,
    requested,
)
from stenotest.machines import machine_item

from steno.engine.state.changes import AnomalyKind
from steno.engine.state.inventory import Inventory
from steno.engine.state.states import VmReason, VmState
from steno.engine.state.world import idle_evidence, policy_of, runs_of, source_of, vms_of
from steno.events import types

NO_CAPACITY = "failed_to_start_due_to_no_capacity"

# -- our own decisions -------------------------------------------------------------------------------------------------


def test_a_drain_waits_for_a_poll_and_a_run_in_the_last_moment_ends_it() -> None:
    """idle → draining → busy."""
    story = EventWorld().rows(machine_item()).event(drain()).rows(machine_item())
    assert (story.vm.state, story.vm.drain is not None) == ("draining", True)
    evidence = idle_evidence(story.world.state, story.vm)
    story.event(types.VmDrainCancelled(vm_id=VM, provider="dstack", why="no more"))
    assert (story.vm.state, story.vm.drain, idle_evidence(story.world.state, story.vm)) == ("idle", None, evidence)
    story.event(drain()).rows(machine_item(status="busy"))
    assert (story.vm.state, story.vm.drain, story.vm.idle_from) == ("busy", None, None)


def test_a_busy_machine_cannot_be_drained() -> None:
    """The event changes nothing."""
    story = EventWorld().rows(machine_item(status="busy")).event(drain())
    assert (story.vm.state, story.vm.drain) == ("busy", None)


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
    story = EventWorld().rows(machine_item()).event(intended(by)).event(TAKEN).rows(gone)
    assert (story.vm.reason, story.vm.told is not None) == (reason, True)
    refused = EventWorld().rows(machine_item()).event(intended(by)).event(REFUSED).rows(gone)
    assert refused.vm.reason is VmReason.STOPPED_BY_USER


def test_refused_stops_are_counted_and_start_no_grace() -> None:
    """The machine stays, and is billed."""
    story = EventWorld().rows(machine_item())
    for _ in range(3):
        story.event(intended()).event(REFUSED)
    assert story.vm.told is not None
    assert (story.vm.told.times, story.vm.told.error, story.vm.ending_from) == (3, "Fleet is in use", None)
    story.watch(15, machine_item())
    assert story.vm.state is VmState.IDLE


def test_a_wish_is_kept_until_the_machine_is_gone() -> None:
    """`steno vms stop VM --when-idle`."""
    wish = types.VmStopRequested(
        vm_id=VM, provider="dstack", project="main", provider_id="x", when_idle=True, submitter="me"
    )
    story = EventWorld().rows(machine_item(status="busy")).event(wish).rows(machine_item())
    assert story.vm.wish is not None
    assert story.vm.wish.when_idle


@pytest.mark.parametrize("event", [drain(), intended(), TAKEN, REFUSED])
def test_an_event_about_a_machine_nobody_saw_changes_nothing(event: types.Event) -> None:
    """Nor does it raise."""
    assert EventWorld().event(event).world.state.vms == Inventory()


# -- the queue ---------------------------------------------------------------------------------------------------------


HELD = types.RunHeld(run_id=OURS, provider="dstack", why="cap", detail="3 of 3", not_before=START + 9)
PLACED = types.RunPlaced(run_id=OURS, provider="dstack", slot="steno-slot-1", creation="reuse")


def test_a_held_run_is_queued_until_it_is_placed() -> None:
    """With why, and not before when."""
    story = EventWorld().event(requested()).event(HELD)
    assert story.run.held is not None
    assert (story.run.state, story.run.rule, story.run.held.why, story.run.held.not_before) == (
        "queued",
        "current/held",
        "cap",
        START + 9,
    )
    assert story.run.placed is None
    story.event(PLACED)
    assert story.run.placed is not None
    assert (story.run.held, story.run.placed.slot, story.run.placed.creation) == (None, "steno-slot-1", "reuse")


def test_a_stop_of_a_held_run_shows_and_abandons_it() -> None:
    """As stopped, and the reservation is given back."""
    story = EventWorld().event(requested()).event(HELD).event(PLACED)
    story.event(types.StopRequested(run_id=OURS, provider="dstack", name="a", submitter="me"))
    assert story.run.stop_by == "user"
    story.event(types.IntentAbandoned(run_id=OURS, provider="dstack", intent="submit", why="stopped"))
    assert (story.run.state, story.run.placed, story.run.held) == ("stopped", None, None)


def test_a_place_is_given_back_when_the_run_ends() -> None:
    """By a poll."""
    story = EventWorld().event(requested()).event(PLACED)
    assert story.run in runs_of(story.world.state, SOURCE)
    story.event(HANDED).runs(marked(on(submitted=2, status="done", exit_status=0)))
    assert (story.run.run_id, story.run.state) == (OURS, "succeeded")
    assert story.run not in runs_of(story.world.state, SOURCE)


def test_a_request_without_capacity_is_made_again_and_the_former_one_moves_nothing() -> None:
    """failed → queued by our own intent, no contradiction; the next request of that name is the run."""
    first = marked(single("a", "failed", "failed", job_reason=NO_CAPACITY, submitted=2, label="first", finished=3))
    story = EventWorld().event(requested()).event(PLACED).event(HANDED).runs(first)
    assert (story.run.state, story.run.reason) == ("failed", "no_capacity")
    story.event(
        types.RunRequeued(
            run_id=OURS, provider="dstack", provider_id=first["id"], attempt=2, gpu="MI210", not_before=START + 77
        )
    )
    run = story.run
    assert (run.state, run.rule, run.reason, run.provider_id) == ("queued", "current/no-capacity", None, None)
    assert (run.former_ids, run.requeues, run.placed) == ((first["id"],), 1, None)
    assert run.held is not None
    assert (run.held.why, run.held.not_before) == ("capacity", START + 77)
    story.runs(first).runs({**first, "deleted": True})
    assert (story.run.state, story.anomalies) == ("queued", [])
    story.event(HANDED).runs(marked(on("a", submitted=20)), first)
    assert (story.run.state, story.run.provider_id) == ("running", on("a")["id"])
    assert story.anomalies == []


def test_a_stop_after_no_capacity_is_kept_for_who_would_ask_again() -> None:
    """It has ended, and without the stop it would be asked for once more."""
    first = marked(single("a", "failed", "failed", job_reason=NO_CAPACITY, submitted=2, finished=3))
    story = EventWorld().event(requested()).event(PLACED).event(HANDED).runs(first)
    story.event(types.StopRequested(run_id=OURS, provider="dstack", name="a", submitter="me"))
    assert (story.run.state, story.run.reason, story.run.stop_by) == ("failed", "no_capacity", "user")


def test_an_outcome_of_the_second_request_links_it_too() -> None:
    """Before any poll shows it."""
    first = marked(single("a", "failed", "failed", job_reason=NO_CAPACITY, submitted=2, label="first"))
    story = EventWorld().event(requested()).event(HANDED).runs(first)
    story.event(types.RunRequeued(run_id=OURS, provider="dstack", provider_id=first["id"], attempt=2, not_before=START))
    story.event(types.SubmitSucceeded(run_id=OURS, provider="dstack", provider_id="second", name="a"))
    assert (story.run.provider_id, story.run.intended) == ("second", None)


def test_what_a_run_asks_for_is_read_from_its_request() -> None:
    """Once, at the request."""
    story = EventWorld().event(requested(configuration=b'{"idle_duration":"0s","nodes":2}', fallback=("MI210",)))
    terms = story.run.terms
    assert terms is not None
    assert (terms.submitter, terms.idle, terms.nodes, terms.fallback) == ("me", 0, 2, ("MI210",))


# -- policies, money, holdings -----------------------------------------------------------------------------------------


def test_a_policy_is_in_force_from_its_event_on() -> None:
    """The newest counts; an unreadable policy leaves the policy before."""
    story = EventWorld()
    assert policy_of(story.world.state, SOURCE).max_vms == 3
    story.event(types.PolicyAdopted(source=SOURCE, policy=b'{"max_vms":1}'))
    story.event(types.PolicyAdopted(source=SOURCE, policy=b'{"max_vms":"many"}'))
    assert policy_of(story.world.state, SOURCE).max_vms == 1
    assert policy_of(story.world.state, "local/here").max_vms == 3
    assert [step.position for step in story.world.state.policies[SOURCE]] == [1]


def test_a_threshold_is_crossed_once() -> None:
    """By its own total."""
    story = EventWorld()
    for _ in range(2):
        story.event(types.BudgetCrossed(threshold=800, spent=8, total=10))
    assert story.world.state.crossed == {"800/10": 1}


def test_holdings_are_one_sources_own() -> None:
    """Machines and runs of another project are not among them."""
    story = EventWorld().rows(machine_item(), machine_item("theirs", project="other")).runs(on(host=None))
    assert source_of(story.run) == SOURCE
    assert runs_of(story.world.state, SOURCE) == (story.run,)
    assert len(vms_of(story.world.state, SOURCE)) == 2
    assert vms_of(story.world.state, "dstack/other") == ()
    assert AnomalyKind.ORPHAN not in story.anomalies
