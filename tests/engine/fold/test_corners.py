"""The corners of the fold: what real servers and rough traces do, one test each."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stenotest.story import Story, job, run_item, single, submission

from engine.replay.result import JsonObject
from engine.replay.trace import replay_polls
from events.clock import foreign_run_id


def told(story: Story, rules: str = "current") -> JsonObject:
    return replay_polls(list(story.polls()), rules).to_json()


def run_of(story: Story, rules: str = "current") -> JsonObject:
    (run,) = told(story, rules)["runs"]
    return dict(run)


def states(run: JsonObject) -> list[str]:
    return [step["to"] for step in run["transitions"]]


RUNNING = single("a", "running", "running")
DONE = single("a", "done", "done", reason="all_jobs_done", job_reason="done_by_runner", exit_status=0, finished=50)


# -- absence ---------------------------------------------------------------------------------------------------------


def test_a_run_not_listed_for_ten_answered_minutes_is_lost() -> None:
    """And not a poll earlier."""
    story = Story().listed(RUNNING)
    for _ in range(21):
        story.wait(30).listed()
    assert run_of(story)["state"] == "lost"
    assert run_of(story)["reason"] == "unknown_reason"
    story.lines.pop()
    assert run_of(story)["state"] == "running"


def test_time_in_which_the_source_did_not_answer_does_not_count() -> None:
    """A gap in which we recorded nothing is blind and advances no grace."""
    story = Story().listed(RUNNING).wait(10).listed()
    for _ in range(30):
        story.wait(61).listed()
    assert run_of(story)["state"] == "running"
    story = Story().listed(RUNNING).wait(10).listed()
    for _ in range(60):
        story.wait(15).failed().wait(15).listed()
    assert run_of(story)["state"] == "running"


def test_a_lost_run_leaves_lost_as_soon_as_evidence_comes() -> None:
    """`lost` is not terminal."""
    story = Story().listed(RUNNING)
    for _ in range(22):
        story.wait(30).listed()
    story.wait(30).listed(RUNNING)
    assert states(run_of(story))[-2:] == ["lost", "running"]
    assert run_of(story)["reason"] is None
    story.lines[-1] = Story(now=story.now).listed(DONE).lines[0]
    assert states(run_of(story))[-2:] == ["lost", "succeeded"]
    assert told(story)["anomalies"] == []


def test_a_run_whose_id_does_not_exist_is_lost_as_deleted() -> None:
    """`runs/get` by id says so; it takes ten answered minutes too."""
    story = Story().listed(RUNNING)
    for _ in range(21):
        story.wait(30).gone(id=RUNNING["id"])
    assert (run_of(story)["state"], run_of(story)["reason"]) == ("lost", "deleted")


def test_a_name_that_does_not_exist_says_nothing() -> None:
    """A deleted run is not found by name and stays listed."""
    story = Story().listed(RUNNING)
    for _ in range(40):
        story.wait(30).gone(run_name="a")
    assert run_of(story)["state"] == "running"


@pytest.mark.parametrize("req", [{"only_active": True}, {"username": "somebody"}, {"repo_id": "r"}])
def test_a_filtered_list_shows_no_absence(req: dict[str, Any]) -> None:
    """Only a complete, unfiltered sweep does."""
    story = Story().listed(RUNNING)
    for _ in range(40):
        story.wait(30).listed(**req)
    assert run_of(story)["state"] == "running"


def test_a_full_page_alone_shows_no_absence_and_the_last_page_does() -> None:
    """A sweep is complete with a page shorter than its limit."""
    others = [single(f"b-{number}", "running", "running") for number in range(3)]
    story = Story().listed(RUNNING)
    for _ in range(40):
        story.wait(30).listed(*others[:2], limit=2)
    assert told(story)["runs"][0]["state"] == "running"
    story = Story().listed(RUNNING)
    for _ in range(22):
        story.wait(30).listed(*others[:2], limit=2)
        story.wait(0.1).listed(others[2], limit=2, prev_run_id=others[1]["id"])
    assert told(story)["runs"][0]["state"] == "lost"


def test_more_than_a_hundred_runs_are_read_page_by_page() -> None:
    """Each page an observation of its runs; none is missing."""
    items = [single(f"r-{number}", "done", "done", exit_status=0) for number in range(250)]
    story = Story().listed(*items[:100])
    story.listed(*items[100:200], prev_run_id=items[99]["id"]).listed(*items[200:], prev_run_id=items[199]["id"])
    found = told(story)
    assert [run["name"] for run in found["runs"]] == [f"r-{number}" for number in range(250)]
    assert {run["state"] for run in found["runs"]} == {"succeeded"}


def test_a_terminal_run_is_never_lost() -> None:
    """However long it is not listed."""
    story = Story().listed(DONE)
    for _ in range(60):
        story.wait(30).listed()
    assert run_of(story)["state"] == "succeeded"


def test_a_run_of_another_project_is_not_missed() -> None:
    """A sweep covers its project."""
    story = Story().listed(RUNNING)
    other = Story(project="other", now=1)
    for _ in range(40):
        other.wait(30).listed()
    story.lines += other.lines
    assert run_of(story)["state"] == "running"


# -- what the provider takes back ------------------------------------------------------------------------------------


def test_a_later_end_that_differs_wins_and_is_a_contradiction() -> None:
    """The newest decisive observation alone gives the verdict."""
    failed = single(
        "a", "failed", "failed", reason="job_failed", job_reason="container_exited_with_error", exit_status=1
    )
    story = Story().listed(DONE).wait(5).listed(failed)
    found = told(story)
    assert (found["runs"][0]["state"], found["runs"][0]["evidence"]) == ("failed", [2])
    assert [(anomaly["kind"], anomaly["position"]) for anomaly in found["anomalies"]] == [("contradiction", 2)]
    assert found["anomalies"][0]["subject"] == f"run/{found['runs'][0]['run_id']}"


@pytest.mark.parametrize(
    "again",
    [
        single("a", "pending", "done", job_reason="done_by_runner", exit_status=0),
        run_item("a", "submitted", job(submission("done", exit_status=0), submission("submitted", num=1))),
    ],
)
def test_a_run_that_goes_back_to_the_queue_is_reopened(again: JsonObject) -> None:
    """A later `pending` or higher `submission_num` reopens it with a contradiction."""
    found = told(Story().listed(single("a", "running", "terminating", exit_status=0)).wait(5).listed(again))
    (run,) = found["runs"]
    assert (run["state"], run["reason"], run["exit_status"], run["finished_at"]) == ("queued", None, None, None)
    assert [anomaly["kind"] for anomaly in found["anomalies"]] == ["contradiction"]


def test_a_step_back_in_the_same_attempt_is_an_anomaly_once() -> None:
    """The state stays."""
    story = Story().listed(RUNNING)
    for _ in range(3):
        story.wait(5).listed(single("a", "provisioning", "provisioning")).wait(5).listed(RUNNING)
    found = told(story)
    assert states(found["runs"][0]) == ["running"]
    assert [anomaly["kind"] for anomaly in found["anomalies"]] == ["illegal_transition"]


def test_a_retry_seen_only_at_its_end_passes_through_the_queue() -> None:
    """Both moves at that poll; the last attempt was never seen running."""
    ended = run_item("a", "done", job(submission("failed", exit_status=1), submission("done", num=1, exit_status=0)))
    run = run_of(Story().listed(RUNNING).wait(60).listed(ended))
    assert states(run) == ["running", "queued", "succeeded"]
    assert [step["position"] for step in run["transitions"]] == [1, 2, 2]
    assert (run["attempts"], run["started_at"], run["execution_seconds"]) == (2, None, None)


# -- partial answers -------------------------------------------------------------------------------------------------


def test_an_answer_without_jobs_does_not_undo_what_a_whole_one_said() -> None:
    """`include_jobs: false` is decisive by its status only where nothing fuller is."""
    bare = {**DONE, "jobs": [], "latest_job_submission": None, "cost": 0}
    story = Story().listed(bare, include_jobs=False)
    run = run_of(story)
    assert (run["state"], run["exit_status"], run["provider_cost_usd"]) == ("succeeded", None, None)
    story.wait(5).listed({**DONE, "cost": 0.5}).wait(5).listed(bare, include_jobs=False)
    found = told(story)
    assert (found["runs"][0]["exit_status"], found["runs"][0]["provider_cost_usd"]) == (0, "0.500000")
    assert found["runs"][0]["reported"]["jobs"] == [{"status": "done", "reason": "done_by_runner", "exit_status": 0}]
    assert found["anomalies"] == []


def test_a_cost_of_the_newest_submission_alone_is_not_the_cost() -> None:
    """The answer depends on the request: `job_submissions_limit: 1` drops the older ones and their cost."""
    whole = run_item(
        "a", "running", job(submission("failed", exit_status=1), submission("running", num=1)), cost=0.0688
    )
    newest = run_item("a", "running", job(submission("running", num=1)), cost=0.0191)
    story = Story().listed(whole).wait(5).listed(newest, job_submissions_limit=1)
    assert run_of(story)["provider_cost_usd"] == "0.068800"
    only = single("a", "running", "running", cost=0.01)
    assert run_of(Story().listed(only, job_submissions_limit=1))["provider_cost_usd"] == "0.010000"


def test_a_cost_of_null_is_unknown() -> None:
    """Never zero."""
    assert run_of(Story().listed(single("a", cost=None)))["provider_cost_usd"] is None


# -- names, rows, kinds ----------------------------------------------------------------------------------------------


def test_a_name_used_again_is_another_run() -> None:
    """Keyed on the id; `deleted: true` on a row changes nothing."""
    new = single("a", "running", "running", label="second")
    found = told(Story().listed(DONE).wait(5).listed(new, {**DONE, "deleted": True}))
    assert [(run["name"], run["state"]) for run in found["runs"]] == [("a", "succeeded"), ("a", "running")]
    assert found["anomalies"] == []


def test_a_deleted_row_of_a_live_run_changes_nothing() -> None:
    """`deleted` belongs to `lost` only."""
    assert run_of(Story().listed(RUNNING).wait(5).listed({**RUNNING, "deleted": True}))["state"] == "running"


def test_a_hostname_used_again_by_a_later_machine_changes_no_verdict() -> None:
    """Machines are not yet folded; a run stands alone."""
    first = run_item("a", "done", job(submission("done", exit_status=0, hostname="10.0.0.1")))
    second = run_item("b", "running", job(submission("running", hostname="10.0.0.1")))
    found = told(Story().listed(first).wait(5).machines().listed(second, first))
    assert [(run["state"], run["vm_id"], run["start"]) for run in found["runs"]] == [
        ("succeeded", None, None),
        ("running", None, None),
    ]
    assert found["vms"] == []


def test_the_same_run_through_two_sources_is_one_run() -> None:
    """A list of every project and one of its own."""
    story = Story().listed(RUNNING).wait(1)
    story.poll("/api/runs/list", {"limit": 100}, [RUNNING])
    assert run_of(story)["run_id"] == foreign_run_id("dstack", RUNNING["id"])


# -- rough answers ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "body"),
    [(500, "Internal Server Error"), (200, "<html></html>"), (401, {"detail": "Not authenticated"}), (200, {"x": 1})],
)
def test_garbage_is_a_failed_poll_and_no_evidence(status: int, body: Any) -> None:
    """Blind from the last answered poll to the next."""
    story = Story().listed(RUNNING).wait(5).failed(status, body).wait(5).listed(RUNNING)
    found = told(story)
    assert found["runs"][0]["state"] == "running"
    assert found["blind"] == [
        {
            "source": "dstack/main",
            "from": "2025-12-15T09:00:00.010000Z",
            "to": "2025-12-15T09:00:10.010000Z",
            "kind": "no_answer",
        }
    ]


def test_a_source_that_has_not_answered_again_is_blind_to_no_known_end() -> None:
    """`to` is null."""
    assert told(Story().listed().wait(5).failed())["blind"] == [
        {"source": "dstack/main", "from": "2025-12-15T09:00:00.010000Z", "to": None, "kind": "no_answer"}
    ]


def kinds(story: Story) -> list[str]:
    return [gap["kind"] for gap in told(story)["blind"]]


def test_a_gap_says_whether_anybody_polled_in_most_of_it() -> None:
    """A restart in an outage, or a failed poll behind a night without a recorder, does not change which it was."""
    down, night = Story().listed().wait(5).failed(), Story().listed().wait(28_800)
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
    story = Story().listed()
    for pause in pauses:
        story.wait(pause).failed()
    assert kinds(story.wait(1).listed()) == ["no_answer"]
    assert kinds(story.wait(away).listed()) == ["no_answer", "not_polled"]


def test_a_gap_of_more_than_a_minute_is_blind_and_one_of_a_minute_is_not() -> None:
    """Whatever happened in it."""
    assert told(Story().listed().wait(60).listed())["blind"] == []
    assert len(told(Story().listed().wait(60.001).listed())["blind"]) == 1


def test_a_server_without_an_event_log_is_not_down() -> None:
    """405 from `events/list` says nothing of whether we are looking."""
    story = Story().listed(RUNNING)
    for _ in range(3):
        story.wait(5).poll("/api/events/list", {"limit": 100}, {"detail": "Method Not Allowed"}, status=405)
        story.listed(RUNNING)
    assert told(story)["blind"] == []


def test_an_item_that_is_no_run_is_drift_and_the_others_are_read() -> None:
    """One unreadable row never takes the list with it, and proves no absence."""
    found = told(Story().listed({"id": 4}, RUNNING).wait(5).listed({"id": 4}, RUNNING))
    assert [run["name"] for run in found["runs"]] == ["a"]
    assert [(anomaly["kind"], anomaly["subject"]) for anomaly in found["anomalies"]] == [
        ("schema_drift", "source/dstack/main")
    ]


def test_an_unknown_word_keeps_the_state_and_is_noted_once() -> None:
    """Of a run and of a job."""
    odd = single("a", "hibernating", "thinking")
    found = told(Story().listed(RUNNING).wait(5).listed(odd).wait(5).listed(RUNNING).wait(5).listed(odd))
    assert (found["runs"][0]["state"], states(found["runs"][0])) == ("running", ["running"])
    assert [anomaly["detail"] for anomaly in found["anomalies"]] == [
        "job status: unknown word 'thinking'",
        "status: unknown word 'hibernating'",
    ]
    assert found["runs"][0]["reported"]["status"] == "hibernating"


def test_a_run_first_seen_with_unknown_words_is_queued() -> None:
    """It exists; nothing more is known."""
    assert run_of(Story().listed(single("a", "hibernating", "thinking")))["state"] == "queued"


def test_lab_notes_unknown_endpoints_and_kinds_are_no_evidence() -> None:
    """Kept, and they end nothing."""
    story = Story().note("finished").listed(RUNNING)
    story.poll("/api/project/main/runs/apply", {}, DONE).poll("/api/events/list", {}, [{"id": "e", "message": "DONE"}])
    assert run_of(story)["state"] == "running"
    assert told(story)["events"] == 3


# -- times -----------------------------------------------------------------------------------------------------------


def test_an_end_without_the_providers_time_is_at_the_poll_that_settled_it() -> None:
    """`finished_at` is the provider's if it gives one, the settling poll's until then."""
    early = single("a", "running", "terminating", exit_status=0)
    story = Story().listed(RUNNING).wait(60).listed(early)
    assert run_of(story)["finished_at"] == "2025-12-15T09:01:00.010000Z"
    story.wait(5).listed(DONE)
    assert run_of(story)["finished_at"] == "2025-12-15T09:00:50.000000Z"
    assert run_of(story)["evidence"] == [2]


def test_the_latest_job_ends_a_run_of_several() -> None:
    """The latest `finished_at` of the newest submissions."""
    jobs = [
        job(submission("done", exit_status=0, finished=end), number=number) for number, end in enumerate((70, 90, 80))
    ]
    run = run_of(Story().listed(RUNNING).wait(100).listed(run_item("a", "done", *jobs)))
    assert run["finished_at"] == "2025-12-15T09:01:30.000000Z"
    assert run["execution_seconds"] == 89.99


def test_a_time_that_would_be_negative_is_zero() -> None:
    """The provider's end may lie before our first sight of it running."""
    story = Story().wait(80).listed(RUNNING).wait(5).listed(DONE)
    assert run_of(story)["execution_seconds"] == 0


def test_a_word_of_any_length_makes_a_short_anomaly() -> None:
    """It is logged, listed and sent to people: a status of a megabyte would be in each of these."""
    story = Story().listed(RUNNING).wait(10).listed(single("a", "x" * 100_000, "running"))
    anomalies = told(story)["anomalies"]
    assert anomalies
    assert all(len(one["detail"]) <= 1000 for one in anomalies)
