"""Changes that would have flipped a verdict: each is put to the same rules."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from stenotest.dstack_history import Item, read_run, single
from stenotest.histories import History, histories

from steno.engine.fold.poll_reader import PollReader
from steno.engine.providers.dstack.reading import alternatives
from steno.engine.providers.registry import READINGS
from steno.engine.replay.replay import open_trace
from steno.engine.rules.cases import case_of
from steno.engine.rules.sets import CURRENT, Flip, decisive, flips
from steno.engine.state.facts import RunFacts

TRACES = Path(__file__).parents[2] / "traces"


def facts(item: Item) -> RunFacts:
    return read_run(json.dumps(item).encode())


def test_what_would_have_flipped_a_verdict_is_said_in_sentences() -> None:
    """Each is the observation that the provider would have given instead, put to the same rules."""
    settled = facts(single(run="running", job_status="terminating", job_reason="done_by_runner", exit_status=0))
    assert decisive(case_of(settled)) == "ended-and-not-retried"
    assert said_flips(settled) == [
        "had the job exited 1: failed/exit_nonzero",
        "had the job still been running: no verdict yet (running)",
        "had the run been stopped before its end: stopped/stopped_by_user",
    ]


def found_flips(settled: RunFacts) -> tuple[Flip, ...]:
    return flips(settled, lambda other: CURRENT.move(other, stopped_by_policy=False), alternatives(settled))


def said_flips(settled: RunFacts) -> list[str]:
    return [str(flip) for flip in found_flips(settled)]


def test_a_failed_run_would_have_succeeded_with_another_exit_status() -> None:
    """The run's own `failed` follows from its job: it does not stay when the job is said to have exited 0."""
    failed = single(
        run="failed", job_status="failed", reason="job_failed", job_reason="container_exited_with_error", exit_status=3
    )
    assert said_flips(facts(failed)) == [
        "had the job exited 0: succeeded/exit_zero",
        "had the job still been running: no verdict yet (running)",
        "had the task's retry policy covered how the job ended: no verdict yet (queued)",
        "had the run been stopped before its end: stopped/stopped_by_user",
    ]


def test_a_job_that_never_had_a_machine_could_not_have_exited() -> None:
    """Only what can have happened is said."""
    refused = single(
        run="failed", job_status="failed", reason="job_failed", job_reason="failed_to_start_due_to_no_capacity"
    )
    assert said_flips(facts(refused)) == [
        "had the task's retry policy covered how the job ended: no verdict yet (queued)"
    ]


def hold_true(settled: RunFacts) -> None:
    """Each flip is what the rules say of its own facts, another thing than was said, and can have happened."""
    given = str(CURRENT.move(settled, stopped_by_policy=False))
    for flip in found_flips(settled):
        assert flip.verdict == str(CURRENT.move(flip.facts, stopped_by_policy=False)) != given, flip
        assert "unknown_reason" not in flip.verdict, flip
        newest = [job.newest for job in flip.facts.jobs if job.newest is not None]
        failed = [attempt for attempt in newest if attempt.exit_status or attempt.cause is not None]
        match flip.facts.status:
            case "done":
                assert all(attempt.exit_status == 0 for attempt in newest), flip
            case "failed" | "pending" if newest:
                assert failed, flip
            case "terminated":
                assert flip.facts.reason in ("stopped_by_user", "aborted_by_user"), flip
        if len(settled.jobs) == 1 and flip.change.startswith("had the job exited 0"):
            assert flip.verdict == "succeeded/exit_zero", flip


@given(histories())
def test_every_flip_of_a_history_is_a_verdict_of_the_rules(history: History) -> None:
    """At every moment of it."""
    for item in history.items:
        hold_true(facts(item))


@pytest.mark.parametrize(
    "trace", sorted(TRACES.glob("dstack-*/*.zst")), ids=lambda path: f"{path.parent.name}-{path.stem}"
)
def test_every_flip_of_a_recording_is_a_verdict_of_the_rules(trace: Path) -> None:
    """The law holds for every answer of a genuine server about any run."""
    reader, seen = PollReader(READINGS), set()
    for number, poll in open_trace(trace):
        if poll is not None:
            seen |= {event.facts for event in reader.read(number, poll).runs}
    assert seen
    for facts in seen:
        hold_true(facts)
