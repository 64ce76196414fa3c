"""Runs with a `schedule`: each firing is a run of its own, and the schedule waits until it is stopped."""

from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from stenotest.dstack_history import DstackHistory, Item, job, nightly, provider_id, submission

from steno.engine.replay.replay import replay_polls, replay_trace
from steno.engine.replay.result import JsonObject

TRACE = Path(__file__).parent / "traces/schedule.jsonl.zst"
QUARTER = 15 * 60
DONE = {"exit_status": 0, "reason": "done_by_runner"}
FAILED = {"exit_status": 1, "reason": "container_exited_with_error"}
LACKS = {"reason": "failed_to_start_due_to_no_capacity"}
STOPPED = {"reason": "terminated_by_user"}


def part(num: int, begin: float, status: str, end: float | None = None, **more: Any) -> Item:
    """A submission; times are seconds after the start."""
    return submission(status, num=num, submitted=begin, finished=end, **more)


def told(*polls: tuple[float, Item]) -> JsonObject:
    story = DstackHistory()
    for at, row in polls:
        story.now = at
        story.listed(row)
    return replay_polls(list(story.polls())).to_json()


def runs_of(replayed: JsonObject) -> dict[str, tuple[str, str | None, int | None, int]]:
    """The part behind the schedule's id (nothing for itself) → state, reason, exit status, attempts."""
    schedule = provider_id("nightly")
    assert all(run["name"] == "nightly" for run in replayed["runs"])
    return {
        run["provider_id"].removeprefix(schedule): (run["state"], run["reason"], run["exit_status"], run["attempts"])
        for run in replayed["runs"]
    }


WAITS = ("queued", None, None, 1)
GOOD = ("succeeded", "exit_zero", 0, 1)
BAD = ("failed", "exit_nonzero", 1, 1)
UNSEEN = ("lost", "unknown_reason", None, 1)


def test_each_firing_has_its_verdict_and_its_bill() -> None:
    """The first succeeds, the second fails; each has a machine of its own."""
    replayed = replay_trace(TRACE).to_json()
    assert replayed["anomalies"] == []
    verdicts = [(run["provider_id"][36:], run["state"], run["reason"], run["attempts"]) for run in replayed["runs"]]
    assert verdicts == [
        ("", "queued", None, 1),
        ("#0", "succeeded", "exit_zero", 1),
        ("#1", "failed", "exit_nonzero", 1),
    ]
    assert [run["cost_usd"] for run in replayed["runs"]] == [None, "0.044222", "0.038694"]
    assert [vm["runs"] for vm in replayed["vms"]] == [[run["run_id"]] for run in replayed["runs"][1:]]


def retries(retry: list[str] | None, *, due: float | None) -> tuple[tuple[float, Item], ...]:
    """The first submission of a firing finds no machine, the second one does; `due`: said while it is tried."""
    first, over = part(0, 901, "failed", 905, **LACKS), part(0, 901, "terminating", **LACKS)
    second = part(1, 921, "done", 960, **DONE)
    return (
        (902, nightly("submitted", job(part(0, 901, "submitted"), retry=retry), due=due)),
        (904, nightly("submitted", job(over, retry=retry), due=due)),
        (910, nightly("pending", job(first, retry=retry), due=due)),
        (925, nightly("running", job(first, part(1, 921, "running"), retry=retry), due=due)),
        (965, nightly("terminating", job(first, second, retry=retry), reason="all_jobs_done", due=due)),
        (975, nightly("pending", job(first, second, retry=retry), due=1800)),
    )


def test_a_firing_that_is_tried_again_is_one_run_with_two_attempts() -> None:
    """The row may name its policy or not, and may say when the schedule is due next (dstack does)."""
    for retry, due in ((["no-capacity"], 1800), (["no-capacity"], None), (None, None)):
        replayed = told((0, nightly("pending", due=900)), *retries(retry, due=due))
        assert runs_of(replayed) == {"": WAITS, "#0": ("succeeded", "exit_zero", 0, 2)}
        assert replayed["anomalies"] == []


def test_a_firing_whose_retries_end_without_success_has_failed() -> None:
    """The next firing comes at its own time and is not a retry, though both find no machine."""
    policy = ["no-capacity"]
    first, second = part(0, 901, "failed", 905, **LACKS), part(1, 921, "failed", 960, **LACKS)
    third = part(2, 1801, "running")
    over = nightly("terminating", job(first, second, retry=policy), reason="retry_limit_exceeded", due=1800)
    rests = nightly("pending", job(first, second, retry=policy), reason="retry_limit_exceeded", due=1800)
    later = nightly("running", job(first, second, third, retry=policy), reason="retry_limit_exceeded", due=2700)
    failed, runs = ("failed", "no_capacity", None, 2), ("running", None, None, 1)
    for polls in ([(965, over), (975, rests), (1830, later)], [(965, over), (1830, later)], [(1830, later)]):
        replayed = told(*polls)
        assert runs_of(replayed) == {"": WAITS, "#0": failed, "#2": runs}
        assert replayed["anomalies"] == []


