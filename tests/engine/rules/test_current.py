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


OBSERVATIONS = """
# the statuses of facts as real servers give them
done all_jobs_done | done done_by_runner 0: succeeded exit_zero 0
failed job_failed | failed container_exited_with_error 1: failed exit_nonzero 1
terminated stopped_by_user | terminated terminated_by_user -: stopped stopped_by_user -
terminated aborted_by_user | aborted aborted_by_user -: stopped aborted_by_user -
failed job_failed | terminated max_duration_exceeded -: failed timed_out -
failed job_failed | failed failed_to_start_due_to_no_capacity -: failed no_capacity -
failed retry_limit_exceeded retry=error | failed container_exited_with_error 7: failed exit_nonzero 7
failed retry_limit_exceeded | failed failed_to_start_due_to_no_capacity -: failed no_capacity -
failed job_failed | failed instance_unreachable -: failed unreachable -
failed job_failed | failed interrupted_by_no_capacity -: failed interrupted -
failed job_failed | failed creating_container_error -: failed provider_error -
failed server_error | terminated terminated_by_server -: failed provider_error -
failed error | terminated terminated_by_server -: failed provider_error -
failed job_failed | failed error -: failed provider_error -
# a container that was killed: dstack does not say by whom, so it is not said to have run out of memory
failed job_failed | failed container_exited_with_error 137: failed exit_nonzero 137
failed job_failed | terminated inactivity_duration_exceeded -: failed timed_out -
failed job_failed | terminated terminated_due_to_utilization_policy -: failed stopped_by_policy -
# local: its supervisor is gone
failed job_failed | failed supervisor_lost -: failed node_failed -
# first match: exit status 0 of every job comes before the run's reason
terminated stopped_by_user | terminated - 0: succeeded exit_zero 0
failed job_failed | done - 0: failed unknown_reason 0
done all_jobs_done | done - -: succeeded exit_zero -
terminated - | terminated - -: stopped unknown_reason -
terminated because | terminated - -: failed unknown_reason -
failed - | failed quantum_error -: failed unknown_reason -
# an exit status settles while dstack still says running
running - | terminating done_by_runner 0: succeeded exit_zero 0
running - | terminating - 3: failed exit_nonzero 3
submitted - | failed failed_to_start_due_to_no_capacity -: failed no_capacity -
# not ended, or not decisive
submitted - | terminating failed_to_start_due_to_no_capacity -: finishing
terminating stopped_by_user | running - -: finishing
running - | terminated terminated_by_server -: finishing
running - | failed quantum_error -: finishing
running - | failed - -: finishing
pending - | failed container_exited_with_error 1: queued
pending - | done done_by_runner 0: queued
# the retry policy
running - retry=error | terminating - 7: finishing
running - retry=no-capacity,interruption | terminating - 7: failed exit_nonzero 7
running - retry=error | terminating - 0: succeeded exit_zero 0
running - retry=no-capacity | failed failed_to_start_due_to_no_capacity -: finishing
running - retry=error | failed failed_to_start_due_to_no_capacity -: failed no_capacity -
running - retry=interruption | failed interrupted_by_no_capacity -: finishing
running - retry=interruption | failed instance_unreachable -: failed unreachable -
running - retry=error | terminated max_duration_exceeded -: failed timed_out -
terminating retry_limit_exceeded retry=error | failed container_exited_with_error 7: failed exit_nonzero 7
running - retry=interruption | failed brand_new 1: finishing
# kinds: only a task is settled by its jobs
running - kind=service | terminating - 0: finishing
running - kind=dev-environment | terminating - 0: finishing
done - kind=service | done - 0: succeeded exit_zero 0
# several jobs
running - | terminating done_by_runner 0 | running - -: running
running - | done done_by_runner 0 | terminating - 1: failed exit_nonzero 1
running - | terminating - 1 | running - -: running
terminating job_failed | failed container_exited_with_error 1 | terminated terminated_by_server -: failed exit_nonzero 1
running - | failed container_exited_with_error 1 | terminated terminated_by_server -: finishing
terminating job_failed | terminated terminated_by_server - | failed instance_unreachable -: failed unreachable -
terminating job_failed | terminating terminated_by_server - | failed instance_unreachable -: finishing
running - retry=error | done done_by_runner 0 | failed container_exited_with_error 9: finishing
terminating all_jobs_done | done done_by_runner 0 | terminated terminated_by_server -: succeeded exit_zero 0
done - | done done_by_runner 0 | done done_by_runner 0: succeeded exit_zero 0
# the most advanced job that has not ended, whatever became of the others
submitted - | failed failed_to_start_due_to_no_capacity - | submitted - -: queued
provisioning - | terminating failed_to_start_due_to_no_capacity - | pulling - -: pulling
provisioning - | submitted - - | pulling - -: pulling
running - | running - - | provisioning - -: running
# answers that leave the jobs out
running -: running
terminating all_jobs_done: finishing
done all_jobs_done: succeeded exit_zero -
failed job_failed: failed unknown_reason -
# unknown words
hibernating - | thinking - -: None
"""
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
