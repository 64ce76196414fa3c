"""The laws of the VM machine, one property each, over generated histories of machines."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stenotest.dstack_history import START, DstackHistory, Item
from stenotest.machines import MachineHistory, machine_histories, machine_item

from steno.engine.fold.fold import Fold
from steno.engine.fold.poll_reader import PollReader
from steno.engine.providers.registry import READINGS
from steno.engine.rules.sets import CURRENT
from steno.engine.state.changes import AnomalyKind
from steno.engine.state.states import VmReason, VmState
from steno.engine.state.vm import BILLED, Vm
from steno.engine.state.world import dump, idle_evidence, load, vms_of
from steno.events import types
from steno.events.clock import SECOND, foreign_run_id

pytestmark = pytest.mark.slow

SOURCE = "dstack/main"


def told(history: MachineHistory) -> DstackHistory:
    """The list of machines every five seconds, one for each row the server showed."""
    story = DstackHistory()
    for item in history.items:
        story.machines(item).wait(5)
    return story


def fold(story: DstackHistory, world: Fold | None = None, positions: list[int] | None = None) -> Fold:
    world = world if world is not None else Fold(READINGS)
    reader = PollReader(READINGS)
    for number, poll in story.polls():
        if poll is not None:
            world.apply(reader.read(positions[number - 1] if positions else number, poll))
    return world


def only(world: Fold) -> Vm:
    (vm,) = world.state.vms.all()
    return vm


def id_of(history: MachineHistory) -> str:
    return foreign_run_id("dstack", history.items[0]["id"])


@given(machine_histories(), st.data())
def test_every_row_moves_the_machine_to_where_it_shows_it(history: MachineHistory, data: st.DataObject) -> None:
    """The state known from how the history was made, at every prefix; only evidence of its end ends one."""
    end = data.draw(st.integers(1, len(history.items)))
    story = told(history)
    story.lines = story.lines[:end]
    world = fold(story)
    vm = only(world)
    assert vm.state == history.states[end - 1]
    assert (vm.state is VmState.TERMINATED) == (history.ended_from is not None and end > history.ended_from)
    # Once for each time that it was away: for a minute, or when it ended.
    assert {anomaly.kind for anomaly in world.state.anomalies} <= {AnomalyKind.UNREACHABLE}
    assert len(world.state.anomalies) <= len(vm.unreachable)
    assert {anomaly.detail for anomaly in world.state.anomalies} <= {str(silence) for silence in vm.unreachable}
    ended_away = vm.state is VmState.TERMINATED and vm.silence is not None
    assert world.state.anomalies or not (ended_away and vm.reason is VmReason.UNREACHABLE is not vm.facts.cause)


@given(machine_histories())
def test_the_same_observation_twice_changes_nothing(history: MachineHistory) -> None:
    """Law: each answer twice, at the same time, is the answer once."""
    once, twice = told(history), told(history)
    twice.lines = [line for line in twice.lines for _ in range(2)]
    lines = [number for number in range(1, len(once.lines) + 1) for _ in range(2)]
    assert fold(once).state.vms == fold(twice, positions=lines).state.vms


@given(machine_histories())
def test_a_life_is_what_the_rows_say(history: MachineHistory) -> None:
    """`created` to `finished_at`; without one the first poll that shows the end, at the earliest when the one before
    was asked.
    """
    vm = only(fold(told(history)))
    first = history.ended_from
    assert vm.created == START
    if first is None:
        assert (vm.finished_at, vm.finished_low) == (None, None)
    elif history.old:
        first_at = START + first * 5 * SECOND + 10_000
        assert (vm.finished_at, vm.finished_low) == (first_at, first_at - 5 * SECOND - 10_000)
    else:
        assert vm.finished_at == vm.finished_low == START + first * 5 * SECOND
    assert not vm.unseen_end


@given(machine_histories(), st.data())
def test_edges_are_monotone_whatever_is_dropped_repeated_or_late(history: MachineHistory, data: st.DataObject) -> None:
    """Law: each edge lies in its bounds, none before the one before it, prices too."""
    story = told(history)
    story.lines = data.draw(st.lists(st.sampled_from(story.lines), min_size=1, max_size=2 * len(story.lines)))
    vm = only(fold(story))
    for step in vm.steps:
        assert step.low_at <= step.at
    for before, after in zip(vm.steps, vm.steps[1:], strict=False):
        assert before.at <= after.at
        assert before.low_at <= after.low_at
        assert before.after is after.before
    assert vm.steps[0].before is VmState.REQUESTED
    assert [price.at for price in vm.prices] == sorted(price.at for price in vm.prices)
    if vm.finished_at is not None and vm.finished_low is not None:
        assert vm.created <= vm.finished_low <= vm.finished_at


@given(machine_histories(), st.data())
def test_dropping_and_delaying_polls_never_ends_a_machine_that_goes_on(
    history: MachineHistory, data: st.DataObject
) -> None:
    """Law: the newest row delivered decides, and a late one moves nothing."""
    lines = list(enumerate(told(history).lines))
    kept = data.draw(st.lists(st.sampled_from(lines), min_size=1, max_size=2 * len(lines)))
    story = DstackHistory()
    story.lines = [line for _, line in kept]
    newest = max(place for place, _ in kept)
    world = fold(story)
    assert only(world).state == history.states[newest]
    assert all(anomaly.kind != "contradiction" for anomaly in world.state.anomalies)


@given(machine_histories(), st.data())
def test_absence_never_ends_a_machine(history: MachineHistory, data: st.DataObject) -> None:
    """Law: not listed for however long, it is at most unconfirmed, and billed, until evidence comes."""
    end = data.draw(st.integers(1, len(history.items)))
    story = DstackHistory()
    for item in history.items[:end]:
        story.machines(item).wait(5)
    for _ in range(data.draw(st.integers(0, 60))):
        story.wait(data.draw(st.sampled_from([5, 30, 59, 300]))).machines()
    vm = only(fold(story))
    gone = history.ended_from is not None and end > history.ended_from
    assert (vm.state is VmState.TERMINATED) == gone
    assert gone or vm.state in BILLED
    story.wait(5).machines(history.items[-1])
    world = fold(story)
    if history.ended_from is not None:
        assert only(world).state is VmState.TERMINATED
    elif vm.state is not VmState.UNCONFIRMED or history.states[-1] != "terminating":
        assert only(world).state in (history.states[-1], VmState.UNCONFIRMED)


@given(machine_histories(), st.integers(0, 60), st.data())
def test_a_machine_is_never_forgotten_while_it_may_be_billed(
    history: MachineHistory, silence: int, data: st.DataObject
) -> None:
    """Law: whatever is polled, dropped, failed or decided, it is among its source's machines until it is seen gone."""
    story = DstackHistory()
    for item in history.items[: history.ended_from]:
        story.machines(item).wait(data.draw(st.sampled_from([5, 61])))
    for _ in range(silence):
        data.draw(st.sampled_from([story.machines, story.listed, story.failed]))()
        story.wait(30)
    world = fold(story)
    for number, event in enumerate(data.draw(st.lists(st.sampled_from(decisions(history)), max_size=6)), start=500):
        world.apply_event(number, START + 9000 * SECOND, event)
    assert [vm.vm_id for vm in vms_of(world.state, SOURCE)] == [id_of(history)]
    assert only(world).billed