def test_the_words_of_an_earlier_firing_say_nothing_of_the_next() -> None:
    """dstack keeps the reason of the last end in the row."""
    first, second = part(0, 901, "failed", 930, **FAILED), part(1, 1801, "running")
    rests = nightly("pending", job(first), reason="job_failed", due=1800)
    runs = nightly("running", job(first, second), reason="job_failed", due=2700)
    done = nightly("pending", job(first, part(1, 1801, "done", 1830, **DONE)), reason="all_jobs_done", due=2700)
    replayed = told((940, rests), (1810, runs), (1840, done))
    assert runs_of(replayed) == {"": WAITS, "#0": BAD, "#1": GOOD}
    assert replayed["anomalies"] == []


def test_a_firing_between_two_polls_has_its_verdict_if_the_row_shows_it() -> None:
    first, second = part(0, 901, "done", 930, **DONE), part(1, 1801, "failed", 1830, **FAILED)
    third = part(2, 2701, "running")
    replayed = told(
        (940, nightly("pending", job(first), due=1800)), (2710, nightly("running", job(first, second, third)))
    )
    assert runs_of(replayed) == {"": WAITS, "#0": GOOD, "#1": BAD, "#2": ("running", None, None, 1)}
    assert replayed["anomalies"] == []


def test_numbers_that_no_row_shows_are_firings_not_seen() -> None:
    """They are lost, without a bill; a later answer that shows one gives it its verdict."""
    first, fourth = part(0, 901, "done", 930, **DONE), part(3, 3601, "running")
    polls = (940, nightly("pending", job(first), due=1800)), (3610, nightly("running", job(fourth)))
    replayed = told(*polls)
    assert runs_of(replayed) == {"": WAITS, "#0": GOOD, "#1": UNSEEN, "#2": UNSEEN, "#3": ("running", None, None, 1)}
    assert {run["cost_usd"] for run in replayed["runs"] if run["state"] == "lost"} == {None}
    third = part(2, 2701, "done", 2730, **DONE)
    replayed = told(*polls, (3620, nightly("running", job(third, fourth))))
    assert (runs_of(replayed)["#1"], runs_of(replayed)["#2"]) == (UNSEEN, GOOD)
    assert replayed["anomalies"] == []


def test_rows_with_the_newest_submission_alone_tell_a_retry_from_a_firing() -> None:
    """By whether one was to come. A firing whose end no row showed is lost, on no machine and not looked for."""
    policy = ["no-capacity"]
    lacks, retried = part(0, 901, "failed", 905, **LACKS), part(1, 921, "running")
    replayed = told(
        (910, nightly("pending", job(lacks, retry=policy))), (925, nightly("running", job(retried, retry=policy)))
    )
    assert runs_of(replayed) == {"": WAITS, "#0": ("running", None, None, 2)}
    third = part(2, 1801, "running")
    polls = (925, nightly("running", job(retried))), (1810, nightly("running", job(third)))
    assert runs_of(told(*polls)) == {"": WAITS, "#1": UNSEEN, "#2": ("running", None, None, 1)}
    assert told(*polls)["anomalies"] == []


def test_a_stop_during_a_firing_stops_it_and_the_schedule() -> None:
    first, second = part(0, 901, "done", 930, **DONE), part(1, 1801, "running")
    stops = part(1, 1801, "terminating", **STOPPED)
    ended = part(1, 1801, "terminated", 1830, **STOPPED)
    replayed = told(
        (1810, nightly("running", job(first, second), due=2700)),
        (1820, nightly("terminating", job(first, stops), reason="stopped_by_user", due=2700)),
        (1830, nightly("terminated", job(first, ended), reason="stopped_by_user")),
        (1840, nightly("terminated", job(first, ended), reason="stopped_by_user")),
    )
    stopped = ("stopped", "stopped_by_user", None, 1)
    assert runs_of(replayed) == {"": stopped, "#0": GOOD, "#1": stopped}
    assert replayed["anomalies"] == []


def test_a_stop_between_firings_stops_the_schedule_alone() -> None:
    jobs = job(part(0, 901, "done", 930, **DONE), part(1, 1801, "failed", 1830, **FAILED))
    stopped = nightly("terminated", jobs, reason="stopped_by_user")
    for polls in ([(1840, nightly("pending", jobs, due=2700)), (1850, stopped)], [(1850, stopped)]):
        replayed = told(*polls)
        assert runs_of(replayed) == {"": ("stopped", "stopped_by_user", None, 1), "#0": GOOD, "#1": BAD}
        assert replayed["anomalies"] == []


