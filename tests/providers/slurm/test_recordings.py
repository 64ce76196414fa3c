"""Every recording of a real cluster gives the right verdicts: whole, thinned, doubled, cut anywhere."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from steno.engine.replay.replay import NumberedPoll, open_trace, replay_polls
from steno.engine.replay.result import Replay, diff

TRACES = Path(__file__).parents[2] / "traces" / "slurm-22.05"
STOPPED = ("stopped", "stopped_by_user", None)
DONE = ("succeeded", "exit_zero", 0)
TIMED_OUT = ("failed", "timed_out", None)
EXPECTED: dict[str, dict[str, tuple[str, str, int | None]]] = {
    "bug10_multinode_node_rank": {"117": DONE},
    "bug1_6_mem_raises_cpus_qos": {"110": STOPPED, "111": DONE},
    "cancel": dict.fromkeys(("21", "22", "23", "24", "25"), STOPPED),
    "checkpoint": dict.fromkeys(("93", "94", "95"), DONE),
    "fail_exit1": {"16": ("failed", "exit_nonzero", 1), "17": ("failed", "exit_nonzero", 139), "18": DONE},
    "fanout_one_winner": {**dict.fromkeys(("66", "67", "68", "69"), STOPPED), "70": DONE},
    "fast_job": {"19": DONE, "20": ("failed", "exit_nonzero", 7)},
    "invalid_submit": {**dict.fromkeys(("52", "55", "59", "61", "62", "63", "64"), STOPPED), "57": DONE},
    "success": {"116": DONE},
    "test_only": dict.fromkeys(("42", "43"), STOPPED),
    "timeout": dict.fromkeys(("13", "14", "15"), TIMED_OUT),
}
"""By job: state, reason, exit status; read by hand from accounting's rows. It was not asked about other jobs."""
RECORDINGS = sorted(EXPECTED)


def polls_of(name: str) -> list[NumberedPoll]:
    return list(open_trace(TRACES / f"{name}.jsonl.zst"))


def verdicts(replay: Replay) -> dict[str, tuple[str, str, int | None]]:
    return {
        run.provider_id or "": (run.state.value, str(run.reason), run.exit_status)
        for run in replay.runs
        if run.terminal
    }


def thinned(polls: Sequence[NumberedPoll], *, last: bool = True) -> list[NumberedPoll]:
    """Per command, polls 0, 10, 20 … and the last."""
    lanes: dict[str, list[int]] = {}
    for number, poll in polls:
        if poll is not None:
            lanes.setdefault(poll.path, []).append(number)
    kept = {number for lane in lanes.values() for number in (*lane[::10], *(lane[-1:] if last else ()))}
    return [(number, poll) for number, poll in polls if number in kept]


def test_every_recording_in_the_tree_has_its_expected_verdicts() -> None:
    """A recording without an expectation would not be checked."""
    assert sorted(path.name for path in TRACES.glob("*.zst")) == [f"{name}.jsonl.zst" for name in RECORDINGS]


@pytest.mark.parametrize("name", RECORDINGS)
def test_every_job_that_accounting_was_asked_about_has_its_verdict(name: str) -> None:
    """State, reason and exit status; a job about which accounting was not asked has no verdict."""
    replay = replay_polls(polls_of(name))
    assert verdicts(replay) == EXPECTED[name]
    assert replay.anomalies == ()
    assert replay.blind == ()


@pytest.mark.parametrize("name", RECORDINGS)
def test_a_thinned_recording_gives_the_same_verdicts(name: str) -> None:
    """Dropping polls may delay a verdict, never flip it; what stays open without the last polls is never wrong."""
    polls = polls_of(name)
    assert verdicts(replay_polls(thinned(polls))) == EXPECTED[name]
    assert verdicts(replay_polls(thinned(polls, last=False))).items() <= EXPECTED[name].items()


@pytest.mark.parametrize("cuts", [10, pytest.param(100, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", RECORDINGS)
def test_a_recording_cut_anywhere_is_never_wrong(name: str, cuts: int) -> None:
    """From the beginning, from anywhere in it, up to anywhere in it."""
    polls = polls_of(name)
    step = max(1, len(polls) // cuts)
    for cut in range(0, len(polls), step):
        assert verdicts(replay_polls(polls[:cut])).items() <= EXPECTED[name].items()
        assert verdicts(replay_polls(polls[cut:])).items() <= EXPECTED[name].items()


@pytest.mark.parametrize("name", RECORDINGS)
def test_accounting_alone_gives_the_same_verdicts(name: str) -> None:
    """Its explicit records of an end are enough."""
    polls = [(number, poll) for number, poll in polls_of(name) if poll is not None and "slurm:sacct -P" in poll.path]
    assert verdicts(replay_polls(polls)) == EXPECTED[name]


def test_a_fast_job_is_finishing_until_accounting_has_it() -> None:
    """Bug 2 and 7 of the first tool: squeue had forgotten it, sacct did not know it yet."""
    seen: dict[str, list[str]] = {}
    for cut in range(1, len(polls_of("fast_job"))):
        for run in replay_polls(polls_of("fast_job")[:cut]).runs:
            states = seen.setdefault(run.provider_id or "", [])
            if not states or states[-1] != run.state.value:
                states.append(run.state.value)
    assert seen["19"] == ["queued", "running", "finishing", "succeeded"]
    assert seen["20"] == ["queued", "running", "finishing", "failed"]


def test_the_first_tools_rules_call_finished_jobs_failed() -> None:
    """`2026-02-rv`: a job that squeue forgot has failed; of the recorded jobs it gets few right."""
    wrong = right = 0
    for name in RECORDINGS:
        theirs = verdicts(replay_polls(polls_of(name), "2026-02-rv"))
        for job, expected in EXPECTED[name].items():
            right, wrong = right + (theirs.get(job) == expected), wrong + (theirs.get(job) != expected)
    assert wrong > right


def test_a_diff_lists_the_first_tools_wrong_verdicts() -> None:
    """Bugs 2 and 7: `steno replay --diff 2026-02-rv` names each job it got wrong, with both verdicts."""
    polls = polls_of("fast_job")
    differences = diff(replay_polls(polls), replay_polls(polls, "2026-02-rv"))
    reasons = {pair.name: (pair.left and pair.left.reason, pair.right and pair.right.reason) for pair in differences}
    assert reasons == {"fast": ("exit_zero", "unknown_reason"), "fast2": ("exit_nonzero", "unknown_reason")}
