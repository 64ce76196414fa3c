"""A kernel's story is a pure function of the run's events, and its end is its verdict."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steno.engine.fold.run_step import heard
from steno.engine.state.changes import Transition
from steno.engine.state.kernel_mark import STATUSES, KernelMark
from steno.engine.state.run import Run, Said
from steno.engine.state.state_machines import TERMINAL
from steno.engine.state.states import Reason, State
from steno.events import types
from steno.events.clock import SECOND
from steno.projections.answers.kernel import BENCHMARKED, KernelEvent, Status, statuses

START = 1_763_640_000 * SECOND
ERRORS = {"ERROR", "COMPILE_ERROR", "WRONG_ANSWER", "RUNTIME_ERROR", "CHEATING_SUSPECTED"}
REASONS = {
    State.SUCCEEDED: [Reason.EXIT_ZERO],
    State.FAILED: [Reason.EXIT_NONZERO, Reason.TIMED_OUT, Reason.NO_CAPACITY, Reason.PROVIDER_ERROR],
    State.STOPPED: [Reason.STOPPED_BY_USER, Reason.STOPPED_BY_POLICY, Reason.UNKNOWN_REASON],
}


def mark(endpoint: str) -> bytes:
    return msgspec.json.encode(
        KernelMark(
            problem="matmul",
            gpu_type="MI300X",
            dtype="float32",
            language="hip",
            endpoint=endpoint,
        )
    )


class History:
    """A run and its events, position by position."""

    def __init__(self, endpoint: str = "benchmark") -> None:
        self.run = Run(run_id="r", provider="dstack", name="matmul", first_position=1, first_at=START,
                       last_position=1, last_at=START, said=Said(mark=mark(endpoint)))  # fmt: skip
        self.facts: list[KernelEvent] = []
        self.position = 0
        self.seq = 0
        request = types.RunRequested(
            run_id="r", provider="dstack", project="main", name="matmul", configuration=b"{}", submitter="me"
        )
        self.happens(request)

    @property
    def at(self) -> int:
        return START + self.position * SECOND

    def happens(self, event: types.Event) -> None:
        self.position += 1
        self.facts.append(KernelEvent(position=self.position, at=self.at, event=event))

    def moves(self, state: State, reason: Reason | None = None) -> None:
        self.position += 1
        run = self.run
        run.provider_id = run.provider_id or "p"
        step = Transition(position=self.position, at=self.at, before=run.state, after=state, rule="current@1/test")
        run.transitions, run.state = (*run.transitions, step), state
        refined = run.said.error if run.said is not None and reason is Reason.EXIT_NONZERO else None
        run.reason = refined or reason

    def says(self, status: str | None, **more: object) -> None:
        """`None`: nothing more of its output is read."""
        self.seq += 1
        run = self.run
        assert run.said is not None
        run.provider_id = run.provider_id or "p"
        frame = b"" if status is None else msgspec.json.encode({"key": "k", "seq": 1, "status": status, **more})
        event = types.TaskReported(
            run_id="r", provider="dstack", provider_id="p", seq=self.seq, frame=frame, last=status is None
        )
        if run.said.over or run.said.ended:
            return
        self.happens(event)
        run.said = heard(run.said, self.seq, frame, last=status is None, position=self.position, at=self.at)
        if run.said.error is not None and run.reason is Reason.EXIT_NONZERO:
            run.reason = run.said.error

    def story(self) -> tuple[Status, ...]:
        return statuses(self.run, self.facts)


def names(story: tuple[Status, ...]) -> list[str]:
    return [step.status for step in story]


def test_a_cold_start_is_told_from_queue_to_result() -> None:
    """The seeds' timeline, one status each."""
    history = History()
    history.moves(State.QUEUED)
    history.moves(State.PROVISIONING)
    history.moves(State.PULLING)
    history.moves(State.RUNNING)
    for status in ("COMPILING", "CHECKING", "TEST_RESULT", "CHECKED", "BENCHMARKING", "BENCHMARK_RESULT"):
        history.says(status)
    history.says("BENCHMARKED", median_ms=[1.5])
    assert names(history.story())[-1] == "BENCHMARK_RESULT"  # the last word waits for the verdict
    history.moves(State.SUCCEEDED, Reason.EXIT_ZERO)
    story = history.story()
    assert names(story) == [
        "IN_QUEUE",
        "PROVISIONING",
        "PROVISIONING",
        "COMPILING",
        "CHECKING",
        "TEST_RESULT",
        "CHECKED",
        "BENCHMARKING",
        "BENCHMARK_RESULT",
        "BENCHMARKED",
    ]
    assert (story[-1].message, story[-1].facts["median_ms"], story[-1].final) == (BENCHMARKED, [1.5], True)
    assert not {"key", "seq"} & {name for step in story for name in step.facts}


