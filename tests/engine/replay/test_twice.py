"""A record whose answers list a run or machine twice folds alike, whatever is skipped on the way."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from stenotest.dstack_history import DstackHistory, Item, single
from stenotest.event_world import on
from stenotest.machines import machine_item
from stenotest.records import temporary_record

from steno.engine.fold.fold import Fold
from steno.engine.fold.record_fold import RecordFold
from steno.engine.money.costs import Costs
from steno.engine.providers.registry import READINGS
from steno.engine.replay.replay import replay_polls, replay_record
from steno.engine.state.world import World
from steno.events.store.record import Batch, Record
from steno.events.types import PolicyAdopted

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


def recorded(folder: Path, story: DstackHistory) -> Record:
    record = temporary_record(folder, shapes=READINGS.shape)
    record.append_polls([poll for _, poll in story.polls() if poll is not None])
    return record


def folded_alike(folder: Path, story: DstackHistory) -> World:
    """The world of a story, whatever the fold of its record skips."""
    with recorded(folder, story) as record:
        fast, full = (folded(record, whole=whole) for whole in (False, True))
    assert fast == full
    return full


def folded(record: Record, *, whole: bool) -> World:
    """The world of a record, with every poll folded in full or not."""
    world = Fold(READINGS)
    RecordFold(record, world).run(each=(lambda *_: None) if whole else None)
    return world.state


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_a_machine_listed_twice_costs_the_same_whatever_is_skipped(pair: tuple[Item, Item], tmp_path: Path) -> None:
    """Ten equal answers; found by a property test in `cost_low`."""
    story = DstackHistory()
    for _ in range(10):
        story.machines(*pair).wait(5)
    with recorded(tmp_path, story) as record:
        fast, full = (folded(record, whole=whole) for whole in (False, True))
    assert Costs(fast).bills() == Costs(full).bills()
    assert fast == full


@pytest.mark.parametrize("pair", RUNS.values(), ids=RUNS)
def test_a_run_listed_twice_is_the_same_whatever_is_skipped(pair: tuple[Item, Item], tmp_path: Path) -> None:
    """And its provider's cost is that of the row that stands, read from a record or from a trace."""
    story = DstackHistory()
    for _ in range(10):
        story.listed(*pair).wait(5)
    with recorded(tmp_path, story) as record:
        assert folded(record, whole=False) == folded(record, whole=True)
        (run,) = replay_record(record).to_json()["runs"]
    (traced,) = replay_polls(list(story.polls())).to_json()["runs"]
    assert run["provider_cost_usd"] == traced["provider_cost_usd"]


def pages(story: DstackHistory, *rows: Item) -> None:
    """A list of machines in pages of one."""
    request = {"project_names": ["main"], "limit": 1}
    story.poll("/api/instances/list", request, rows[:1])
    for before, after in pairwise((*rows, None)):
        listed = [] if after is None else [after]
        story.wait(0.1).poll("/api/instances/list", {**request, "prev_id": before["id"]}, listed)
    story.wait(5)


def test_the_last_page_says_otherwise_behind_another_first_one(tmp_path: Path) -> None:
    """It is empty again, and ends another list: a machine is missing from this list."""
    first, two = machine_item("one"), machine_item("two")
    story = DstackHistory()
    for rows in ([first, two], [first, two], [two]):
        pages(story, *rows)
    full = folded_alike(tmp_path, story)
    assert [vm.missing is not None for vm in full.vms.all()] == [True, False]


def test_a_machine_given_up_is_missed_no_more_by_another_source(tmp_path: Path) -> None:
    """The source that missed it first is kept, so the sources do not answer each other with every poll."""
    story = DstackHistory().machines(machine_item("one"), machine_item("two"))
    for _ in range(15):
        story.wait(49).machines(machine_item("two"))
    for _ in range(3):
        story.wait(5).poll("/api/instances/list", {"limit": 100}, [machine_item("two")])
        story.wait(5).machines(machine_item("two"))
    full = folded_alike(tmp_path, story)
    assert [vm.state for vm in full.vms.all()] == ["unconfirmed", "idle"]


def test_a_machine_that_only_another_source_leaves_out_is_found_again(tmp_path: Path) -> None:
    """It was told to go and not seen gone; its own source lists it as before, behind a list without it."""
    story = DstackHistory().machines(machine_item(status="idle"))
    for _ in range(20):
        story.wait(49).machines(machine_item(status="terminating"))
    for _ in range(2):
        story.wait(1).poll("/api/instances/list", {"limit": 100}, [])
        story.wait(1).machines(machine_item(status="terminating"))
    story.wait(1).poll("/api/instances/list", {"limit": 100}, [])
    full = folded_alike(tmp_path, story)
    assert [vm.missing is None for vm in full.vms.all()] == [False]


def test_two_sources_that_list_one_machine_otherwise_fold_alike(tmp_path: Path) -> None:
    """A project's list, and a list that names no project: each repeats itself, and contradicts the other."""
    story = DstackHistory()
    for _ in range(10):
        story.machines(machine_item(status="busy")).wait(2)
        story.poll("/api/instances/list", {"limit": 100}, [machine_item(status="idle")]).wait(3)
    folded_alike(tmp_path, story)


def test_a_machine_that_nobody_asked_for_is_told_of_though_the_runs_repeat(tmp_path: Path) -> None:
    """A list of runs makes a machine an orphan, behind the machine's own change."""
    adopted = PolicyAdopted(source="dstack/main", policy=b"{}")
    story = DstackHistory().machines(machine_item(status="provisioning")).wait(2).listed()
    story.wait(5).machines(machine_item(status="provisioning")).wait(2).listed()
    story.wait(5).machines(machine_item(status="idle")).wait(2).listed()
    with temporary_record(tmp_path, shapes=READINGS.shape) as record:
        record.append_many([Batch("source/dstack/main", [adopted])])
        record.append_polls([poll for _, poll in story.polls() if poll is not None])
        fast, full = (folded(record, whole=whole) for whole in (False, True))
    assert [anomaly.kind for anomaly in full.anomalies] == ["orphan"]
    assert fast == full


@pytest.mark.parametrize("row", [{"status": "idle"}, {"status": "busy", "unreachable": True}], ids=["idle", "silent"])
def test_a_machine_that_contradicts_its_run_is_found_where_all_polls_repeat(
    row: dict[str, Any], tmp_path: Path
) -> None:
    """Nothing changes any more, and the time that passes is the evidence."""
    story = DstackHistory()
    for _ in range(30):
        story.listed(on("a-run")).wait(5)
        story.machines(machine_item(**row)).wait(5)
    full = folded_alike(tmp_path, story)
    assert [(vm.state, len(vm.noted)) for vm in full.vms.all()] == [("busy", 1)]
