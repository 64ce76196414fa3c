"""An array that Steno submitted is one run, whose state, verdict and times follow from its tasks."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stenotest.slurm_histories import SACCT, SQUEUE, START, clock, poll

from steno.engine.fold.arrays import tasks_of
from steno.engine.fold.fold import Fold
from steno.engine.fold.poll_reader import PollReader
from steno.engine.providers.registry import READINGS
from steno.engine.state.run import Run
from steno.engine.state.states import PROGRESS, State
from steno.engine.state.world import dump, load
from steno.events import types
from steno.events.clock import SECOND

OURS = "0192a1b2-0000-7000-8000-00000000000a"
WORDS = {
    "COMPLETED": ("succeeded", "0:0"),
    "FAILED": ("failed", "3:0"),
    "CANCELLED by 5": ("stopped", "0:0"),
    "TIMEOUT": ("failed", "0:0"),
}


class ArrayHistory:
    """A request for an array and the polls of its tasks."""

    def __init__(self, array: str, *, answered: bool = True) -> None:
        self.world, self.reader, self.position = Fold(READINGS), PollReader(READINGS), 0
        self.second = 1
        configuration = json.dumps({"type": "task", "commands": ["true"], "array": array, "max_duration": "1h"})
        self.event(
            types.RunRequested(
                run_id=OURS,
                provider="slurm",
                project="lab",
                name="sweep",
                submitter="me",
                configuration=configuration.encode(),
            )
        )
        self.event(types.SubmitIntended(run_id=OURS, provider="slurm", name="sweep"))
        if answered:
            self.answer()

    def event(self, event: types.Event) -> None:
        self.position += 1
        self.world.apply_event(self.position, START, event)

    def answer(self, job: str = "12") -> None:
        """The answer of sbatch."""
        self.event(
            types.SubmitSucceeded(run_id=OURS, provider="slurm", provider_id=job, name="sweep", submitted_at=START)
        )

    def squeue(self, states: dict[int, str], *more: str) -> None:
        lines = [f"12_{task}|{word}|None|gpu|me|{clock(0)}|n1|steno:{OURS}|sweep" for task, word in states.items()]
        self._poll(SQUEUE, [*lines, *more])

    def sacct(self, states: dict[int, str]) -> None:
        lines = []
        for task, word in states.items():
            over, code = word in WORDS, WORDS.get(word, ("", "0:0"))[1]
            end = clock(10 + task) if over else "Unknown"
            lines.append(
                f"12_{task}|{word}|{code}|0:0|{clock(0)}|{clock(1)}|{end}|cpu=1|n1|gpu|me|None|steno:{OURS}|sweep"
            )
        self._poll(SACCT, lines)

    def _poll(self, words: tuple[str, ...], lines: list[str]) -> None:
        self.position, self.second = self.position + 1, self.second + 1
        at = self.second * SECOND
        self.world.apply(self.reader.read(self.position, poll(words, lines, at, at + 10_000)))

    @property
    def array(self) -> Run:
        return self.world.state.runs[OURS]


@given(st.lists(st.sampled_from(sorted(WORDS)), min_size=1, max_size=5), st.data())
def test_an_array_ends_as_its_tasks_do(ends: list[str], data: st.DataObject) -> None:
    """In whatever order they end: it is over once all are; a failed task makes it failed, else a stopped task makes
    it stopped; the exit status is the first by number that is not 0. It never goes back.
    """
    story, open_tasks = ArrayHistory(f"0-{len(ends) - 1}"), dict.fromkeys(range(len(ends)), "PENDING")
    story.squeue(open_tasks)
    assert story.array.state is State.QUEUED
    reached = 1
    for task in data.draw(st.permutations(range(len(ends)))):
        for word in ("RUNNING", ends[task]):
            assert not story.array.terminal
            open_tasks[task] = word
            story.squeue({task_id: state for task_id, state in open_tasks.items() if state not in WORDS})
            story.sacct(open_tasks)
            if not story.array.terminal:
                assert PROGRESS.index(story.array.state) >= reached
                reached = PROGRESS.index(story.array.state)
    states = [WORDS[end][0] for end in ends]
    expected = next(word for word in ("failed", "stopped", "succeeded") if word in states)
    array = story.array
    assert array.state.value == expected
    exits = [3 if end == "FAILED" else 0 if end == "COMPLETED" else None for end in ends]
    assert array.exit_status == next((code for code in exits if code), 0 if set(exits) == {0} else None)
    assert array.finished_at == START + (9 + len(ends)) * SECOND
    assert [run.facts and run.facts.task for run in tasks_of(story.world.state, array)] == [*range(len(ends))]
    kinds = {anomaly.kind for anomaly in story.world.state.anomalies}
    assert not kinds & {"contradiction", "ambiguous_submission"}
    assert load(dump(story.world.state)) == story.world.state


def test_an_array_has_not_ended_while_tasks_of_it_were_never_seen() -> None:
    """Accounting may be behind, and the controller may have forgotten the last."""
    story = ArrayHistory("1-3%2")
    story.sacct({1: "COMPLETED", 2: "COMPLETED"})
    assert not story.array.terminal
    story.sacct({1: "COMPLETED", 2: "COMPLETED", 3: "FAILED"})
    assert (story.array.state.value, story.array.exit_status) == ("failed", 3)


def test_tasks_seen_before_the_answer_of_sbatch_are_of_the_array() -> None:
    """By the mark; those of a copy of its script, which has the mark too, are not once the answer is known."""
    story = ArrayHistory("0-1", answered=False)
    story.squeue({0: "RUNNING", 1: "PENDING"})
    copy = f"99_7|RUNNING|None|gpu|me|{clock(1)}|n1|steno:{OURS}|sweep"
    story.squeue({0: "RUNNING", 1: "PENDING"}, copy)
    story.answer()
    assert [run.provider_id for run in tasks_of(story.world.state, story.array)] == ["12_0", "12_1"]
    assert (story.array.provider_id, story.array.state) == ("12", State.RUNNING)
    assert {run.provider_id for run in story.world.state.runs.all()} == {"12", "12_0", "12_1", "99_7"}


@pytest.mark.parametrize("mark", ["(null)", "steno:0192a1b2-0000-7000-8000-0000000000ff"])
def test_a_later_array_of_its_id_is_not_ours(mark: str) -> None:
    """Its id came again: neither without a mark nor with another mark."""
    story = ArrayHistory("0-0")
    story.squeue({0: "RUNNING"})
    story.squeue({}, f"12_5|RUNNING|None|gpu|me|{clock(90_000)}|n1|{mark}|other")
    assert [run.provider_id for run in tasks_of(story.world.state, story.array)] == ["12_0"]
