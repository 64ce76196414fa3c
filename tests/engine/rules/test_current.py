"""The rule set `current`: when dstack has said enough, and what it has said."""

import json
from pathlib import Path

import pytest
from stenotest.dstack_history import Item, job, read_run, run_item, single, submission

from steno.engine.providers.dstack.words import RETRY_EVENT_OF, RUN_REASONS
from steno.engine.rules.sets import CURRENT, Live, Verdict
from steno.engine.state.facts import RunFacts
from steno.engine.state.states import Reason

TRACES = Path(__file__).parents[2] / "traces"


def facts(item: Item) -> RunFacts:
    return read_run(json.dumps(item).encode())


def verdict(item: Item, *, policy: bool = False) -> tuple[str, str, int | None] | str | None:
    """(state, reason, exit status) of a verdict, or the live state."""
    move = CURRENT.move(facts(item), stopped_by_policy=policy)
    if isinstance(move, Verdict):
        return (move.state.value, move.reason.value, move.exit_status)
    return move.state.value if move.state is not None else None


OBSERVATIONS = Path(__file__).with_name("observations.txt").read_text(encoding="utf-8")
"""Status and reason of the run, its retry policy and kind, then status, reason and exit status of each job: state,
reason and exit status of the verdict, or the live state.
"""


def observed(row: str) -> Item:
    run, *ends = row.split(" | ")
    status, reason, *more = run.split()
    options = dict(option.split("=") for option in more)
    retry = options.pop("retry").split(",") if "retry" in options else None
    jobs = [
        job(submission(state, reason=known(why), exit_status=number(code)), number=place, retry=retry)
        for place, (state, why, code) in enumerate(map(str.split, ends))
    ]
    return {**run_item("a", status, *jobs, reason=known(reason), **options), "jobs": jobs}


def known(word: str) -> str | None:
    return None if word == "-" else word


def number(word: str) -> int | None:
    return None if word == "-" else int(word)


@pytest.mark.parametrize("row", [row for row in OBSERVATIONS.strip().splitlines() if not row.startswith("#")])
def test_one_observation_gives_this_verdict(row: str) -> None:
    """The design's paragraph on when dstack has said enough, sentence by sentence."""
    item, _, wanted = row.partition(": ")
    state, *verdict_of = wanted.split()
    right = (state, verdict_of[0], number(verdict_of[1])) if verdict_of else None if state == "None" else state
    assert verdict(observed(item)) == right


def test_an_answer_without_jobs_or_submissions_says_what_its_status_says() -> None:
    """Some requests leave them out."""
    for item in ({**single(run="running"), "jobs": None}, run_item("a", "running", job())):
        assert verdict(item) == "running"


def test_the_exit_status_is_the_first_that_is_not_zero_by_replica_and_job() -> None:
    """Whatever the order in the answer."""
    jobs = [
        job(submission("failed", exit_status=3), replica=1, number=0),
        job(submission("done", exit_status=0), replica=0, number=0),
        job(submission("failed", exit_status=2), replica=0, number=1),
    ]
    assert verdict(run_item("a", "failed", *jobs, reason="job_failed")) == ("failed", "exit_nonzero", 2)


def test_only_the_newest_submission_counts_whatever_its_place() -> None:
    """The highest `submission_num`, not the last of the list."""
    newest, older = submission("running", num=1), submission("failed", num=0, exit_status=7)
    assert verdict(run_item("a", "running", job(newest, older))) == "running"


def test_a_stop_by_policy_is_named_so() -> None:
    """If our newest request to stop it was a policy's; abort or not."""
    for reason in ("stopped_by_user", "aborted_by_user"):
        item = single(run="terminated", job_status="terminated", reason=reason)
        assert verdict(item, policy=True) == ("stopped", "stopped_by_policy", None)


def test_every_rule_is_named() -> None:
    """Every verdict carries its rule."""
    move = CURRENT.move(facts(single(run="done", job_status="done", exit_status=0)), stopped_by_policy=False)
    assert move.rule == "current@1/all-exits-zero"
    live = CURRENT.move(facts(single(run="running", job_status="running")), stopped_by_policy=False)
    assert isinstance(live, Live)
    assert live.rule == "current@1/most-advanced-job"


def test_the_words_and_retry_events_are_dstacks_own() -> None:
    """Held against the installed package's enums."""
    runs = pytest.importorskip("dstack._internal.core.models.runs")
    ours = {word: event for word, event in RETRY_EVENT_OF.items() if word not in ("supervisor_lost", "error")}
    theirs = {}
    for reason in runs.JobTerminationReason:
        event = reason.to_retry_event()
        theirs[reason.value] = None if event is None else event.value
    assert ours == theirs
    assert {reason.value for reason in runs.RunTerminationReason} == RUN_REASONS - {"error"}


def test_every_reason_is_given_by_some_rule() -> None:
    """A reason nobody gives would be a promise: `out_of_memory` comes with a provider that says so (Slurm)."""
    engine = Path(__file__).parents[3] / "engine"
    given = "".join(file.read_text() for file in engine.rglob("*.py") if "testing" not in file.parts)
    assert [reason.name for reason in Reason if f"Reason.{reason.name}" not in given] == []