def test_a_firing_of_several_jobs_is_one_run() -> None:
    """The second node fails: the firing has failed, and the next one is another run."""
    master, worker = part(0, 901, "done", 930, **DONE), part(0, 901, "failed", 931, **FAILED)
    runs = [job(part(0, 901, "running"), number=0), job(part(0, 901, "running"), number=1)]
    ends = [job(master, number=0), job(worker, number=1)]
    again = [job(master, part(1, 1801, "running"), number=0), job(worker, part(1, 1801, "running"), number=1)]
    replayed = told(
        (910, nightly("running", *runs)),
        (940, nightly("terminating", *ends, reason="job_failed")),
        (950, nightly("pending", *ends, due=1800)),
        (1810, nightly("running", *again)),
    )
    assert runs_of(replayed) == {"": WAITS, "#0": BAD, "#1": ("running", None, None, 1)}
    assert replayed["anomalies"] == []


def test_a_record_that_begins_in_the_middle_misses_nothing_it_cannot_know() -> None:
    """Earlier firings are not listed; a firing whose first attempts are left out has the number of the first seen."""
    policy = ["no-capacity"]
    cut = [part(num, 901 + 20 * num, "failed", 905 + 20 * num, **LACKS) for num in range(3, 6)]
    row = nightly("running", job(*cut, part(6, 1100, "running"), retry=policy))
    replayed = told((1110, row))
    assert runs_of(replayed) == {"": WAITS, "#3": ("running", None, None, 4)}
    later = nightly(
        "terminating", job(*cut[1:], part(6, 1100, "done", 1200, **DONE), retry=policy), reason="all_jobs_done"
    )
    replayed = told((1110, row), (1210, later))
    assert runs_of(replayed) == {"": WAITS, "#3": ("succeeded", "exit_zero", 0, 4)}
    assert replayed["anomalies"] == []


def test_firings_that_the_row_no_longer_shows_keep_their_verdict() -> None:
    """dstack lists the ten newest submissions."""
    ends = [part(num, QUARTER * (num + 1) + 1, "done", QUARTER * (num + 1) + 30, **DONE) for num in range(13)]
    polls = [
        (QUARTER * (num + 1) + 40, nightly("pending", job(*ends[max(0, num - 9) : num + 1]), due=QUARTER * (num + 2)))
        for num in range(13)
    ]
    replayed = told(*polls)
    assert runs_of(replayed) == {"": WAITS} | {f"#{num}": GOOD for num in range(13)}
    assert replayed["anomalies"] == []


def test_a_firing_is_missing_only_if_its_schedule_is() -> None:
    """Its own id is in no list."""
    row = nightly("running", job(part(0, 901, "running")))
    story = DstackHistory()
    for at in range(910, 910 + 1200, 30):
        story.now = at
        story.listed(row)
    assert runs_of(replay_polls(list(story.polls())).to_json())["#0"][0] == "running"
    for _ in range(40):
        story.wait(30).listed()
    replayed = replay_polls(list(story.polls())).to_json()
    assert runs_of(replayed) == {"": UNSEEN, "#0": UNSEEN}
    story.gone(id=provider_id("nightly"))
    assert {run["reason"] for run in replay_polls(list(story.polls())).to_json()["runs"]} == {"deleted"}


SECOND_FAILED = job(
    part(0, 901, "failed", 905, **LACKS),
    part(1, 921, "done", 960, **DONE),
    part(2, 1801, "failed", 1830, **FAILED),
    retry=["no-capacity"],
)
"""The first firing succeeded at its second try, the second failed."""
STORY = (
    (0, nightly("pending", due=900)),
    *retries(["no-capacity"], due=1800),
    (
        1810,
        nightly(
            "running",
            job(
                *[part(0, 901, "failed", 905, **LACKS), part(1, 921, "done", 960, **DONE)],
                part(2, 1801, "running"),
                retry=["no-capacity"],
            ),
            due=2700,
        ),
    ),
    (1840, nightly("terminating", SECOND_FAILED, reason="job_failed", due=2700)),
    (1850, nightly("pending", SECOND_FAILED, reason="job_failed", due=2700)),
)


@given(st.sets(st.sampled_from(range(len(STORY) - 1))))
def test_polls_that_are_missing_change_no_verdict(missing: set[int]) -> None:
    """Law: as long as one answer shows how the firings ended."""
    replayed = told(*(poll for number, poll in enumerate(STORY) if number not in missing))
    assert runs_of(replayed) == {"": WAITS, "#0": ("succeeded", "exit_zero", 0, 2), "#2": BAD}
    assert replayed["anomalies"] == []
