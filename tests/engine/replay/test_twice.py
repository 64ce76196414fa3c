"""A record whose answers list a run or machine twice folds alike, whatever is skipped on the way."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from stenotest.machines import machine_item
from stenotest.records import temporary_record
from stenotest.story import Item, Story, single
from stenotest.told import on

from engine.fold.record_fold import RecordFold
from engine.fold.world import World
from engine.fold.world_codec import WorldState
from engine.money.costs import Costs
from engine.providers.readings import READINGS
from engine.replay.record import replay_record
from engine.replay.trace import replay_polls
from events.store.record import Batch, Record
from events.types import PolicyAdopted

PAIRS = {
    "prices": (machine_item(price=2.5), machine_item(price=1.99)),
    "states": (machine_item(status="busy"), machine_item(status="idle")),
    "an end": (machine_item(status="terminated", finished=0), machine_item(status="idle")),
    "ends": tuple(machine_item(status="terminated", finished=end) for end in (90, 20)),
    "silence": (machine_item(unreachable=True), machine_item()),
}
RUNS = {
    "an end": (single(run="done", job_status="done", exit_status=0, cost=0.3), single(run="running", cost=0.2)),
    "costs": (single(run="running", cost=0.3), single(run="running", cost=0.2)),
    "attempts": (single(run="running", num=1), single(run="running")),
}


def recorded(folder: Path, story: Story) -> Record:
    record = temporary_record(folder, shapes=READINGS.shape)
    record.append_polls([poll for _, poll in story.polls() if poll is not None])
    return record


def folded(record: Record, *, whole: bool) -> WorldState:
    """The world of a record, with every poll folded in full or not."""
    world = World(READINGS)
    RecordFold(record, world).run(each=(lambda *_: None) if whole else None)
    return world.state


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_a_machine_listed_twice_costs_the_same_whatever_is_skipped(pair: tuple[Item, Item], tmp_path: Path) -> None:
    """Ten equal answers; found by a property test in `cost_low`."""
    story = Story()
    for _ in range(10):
        story.machines(*pair).wait(5)
    with recorded(tmp_path, story) as record:
        fast, full = (folded(record, whole=whole) for whole in (False, True))
    assert Costs(fast).bills() == Costs(full).bills()
    assert fast == full


@pytest.mark.parametrize("pair", RUNS.values(), ids=RUNS)
def test_a_run_listed_twice_is_the_same_whatever_is_skipped(pair: tuple[Item, Item], tmp_path: Path) -> None:
    """And its provider's cost is that of the row that stands, read from a record or from a trace."""
    story = Story()
    for _ in range(10):
        story.listed(*pair).wait(5)
    with recorded(tmp_path, story) as record:
        assert folded(record, whole=False) == folded(record, whole=True)
        (run,) = replay_record(record).to_json()["runs"]
    (traced,) = replay_polls(list(story.polls())).to_json()["runs"]
    assert run["provider_cost_usd"] == traced["provider_cost_usd"]


def pages(story: Story, *rows: Item) -> None:
    """A list of machines in pages of one."""
    asked = {"project_names": ["main"], "limit": 1}
    story.poll("/api/instances/list", asked, rows[:1])
    for before, after in pairwise((*rows, None)):
        shown = [] if after is None else [after]
        story.wait(0.1).poll("/api/instances/list", {**asked, "prev_id": before["id"]}, shown)
    story.wait(5)


def test_the_last_page_says_otherwise_behind_another_first_one(tmp_path: Path) -> None:
    """It is empty again, and ends another list: a machine is missing from this one."""
    one, two = machine_item("one"), machine_item("two")
    story = Story()
    for rows in ([one, two], [one, two], [two]):
        pages(story, *rows)
    with recorded(tmp_path, story) as record:
        fast, full = (folded(record, whole=whole) for whole in (False, True))
    assert [vm.missing is not None for vm in full.vms.values()] == [True, False]
    assert fast == full


def test_a_machine_given_up_is_missed_no_more_by_another_source(tmp_path: Path) -> None:
    """Who missed it first is kept, so the sources do not answer each other with every poll."""
    story = Story().machines(machine_item("one"), machine_item("two"))
    for _ in range(15):
        story.wait(49).machines(machine_item("two"))
    for _ in range(3):
        story.wait(5).poll("/api/instances/list", {"limit": 100}, [machine_item("two")])
        story.wait(5).machines(machine_item("two"))
    with recorded(tmp_path, story) as record:
        fast, full = (folded(record, whole=whole) for whole in (False, True))
    assert [vm.state for vm in full.vms.values()] == ["unconfirmed", "idle"]
    assert fast == full


def test_a_machine_that_only_another_source_leaves_out_is_found_again(tmp_path: Path) -> None:
    """It was told to go and not seen gone; its own source lists it as before, behind a list without it."""
    story = Story().machines(machine_item(status="idle"))
    for _ in range(20):
        story.wait(49).machines(machine_item(status="terminating"))
    for _ in range(2):
        story.wait(1).poll("/api/instances/list", {"limit": 100}, [])
        story.wait(1).machines(machine_item(status="terminating"))
    story.wait(1).poll("/api/instances/list", {"limit": 100}, [])
    with recorded(tmp_path, story) as record:
        fast, full = (folded(record, whole=whole) for whole in (False, True))
    assert [vm.missing is None for vm in full.vms.values()] == [False]
    assert fast == full


def test_two_sources_that_list_one_machine_otherwise_fold_alike(tmp_path: Path) -> None:
    """A project's list, and one that names no project: each repeats itself, and contradicts the other."""
    story = Story()
    for _ in range(10):
        story.machines(machine_item(status="busy")).wait(2)
        story.poll("/api/instances/list", {"limit": 100}, [machine_item(status="idle")]).wait(3)
    with recorded(tmp_path, story) as record:
        assert folded(record, whole=False) == folded(record, whole=True)


def test_a_machine_that_nobody_asked_for_is_told_of_though_the_runs_repeat(tmp_path: Path) -> None:
    """Which machines are orphans is said by a list of runs, behind the machine's own change."""
    adopted = PolicyAdopted(source="dstack/main", policy=b"{}")
    story = Story().machines(machine_item(status="provisioning")).wait(2).listed()
    story.wait(5).machines(machine_item(status="provisioning")).wait(2).listed()
    story.wait(5).machines(machine_item(status="idle")).wait(2).listed()
    with temporary_record(tmp_path, shapes=READINGS.shape) as record:
        record.append_many([Batch("source/dstack/main", [adopted])])
        record.append_polls([poll for _, poll in story.polls() if poll is not None])
        fast, full = (folded(record, whole=whole) for whole in (False, True))
    assert [one.kind for one in full.anomalies] == ["orphan"]
    assert fast == full


@pytest.mark.parametrize("row", [{"status": "idle"}, {"status": "busy", "unreachable": True}], ids=["idle", "silent"])
def test_a_machine_that_contradicts_its_run_is_found_where_all_polls_repeat(
    row: dict[str, Any], tmp_path: Path
) -> None:
    """Nothing changes any more, and the time that passes is the evidence."""
    story = Story()
    for _ in range(30):
        story.listed(on("a-run")).wait(5)
        story.machines(machine_item(**row)).wait(5)
    with recorded(tmp_path, story) as record:
        fast, full = (folded(record, whole=whole) for whole in (False, True))
    assert [(vm.state, len(vm.noted)) for vm in full.vms.values()] == [("busy", 1)]
    assert fast == full
