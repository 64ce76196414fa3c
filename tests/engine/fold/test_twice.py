"""An answer lists a run or a machine several times with other facts: one row stands, and the contradiction is noted."""

from itertools import permutations

import pytest
from stenotest.dstack_history import Item, single
from stenotest.event_world import EventWorld
from stenotest.machines import machine_item, placeholder

from steno.engine.state.states import VmState

ROWS = {
    "busy": machine_item(status="busy"),
    "provisioning": machine_item(status="provisioning"),
    "idle": machine_item(status="idle"),
    "unknown": machine_item(status="hibernating"),
    "terminating": machine_item(status="terminating"),
    "terminated": machine_item(status="terminated", finished=0),
    "nothing": placeholder(),
}
"""A machine that may be billed longest first."""


@pytest.mark.parametrize("names", list(permutations(ROWS, 2)), ids="+".join)
def test_of_two_rows_of_a_machine_the_one_further_from_its_end_stands(names: tuple[str, str]) -> None:
    """So it is not forgotten while it may be billed, nor ended while it may be busy; in either order."""
    story = EventWorld().rows(*(ROWS[name] for name in names))
    standing = min(names, key=list(ROWS).index)
    if standing == "nothing":
        assert not story.world.state.vms
    else:
        assert story.vm.facts.status == ROWS[standing]["status"]


def test_a_row_that_says_it_is_gone_ends_no_machine_that_another_shows() -> None:
    """Until every row says so."""
    story = EventWorld().rows(ROWS["busy"])
    story.rows(ROWS["terminated"], ROWS["idle"])
    assert story.vm.state is VmState.IDLE
    story.rows(ROWS["terminated"], ROWS["terminated"])
    assert story.vm.state is VmState.TERMINATED


def test_of_two_prices_the_dearer_stands() -> None:
    """Once, not to and fro with every poll."""
    story = EventWorld()
    for _ in range(3):
        story.rows(machine_item(price=2.5), machine_item(price=1.99))
    assert [price.hourly for price in story.vm.prices] == [2_500_000]


def test_of_two_ends_the_later_stands() -> None:
    """The machine is billed to there."""
    rows = [machine_item(status="terminated", finished=end) for end in (30, 20)]
    story = EventWorld().rows(machine_item(status="busy")).rows(*rows)
    assert story.vm.finished_at == story.at(30)


def test_a_machine_listed_twice_is_told_of_once() -> None:
    """However long it goes on; with what differs."""
    story = EventWorld()
    for _ in range(5):
        story.rows(machine_item(status="busy", price=2.5), machine_item(status="idle"))
    (anomaly,) = story.world.state.anomalies
    assert (anomaly.kind, anomaly.position) == ("contradiction", 1)
    assert anomaly.detail == "listed 2 times in one answer, with another status, price"
    assert [step.after for step in story.vm.steps] == [VmState.BUSY]


def test_equal_rows_are_no_contradiction() -> None:
    """A provider that repeats itself says nothing odd."""
    story = EventWorld().rows(ROWS["busy"], ROWS["busy"]).runs(single(), single())
    assert story.world.state.anomalies == []


RUNS: dict[str, Item] = {
    "again": single(run="running", job_status="running", num=1),
    "done": single(run="done", job_status="done", exit_status=0),
    "running": single(run="running", job_status="running"),
    "pulling": single(run="provisioning", job_status="pulling"),
    "submitted": single(),
}
"""The furthest first."""


@pytest.mark.parametrize("names", list(permutations(RUNS, 2)), ids="+".join)
def test_of_two_rows_of_a_run_the_furthest_stands(names: tuple[str, str]) -> None:
    """The newest attempt, then an end, then the most advanced; in either order, and for good."""
    story = EventWorld()
    for _ in range(3):
        story.runs(*(RUNS[name] for name in names))
    standing = RUNS[min(names, key=list(RUNS).index)]
    assert story.run.reported.status == standing["status"]
    assert story.anomalies == ["contradiction"]
    assert len(story.run.transitions) <= 1
