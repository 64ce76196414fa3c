"""Machines, and our own decisions between the polls: what a fold skips on the way changes nothing."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stenotest.dstack_history import START, DstackHistory
from stenotest.histories import History, histories, rows_of
from stenotest.machines import HOST, MachineHistory, machine_event, machine_histories, machine_item, placeholder
from stenotest.records import StandingClock, temporary_record
from stenotest.rule_texts import ADOPTIONS
from stenotest.segmented_world import EVER, apart

from steno.engine.fold.fold import Fold
from steno.engine.fold.poll_reader import Until
from steno.engine.fold.record_fold import RecordFold
from steno.engine.fold.snapshot import retire
from steno.engine.providers.registry import READINGS, every_rule_set, rules_named
from steno.engine.replay.replay import world_of
from steno.engine.state.archives import live_part, shown_part
from steno.engine.state.samples import Sample, pack
from steno.engine.state.world import World, dump, load
from steno.events import types
from steno.events.clock import SECOND, foreign_run_id
from steno.events.poll import Poll
from steno.events.store.append import Batch
from steno.events.store.record import Record

pytestmark = pytest.mark.slow

EventWorld = list[tuple[str, Any]]


@st.composite
def tales(draw: Any) -> tuple[EventWorld, str]:
    """Polls of runs and machines, and events about them, in the order of the record; the rules to fold them with."""
    runs: list[History] = [draw(histories("run-0")), draw(histories("run-1"))]
    machines: list[MachineHistory] = [draw(machine_histories("vm-0")), draw(machine_histories("vm-1"))]
    story, written_so_far, at = DstackHistory(), EventWorld(), [0, 0, 0, 0]
    hidden: set[int] = set()
    doubled: dict[int, int] = {}
    steps = ["runs", "machines", "next"] * 3
    steps += [
        "active",
        "watch",
        "watch",
        "double",
        "elsewhere",
        "fleets",
        "hide",
        "fail",
        "late",
        "wait",
        "filter",
        "pages",
        "log",
        "event",
    ]
    for move in draw(st.lists(st.sampled_from(steps), min_size=5, max_size=40)):
        listed = [rows_of(tale, at[number], doubled.get(number)) for number, tale in enumerate([*runs, *machines])]
        run_items = [item for number in (0, 1) if number not in hidden for item in listed[number]]
        rows = [item for number in (2, 3) if number not in hidden for item in listed[number]]
        match move:
            case "runs":
                story.listed(*run_items)
            case "active":
                story.active(*run_items[:1])
            case "machines":
                story.machines(*rows)
            case "filter":
                story.poll("/api/instances/list", {"project_names": ["main"], "only_active": True}, rows[:1])
            case "pages" if rows:
                request = {"project_names": ["main"], "limit": 1}
                story.poll("/api/instances/list", request, rows[:1]).wait(0.1)
                story.poll("/api/instances/list", {**request, "prev_id": rows[0]["id"]}, rows[1:])
                if len(rows) == 2:
                    story.wait(0.1).poll("/api/instances/list", {**request, "prev_id": rows[1]["id"]}, [])
            case "log":
                words = ("pending", "provisioning", "busy", "idle", "terminating")
                for _ in range(draw(st.sampled_from([1, 3]))):
                    moves = draw(st.lists(st.tuples(st.permutations(words), st.integers(0, 99)), max_size=3))
                    names = ("vm-0", "vm-1", "vm-2")
                    items = [machine_event(*two[:2], at_, draw(st.sampled_from(names))) for two, at_ in moves]
                    story.logged(*items).wait(0.1).logged(*items)
            case "next":
                chosen = draw(st.integers(0, 3))
                tale = [*runs, *machines][chosen]
                at[chosen] = min(at[chosen] + draw(st.integers(1, 6)), len(tale.items) - 1)
            case "watch":
                for _ in range(draw(st.sampled_from([3, 14, 20]))):
                    story.listed(*run_items).wait(0.1).machines(*rows).wait(49)
            case "double":
                chosen = draw(st.integers(0, 3))
                if doubled.pop(chosen, None) is None:
                    doubled[chosen] = draw(st.integers(-12, 12))
            case "elsewhere":
                for _ in range(draw(st.integers(1, 3))):
                    story.poll("/api/runs/list", {"limit": 100}, run_items[::-1]).wait(0.1)
                    story.poll("/api/instances/list", {"limit": 100}, rows[:1]).wait(1).machines(*rows).wait(1)
            case "fleets":
                fleet = {"id": "f", "name": "lab-fleet", "instances": rows}
                story.poll("/api/project/main/fleets/list", {}, [fleet, {**fleet, "instances": rows[:1]}])
            case "hide":
                hidden ^= {draw(st.integers(0, 3))}
            case "fail":
                story.failed()
            case "late":
                story.now = max(0, story.now - 7)
                story.machines(*rows)
                story.now += 7
            case "wait":
                story.wait(draw(st.sampled_from([20, 45, 61, 300])))
            case "event":
                vm_id = foreign_run_id("dstack", draw(st.sampled_from(machines)).items[0]["id"])
                written_so_far.append(("polls", list(story.polls())))
                story = DstackHistory(now=story.now)
                written_so_far.append(("event", draw(st.sampled_from(_events(vm_id, runs[0].items[0]["id"])))))
        story.wait(draw(st.sampled_from([1, 5, 30])))
    written_so_far.append(("polls", list(story.polls())))
    return written_so_far, draw(st.sampled_from(["adopted", *sorted(every_rule_set())]))


def _events(vm_id: str, provider_id: str) -> list[types.Event]:
    who = {"vm_id": vm_id, "provider": "dstack"}
    run = {"run_id": foreign_run_id("dstack", provider_id), "provider": "dstack"}
    there = {"provider_id": "x"}
    return [
        types.PolicyAdopted(source="dstack/main", policy=b"{}"),
        *ADOPTIONS,
        types.FleetEnsured(provider="dstack", project="main", name="lab-fleet"),
        types.VmStopRequested(**who, **there, project="main", submitter="me"),
        types.VmDrainStarted(**who, by="idle"),
        types.VmDrainCancelled(**who, why="a run came"),
        types.VmStopIntended(**who, **there, by="idle"),
        types.VmStopSucceeded(**who),
        types.VmStopFailed(**who, error="in use"),
        types.VmGoneConfirmed(**who, ended_at=START + 90 * SECOND, submitter="me"),
        types.RunHeld(**run, why="cap"),
        types.RunPlaced(**run),
        types.RunRequeued(**run, provider_id=provider_id, attempt=2, not_before=START),
        types.BudgetCrossed(threshold=800, spent=8, total=10),
        *(types.SamplesRecorded(**run, **there, source="x", block=block) for block in (b"", *map(_block, (0, 40, 90)))),
    ]


def _block(since: int) -> bytes:
    return pack(Sample(at=START + (since + 20 * place) * SECOND, device="0", use=2 * (place % 5)) for place in range(9))


def _dated(poll: Poll) -> Poll:
    """With the server's own clock, which runs away from ours by one second in twenty."""
    ran = (poll.started_at - START) // 20
    return msgspec.structs.replace(poll, server_time=(poll.observed_at + ran) // SECOND * SECOND)


def written(folder: Path, steps: EventWorld) -> Record:
    """A record of polls and events."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("record.db*"):
        old.unlink()
    clock = StandingClock(START)
    record = temporary_record(folder, shapes=READINGS.shape, clock=clock)
    for kind, what in steps:
        if kind == "event":
            record.append_many([Batch("vm/x", [what])])
        else:
            polls = [_dated(poll) for _, poll in what if poll is not None]
            record.append_polls(polls)
            clock.sleep(max([poll.observed_at for poll in polls], default=0) - clock.now())
    return record


def folded(record: Record, rules: str, *, whole: bool) -> World:
    """The world of a record, with every poll folded in full or not."""
    world = Fold(READINGS, rules_named(rules))
    RecordFold(record, world).run(each=(lambda *_: None) if whole else None)
    return world.state


@settings(
    suppress_health_check=[*settings.default.suppress_health_check, HealthCheck.function_scoped_fixture],
)
@given(tale=tales())
def test_what_a_fold_skips_changes_no_machine(tale: tuple[EventWorld, str], tmp_path: Path) -> None:
    """Law: runs, machines, sources, anomalies, graces: the world is equal to the last field."""
    steps, rules = tale
    with written(tmp_path, steps) as record:
        fast, full = (folded(record, rules, whole=whole) for whole in (False, True))
        assert [name for name in fast.__struct_fields__ if getattr(fast, name) != getattr(full, name)] == []


@settings(
    suppress_health_check=[*settings.default.suppress_health_check, HealthCheck.function_scoped_fixture],
)
@given(tale=tales(), data=st.data())
def test_a_fold_with_machines_resumed_at_any_snapshot_ends_as_the_whole_one(
    tale: tuple[EventWorld, str], data: st.DataObject, tmp_path: Path
) -> None:
    """A projection goes on from its checkpoint, in the middle of a grace too."""
    steps, rules = tale
    with written(tmp_path, steps) as record:
        cut = data.draw(st.integers(0, record.head().position))
        state = world_of(record, rules, until=Until(position=cut)).state
        lazy = apart(state)
        assert live_part(lazy) == live_part(state)
        assert shown_part(lazy) == shown_part(state)
        saved = data.draw(st.sampled_from([load(dump(state)), apart(apart(state))]))
        RecordFold(record, Fold(READINGS, rules_named(rules), saved)).run()
        whole, resumed = world_of(record, rules).state, saved
        assert (resumed.vms, resumed.runs, resumed.anomalies) == (whole.vms, whole.runs, whole.anomalies)
        assert list(resumed.runs.ids()) == list(whole.runs.ids())


@settings(
    suppress_health_check=[*settings.default.suppress_health_check, HealthCheck.function_scoped_fixture],
)
@given(tale=tales(), cuts=st.lists(st.integers(0, 60), max_size=6))
def test_a_fold_that_retires_what_is_over_ends_as_the_whole_one(
    tale: tuple[EventWorld, str], cuts: list[int], tmp_path: Path
) -> None:
    """At any place and as often as it likes, whatever comes back to life later."""
    steps, rules = tale
    with written(tmp_path, steps) as record:
        fold = RecordFold(record, Fold(READINGS, rules_named(rules)))
        for cut in sorted(set(cuts)):
            fold.run(Until(position=cut))
            fold.clear_lanes()
            retire(fold.world.state, EVER, lambda segment: pytest.fail(f"{segment} was made here"), newest=0)
        fold.run()
        assert fold.world.state == world_of(record, rules).state


def test_a_grace_is_over_at_the_same_poll_whether_polls_are_skipped_or_not(tmp_path: Path) -> None:
    """Fourteen minutes of equal answers: the doubt falls on one of them."""
    story = DstackHistory().machines(machine_item(status="terminating", reason="idle_timeout"))
    for _ in range(100):
        story.wait(10).listed().wait(1).machines(machine_item(status="terminating", reason="idle_timeout"))
    with written(tmp_path, [("polls", list(story.polls()))]) as record:
        fast, full = (folded(record, "current", whole=whole) for whole in (False, True))
        (vm,) = fast.vms.all()
        assert (vm.state, vm.steps[-1].position) == ("unconfirmed", next(full.vms.all()).steps[-1].position)
        assert fast == full
        assert 840 * SECOND <= vm.steps[-1].at - vm.steps[-2].at < 851 * SECOND


def test_repeated_answers_of_machines_are_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As cheap as repeated answers of runs: one poll is folded in full for every change."""
    story = DstackHistory()
    for status in ("provisioning", "busy", "idle"):
        for _ in range(50):
            story.listed().wait(1).machines(machine_item(status=status, hostname=HOST), placeholder("other")).wait(4)
    with written(tmp_path, [("polls", list(story.polls()))]) as record:
        read: list[int] = []
        apply = Fold.apply
        monkeypatch.setattr(Fold, "apply", lambda world, tick: read.append(tick.position) or apply(world, tick))
        state = folded(record, "current", whole=False)
        assert state.events == 300
        assert len(read) <= 12
