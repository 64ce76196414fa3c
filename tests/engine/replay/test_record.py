"""A record replays exactly as the trace it was made from, positions aside, whatever is skipped on the way."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stenotest.dstack_history import DstackHistory
from stenotest.histories import History, histories, rows_of
from stenotest.recorded_trace import FOR_LAWS, TRACES

from steno.engine.fold.fold import Fold
from steno.engine.fold.poll_reader import Until
from steno.engine.fold.record_fold import RecordFold
from steno.engine.providers.registry import READINGS, every_rule_set
from steno.engine.replay.replay import NumberedPoll, open_trace, replay_polls, replay_record, step_record, world_of
from steno.engine.replay.result import JsonObject, Replay, fill_costs
from steno.engine.state.world import dump, load
from steno.events.clock import SystemClock
from steno.events.store.record import Record

pytestmark = pytest.mark.slow


def recorded(folder: Path, polls: list[NumberedPoll]) -> tuple[Record, dict[int, int]]:
    """A record of these polls, and which line each position is."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "record.db"
    for old in folder.glob("record.db*"):
        old.unlink()
    record = Record.open(path, clock=SystemClock(), write=True, create=True, shapes=READINGS.shape)
    there = [(number, poll) for number, poll in polls if poll is not None]
    appended = record.append_polls([poll for _, poll in there])
    return record, {done.position: number for done, (number, _) in zip(appended, there, strict=True)}


def with_lines(replay: JsonObject, lines: dict[int, int]) -> JsonObject:
    """A replay of a record with line numbers in the place of positions."""
    for run in replay["runs"]:
        run["evidence"] = [lines[position] for position in run["evidence"]]
        for step in run["transitions"]:
            step["position"] = lines[step["position"]]
    for anomaly in replay["anomalies"]:
        anomaly["position"] = lines[anomaly["position"]]
    return replay


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", FOR_LAWS)
def test_a_recording_replays_alike_from_trace_and_record(name: str, every: bool, tmp_path: Path) -> None:
    """Under `current`; in `make test-long` under every rule set."""
    polls = list(open_trace(TRACES / name))
    record, lines = recorded(tmp_path, polls)
    with record:
        for rules in sorted(every_rule_set()) if every else ["current"]:
            of_record = with_lines(replay_record(record, rules).to_json(), lines)
            assert of_record == replay_polls(polls, rules).to_json(), rules


@st.composite
def stories(draw: Any) -> DstackHistory:
    """Polls of every endpoint over runs that come, go on, vanish and come back; failures and long gaps too."""
    tales: list[History] = draw(
        st.lists(st.integers(0, 3), min_size=1, max_size=3).flatmap(
            lambda numbers: st.tuples(*[histories(f"run-{number}") for number in dict.fromkeys(numbers)])
        )
    )
    story = DstackHistory()
    at = [0 for _ in tales]
    hidden: set[int] = set()
    doubled: dict[int, int] = {}
    moves = [
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
    ]
    for move in draw(st.lists(st.sampled_from(moves), min_size=5, max_size=60)):
        listed = [
            item
            for number, (tale, place) in enumerate(zip(tales, at, strict=True))
            if number not in hidden
            for item in rows_of(tale, place, doubled.get(number))
        ]
        chosen = draw(st.integers(0, len(tales) - 1))
        item = tales[chosen].items[at[chosen]]
        match move:
            case "list":
                story.listed(*listed)
            case "active":
                story.active(*[run for run in listed if run["status"] not in ("done", "failed", "terminated")])
            case "get":
                story.got(item)
            case "thin":
                story.listed(*[{**run, "jobs": [], "cost": 0} for run in listed], include_jobs=False)
            case "machines":
                story.machines()
            case "fail":
                story.failed()
            case "wait":
                story.wait(draw(st.sampled_from([1, 20, 45, 50, 61, 300])))
            case "next":
                at[chosen] = min(at[chosen] + draw(st.integers(1, 12)), len(tales[chosen].items) - 1)
            case "watch":
                for _ in range(draw(st.sampled_from([3, 14]))):
                    story.listed(*listed).wait(50)
            case "hide":
                hidden ^= {chosen}
            case "double":
                if doubled.pop(chosen, None) is None:
                    doubled[chosen] = draw(st.integers(-12, 12))
            case "gone":
                story.gone(id=item["id"])
            case "pages" if listed:
                story.listed(*listed[:1], limit=1)
                for before, run in pairwise(listed):
                    story.wait(0.1).listed(run, limit=1, prev_run_id=before["id"])
                story.wait(0.1).listed(limit=1, prev_run_id=listed[-1]["id"])
            case "late":
                story.now = max(0, story.now - 7)
                story.listed(*listed)
                story.now += 7
        story.wait(draw(st.sampled_from([1, 5, 30])))
    return story


@settings(
    deadline=None, suppress_health_check=[*settings.default.suppress_health_check, HealthCheck.function_scoped_fixture]
)
@given(story=stories(), rules=st.sampled_from(sorted(every_rule_set())))
def test_any_story_replays_alike_from_trace_and_record(story: DstackHistory, rules: str, tmp_path: Path) -> None:
    """Law: what a fold of a record skips changes nothing."""
    polls = list(story.polls())
    record, lines = recorded(tmp_path, polls)
    with record:
        assert with_lines(replay_record(record, rules).to_json(), lines) == replay_polls(polls, rules).to_json()


@settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[*settings.default.suppress_health_check, HealthCheck.function_scoped_fixture],
)
@given(story=stories(), data=st.data())
def test_a_fold_resumed_at_any_snapshot_ends_as_the_whole_one(
    story: DstackHistory, data: st.DataObject, tmp_path: Path
) -> None:
    """A projection goes on from its checkpoint."""
    record, _ = recorded(tmp_path, list(story.polls()))
    with record:
        whole = replay_record(record)
        cut = data.draw(st.integers(0, record.head().position))
        world = Fold(READINGS, state=load(dump(world_of(record, until=Until(position=cut)).state)))
        RecordFold(record, world).run()
        fill_costs(record, world.state.runs.all())
        assert Replay(world).to_json() == whole.to_json()


@settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=[*settings.default.suppress_health_check, HealthCheck.function_scoped_fixture],
)
@given(story=stories())
def test_stepping_through_a_record_ends_as_folding_it(story: DstackHistory, tmp_path: Path) -> None:
    """The steps' transitions are the runs' transitions."""
    record, _ = recorded(tmp_path, list(story.polls()))
    with record:
        steps = list(step_record(record))
        moved = [change.transition for step in steps for change in step.changes if hasattr(change, "transition")]
        transitions = [step for run in replay_record(record).runs for step in run.transitions]
        assert sorted((step for step in moved if step is not None), key=repr) == sorted(transitions, key=repr)


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
        assert {run.cost for run in world.state.runs.all()} == {None}
        fill_costs(record, world.state.runs.all())
        assert [run["provider_cost_usd"] for run in Replay(world).to_json()["runs"]] == ["0.074200", "0.024300"]
