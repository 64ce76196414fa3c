"""A timeline is a run's transitions laid end to end."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from stenotest.dstack_history import single
from stenotest.event_world import OURS, EventWorld, requested
from stenotest.histories import History, histories
from stenotest.run_objects import T, a_run

from steno.engine.objects import AttemptObject, BlindObject, RunObject, run_object
from steno.engine.rules.sets import CURRENT
from steno.engine.state.run import Attempt, Run
from steno.engine.wire import wire
from steno.events import types
from steno.events.clock import SECOND, format_time
from steno.projections.answers.timeline import Timeline, timeline


def test_states_are_spans_that_meet() -> None:
    """Each state lasts until the next; the verdict takes no time."""
    life = timeline(a_run(("queued", 2), ("running", 5), ("finishing", 9), ("succeeded", 10)), [], now=T, foreign=True)
    assert [(span.state, (span.end or 0) - span.start) for span in life.spans] == [
        ("queued", 3 * SECOND),
        ("running", 4 * SECOND),
        ("finishing", SECOND),
    ]
    assert life.until == T + 10 * SECOND
    assert life.unwatched == T + 2 * SECOND


def test_an_open_run_is_counted_to_now() -> None:
    """The last state of an open run has no end yet."""
    life = timeline(a_run(("queued", 0), ("running", 5)), [], now=T + 60 * SECOND)
    assert life.spans[-1].end is None
    assert life.until == T + 60 * SECOND
    assert wire(life)["until"] == format_time(life.until)


def test_a_return_to_the_queue_is_a_new_attempt_even_where_it_took_no_time() -> None:
    """A retry seen in one poll with what followed still counts."""
    run = a_run(("queued", 0), ("running", 5), ("queued", 9), ("provisioning", 9), ("running", 12))
    life = timeline(run, [], now=T + 20 * SECOND, later=(Attempt(number=2, position=3),))
    assert [(span.state, span.attempt) for span in life.spans] == [
        ("queued", 1),
        ("running", 1),
        ("provisioning", 2),
        ("running", 2),
    ]


def folded(run: Run) -> tuple[RunObject, Timeline]:
    """The run as every reader gets it, and its timeline."""
    public = run_object(run, CURRENT)
    return public, timeline(public, [], run.last_at, later=run.later_attempts, foreign=run.requested_at is None)


@given(histories())
def test_the_timeline_counts_attempts_as_the_run_object_does(history: History) -> None:
    """Whatever the provider retried: one figure, from the submission numbers that it shows."""
    world = EventWorld()
    for item in history.items:
        world.runs(item)
        public, life = folded(world.run)
        attempts = [span.attempt for span in life.spans]
        assert attempts == sorted(attempts)
        assert attempts[-1:] in ([], [public.attempts])
    assert public.attempts == 1 + max(job["job_submissions"][-1]["submission_num"] for job in item["jobs"])


def test_an_attempt_that_no_poll_showed_counts() -> None:
    """The submission number says that there was one between."""
    world = EventWorld().runs(single("a", "running", "running")).runs(single("a", "running", "running", num=2))
    public, life = folded(world.run)
    assert public.attempts == 3
    assert [(span.state, span.attempt) for span in life.spans] == [("running", 1), ("running", 3)]


def test_requests_made_again_for_want_of_capacity_count_as_attempts() -> None:
    """Three requests, the last of which dstack itself tried twice: four attempts, told alike everywhere."""
    world = EventWorld().event(requested())
    for number in (1, 2):
        failed = single(
            "a",
            "failed",
            "failed",
            job_reason="failed_to_start_due_to_no_capacity",
            submitted=number,
            label=f"{number}",
        )
        world.event(types.SubmitSucceeded(run_id=OURS, provider="dstack", provider_id=failed["id"], name="a"))
        world.runs(failed)
        again = types.RunRequeued(
            run_id=OURS, provider="dstack", provider_id=failed["id"], attempt=number + 1, not_before=0
        )
        world.event(again)
        assert world.run.held is not None
        assert f"attempt {number + 1} asks" in world.run.held.detail
    third = {"submitted": 30.0, "label": "3"}
    world.event(types.SubmitSucceeded(run_id=OURS, provider="dstack", provider_id=single("a", **third)["id"], name="a"))
    world.runs(single("a", "running", "running", **third)).runs(single("a", "running", "running", num=1, **third))
    public, life = folded(world.run)
    assert public.attempts == 4
    assert [span.attempt for span in life.spans] == sorted(span.attempt for span in life.spans)
    assert {span.attempt for span in life.spans} == {1, 2, 3, 4}


def test_a_run_of_ours_is_requested_until_a_poll_shows_it() -> None:
    """A run that Steno submitted has no time before its request."""
    run = a_run(("running", 2), ("succeeded", 5), run_id="5f0c0000-0000-4000-8000-000000000001")
    life = timeline(run, [], now=T)
    assert life.unwatched is None
    assert [(span.state, (span.end or 0) - T) for span in life.spans] == [
        ("requested", 2 * SECOND),
        ("running", 5 * SECOND),
    ]


def test_gaps_are_cut_to_the_runs_life() -> None:
    """Nobody minds that a source was silent before or after."""
    run = a_run(("running", 0), ("succeeded", 10))
    silent = [
        BlindObject(source="dstack/main", start=format_time(T - 100 * SECOND), end=format_time(T + 4 * SECOND)),
        BlindObject(source="dstack/main", start=format_time(T + 20 * SECOND), end=None),
    ]
    life = timeline(run, silent, now=T + 90 * SECOND)
    assert [(gap.start - T, gap.end - T) for gap in life.gaps] == [(0, 4 * SECOND)]


@given(st.lists(st.tuples(st.sampled_from(["queued", "provisioning", "running", "finishing"]), st.floats(0, 1000))))
def test_spans_cover_the_watched_life_exactly(steps: list[tuple[str, float]]) -> None:
    """No moment between the first poll and the verdict is lost or counted twice."""
    moves = [*sorted(steps, key=lambda step: step[1]), ("failed", 1001.0)]
    life = timeline(a_run(*moves), [], now=T)
    seconds = sum((span.end or 0) - span.start for span in life.spans)
    first = life.unwatched if life.unwatched is not None else life.start
    assert seconds == life.until - first


def dated(number: int, submitted: int, started: int | None, finished: int | None) -> AttemptObject:
    """An attempt by accounting's times, seconds after T."""
    at = [None if seconds is None else format_time(T + seconds * SECOND) for seconds in (submitted, started, finished)]
    return AttemptObject(
        number=number,
        status=None,
        exit_status=None,
        hosts="n1",
        submitted_at=at[0],
        started_at=at[1],
        finished_at=at[2],
        waited_seconds=None,
    )


