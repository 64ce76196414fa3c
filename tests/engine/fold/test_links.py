"""Who was on a machine, and whose it is."""

from collections.abc import Callable

import pytest
from stenotest.machines import HOST, machine_item
from stenotest.story import Item, job, run_item, single, submission
from stenotest.told import HANDED, OURS, SOURCE, VM, Told, marked, on, requested

from engine.fold.world_codec import idle_evidence, ours_of
from engine.states import VmState
from events import types
from events.clock import SECOND, foreign_run_id

# -- who was on it -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("runs_first", [True, False])
def test_a_run_is_linked_whichever_is_seen_first(runs_first: bool) -> None:
    """By hostname; cold, for the machine was created after the submission."""
    told = Told()
    if runs_first:
        told.runs(on()).rows(machine_item(status="busy"))
    else:
        told.rows(machine_item(status="busy")).runs(on())
    assert (told.run.vm_id, told.run.start, told.vm.made_for) == (VM, "cold", told.run.run_id)
    assert told.vm.runs == (told.run.run_id,)
    assert told.world.state.waiting == {}


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
    told = Told().rows({**machine_item(name="a"), **change}).runs(on())
    assert (told.run.vm_id, told.run.start) == (None, None)


def test_the_newest_machine_with_the_address_wins() -> None:
    """An address is given again."""
    old = machine_item("old", created=-500)
    told = Told().rows(machine_item(), old).runs(on(submitted=5))
    assert (told.run.vm_id, told.run.start) == (VM, "warm")


def test_a_machine_that_is_back_takes_runs_again() -> None:
    """While it is gone it takes none; its provider takes the end back."""
    told = Told().rows(machine_item(status="busy")).runs(on()).rows(machine_item(status="terminated", finished=12))
    later = told.runs(on("b", submitted=14)).world.state.by_provider[f"dstack/{on('b')['id']}"]
    assert told.world.state.runs[later].vm_id is None
    told.rows(machine_item(status="busy")).runs(on("b", submitted=14, exit_status=0))
    assert told.world.state.runs[later].vm_id == VM


def test_two_machines_that_fit_equally_are_no_link() -> None:
    """Told once, and guessed never."""
    told = Told().rows(machine_item(), machine_item("twin")).runs(on()).runs(on(exit_status=0))
    assert (told.run.vm_id, told.anomalies) == (None, ["ambiguous_vm"])


def test_a_link_stays_though_a_newer_machine_takes_the_address() -> None:
    """Sticky per submission, by the machine's id."""
    told = Told().rows(machine_item()).runs(on())
    told.rows(machine_item("newer", created=8), machine_item()).runs(on(exit_status=0))
    assert told.run.vm_id == VM
    assert told.anomalies == []


def test_each_submission_has_its_own_machine_and_the_first_says_how_the_run_started() -> None:
    """A retry on another machine moves the run there."""
    first = submission("failed", num=0, submitted=-10, finished=20, hostname=HOST)
    second = submission("running", num=1, submitted=30, hostname="10.0.0.2")
    told = Told().rows(machine_item(), machine_item("next", hostname="10.0.0.2", created=-99))
    told.runs(run_item("a", "running", job(first, second), submitted=-10))
    assert told.run.links == {"0/0/0": VM, "0/0/1": foreign_run_id("dstack", machine_item("next")["id"])}
    assert (told.run.start, told.run.vm_id) == ("cold", told.run.links["0/0/1"])
    assert [one.until for one in told.vm.occupancies] == [told.at(20)]


def test_jobs_of_one_run_may_be_on_several_machines() -> None:
    """`vm_id` is the first job's."""
    told = Told().rows(machine_item(), machine_item("second", hostname="10.0.0.2"))
    jobs = [
        job(submission("running", submitted=-10, hostname=f"10.0.0.{1 + number}"), number=number) for number in (1, 0)
    ]
    told.runs(run_item("a", "running", *jobs, submitted=-10))
    assert (told.run.vm_id, len(set(told.run.links.values()))) == (VM, 2)


def test_a_submission_is_on_its_machine_until_its_end_or_the_poll_that_shows_it_over() -> None:
    """The provider's time where it gives one."""
    told = Told().rows(machine_item(status="busy")).runs(on())
    assert [one.run_id for one in told.vm.occupants] == [told.run.run_id]
    told.runs(on(status="terminating", exit_status=0))
    assert told.vm.occupants != ()
    told.runs(on(status="done", exit_status=0))
    assert told.vm.occupancies[0].until == told.at(20.01)
    told.runs(on(status="done", exit_status=0, finished=17))
    assert told.vm.occupancies[0].until == told.at(17)


