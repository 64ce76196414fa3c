"""Traces as they are found: broken lines, cuts, labels, the words of older recorders."""

import json
from pathlib import Path

import pytest
from stenotest.story import Story, poll_of, single

from engine.fold.tick import Until, parse_until
from engine.providers.readings import UnknownRules
from engine.replay.trace import NumberedPoll, open_trace, replay_polls, replay_trace
from events.errors import UnreadableInput

RUNNING = single("a", "running", "running")
DONE = single("a", "done", "done", reason="all_jobs_done", job_reason="done_by_runner", exit_status=0, finished=50)


def test_a_broken_line_is_named_and_left_out_with_lenient(tmp_path: Path) -> None:
    """Numbered from 1; the rest is read."""
    path = Story().listed(RUNNING).wait(5).listed(DONE).write(tmp_path / "t.jsonl")
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join([lines[0], "{broken", lines[1]]), encoding="utf-8")
    with pytest.raises(UnreadableInput, match="line 2"):
        replay_trace(path)
    (run,) = replay_trace(path, lenient=True).runs
    assert (run.state, run.evidence) == ("succeeded", (3,))


def test_a_trace_is_folded_up_to_a_line_or_a_moment(tmp_path: Path) -> None:
    """`--until`."""
    path = Story().listed(RUNNING).wait(5).listed(DONE).write(tmp_path / "t.jsonl")
    assert replay_trace(path, until=Until(position=1)).runs[0].state == "running"
    assert replay_trace(path, until=parse_until("2025-12-15T09:00:05Z")).runs[0].state == "running"
    assert replay_trace(path, until=parse_until("2025-12-15T09:00:05.010+00:00")).runs[0].state == "succeeded"
    with pytest.raises(UnreadableInput, match="neither"):
        parse_until("yesterday")


def test_the_label_of_a_poll_routes_nothing() -> None:
    """By path alone."""
    line = {**Story().listed(RUNNING).lines[0], "ep": "something_else"}
    polls: list[NumberedPoll] = [(1, poll_of(line))]
    assert len(replay_polls(polls).runs) == 1


def test_an_error_may_be_called_exc(tmp_path: Path) -> None:
    """As older recorders wrote it."""
    line = {**Story().failed().lines[0]}
    line["exc"] = line.pop("error")
    path = tmp_path / "t.jsonl"
    path.write_text(json.dumps(line) + "\n", encoding="utf-8")
    ((_, poll),) = open_trace(path)
    assert poll is not None
    assert (poll.answered, poll.error) == (False, "ConnectError")


def test_an_unknown_rule_set_is_one_line_with_the_known_ones() -> None:
    """What to do about it."""
    with pytest.raises(UnknownRules, match="Use one of: current"):
        replay_polls([], "2026-01-wish")
