"""A quote gives the deciding values of a poll, with paths that find them in the answer."""

import msgspec
from stenotest.slurm_polls import poll as slurm_poll

from steno.events.poll import Poll
from steno.projections.answers.evidence import quote


def poll(body: object) -> Poll:
    """An answered poll with that body."""
    return Poll(
        source="dstack/main",
        path="/api/runs/list",
        started_at=1,
        observed_at=2,
        status=200,
        body=msgspec.json.encode(body),
        answered=True,
    )


def test_the_newest_submission_of_every_job_is_quoted() -> None:
    """Older submissions decide nothing."""
    submissions = [
        {"submission_num": 1, "status": "done", "termination_reason": "done_by_runner", "exit_status": 0},
        {"submission_num": 0, "status": "failed", "termination_reason": None, "exit_status": 1},
    ]
    other = {"id": "other", "status": "running"}
    run = {"id": "r1", "status": "terminating", "termination_reason": None, "jobs": [{"job_submissions": submissions}]}
    evidence = quote(poll([other, run]), 7, "r1")
    assert {field.path: field.value for field in evidence.fields} == {
        ".[1].status": "terminating",
        ".[1].termination_reason": None,
        ".[1].jobs[0].job_submissions[0].submission_num": 1,
        ".[1].jobs[0].job_submissions[0].status": "done",
        ".[1].jobs[0].job_submissions[0].termination_reason": "done_by_runner",
        ".[1].jobs[0].job_submissions[0].exit_status": 0,
    }


def test_the_newest_attempt_is_quoted_where_each_is_an_item() -> None:
    """Seen: a job of Slurm whose second attempt exited 1 was explained by the line `NODE_FAIL` of its first."""
    words = ("sacct", "-X", "-D", "-P", "-n", "-o", "JobID,State,ExitCode,Submit")
    lines = ("9|NODE_FAIL|0:0|2026-11-28T12:00:01", "10|RUNNING|0:0|2026-11-28T12:00:01")
    answer = "\n".join((*lines, "9|FAILED|1:0|2026-11-28T12:00:31", "11|RUNNING|0:0|2026-11-28T12:00:01", ""))
    evidence = quote(slurm_poll(1, words, answer), 7, "9")
    assert [(field.path, field.value) for field in evidence.fields] == [(".[2].", "9|FAILED|1:0|2026-11-28T12:00:31")]


def test_an_answer_about_one_run_has_paths_from_its_root() -> None:
    """`runs/get` answers with the run itself."""
    evidence = quote(poll({"id": "r1", "status": "done", "jobs": None}), 7, "r1")
    assert [field.path for field in evidence.fields] == [".status", ".termination_reason"]


def test_a_refusal_is_quoted_as_it_came() -> None:
    """`resource_not_exists` is what makes a run lost for good."""
    evidence = quote(poll({"detail": [{"code": "resource_not_exists"}]}), 7, "r1")
    assert [(field.path, field.value) for field in evidence.fields] == [(".detail", [{"code": "resource_not_exists"}])]


def test_an_answer_without_the_run_has_no_fields() -> None:
    """In any shape."""
    for body in ([], {}, "text", 3, None, [1, None], [{"id": "x"}]):
        assert quote(poll(body), 7, "r1").fields == ()
