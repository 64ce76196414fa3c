"""Reports of a task about itself: one gives a running run its phase and a failed one its reason, and ends none."""

import itertools

import msgspec
import pytest
from stenotest.dstack_history import START, DstackHistory, Item, single

from steno.engine.fold.fold import Fold
from steno.engine.fold.poll_reader import PollReader
from steno.engine.providers.registry import READINGS, every_rule_set
from steno.engine.state.kernel_mark import KernelMark
from steno.engine.state.run import Run
from steno.engine.state.world import dump, load
from steno.events import types
from steno.events.clock import SECOND

OURS = "11111111-2222-4333-8444-555555555555"
RUNNING = single("a", "running", "running", submitted=2)
ENDED = {"reason": "job_failed", "job_reason": "container_exited_with_error"}
FAILED = single("a", "failed", "failed", submitted=2, exit_status=1, **ENDED)
DONE = single("a", "done", "done", exit_status=0, submitted=2)


def kernel(rules: str = "current", endpoint: str = "benchmark") -> Fold:
    """A world with one kernel that its provider has."""
    world = Fold(READINGS, every_rule_set()[rules])
    mark = KernelMark(problem="matmul", gpu_type="MI300X", dtype="float32", language="hip", endpoint=endpoint)
    request = types.RunRequested(
        run_id=OURS,
        provider="dstack",
        project="main",
        name="a",
        configuration=b"{}",
        submitter="me",
        kernel=msgspec.json.encode(mark),
    )
    world.apply_event(1, START, request)
    world.apply_event(
        2, START, types.SubmitSucceeded(run_id=OURS, provider="dstack", provider_id=RUNNING["id"], name="a")
    )
    return world


def shows(world: Fold, item: Item, position: int, now: float = 5) -> None:
    ((_, poll),) = DstackHistory(now=now).listed(item).polls()
    assert poll is not None
    world.apply(PollReader(READINGS).read(position, poll))


def says(world: Fold, seq: int, status: str, position: int, *, provider_id: str = RUNNING["id"]) -> None:
    frame = msgspec.json.encode({"status": status})
    world.apply_event(
        position,
        START + position * SECOND,
        types.TaskReported(run_id=OURS, provider="dstack", provider_id=provider_id, seq=seq, frame=frame),
    )


def only(world: Fold) -> Run:
    (run,) = world.state.runs.all()
    return run


def test_a_running_task_is_in_the_phase_it_says() -> None:
    """Compiling, checking, benchmarking, each from when its line was read; only while the provider says it runs."""
    world = kernel()
    says(world, 1, "COMPILING", 3)
    assert only(world).phase is None
    shows(world, RUNNING, 4)
    assert only(world).phase == "compiling"
    says(world, 2, "CHECKING", 5)
    says(world, 3, "BENCHMARKING", 6)
    run = only(world)
    assert run.said is not None
    assert [(step.phase.value, step.position) for step in run.said.phases] == [
        ("compiling", 3),
        ("checking", 5),
        ("benchmarking", 6),
    ]
    assert run.phase == "benchmarking"
    shows(world, DONE, 7, now=8)
    assert (only(world).state, only(world).phase) == ("succeeded", None)


@pytest.mark.parametrize(
    ("status", "reason"),
    [("COMPILE_ERROR", "compile_error"), ("WRONG_ANSWER", "wrong_answer"), ("RUNTIME_ERROR", "runtime_error")],
)
def test_a_failure_has_the_reason_its_task_gave_whichever_came_first(status: str, reason: str) -> None:
    """The verdict is the same function of the newest decisive observation and what the task said, in any order."""
    ends = set()
    for order in itertools.permutations(("compiling", "error", "verdict")):
        if order.index("compiling") > order.index("error"):
            continue
        world = kernel()
        for position, what in enumerate(order, 3):
            if what == "verdict":
                shows(world, FAILED, position)
            else:
                says(world, 1 + (what == "error"), status if what == "error" else "COMPILING", position)
        run = only(world)
        ends.add((run.state.value, run.reason and run.reason.value, run.exit_status, run.rule))
        error, verdict = 3 + order.index("error"), 3 + order.index("verdict")
        assert run.evidence == (error, verdict)
        assert len(run.transitions) == 1
        assert world.state.anomalies == []
    assert ends == {("failed", reason, 1, "current@1/failure-reported")}


@pytest.mark.parametrize("status", ["WRONG_ANSWER", "ERROR", "BENCHMARKED", "no word of ours"])
def test_nothing_a_task_says_ends_its_run_or_turns_a_verdict(status: str) -> None:
    """Only decisive evidence of the provider does: a run with exit 0 succeeded, whatever it said."""
    world = kernel()
    shows(world, RUNNING, 3)
    says(world, 1, status, 4)
    assert only(world).state == "running"
    shows(world, DONE, 5, now=8)
    says(world, 2, status, 6)
    assert (only(world).state, only(world).reason) == ("succeeded", "exit_zero")


def test_a_failure_without_a_word_keeps_the_providers_reason() -> None:
    """And a task that reports nothing is read as before there were reports."""
    world = kernel()
    says(world, 1, "COMPILING", 3)
    shows(world, FAILED, 4)
    assert (only(world).reason, only(world).evidence) == ("exit_nonzero", (4,))


def test_what_is_said_twice_changes_nothing() -> None:
    """Neither a line that is there, nor a line of another attempt, nor of a run that does not report."""
    world = kernel()
    says(world, 1, "COMPILING", 3)
    before = only(world).said
    says(world, 1, "RUNTIME_ERROR", 4)
    says(world, 2, "RUNTIME_ERROR", 5, provider_id="another attempt")
    assert only(world).said == before
    silent = Fold(READINGS)
    shows(silent, RUNNING, 3)
    says(silent, 1, "COMPILING", 4)
    assert only(silent).said is None


def test_a_task_that_starts_again_has_said_nothing_yet() -> None:
    """A report of the time before does not explain the end of this attempt."""
    world = kernel()
    for seq, status in enumerate(("COMPILING", "RUNTIME_ERROR", "COMPILING"), 1):
        says(world, seq, status, 2 + seq)
    shows(world, FAILED, 9)
    assert only(world).reason == "exit_nonzero"


@pytest.mark.parametrize(("endpoint", "ended"), [("checker", True), ("benchmark", False)])
def test_a_check_ends_when_it_is_checked(endpoint: str, ended: bool) -> None:
    """A report of a benchmark is a step."""
    world = kernel(endpoint=endpoint)
    says(world, 1, "CHECKED", 3)
    output = only(world).said
    assert output is not None
    assert output.ended is ended


@pytest.mark.parametrize("rules", sorted(set(every_rule_set()) - {"current"}))
def test_the_old_pollers_hear_nothing(rules: str) -> None:
    """They looked at the provider's answers alone: their verdicts stay."""
    heard, untold = kernel(rules), kernel(rules)
    says(heard, 1, "WRONG_ANSWER", 3)
    for world in (heard, untold):
        shows(world, FAILED, 4)
    assert (only(heard).state, only(heard).reason) == (only(untold).state, only(untold).reason)


def test_a_snapshot_keeps_what_was_said() -> None:
    """A fold that is loaded again continues as if it had never stopped."""
    world = kernel()
    says(world, 1, "COMPILING", 3)
    again = Fold(READINGS, state=load(dump(world.state)))
    for each in (world, again):
        says(each, 2, "WRONG_ANSWER", 4)
        shows(each, FAILED, 5)
    assert only(again) == only(world)
