"""Every recording of a real server gives the right verdict at the poll that first carries the evidence."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from engine.fold.change import AnomalyKind
from engine.fold.world import World
from engine.providers.readings import READINGS
from engine.replay.result import Replay
from engine.replay.trace import NumberedPoll, fold_polls, open_trace, replay_polls, replay_trace

TRACES = Path(__file__).parents[2] / "traces"


@dataclass(frozen=True)
class Expected:
    """One run of a recording, read by hand from its lines."""

    name: str
    state: str
    reason: str
    exit_status: int | None
    evidence: int
    states: str
    attempts: int = 1


RUN_KEYS = (
    "run_id",
    "provider_id",
    "name",
    "provider",
    "state",
    "reason",
    "exit_status",
    "rule",
    "evidence",
    "reported",
    "attempts",
    "vm_id",
    "start",
    "submitted_at",
    "started_at",
    "finished_at",
    "execution_seconds",
    "cost_usd",
    "provider_cost_usd",
    "transitions",
)
WHOLE = "queued provisioning pulling running"
QUICK = "provisioning pulling running"
EXPECTED: dict[str, tuple[Expected, ...]] = {
    "dstack-0.19.37/failure": (Expected("bad-run", "failed", "exit_nonzero", 1, 291, f"{WHOLE} failed"),),
    "dstack-0.19.37/flap": (Expected("flap-run", "succeeded", "exit_zero", 0, 683, f"{WHOLE} succeeded"),),
    "dstack-0.19.37/stop_running": (
        Expected("long-run", "stopped", "stopped_by_user", None, 377, f"{WHOLE} finishing stopped"),
    ),
    "dstack-0.19.37/success": (Expected("ok-run", "succeeded", "exit_zero", 0, 296, f"{WHOLE} succeeded"),),
    "dstack-0.19.37/warm_reuse": (
        Expected("warm-a", "succeeded", "exit_zero", 0, 434, f"{WHOLE} succeeded"),
        Expected("warm-b", "succeeded", "exit_zero", 0, 837, f"{WHOLE} succeeded"),
    ),
    "dstack-0.22.5/failure": (Expected("bad-run", "failed", "exit_nonzero", 1, 291, f"{WHOLE} failed"),),
    "dstack-0.22.5/name_reuse": (
        Expected("same-run", "succeeded", "exit_zero", 0, 397, f"{QUICK} succeeded"),
        Expected("same-run", "succeeded", "exit_zero", 0, 686, f"{QUICK} succeeded"),
    ),
    "dstack-0.22.5/no_capacity": (Expected("nocap-run", "failed", "no_capacity", None, 19, "finishing failed"),),
    "dstack-0.22.5/retry_success": (
        Expected(
            "retry-run",
            "succeeded",
            "exit_zero",
            0,
            691,
            f"{QUICK} finishing queued {QUICK} succeeded",
            attempts=2,
        ),
    ),
    "dstack-0.22.5/server_restart": (Expected("surv-run", "succeeded", "exit_zero", 0, 622, f"{WHOLE} succeeded"),),
    "dstack-0.22.5/several": (
        Expected("m-2", "failed", "exit_nonzero", 2, 842, f"{WHOLE} failed"),
        Expected("m-1", "succeeded", "exit_zero", 0, 842, f"{QUICK} succeeded"),
        Expected("m-3", "failed", "no_capacity", None, 26, "queued finishing failed"),
    ),
    "dstack-0.22.5/stop_running": (
        Expected("long-run", "stopped", "stopped_by_user", None, 272, f"{QUICK} finishing stopped"),
    ),
    "dstack-0.22.5/success": (Expected("ok-run", "succeeded", "exit_zero", 0, 331, f"{QUICK} succeeded"),),
    "dstack-0.22.5/unreachable": (
        Expected("spot-run", "failed", "unreachable", None, 1466, f"{QUICK} finishing failed"),
    ),
    "dstack-0.22.5/warm_reuse": (
        Expected("warm-a", "succeeded", "exit_zero", 0, 780, f"{QUICK} succeeded"),
        Expected("warm-b", "succeeded", "exit_zero", 0, 1186, f"{QUICK} succeeded"),
    ),
}
RECORDINGS = sorted(EXPECTED)


def recording(name: str) -> Path:
    return TRACES / f"{name}.jsonl.zst"


def polls_of(name: str) -> list[NumberedPoll]:
    return list(open_trace(recording(name)))


def verdicts(replay: Replay) -> list[tuple[str | None, str, str | None, int | None]]:
    return [
        (run.name, run.state.value, run.reason.value if run.reason else None, run.exit_status) for run in replay.runs
    ]


def wanted(name: str) -> list[tuple[str | None, str, str | None, int | None]]:
    return [(run.name, run.state, run.reason, run.exit_status) for run in EXPECTED[name]]


def thinned(polls: Sequence[NumberedPoll]) -> list[NumberedPoll]:
    """Per endpoint and request, polls 0, 10, 20 … and the last."""
    lanes: dict[tuple[str, bytes], list[NumberedPoll]] = {}
    for number, poll in polls:
        if poll is not None:
            lanes.setdefault((poll.path, poll.req), []).append((number, poll))
    kept = {number for lane in lanes.values() for number, _ in (*lane[::10], lane[-1])}
    return [(number, poll) for number, poll in polls if number in kept]


def test_every_recording_in_the_tree_has_its_expected_verdicts() -> None:
    """A recording without an expectation would be a recording nobody checks."""
    assert sorted(str(path.relative_to(TRACES)) for path in TRACES.glob("dstack-*/*.zst")) == [
        f"{name}.jsonl.zst" for name in RECORDINGS
    ]


def incidents(name: str) -> list[AnomalyKind]:
    return [AnomalyKind.UNREACHABLE] if name.endswith("/unreachable") else []


@pytest.mark.parametrize("name", RECORDINGS)
def test_a_whole_recording_settles_every_run_at_the_poll_with_the_evidence(name: str) -> None:
    """State, reason, exit status, evidence line, way through the states, attempts: as read by hand."""
    replay = replay_trace(recording(name))
    for run, expected in zip(replay.runs, EXPECTED[name], strict=True):
        assert (run.name, run.state, run.reason, run.exit_status) == (
            expected.name,
            expected.state,
            expected.reason,
            expected.exit_status,
        )
        assert run.evidence == (expected.evidence,)
        assert " ".join(step.after for step in run.transitions) == expected.states
        assert run.attempts == expected.attempts
    assert [one.kind for one in replay.anomalies] == incidents(name)


@pytest.mark.parametrize("name", RECORDINGS)
def test_a_thinned_recording_gives_the_same_verdicts(name: str) -> None:
    """Dropping polls may delay a verdict, never flip it."""
    replay = replay_polls(thinned(polls_of(name)))
    assert sorted(verdicts(replay), key=str) == sorted(wanted(name), key=str)
    assert [one.kind for one in replay.anomalies] == incidents(name)


@pytest.mark.parametrize("name", RECORDINGS)
def test_a_recording_without_its_last_polls_may_stay_open_and_is_never_wrong(name: str) -> None:
    """A thinned trace without the last poll of each lane."""
    polls = thinned(polls_of(name))
    right = {(run.name, run.state, run.reason, run.exit_status) for run in EXPECTED[name]}
    for run in replay_polls(polls[:-8]).runs:
        assert not run.terminal or (run.name, run.state.value, str(run.reason), run.exit_status) in right


@pytest.mark.parametrize("name", RECORDINGS)
def test_doubled_polls_change_nothing(name: str) -> None:
    """The same observation twice changes nothing."""
    polls = polls_of(name)
    doubled = [pair for pair in polls for _ in range(2)]
    once, twice = replay_polls(polls).to_json(), replay_polls(doubled).to_json()
    assert twice.pop("events") == 2 * once.pop("events")
    assert twice == once


@pytest.mark.parametrize("name", RECORDINGS)
def test_no_prefix_of_a_recording_shows_an_end_before_its_evidence(name: str) -> None:
    """Only decisive evidence ends a run: at every line the verdicts are exactly those whose evidence has come."""
    world = World(READINGS)
    for step in fold_polls(world, polls_of(name)):
        settled = [run for run in world.state.runs.values() if run.terminal]
        for run in settled:
            assert run.evidence[0] <= step.position
        due = {expected.evidence for expected in EXPECTED[name] if expected.evidence <= step.position}
        assert {run.evidence[0] for run in settled} == due


@pytest.mark.parametrize("name", RECORDINGS)
def test_each_endpoint_alone_gives_the_same_verdicts(name: str) -> None:
    """The full list alone is enough, whatever else was polled."""
    full = [
        (number, poll)
        for number, poll in polls_of(name)
        if poll is not None and poll.path == "/api/runs/list" and b"only_active" not in poll.req
    ]
    assert sorted(verdicts(replay_polls(full)), key=str) == sorted(wanted(name), key=str)


def test_times_and_cost_are_the_providers_where_it_gives_them() -> None:
    """submitted_at and finished_at from dstack, started_at the first poll that shows it running, cost the newest."""
    run = replay_trace(recording("dstack-0.22.5/success")).to_json()["runs"][0]
    assert run["submitted_at"] == "2026-11-20T13:37:20.621482Z"
    assert run["started_at"] == "2026-11-20T13:37:52.588400Z"
    assert run["finished_at"] == "2026-11-20T13:38:23.417543Z"
    assert run["execution_seconds"] == 30.829143
    assert run["provider_cost_usd"] == "0.034700"
    assert run["reported"] == {
        "status": "done",
        "reason": "all_jobs_done",
        "jobs": [{"status": "done", "reason": "done_by_runner", "exit_status": 0}],
    }


def test_a_restart_of_the_server_is_one_blind_time_and_no_verdict() -> None:
    """From the last answered poll to the next, the failures between."""
    replay = replay_trace(recording("dstack-0.22.5/server_restart")).to_json()
    assert replay["blind"] == [
        {
            "source": "dstack/server-restart",
            "from": "2026-11-20T13:54:04.025300Z",
            "to": "2026-11-20T13:54:21.945200Z",
            "kind": "no_answer",
        }
    ]


def test_the_json_object_has_every_key_in_its_order() -> None:
    """The public object: keys always present, null where unknown."""
    replay = replay_trace(recording("dstack-0.22.5/no_capacity")).to_json()
    assert list(replay) == ["rules", "events", "runs", "vms", "anomalies", "blind"]
    assert tuple(replay["runs"][0]) == RUN_KEYS
    assert replay["vms"] == []
    assert replay["runs"][0]["started_at"] is None
    assert replay["runs"][0]["execution_seconds"] is None