def test_a_run_that_is_lost_is_on_no_machine_until_it_comes_back() -> None:
    """Ten answered minutes; with the evidence it is there again."""
    told = Told().rows(machine_item(status="busy")).runs(on())
    for _ in range(22):
        told.runs(after=30)
    assert (told.run.state, told.vm.occupants) == ("lost", ())
    told.runs(on())
    assert [one.run_id for one in told.vm.occupants] == [told.run.run_id]


def test_a_run_that_came_and_went_between_two_looks_restarts_the_idle_time() -> None:
    """The machine was shown idle before and after; it was not idle between."""
    told = Told().runs(single("b", "done", "done", exit_status=0)).watch(5, machine_item())
    before = idle_evidence(told.world.state, told.vm)
    told.runs(on(submitted=302, status="done", exit_status=0, finished=304))
    assert before == 270 * SECOND
    assert idle_evidence(told.world.state, told.vm) == 0
    assert told.vm.state is VmState.IDLE


# -- whose it is -------------------------------------------------------------------------------------------------------


def test_a_machine_is_ours_by_its_fleet_or_by_the_run_it_was_made_for() -> None:
    """Never one that somebody else started."""
    ensured = types.FleetEnsured(provider="dstack", project="main", name="lab-fleet")
    assert not Told().rows(machine_item()).vm.ours
    assert Told().event(ensured).rows(machine_item()).vm.ours
    assert Told().rows(machine_item()).event(ensured).vm.ours
    assert not Told().event(ensured).rows(machine_item(project="other")).vm.ours
    made = Told().event(requested()).event(HANDED).rows(machine_item(created=3)).runs(marked(on(submitted=2)))
    assert (made.run.run_id, made.vm.ours, ours_of(made.world.state, SOURCE)) == (OURS, True, (made.vm,))
    warm = Told().event(requested()).event(HANDED).rows(machine_item(created=1)).runs(marked(on(submitted=2)))
    assert (warm.run.start, warm.vm.ours) == ("warm", False)


def test_a_run_seen_before_its_outcome_keeps_its_machine_under_our_id() -> None:
    """Adopted: the machine was made for the run we asked for."""
    item = on(submitted=2)
    told = Told().runs(item).rows(machine_item(created=3)).event(requested())
    told.event(types.SubmitSucceeded(run_id=OURS, provider="dstack", provider_id=item["id"], name="a"))
    assert (told.vm.runs, told.vm.made_for, told.vm.ours) == ((OURS,), OURS, True)
    assert [one.run_id for one in told.vm.occupancies] == [OURS]


def test_a_machine_that_nobody_asked_for_is_an_orphan_where_a_policy_is_in_force() -> None:
    """Once, when a list of runs asked for after it was seen names nobody."""
    adopted = types.PolicyAdopted(source=SOURCE, policy=b"{}")
    told = Told().event(adopted).rows(machine_item())
    assert told.anomalies == []
    told.runs().runs()
    assert told.anomalies == ["orphan"]
    assert Told().rows(machine_item()).runs().runs().anomalies == []


@pytest.mark.parametrize(
    "tell",
    [
        lambda told: told.rows(machine_item()).runs(on()),
        lambda told: told.rows(machine_item(status="provisioning")).runs(),
        lambda told: told.rows(machine_item()).runs(single("waits", "submitted", "submitted")),
        lambda told: told.runs().rows(machine_item()),
        lambda told: told.rows(machine_item(status="terminated", finished=3)).runs(),
    ],
    ids=["a run is on it", "it is being made", "a run waits for its machine", "runs were asked before", "it is gone"],
)
def test_a_machine_that_may_have_been_asked_for_is_no_orphan(tell: Callable[[Told], Told]) -> None:
    """Doubt accuses nobody."""
    assert tell(Told().event(types.PolicyAdopted(source=SOURCE, policy=b"{}"))).anomalies == []


@pytest.mark.parametrize(
    ("asked", "got", "mismatch"),
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
def test_a_run_that_got_other_gpus_than_it_asked_for_is_told(asked: bytes, got: Item, mismatch: bool) -> None:
    """Models without case, at least as many."""
    told = Told().event(requested(configuration=asked)).event(HANDED).rows(machine_item(created=3, **got))
    told.runs(marked(on(submitted=2)))
    assert told.anomalies == (["gpu_mismatch"] if mismatch else [])


def test_the_gpu_of_the_place_counts_where_it_was_asked_for_instead() -> None:
    """From the fallback list."""
    told = (
        Told().event(requested(fallback=("MI210",))).event(types.RunPlaced(run_id=OURS, provider="dstack", gpu="MI210"))
    )
    told.rows(machine_item(created=3, gpu="MI210")).runs(on(submitted=2))
    assert told.anomalies == []