def test_a_success_whose_task_could_not_be_heard_is_a_success() -> None:
    """The incident Steno was born from: a finished run shown as an error."""
    history = History()
    history.moves(State.RUNNING)
    history.moves(State.SUCCEEDED, Reason.EXIT_ZERO)
    assert names(history.story()) == ["IN_QUEUE"]
    history.says(None)
    assert names(history.story()) == ["IN_QUEUE", "BENCHMARKED"]


def test_a_verdict_waits_for_what_its_task_has_to_say() -> None:
    """The reason may be in lines that are read a moment later."""
    history = History()
    history.moves(State.RUNNING)
    history.moves(State.FAILED, Reason.EXIT_NONZERO)
    assert not history.story()[-1].final
    history.says("WRONG_ANSWER", message="entry 3 is 1, not 2")
    end = history.story()[-1]
    assert (end.status, end.message, end.facts["reason"]) == ("WRONG_ANSWER", "entry 3 is 1, not 2", "wrong_answer")


def test_a_request_its_provider_never_got_ends_at_once() -> None:
    """With the words of the refusal."""
    history = History()
    history.happens(types.SubmitFailed(run_id="r", provider="dstack", error="no such image"))
    history.moves(State.FAILED, Reason.REJECTED)
    history.run.provider_id = None
    end = history.story()[-1]
    assert (end.status, end.message, end.final) == ("ERROR", "no such image", True)


def test_a_run_that_may_be_made_again_has_not_ended() -> None:
    """No capacity, while there is patience: it waits, and its second attempt is told like the first."""
    history = History()
    history.moves(State.FAILED, Reason.NO_CAPACITY)
    history.says(None)
    assert not any(step.final for step in statuses(history.run, history.facts, may_go_on=True))
    assert history.story()[-1].status == "ERROR"


@pytest.mark.parametrize("endpoint", ["benchmark", "checker"])
@given(data=st.data())
def test_a_story_only_grows_and_ends_as_its_run_did(endpoint: str, data: st.DataObject) -> None:
    """Whatever a task says and whenever it is heard: no success ends in an error, no failure in a result, positions
    rise, and what was told stays told.
    """
    history = History(endpoint)
    before: tuple[Status, ...] = ()
    verdict = data.draw(st.sampled_from(TERMINAL))
    reason = data.draw(st.sampled_from(REASONS[verdict]))
    frames = data.draw(st.lists(st.sampled_from(sorted(STATUSES)), max_size=8))
    when = data.draw(st.integers(min_value=0, max_value=len(frames)))
    live = [State.QUEUED, State.PROVISIONING, State.RUNNING]
    for index, status in enumerate([*frames, None]):
        if index == when:
            history.moves(verdict, reason)
        elif live and index < when and data.draw(st.booleans()):
            history.moves(live.pop(0))
        history.says(status)
        story = history.story()
        assert story[: len(before)] == before
        assert [step.position for step in story] == sorted({step.position for step in story})
        before = story
        if story[-1].final:
            break
    assert history.run.terminal
    assert before[-1].final
    assert (before[-1].status in ERRORS) == (verdict is not State.SUCCEEDED)
    assert not any(step.final for step in before[:-1])