def decisions(history: MachineHistory) -> list[types.Event]:
    """Everything we may decide about a machine, but that somebody saw it gone."""
    who: dict[str, Any] = {"vm_id": id_of(history), "provider": "dstack"}
    there = {"provider_id": history.items[0]["id"]}
    return [
        types.VmStopRequested(**who, **there, project="main", submitter="me"),
        types.VmDrainStarted(**who, by="idle"),
        types.VmDrainCancelled(**who, why="a run came"),
        types.VmStopIntended(**who, **there, by="idle"),
        types.VmStopSucceeded(**who),
        types.VmStopFailed(**who, error="in use"),
    ]


ODD = st.sampled_from(["hibernating", "", "TERMINATED", "gone", 7, None, [], {"a": 1}, True, -1, 1e300, 2**70])
KEYS = st.sampled_from(sorted(machine_item()))


@given(machine_histories(), st.data())
def test_nothing_unknown_raises_or_ends_a_machine(history: MachineHistory, data: st.DataObject) -> None:
    """Law: at every moment at which it goes on, a word, a field or a type we do not know does not end it."""
    index = data.draw(st.integers(0, len(history.items) - 1))
    changed: Item = {**history.items[index], "new_in_0.30": {"x": [1]}}
    for key in data.draw(st.lists(KEYS.filter(lambda key: key not in ("id", "project_name")), max_size=4)):
        changed[key] = data.draw(ODD)
    story = DstackHistory()
    for item in history.items[:index]:
        story.machines(item).wait(5)
    alive = fold(story).state.vms.open_ids
    world = fold(story.machines(changed))
    assert set(alive) <= set(world.state.vms.ids())
    if history.ended_from is None or index < history.ended_from:
        assert all(vm.state is not VmState.TERMINATED for vm in world.state.vms.all())
        assert set(alive) <= set(world.state.vms.open_ids)
    assert load(dump(world.state)) == world.state


@given(machine_histories(), st.data())
def test_idle_evidence_counts_answered_time_only(history: MachineHistory, data: st.DataObject) -> None:
    """Law: never more than the time since the machine was first seen idle, blind time and other polls left out."""
    story = told(history)
    for _ in range(data.draw(st.integers(0, 8))):
        story.machines(history.items[-1]).wait(data.draw(st.sampled_from([5, 59, 61, 3600])))
    world = fold(story)
    vm = only(world)
    evidence = idle_evidence(world.state, vm)
    if vm.state is not VmState.IDLE:
        assert evidence == 0
        return
    assert vm.idle_since is not None
    blind = sum(
        (gap.until or 0) - max(gap.since, vm.idle_since)
        for gap in world.state.blind
        if (gap.until or 0) > vm.idle_since
    )
    assert evidence == vm.last_at - vm.idle_since - blind


@given(machine_histories())
def test_both_steppers_fold_a_history_alike(history: MachineHistory) -> None:
    """The machine of the live path and the table of replay."""
    live = fold(told(history), Fold(READINGS, CURRENT, live=True))
    replayed = fold(told(history), Fold(READINGS, CURRENT))
    assert live.state == replayed.state