def spans_of(run: RunObject, *attempts: AttemptObject, later: tuple[Attempt, ...] = ()) -> list[tuple[str, int, int]]:
    """State, begin and end in seconds after T; -1: open."""
    life = timeline(replace(run, attempt_list=attempts), [], now=T + 60 * SECOND, later=later, foreign=True)
    assert all(span.end == after.start for span, after in pairwise(life.spans))
    return [
        (span.state, (span.start - T) // SECOND, -1 if span.end is None else (span.end - T) // SECOND)
        for span in life.spans
    ]


def test_the_providers_times_of_an_attempt_count_rather_than_those_of_polls() -> None:
    """Polled every ten seconds, the job ran from the 3rd to the 12th."""
    run = a_run(("queued", 1), ("running", 10), ("finishing", 20), ("succeeded", 30))
    assert spans_of(run, dated(1, 0, 3, 12)) == [("queued", 1, 3), ("running", 3, 12), ("finishing", 12, 30)]
    run = a_run(("running", 10), ("succeeded", 20))
    assert spans_of(run, dated(1, 0, 3, 12)) == [("running", 3, 12)]
    assert spans_of(a_run(("queued", 1), ("running", 10)), dated(1, 0, 3, None)) == [
        ("queued", 1, 3),
        ("running", 3, -1),
    ]


def test_a_job_that_no_poll_showed_running_ran_all_the_same() -> None:
    """It was queued at one poll and over at the next."""
    run = a_run(("queued", 1), ("finishing", 20), ("failed", 21))
    assert spans_of(run, dated(1, 0, 3, 12)) == [("queued", 1, 3), ("running", 3, 12), ("finishing", 12, 21)]
    assert spans_of(a_run(("queued", 1), ("failed", 21)), dated(1, 0, 3, 12)) == [("queued", 1, 3), ("running", 3, 12)]
    assert spans_of(a_run(("queued", 1), ("stopped", 9)), dated(1, 0, None, 8)) == [("queued", 1, 9)]


def test_each_attempt_has_its_own_times() -> None:
    """The queue of the second begins at the end of the first."""
    run = a_run(("queued", 1), ("running", 10), ("queued", 20), ("running", 40), ("failed", 50))
    later = (Attempt(number=2, position=3),)
    assert spans_of(run, dated(1, 0, 3, 12), dated(2, 12, 33, 44), later=later) == [
        ("queued", 1, 3), ("running", 3, 12), ("queued", 12, 33), ("running", 33, 44),
    ]  # fmt: skip
