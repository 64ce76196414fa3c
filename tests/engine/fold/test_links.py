"""The runs that were on a machine, and its owner."""

from collections.abc import Callable

import pytest
from stenotest.dstack_history import Item, job, run_item, single, submission
from stenotest.event_world import HANDED, OURS, SOURCE, VM, EventWorld, marked, on, requested
from stenotest.machines import HOST, machine_item

from steno.engine.state.states import VmState
from steno.engine.state.world import idle_evidence, ours_of
from steno.events import types
from steno.events.clock import SECOND, foreign_run_id

# -- who was on it -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("runs_first", [True, False])
def test_a_run_is_linked_whichever_is_seen_first(runs_first: bool) -> None:
    """By hostname; cold, for the machine was created after the submission."""
    story = EventWorld()
    if runs_first:
        story.runs(on()).rows(machine_item(status="busy"))
    else:
        story.rows(machine_item(status="busy")).runs(on())
    assert (story.run.vm_id, story.run.start, story.vm.made_for) == (VM, "cold", story.run.run_id)
    assert story.vm.runs == (story.run.run_id,)
    assert story.world.state.waiting == {}


@pytest.mark.parametrize(
    "change",
    [
        {"hostname": "10.0.0.2"},
        {"hostname": ""},
        {"hostname": None},
        {"project_name": "other"},
        {"status": "terminated", "finished_at": "2025-12-15T08:00:00Z", "created": "2025-12-15T07:00:00Z"},
    ],
)
def test_another_host_project_or_time_is_no_link(change: Item) -> None:
    """Names are never keys."""
    story = EventWorld().rows({**machine_item(name="a"), **change}).runs(on())
    assert (story.run.vm_id, story.run.start) == (None, None)


def test_the_newest_machine_with_the_address_wins() -> None:
    """An address is given again."""
    old = machine_item("old", created=-500)
    story = EventWorld().rows(machine_item(), old).runs(on(submitted=5))
    assert (story.run.vm_id, story.run.start) == (VM, "warm")


def test_a_machine_that_is_back_takes_runs_again() -> None:
    """While it is gone it takes none; its provider takes the end back."""
    story = (
        EventWorld().rows(machine_item(status="busy")).runs(on()).rows(machine_item(status="terminated", finished=12))
    )
    later = story.runs(on("b", submitted=14)).world.state.by_provider[f"dstack/{on('b')['id']}"]
    assert story.world.state.runs[later].vm_id is None
    story.rows(machine_item(status="busy")).runs(on("b", submitted=14, exit_status=0))
    assert story.world.state.runs[later].vm_id == VM


def test_two_machines_that_fit_equally_are_no_link() -> None:
    """EventWorld once, and guessed never."""
    story = EventWorld().rows(machine_item(), machine_item("twin")).runs(on()).runs(on(exit_status=0))
    assert (story.run.vm_id, story.anomalies) == (None, ["ambiguous_vm"])


def test_a_link_stays_though_a_newer_machine_takes_the_address() -> None:
    """Sticky per submission, by the machine's id."""
    story = EventWorld().rows(machine_item()).runs(on())
    story.rows(machine_item("newer", created=8), machine_item()).runs(on(exit_status=0))
    assert story.run.vm_id == VM
    assert story.anomalies == []


def test_each_submission_has_its_own_machine_and_the_first_says_how_the_run_started() -> None:
    """A retry on another machine moves the run there."""
    first = submission("failed", num=0, submitted=-10, finished=20, hostname=HOST)
    second = submission("running", num=1, submitted=30, hostname="10.0.0.2")
    story = EventWorld().rows(machine_item(), machine_item("next", hostname="10.0.0.2", created=-99))
    story.runs(run_item("a", "running", job(first, second), submitted=-10))
    assert story.run.links == {"0/0/0": VM, "0/0/1": foreign_run_id("dstack", machine_item("next")["id"])}
    assert (story.run.start, story.run.vm_id) == ("cold", story.run.links["0/0/1"])
    assert [occupancy.until for occupancy in story.vm.occupancies] == [story.at(20)]


def test_jobs_of_one_run_may_be_on_several_machines() -> None:
    """`vm_id` is the first job's."""
    story = EventWorld().rows(machine_item(), machine_item("second", hostname="10.0.0.2"))
    jobs = [
        job(submission("running", submitted=-10, hostname=f"10.0.0.{1 + number}"), number=number) for number in (1, 0)
    ]
    story.runs(run_item("a", "running", *jobs, submitted=-10))
    assert (story.run.vm_id, len(set(story.run.links.values()))) == (VM, 2)


def test_a_submission_is_on_its_machine_until_its_end_or_the_poll_that_shows_it_over() -> None:
    """The provider's time where it gives one."""
    story = EventWorld().rows(machine_item(status="busy")).runs(on())
    assert [occupancy.run_id for occupancy in story.vm.occupants] == [story.run.run_id]
    story.runs(on(status="terminating", exit_status=0))
    assert story.vm.occupants != ()
    story.runs(on(status="done", exit_status=0))
    assert story.vm.occupancies[0].until == story.at(20.01)
    story.runs(on(status="done", exit_status=0, finished=17))
    assert story.vm.occupancies[0].until == story.at(17)


