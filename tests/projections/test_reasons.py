"""Every rule that moves a run can be said in a sentence."""

import json
from collections.abc import Callable

import pytest
from stenotest.dstack_history import Item, read_run, single

from steno.engine.replay.replay import replay_polls
from steno.engine.rules.sets import CURRENT
from steno.events.poll import Poll
from steno.projections.answers.explain import sentence

FAILED = "dstack reported the final status `failed`. The run failed: {}. Nobody had requested a stop."


@pytest.mark.parametrize(
    "name", ["retry_success", "several", "stop_running", "server_restart", "no_capacity", "failure"]
)
def test_every_rule_of_a_recording_has_its_sentence(name: str, recording: Callable[[str], tuple[Poll, ...]]) -> None:
    """A name alone explains nothing."""
    replay = replay_polls(enumerate(recording(f"dstack-0.22.5/{name}"), start=1))
    rules = {step.rule for run in replay.runs for step in run.transitions}
    assert rules
    for rule in rules:
        words = sentence(rule, None)
        assert words.endswith(".")
        assert rule not in words


def test_a_rule_nobody_described_is_named() -> None:
    """Better its name than nothing."""
    assert sentence("current@2/brand-new", None) == "The rule current@2/brand-new decided."
    assert "no poll" in sentence(None, None)


@pytest.mark.parametrize("rule", ["current/held", "current/no-capacity"])
def test_a_run_that_waits_with_us_is_told_so(rule: str) -> None:
    """These come from our own events, in no recording."""
    assert "Steno's queue" in sentence(rule, None)


@pytest.mark.parametrize(
    ("item", "words"),
    [
        (
            single(run="done", job_status="done", reason="all_jobs_done", exit_status=0),
            "dstack reported the final status `done`; the last attempt of every job exited 0.",
        ),
        (
            single(run="running", job_status="terminating", job_reason="done_by_runner", exit_status=0),
            "Every job has ended; the last attempt of every job exited 0.",
        ),
        (
            single(run="failed", job_status="failed", job_reason="container_exited_with_error", exit_status=3),
            FAILED.format("job 0 exited 3"),
        ),
        (
            single(run="failed", job_status="failed", job_reason="failed_to_start_due_to_no_capacity"),
            FAILED.format("job 0 ended with `failed_to_start_due_to_no_capacity`"),
        ),
        (
            single(run="terminated", job_status="terminated", reason="stopped_by_user"),
            "dstack reported the final status `terminated`; the run's reason says that a stop was requested.",
        ),
        (
            single(run="failed", job_status="terminated", reason="server_error", job_reason="terminated_by_server"),
            FAILED.format("its reason is `server_error`"),
        ),
        (
            single(run="done", job_status="done", reason="all_jobs_done", job_reason="done_by_runner", exit_status=137),
            (
                "dstack reported the final status `done`; yet a job of it failed, so the provider contradicts itself, "
                "and the run counts as failed."
            ),
        ),
    ],
)
def test_a_verdict_names_what_decided_it(item: Item, words: str) -> None:
    """The status, the job and its exit status, not a rule about statuses."""
    facts = read_run(json.dumps(item).encode())
    move = CURRENT.move(facts, stopped_by_policy=False)
    assert sentence(move.rule, facts, "dstack") == words


def test_a_stop_that_came_too_late_is_not_denied() -> None:
    """The run failed by itself, and somebody had asked for its stop."""
    item = single(run="failed", job_status="failed", job_reason="container_exited_with_error", exit_status=3)
    facts = read_run(json.dumps(item).encode())
    words = sentence(CURRENT.move(facts, stopped_by_policy=False).rule, facts, "dstack", stop_requested=True)
    assert words.endswith("job 0 exited 3. A stop was requested, but dstack reports none.")
