"""A record replays exactly as the trace it was made from, positions aside, whatever is skipped on the way."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.readings.shapes import shape_of
from engine.replay.fold import RecordFold
from engine.replay.objects import JsonObject
from engine.replay.record import fill_costs, replay_record, snapshot, step_record, world_of
from engine.replay.result import Replay
from engine.replay.trace import NumberedPoll, open_trace, replay_polls
from engine.replay.until import Until
from engine.rules.sets import RULE_SETS
from engine.testing.histories import History, histories
from engine.testing.machines import HOST, MachineHistory, machine_histories, machine_item, placeholder
from engine.testing.story import START, Story
from engine.world.state import WorldState
from engine.world.world import World
from events import types
from events.append import Batch
from events.clock import SECOND, SystemClock, foreign_run_id
from events.poll import Poll
from events.record import Record
from events.testing import StandingClock, temporary_record

pytestmark = pytest.mark.slow

TRACES = Path(__file__).parents[2] / "traces"
RECORDINGS = sorted(str(path.relative_to(TRACES)) for path in TRACES.rglob("*.zst"))


def recorded(folder: Path, polls: list[NumberedPoll]) -> tuple[Record, dict[int, int]]:
    """A record of these polls, and which line each position is."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "record.db"
    for old in folder.glob("record.db*"):
        old.unlink()
    record = Record.open(path, clock=SystemClock(), write=True, create=True, shapes=shape_of)
    there = [(number, poll) for number, poll in polls if poll is not None]
    appended = record.append_polls([poll for _, poll in there])
    return record, {done.position: number for done, (number, _) in zip(appended, there, strict=True)}


def with_lines(found: JsonObject, lines: dict[int, int]) -> JsonObject:
    """A replay of a record with line numbers in the place of positions."""
    for run in found["runs"]:
        run["evidence"] = [lines[position] for position in run["evidence"]]
        for step in run["transitions"]:
            step["position"] = lines[step["position"]]
    for anomaly in found["anomalies"]:
        anomaly["position"] = lines[anomaly["position"]]
    return found


@pytest.mark.parametrize("rules", sorted(RULE_SETS))
@pytest.mark.parametrize("name", RECORDINGS)
def test_a_recording_replays_alike_from_trace_and_record(name: str, rules: str, tmp_path: Path) -> None:
    """Under every rule set."""
    polls = list(open_trace(TRACES / name))
    record, lines = recorded(tmp_path, polls)
    with record:
        assert with_lines(replay_record(record, rules).to_json(), lines) == replay_polls(polls, rules).to_json()


@st.composite
def stories(draw: Any) -> Story:
    """Polls of every endpoint over runs that come, go on, vanish and come back; failures and long gaps too."""
    tales: list[History] = draw(
        st.lists(st.integers(0, 3), min_size=1, max_size=3).flatmap(
            lambda numbers: st.tuples(*[histories(f"run-{number}") for number in dict.fromkeys(numbers)])
        )
    )
    story = Story()
    at = [0 for _ in tales]
    hidden: set[int] = set()
    doubled: dict[int, int] = {}
    moves = (
        "list",
        "active",
        "get",
        "machines",
        "fail",
        "wait",
        "next",
        "hide",
        "gone",
        "pages",
        "late",
        "thin",
        "watch",
        "double",
    )
    for move in draw(st.lists(st.sampled_from(moves), min_size=5, max_size=60)):
        shown = [
            item
            for number, (tale, place) in enumerate(zip(tales, at, strict=True))
            if number not in hidden
            for item in _rows(tale, place, doubled.get(number))
        ]
        one = draw(st.integers(0, len(tales) - 1))
        item = tales[one].items[at[one]]
        match move:
            case "list":
                story.listed(*shown)
            case "active":
                story.active(*[run for run in shown if run["status"] not in ("done", "failed", "terminated")])
            case "get":
                story.got(item)
            case "thin":
                story.listed(*[{**run, "jobs": [], "cost": 0} for run in shown], include_jobs=False)
            case "machines":
                story.machines()
            case "fail":
                story.failed()
            case "wait":
                story.wait(draw(st.sampled_from([1, 20, 45, 50, 61, 300])))
            case "next":
                at[one] = min(at[one] + draw(st.integers(1, 12)), len(tales[one].items) - 1)
            case "watch":
                for _ in range(draw(st.sampled_from([3, 14]))):
                    story.listed(*shown).wait(50)
            case "hide":
                hidden ^= {one}
            case "double":
                if doubled.pop(one, None) is None:
                    doubled[one] = draw(st.integers(-12, 12))
            case "gone":
                story.gone(id=item["id"])
            case "pages" if shown:
                story.listed(*shown[:1], limit=1)
                for before, run in pairwise(shown):
                    story.wait(0.1).listed(run, limit=1, prev_run_id=before["id"])
                story.wait(0.1).listed(limit=1, prev_run_id=shown[-1]["id"])
            case "late":
                story.now = max(0, story.now - 7)
                story.listed(*shown)
                story.now += 7
        story.wait(draw(st.sampled_from([1, 5, 30])))
    return story


