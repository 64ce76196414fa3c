"""Traces as they are found: broken lines, cuts, labels, the words of older recorders."""

import json
from pathlib import Path

import pytest
from stenotest.dstack_history import DstackHistory, poll_of, single

from steno.engine.fold.poll_reader import Until, parse_until
from steno.engine.providers.registry import UnknownRules
from steno.engine.replay.replay import NumberedPoll, open_trace, replay_polls, replay_trace
from steno.events.errors import UnreadableInput

TRACES = Path(__file__).parents[2] / "traces"
RUN_KEYS = """
run_id provider_id name provider state reason exit_status rule evidence reported attempts vm_id start submitted_at
started_at finished_at execution_seconds cost_usd provider_cost_usd transitions
"""
RUNNING = single("a", "running", "running")
DONE = single("a", "done", "done", reason="all_jobs_done", job_reason="done_by_runner", exit_status=0, finished=50)


def test_a_broken_line_is_named_and_left_out_with_lenient(tmp_path: Path) -> None:
    """Numbered from 1; the rest is read."""
    path = DstackHistory().listed(RUNNING).wait(5).listed(DONE).write(tmp_path / "t.jsonl")
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join([lines[0], "{broken", lines[1]]), encoding="utf-8")
    with pytest.raises(UnreadableInput, match="line 2"):
        replay_trace(path)
    (run,) = replay_trace(path, lenient=True).runs
    assert (run.state, run.evidence) == ("succeeded", (3,))


def test_a_trace_is_folded_up_to_a_line_or_a_moment(tmp_path: Path) -> None:
    """`--until`."""
    path = DstackHistory().listed(RUNNING).wait(5).listed(DONE).write(tmp_path / "t.jsonl")
    assert replay_trace(path, until=Until(position=1)).runs[0].state == "running"
    assert replay_trace(path, until=parse_until("2025-12-15T09:00:05Z")).runs[0].state == "running"
    assert replay_trace(path, until=parse_until("2025-12-15T09:00:05.010+00:00")).runs[0].state == "succeeded"
    with pytest.raises(UnreadableInput, match="neither"):
        parse_until("yesterday")


def test_the_label_of_a_poll_routes_nothing() -> None:
    """By path alone."""
    line = {**DstackHistory().listed(RUNNING).lines[0], "ep": "something_else"}
    polls: list[NumberedPoll] = [(1, poll_of(line))]
    assert len(replay_polls(polls).runs) == 1


def test_an_error_may_be_called_exc(tmp_path: Path) -> None:
    """As older recorders wrote it."""
    line = {**DstackHistory().failed().lines[0]}
    line["exc"] = line.pop("error")
    path = tmp_path / "t.jsonl"
    path.write_text(json.dumps(line) + "\n", encoding="utf-8")
    ((_, poll),) = open_trace(path)
    assert poll is not None
    assert (poll.answered, poll.error) == (False, "ConnectError")


def test_an_unknown_rule_set_is_one_line_with_the_known_ones() -> None:
    """The error says what to do about it."""
    with pytest.raises(UnknownRules, match="Use one of: current"):
        replay_polls([], "2026-01-wish")


def test_the_json_object_has_every_key_in_its_order() -> None:
    """The public object: keys always present, null where unknown."""
    replay = replay_trace(TRACES / "dstack-0.22.5/no_capacity.jsonl.zst").to_json()
    assert list(replay) == ["rules", "events", "runs", "vms", "anomalies", "blind"]
    assert list(replay["runs"][0]) == RUN_KEYS.split()
    assert replay["vms"] == []
    assert replay["runs"][0]["started_at"] is None
    assert replay["runs"][0]["execution_seconds"] is None