def test_a_run_that_is_lost_is_on_no_machine_until_it_comes_back() -> None:
    """Ten answered minutes; with the evidence it is there again."""
    story = EventWorld().rows(machine_item(status="busy")).runs(on())
    for _ in range(22):
        story.runs(after=30)
    assert (story.run.state, story.vm.occupants) == ("lost", ())
    story.runs(on())
    assert [occupancy.run_id for occupancy in story.vm.occupants] == [story.run.run_id]


def test_a_run_that_came_and_went_between_two_looks_restarts_the_idle_time() -> None:
    """The machine was shown idle before and after; it was not idle between."""
    story = EventWorld().runs(single("b", "done", "done", exit_status=0)).watch(5, machine_item())
    before = idle_evidence(story.world.state, story.vm)
    story.runs(on(submitted=302, status="done", exit_status=0, finished=304))
    assert before == 270 * SECOND
    assert idle_evidence(story.world.state, story.vm) == 0
    assert story.vm.state is VmState.IDLE


# -- whose it is -------------------------------------------------------------------------------------------------------


def test_a_machine_is_ours_by_its_fleet_or_by_the_run_it_was_made_for() -> None:
    """Never a machine that somebody else started."""
    ensured = types.FleetEnsured(provider="dstack", project="main", name="lab-fleet")
    assert not EventWorld().rows(machine_item()).vm.ours
    assert EventWorld().event(ensured).rows(machine_item()).vm.ours
    assert EventWorld().rows(machine_item()).event(ensured).vm.ours
    assert not EventWorld().event(ensured).rows(machine_item(project="other")).vm.ours
    made = EventWorld().event(requested()).event(HANDED).rows(machine_item(created=3)).runs(marked(on(submitted=2)))
    assert (made.run.run_id, made.vm.ours, ours_of(made.world.state, SOURCE)) == (OURS, True, (made.vm,))
    warm = EventWorld().event(requested()).event(HANDED).rows(machine_item(created=1)).runs(marked(on(submitted=2)))
    assert (warm.run.start, warm.vm.ours) == ("warm", False)


def test_a_run_seen_before_its_outcome_keeps_its_machine_under_our_id() -> None:
    """Adopted: the machine was made for the run we asked for."""
    item = on(submitted=2)
    story = EventWorld().runs(item).rows(machine_item(created=3)).event(requested())
    story.event(types.SubmitSucceeded(run_id=OURS, provider="dstack", provider_id=item["id"], name="a"))
    assert (story.vm.runs, story.vm.made_for, story.vm.ours) == ((OURS,), OURS, True)
    assert [occupancy.run_id for occupancy in story.vm.occupancies] == [OURS]


def test_a_machine_that_nobody_asked_for_is_an_orphan_where_a_policy_is_in_force() -> None:
    """Once, when a list of runs asked for after it was seen names nobody."""
    adopted = types.PolicyAdopted(source=SOURCE, policy=b"{}")
    story = EventWorld().event(adopted).rows(machine_item())
    assert story.anomalies == []
    story.runs().runs()
    assert story.anomalies == ["orphan"]
    assert EventWorld().rows(machine_item()).runs().runs().anomalies == []


@pytest.mark.parametrize(
    "tell",
    [
        lambda story: story.rows(machine_item()).runs(on()),
        lambda story: story.rows(machine_item(status="provisioning")).runs(),
        lambda story: story.rows(machine_item()).runs(single("waits", "submitted", "submitted")),
        lambda story: story.runs().rows(machine_item()),
        lambda story: story.rows(machine_item(status="terminated", finished=3)).runs(),
    ],
    ids=["a run is on it", "it is being made", "a run waits for its machine", "runs were asked before", "it is gone"],
)
def test_a_machine_that_may_have_been_asked_for_is_no_orphan(tell: Callable[[EventWorld], EventWorld]) -> None:
    """Doubt accuses nobody."""
    assert tell(EventWorld().event(types.PolicyAdopted(source=SOURCE, policy=b"{}"))).anomalies == []


@pytest.mark.parametrize(
    ("wanted", "got", "mismatch"),
    [
        (b'{"resources":{"gpu":"MI300X"}}', {}, False),
        (b'{"resources":{"gpu":"mi300x:1"}}', {}, False),
        (b'{"resources":{"gpu":"MI210,MI300X"}}', {}, False),
        (b'{"resources":{"gpu":1}}', {"gpu": "MI210"}, False),
        (b"{}", {"gpu": None}, False),
        (b'{"resources":{"gpu":"MI300X"}}', {"gpu": "MI210"}, True),
        (b'{"resources":{"gpu":"MI300X:2"}}', {}, True),
        (b'{"resources":{"gpu":"MI300X:2"}}', {"gpus": 2}, False),
        (b'{"resources":{"gpu":"MI300X"}}', {"gpu": None}, True),
    ],
)
def test_a_run_that_got_other_gpus_than_it_asked_for_is_told(wanted: bytes, got: Item, mismatch: bool) -> None:
    """Models without case, at least as many."""
    story = EventWorld().event(requested(configuration=wanted)).event(HANDED).rows(machine_item(created=3, **got))
    story.runs(marked(on(submitted=2)))
    assert story.anomalies == (["gpu_mismatch"] if mismatch else [])


def test_the_gpu_of_the_place_counts_where_it_was_asked_for_instead() -> None:
    """From the fallback list."""
    story = (
        EventWorld()
        .event(requested(fallback=("MI210",)))
        .event(types.RunPlaced(run_id=OURS, provider="dstack", gpu="MI210"))
    )
    story.rows(machine_item(created=3, gpu="MI210")).runs(on(submitted=2))
    assert story.anomalies == []
