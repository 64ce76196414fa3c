"""The corners of the fold: what real servers and rough traces do, one test each."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stenotest.dstack_history import DstackHistory, job, run_item, single, submission

from steno.engine.replay.replay import replay_polls
from steno.engine.replay.result import JsonObject
from steno.events.clock import foreign_run_id


def told(story: DstackHistory, rules: str = "current") -> JsonObject:
    return replay_polls(list(story.polls()), rules).to_json()


def run_of(story: DstackHistory, rules: str = "current") -> JsonObject:
    (run,) = told(story, rules)["runs"]
    return dict(run)


def states(run: JsonObject) -> list[str]:
    return [step["to"] for step in run["transitions"]]


RUNNING = single("a", "running", "running")
DONE = single("a", "done", "done", reason="all_jobs_done", job_reason="done_by_runner", exit_status=0, finished=50)


# -- absence ---------------------------------------------------------------------------------------------------------


def test_a_run_not_listed_for_ten_answered_minutes_is_lost() -> None:
    """And not a poll earlier."""
    story = DstackHistory().listed(RUNNING)
    for _ in range(21):
        story.wait(30).listed()
    assert run_of(story)["state"] == "lost"
    assert run_of(story)["reason"] == "unknown_reason"
    story.lines.pop()
    assert run_of(story)["state"] == "running"


def test_time_in_which_the_source_did_not_answer_does_not_count() -> None:
    """A gap in which we recorded nothing is blind and advances no grace."""
    story = DstackHistory().listed(RUNNING).wait(10).listed()
    for _ in range(30):
        story.wait(61).listed()
    assert run_of(story)["state"] == "running"
    story = DstackHistory().listed(RUNNING).wait(10).listed()
    for _ in range(60):
        story.wait(15).failed().wait(15).listed()
    assert run_of(story)["state"] == "running"


def test_a_lost_run_leaves_lost_as_soon_as_evidence_comes() -> None:
    """`lost` is not terminal."""
    story = DstackHistory().listed(RUNNING)
    for _ in range(22):
        story.wait(30).listed()
    story.wait(30).listed(RUNNING)
    assert states(run_of(story))[-2:] == ["lost", "running"]
    assert run_of(story)["reason"] is None
    story.lines[-1] = DstackHistory(now=story.now).listed(DONE).lines[0]
    assert states(run_of(story))[-2:] == ["lost", "succeeded"]
    assert told(story)["anomalies"] == []


def test_a_run_whose_id_does_not_exist_is_lost_as_deleted() -> None:
    """`runs/get` by id says so; it takes ten answered minutes too."""
    story = DstackHistory().listed(RUNNING)
    for _ in range(21):
        story.wait(30).gone(id=RUNNING["id"])
    assert (run_of(story)["state"], run_of(story)["reason"]) == ("lost", "deleted")


@pytest.mark.parametrize("req", [{"only_active": True}, {"username": "somebody"}, {"repo_id": "r"}, None])
def test_a_filtered_list_or_a_name_that_does_not_exist_shows_no_absence(req: dict[str, Any] | None) -> None:
    """Only a complete, unfiltered sweep does. A deleted run is not found by name (None) and stays listed."""
    story = DstackHistory().listed(RUNNING)
    for _ in range(40):
        story.wait(30).gone(run_name="a") if req is None else story.wait(30).listed(**req)
    assert run_of(story)["state"] == "running"


def test_a_full_page_alone_shows_no_absence_and_the_last_page_does() -> None:
    """A sweep is complete with a page shorter than its limit."""
    others = [single(f"b-{number}", "running", "running") for number in range(3)]
    story = DstackHistory().listed(RUNNING)
    for _ in range(40):
        story.wait(30).listed(*others[:2], limit=2)
    assert told(story)["runs"][0]["state"] == "running"
    story = DstackHistory().listed(RUNNING)
    for _ in range(22):
        story.wait(30).listed(*others[:2], limit=2)
        story.wait(0.1).listed(others[2], limit=2, prev_run_id=others[1]["id"])
    assert told(story)["runs"][0]["state"] == "lost"


def test_more_than_a_hundred_runs_are_read_page_by_page() -> None:
    """Each page an observation of its runs; none is missing."""
    items = [single(f"r-{number}", "done", "done", exit_status=0) for number in range(250)]
    story = DstackHistory().listed(*items[:100])
    story.listed(*items[100:200], prev_run_id=items[99]["id"]).listed(*items[200:], prev_run_id=items[199]["id"])
    replayed = told(story)
    assert [run["name"] for run in replayed["runs"]] == [f"r-{number}" for number in range(250)]
    assert {run["state"] for run in replayed["runs"]} == {"succeeded"}


@pytest.mark.parametrize(("item", "project", "state"), [(DONE, "main", "succeeded"), (RUNNING, "other", "running")])
def test_a_run_that_is_over_or_of_another_project_is_not_missed(item: JsonObject, project: str, state: str) -> None:
    """However long it is not listed; a sweep covers its project."""
    story, sweeps = DstackHistory().listed(item), DstackHistory(project=project, now=1)
    for _ in range(60):
        sweeps.wait(30).listed()
    story.lines += sweeps.lines
    assert run_of(story)["state"] == state


# -- what the provider takes back ------------------------------------------------------------------------------------


def test_a_later_end_that_differs_wins_and_is_a_contradiction() -> None:
    """The newest decisive observation alone gives the verdict."""
    failed = single(
        "a", "failed", "failed", reason="job_failed", job_reason="container_exited_with_error", exit_status=1
    )
    story = DstackHistory().listed(DONE).wait(5).listed(failed)
    replayed = told(story)
    assert (replayed["runs"][0]["state"], replayed["runs"][0]["evidence"]) == ("failed", [2])
    assert [(anomaly["kind"], anomaly["position"]) for anomaly in replayed["anomalies"]] == [("contradiction", 2)]
    assert replayed["anomalies"][0]["subject"] == f"run/{replayed['runs'][0]['run_id']}"


@pytest.mark.parametrize(
    "again",
    [
        single("a", "pending", "done", job_reason="done_by_runner", exit_status=0),
        run_item("a", "submitted", job(submission("done", exit_status=0), submission("submitted", num=1))),
    ],
)
def test_a_run_that_goes_back_to_the_queue_is_reopened(again: JsonObject) -> None:
    """A later `pending` or higher `submission_num` reopens it with a contradiction."""
    replayed = told(DstackHistory().listed(single("a", "running", "terminating", exit_status=0)).wait(5).listed(again))
    (run,) = replayed["runs"]
    assert (run["state"], run["reason"], run["exit_status"], run["finished_at"]) == ("queued", None, None, None)
    assert [anomaly["kind"] for anomaly in replayed["anomalies"]] == ["contradiction"]


def test_a_step_back_in_the_same_attempt_is_an_anomaly_once() -> None:
    """The state stays."""
    story = DstackHistory().listed(RUNNING)
    for _ in range(3):
        story.wait(5).listed(single("a", "provisioning", "provisioning")).wait(5).listed(RUNNING)
    replayed = told(story)
    assert states(replayed["runs"][0]) == ["running"]
    assert [anomaly["kind"] for anomaly in replayed["anomalies"]] == ["illegal_transition"]


def test_a_retry_seen_only_at_its_end_passes_through_the_queue() -> None:
    """Both moves at that poll; the last attempt was never seen running."""
    ended = run_item("a", "done", job(submission("failed", exit_status=1), submission("done", num=1, exit_status=0)))
    run = run_of(DstackHistory().listed(RUNNING).wait(60).listed(ended))
    assert states(run) == ["running", "queued", "succeeded"]
    assert [step["position"] for step in run["transitions"]] == [1, 2, 2]
    assert (run["attempts"], run["started_at"], run["execution_seconds"]) == (2, None, None)


# -- partial answers -------------------------------------------------------------------------------------------------


def test_an_answer_without_jobs_does_not_undo_what_a_whole_one_said() -> None:
    """`include_jobs: false` is decisive by its status only where nothing fuller is."""
    bare = {**DONE, "jobs": [], "latest_job_submission": None, "cost": 0}
    story = DstackHistory().listed(bare, include_jobs=False)
    run = run_of(story)
    assert (run["state"], run["exit_status"], run["provider_cost_usd"]) == ("succeeded", None, None)
    story.wait(5).listed({**DONE, "cost": 0.5}).wait(5).listed(bare, include_jobs=False)
    replayed = told(story)
    assert (replayed["runs"][0]["exit_status"], replayed["runs"][0]["provider_cost_usd"]) == (0, "0.500000")
    assert replayed["runs"][0]["reported"]["jobs"] == [{"status": "done", "reason": "done_by_runner", "exit_status": 0}]
    assert replayed["anomalies"] == []


def test_a_cost_of_the_newest_submission_alone_is_not_the_cost() -> None:
    """The answer depends on the request: `job_submissions_limit: 1` drops the older submissions and their cost."""
    whole = run_item(
        "a", "running", job(submission("failed", exit_status=1), submission("running", num=1)), cost=0.0688
    )
    newest = run_item("a", "running", job(submission("running", num=1)), cost=0.0191)
    story = DstackHistory().listed(whole).wait(5).listed(newest, job_submissions_limit=1)
    assert run_of(story)["provider_cost_usd"] == "0.068800"
    only = single("a", "running", "running", cost=0.01)
    assert run_of(DstackHistory().listed(only, job_submissions_limit=1))["provider_cost_usd"] == "0.010000"


def test_a_cost_of_null_is_unknown() -> None:
    """Never zero."""
    assert run_of(DstackHistory().listed(single("a", cost=None)))["provider_cost_usd"] is None


# -- names, rows, kinds ----------------------------------------------------------------------------------------------


def test_a_name_used_again_is_another_run() -> None:
    """Keyed on the id; `deleted: true` on a row changes nothing, of a live run neither."""
    new = single("a", "running", "running", label="second")
    replayed = told(
        DstackHistory().listed(DONE).wait(5).listed(new, {**DONE, "deleted": True}).listed({**new, "deleted": True})
    )
    assert [(run["name"], run["state"]) for run in replayed["runs"]] == [("a", "succeeded"), ("a", "running")]
    assert replayed["anomalies"] == []


def test_the_same_run_through_two_sources_is_one_run() -> None:
    """A list of every project and one of its own."""
    story = DstackHistory().listed(RUNNING).wait(1)
    story.poll("/api/runs/list", {"limit": 100}, [RUNNING])
    assert run_of(story)["run_id"] == foreign_run_id("dstack", RUNNING["id"])


# -- rough answers ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "body"),
    [(500, "Internal Server Error"), (200, "<html></html>"), (401, {"detail": "Not authenticated"}), (200, {"x": 1})],
)
def test_garbage_is_a_failed_poll_and_no_evidence(status: int, body: Any) -> None:
    """Blind from the last answered poll to the next."""
    story = DstackHistory().listed(RUNNING).wait(5).failed(status, body).wait(5).listed(RUNNING)
    replayed = told(story)
    assert replayed["runs"][0]["state"] == "running"
    assert replayed["blind"] == [
        {
            "source": "dstack/main",
            "from": "2025-12-15T09:00:00.010000Z",
            "to": "2025-12-15T09:00:10.010000Z",
            "kind": "no_answer",
        }
    ]


def test_a_source_that_has_not_answered_again_is_blind_to_no_known_end() -> None:
    """`to` is null."""
    assert told(DstackHistory().listed().wait(5).failed())["blind"] == [
        {"source": "dstack/main", "from": "2025-12-15T09:00:00.010000Z", "to": None, "kind": "no_answer"}
    ]


def kinds(story: DstackHistory) -> list[str]:
    return [gap["kind"] for gap in told(story)["blind"]]


def test_a_gap_says_whether_anybody_polled_in_most_of_it() -> None:
    """A restart in an outage, or a failed poll behind a night without a recorder, does not change the kind of gap."""
    down, night = DstackHistory().listed().wait(5).failed(), DstackHistory().listed().wait(28_800)
    for _ in range(20):
        down.wait(30).failed()
    assert kinds(down) == ["no_answer"]
    assert kinds(down.wait(300).failed()) == ["no_answer"]
    assert kinds(down.wait(5).listed()) == ["no_answer"]
    assert kinds(down.wait(90).listed()) == ["no_answer", "not_polled"]
    assert kinds(night.failed()) == kinds(night.wait(5).failed()) == kinds(night.wait(5).listed()) == ["not_polled"]


@given(pauses=st.lists(st.integers(1, 60), min_size=1, max_size=30), away=st.integers(61, 90_000))
def test_polls_a_minute_apart_leave_no_time_in_which_nobody_polled(pauses: list[int], away: int) -> None:
    """However long the outage; and a gap without a poll is one in which nobody polled."""
    story = DstackHistory().listed()
    for pause in pauses:
        story.wait(pause).failed()
    assert kinds(story.wait(1).listed()) == ["no_answer"]
    assert kinds(story.wait(away).listed()) == ["no_answer", "not_polled"]


def test_a_gap_of_more_than_a_minute_is_blind_and_one_of_a_minute_is_not() -> None:
    """Whatever happened in it."""
    assert told(DstackHistory().listed().wait(60).listed())["blind"] == []
    assert len(told(DstackHistory().listed().wait(60.001).listed())["blind"]) == 1


def test_a_server_without_an_event_log_is_not_down() -> None:
    """405 from `events/list` says nothing of whether we are looking."""
    story = DstackHistory().listed(RUNNING)
    for _ in range(3):
        story.wait(5).poll("/api/events/list", {"limit": 100}, {"detail": "Method Not Allowed"}, status=405)
        story.listed(RUNNING)
    assert told(story)["blind"] == []


def test_an_item_that_is_no_run_is_drift_and_the_others_are_read() -> None:
    """One unreadable row never takes the list with it, and proves no absence."""
    replayed = told(DstackHistory().listed({"id": 4}, RUNNING).wait(5).listed({"id": 4}, RUNNING))
    assert [run["name"] for run in replayed["runs"]] == ["a"]
    assert [(anomaly["kind"], anomaly["subject"]) for anomaly in replayed["anomalies"]] == [
        ("schema_drift", "source/dstack/main")
    ]


def test_an_unknown_word_keeps_the_state_and_is_noted_once() -> None:
    """It is a word of a run, or of a job; a run first seen with such words is queued."""
    odd = single("a", "hibernating", "thinking")
    replayed = told(DstackHistory().listed(RUNNING).wait(5).listed(odd).wait(5).listed(RUNNING).wait(5).listed(odd))
    assert (replayed["runs"][0]["state"], states(replayed["runs"][0])) == ("running", ["running"])
    assert [anomaly["detail"] for anomaly in replayed["anomalies"]] == [
        "job status: unknown word 'thinking'",
        "status: unknown word 'hibernating'",
    ]
    assert replayed["runs"][0]["reported"]["status"] == "hibernating"
    assert run_of(DstackHistory().listed(odd))["state"] == "queued"


def test_lab_notes_unknown_endpoints_and_kinds_are_no_evidence() -> None:
    """Kept, and they end nothing."""
    story = DstackHistory().note("finished").listed(RUNNING)
    story.poll("/api/project/main/runs/apply", {}, DONE).poll("/api/events/list", {}, [{"id": "e", "message": "DONE"}])
    assert run_of(story)["state"] == "running"
    assert told(story)["events"] == 3


# -- times -----------------------------------------------------------------------------------------------------------


def test_an_end_without_the_providers_time_is_at_the_poll_that_settled_it() -> None:
    """`finished_at` is the provider's if it gives one, the settling poll's until then."""
    early = single("a", "running", "terminating", exit_status=0)
    story = DstackHistory().listed(RUNNING).wait(60).listed(early)
    assert run_of(story)["finished_at"] == "2025-12-15T09:01:00.010000Z"
    story.wait(5).listed(DONE)
    assert run_of(story)["finished_at"] == "2025-12-15T09:00:50.000000Z"
    assert run_of(story)["evidence"] == [2]


def test_the_latest_job_ends_a_run_of_several() -> None:
    """The latest `finished_at` of the newest submissions."""
    jobs = [
        job(submission("done", exit_status=0, finished=end), number=number) for number, end in enumerate((70, 90, 80))
    ]
    run = run_of(DstackHistory().listed(RUNNING).wait(100).listed(run_item("a", "done", *jobs)))
    assert run["finished_at"] == "2025-12-15T09:01:30.000000Z"
    assert run["execution_seconds"] == 89.99


def test_a_time_that_would_be_negative_is_zero() -> None:
    """The provider's end may lie before our first sight of it running."""
    story = DstackHistory().wait(80).listed(RUNNING).wait(5).listed(DONE)
    assert run_of(story)["execution_seconds"] == 0


def test_a_word_of_any_length_makes_a_short_anomaly() -> None:
    """It is logged, listed and sent to people: a status of a megabyte would be in each of these."""
    story = DstackHistory().listed(RUNNING).wait(10).listed(single("a", "x" * 100_000, "running"))
    anomalies = told(story)["anomalies"]
    assert anomalies
    assert all(len(anomaly["detail"]) <= 1000 for anomaly in anomalies)