@settings(
    max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(story=stories(), rules=st.sampled_from(sorted(RULE_SETS)))
def test_any_story_replays_alike_from_trace_and_record(story: Story, rules: str, tmp_path: Path) -> None:
    """Law: what a fold of a record skips changes nothing."""
    polls = list(story.polls())
    record, lines = recorded(tmp_path, polls)
    with record:
        assert with_lines(replay_record(record, rules).to_json(), lines) == replay_polls(polls, rules).to_json()


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(story=stories(), data=st.data())
def test_a_fold_resumed_at_any_snapshot_ends_as_the_whole_one(
    story: Story, data: st.DataObject, tmp_path: Path
) -> None:
    """A projection goes on from its checkpoint."""
    record, _ = recorded(tmp_path, list(story.polls()))
    with record:
        whole = replay_record(record)
        cut = data.draw(st.integers(0, record.head().position))
        saved = snapshot(world_of(record, until=Until(position=cut)))
        assert replay_record(record, after_snapshot=saved).to_json() == whole.to_json()


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(story=stories())
def test_stepping_through_a_record_ends_as_folding_it(story: Story, tmp_path: Path) -> None:
    """The steps' transitions are the runs' transitions."""
    record, _ = recorded(tmp_path, list(story.polls()))
    with record:
        steps = list(step_record(record))
        moved = [change.transition for step in steps for change in step.changes if hasattr(change, "transition")]
        told = [step for run in replay_record(record).runs for step in run.transitions]
        assert sorted((step for step in moved if step is not None), key=repr) == sorted(told, key=repr)


def test_a_record_is_folded_up_to_a_position_or_a_moment(tmp_path: Path) -> None:
    """`--until`, both ways."""
    polls = list(open_trace(TRACES / "dstack-0.22.5/success.jsonl.zst"))
    record, lines = recorded(tmp_path, polls)
    with record:
        whole = replay_record(record)
        (settled,) = whole.runs[0].evidence
        assert replay_record(record, until=Until(position=settled - 1)).runs[0].state == "running"
        assert replay_record(record, until=Until(position=settled)).runs[0].state == "succeeded"
        moment = whole.runs[0].transitions[-1].at
        assert replay_record(record, until=Until(at=moment)).runs[0].state == "succeeded"
        assert replay_record(record, until=Until(at=moment - 1)).runs[0].state == "running"
        assert lines[settled] == 331


def test_costs_are_read_when_somebody_asks(tmp_path: Path) -> None:
    """The fold leaves them; `fill_costs` reads the newest whole one."""
    polls = list(open_trace(TRACES / "dstack-0.22.5/warm_reuse.jsonl.zst"))
    record, _ = recorded(tmp_path, polls)
    with record:
        world = world_of(record)
        assert {run.cost for run in world.state.runs.values()} == {None}
        fill_costs(record, world.state.runs.values())
        assert [run["provider_cost_usd"] for run in Replay.of(world).to_json()["runs"]] == ["0.074200", "0.024300"]


# -- machines, and our own decisions between the polls -----------------------------------------------------------------

Told = list[tuple[str, Any]]


@st.composite
def tales(draw: Any) -> tuple[Told, str]:
    """Polls of runs and machines, and events about them, in the order of the record; the rules to fold them with."""
    runs: list[History] = [draw(histories("run-0")), draw(histories("run-1"))]
    machines: list[MachineHistory] = [draw(machine_histories("vm-0")), draw(machine_histories("vm-1"))]
    story, told, at = Story(), Told(), [0, 0, 0, 0]
    hidden: set[int] = set()
    doubled: dict[int, int] = {}
    steps = (
        *["runs", "machines", "next"] * 3,
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
        "event",
    )
    for move in draw(st.lists(st.sampled_from(steps), min_size=5, max_size=40)):
        listed = [_rows(tale, at[number], doubled.get(number)) for number, tale in enumerate([*runs, *machines])]
        shown = [item for number in (0, 1) if number not in hidden for item in listed[number]]
        rows = [item for number in (2, 3) if number not in hidden for item in listed[number]]
        match move:
            case "runs":
                story.listed(*shown)
            case "active":
                story.active(*shown[:1])
            case "machines":
                story.machines(*rows)
            case "filter":
                story.poll("/api/instances/list", {"project_names": ["main"], "only_active": True}, rows[:1])
            case "pages" if rows:
                asked = {"project_names": ["main"], "limit": 1}
                story.poll("/api/instances/list", asked, rows[:1]).wait(0.1)
                story.poll("/api/instances/list", {**asked, "prev_id": rows[0]["id"]}, rows[1:])
                if len(rows) == 2:
                    story.wait(0.1).poll("/api/instances/list", {**asked, "prev_id": rows[1]["id"]}, [])
            case "next":
                one = draw(st.integers(0, 3))
                tale = [*runs, *machines][one]
                at[one] = min(at[one] + draw(st.integers(1, 6)), len(tale.items) - 1)
            case "watch":
                for _ in range(draw(st.sampled_from([3, 14, 20]))):
                    story.listed(*shown).wait(0.1).machines(*rows).wait(49)
            case "double":
                one = draw(st.integers(0, 3))
                if doubled.pop(one, None) is None:
                    doubled[one] = draw(st.integers(-12, 12))
            case "elsewhere":
                for _ in range(draw(st.integers(1, 3))):
                    story.poll("/api/runs/list", {"limit": 100}, shown[::-1]).wait(0.1)
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
                told.append(("polls", list(story.polls())))
                story = Story(now=story.now)
                told.append(("event", draw(st.sampled_from(_events(vm_id, runs[0].items[0]["id"])))))
        story.wait(draw(st.sampled_from([1, 5, 30])))
    told.append(("polls", list(story.polls())))
    return told, draw(st.sampled_from(sorted(RULE_SETS)))


def _rows(tale: History | MachineHistory, place: int, doubled: int | None = None) -> list[Any]:
    """What the server lists of one run or machine at a moment; with what it was or will be beside it, where doubled."""
    if doubled is None:
        return [tale.items[place]]
    other = max(0, min(place + doubled, len(tale.items) - 1))
    return [tale.items[place], tale.items[other]][:: 1 if doubled % 2 else -1]


def _events(vm_id: str, provider_id: str) -> list[types.Event]:
    who = {"vm_id": vm_id, "provider": "dstack"}
    run = {"run_id": foreign_run_id("dstack", provider_id), "provider": "dstack"}
    there = {"provider_id": "x"}
    return [
        types.PolicyAdopted(source="dstack/main", policy=b"{}"),
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
    ]


def _dated(poll: Poll) -> Poll:
    """With the server's own clock, which runs away from ours by one second in twenty."""
    ran = (poll.started_at - START) // 20
    return msgspec.structs.replace(poll, server_time=(poll.observed_at + ran) // SECOND * SECOND)


def written(folder: Path, told: Told) -> Record:
    """A record of polls and events."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("record.db*"):
        old.unlink()
    clock = StandingClock(START)
    record = temporary_record(folder, shapes=shape_of, clock=clock)
    for kind, what in told:
        if kind == "event":
            record.append_many([Batch("vm/x", [what])])
        else:
            polls = [_dated(poll) for _, poll in what if poll is not None]
            record.append_polls(polls)
            clock.sleep(max([poll.observed_at for poll in polls], default=0) - clock.now())
    return record


def folded(record: Record, rules: str, *, whole: bool) -> WorldState:
    """The world of a record, with every poll folded in full or not."""
    world = World(RULE_SETS[rules])
    RecordFold(record, world).run(each=(lambda *_: None) if whole else None)
    return world.state


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(tale=tales())
def test_what_a_fold_skips_changes_no_machine(tale: tuple[Told, str], tmp_path: Path) -> None:
    """Law: runs, machines, sources, anomalies, graces: the world is equal to the last field."""
    told, rules = tale
    with written(tmp_path, told) as record:
        fast, full = (folded(record, rules, whole=whole) for whole in (False, True))
        assert [name for name in fast.__struct_fields__ if getattr(fast, name) != getattr(full, name)] == []


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(tale=tales(), data=st.data())
def test_a_fold_with_machines_resumed_at_any_snapshot_ends_as_the_whole_one(
    tale: tuple[Told, str], data: st.DataObject, tmp_path: Path
) -> None:
    """A projection goes on from its checkpoint, in the middle of a grace too."""
    told, rules = tale
    with written(tmp_path, told) as record:
        cut = data.draw(st.integers(0, record.head().position))
        saved = snapshot(world_of(record, rules, until=Until(position=cut)))
        whole, resumed = world_of(record, rules).state, world_of(record, rules, after_snapshot=saved).state
        assert (resumed.vms, resumed.runs, resumed.anomalies) == (whole.vms, whole.runs, whole.anomalies)


def test_a_grace_is_over_at_the_same_poll_whether_polls_are_skipped_or_not(tmp_path: Path) -> None:
    """Fourteen minutes of equal answers: the doubt falls on one of them."""
    story = Story().machines(machine_item(status="terminating", reason="idle_timeout"))
    for _ in range(100):
        story.wait(10).listed().wait(1).machines(machine_item(status="terminating", reason="idle_timeout"))
    with written(tmp_path, [("polls", list(story.polls()))]) as record:
        fast, full = (folded(record, "current", whole=whole) for whole in (False, True))
        (vm,) = fast.vms.values()
        assert (vm.state, vm.steps[-1].position) == ("unconfirmed", next(iter(full.vms.values())).steps[-1].position)
        assert fast == full
        assert 840 * SECOND <= vm.steps[-1].at - vm.steps[-2].at < 851 * SECOND


def test_repeated_answers_of_machines_are_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As cheap as repeated answers of runs: one poll is folded in full for every change."""
    story = Story()
    for status in ("provisioning", "busy", "idle"):
        for _ in range(50):
            story.listed().wait(1).machines(machine_item(status=status, hostname=HOST), placeholder("other")).wait(4)
    with written(tmp_path, [("polls", list(story.polls()))]) as record:
        read: list[int] = []
        apply = World.apply
        monkeypatch.setattr(World, "apply", lambda world, tick: read.append(tick.position) or apply(world, tick))
        state = folded(record, "current", whole=False)
        assert state.events == 300
        assert len(read) <= 12
