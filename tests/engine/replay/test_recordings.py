"""Every recording of a real server gives the right verdicts and machines, each at the poll that first shows it."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from steno.engine.fold.fold import Fold
from steno.engine.providers.registry import READINGS
from steno.engine.replay.replay import NumberedPoll, fold_polls, open_trace, replay_polls
from steno.engine.replay.result import Replay
from steno.engine.state.changes import AnomalyKind
from steno.engine.state.states import VmState
from steno.engine.state.vm import Vm
from steno.events.clock import SECOND, format_time

TRACES = Path(__file__).parents[2] / "traces"

RUNS = """
dstack-0.19.37/failure        bad-run     291  failed/exit_nonzero/1, 1: queued UP failed
dstack-0.19.37/flap           flap-run    683  succeeded/exit_zero/0, 1: queued UP succeeded
dstack-0.19.37/stop_running   long-run    377  stopped/stopped_by_user/-, 1: queued UP finishing stopped
dstack-0.19.37/success        ok-run      296  succeeded/exit_zero/0, 1: queued UP succeeded
dstack-0.19.37/warm_reuse     warm-a      434  succeeded/exit_zero/0, 1: queued UP succeeded
dstack-0.19.37/warm_reuse     warm-b      837  succeeded/exit_zero/0, 1: queued UP succeeded
dstack-0.22.5/failure         bad-run     291  failed/exit_nonzero/1, 1: queued UP failed
dstack-0.22.5/name_reuse      same-run    397  succeeded/exit_zero/0, 1: UP succeeded
dstack-0.22.5/name_reuse      same-run    686  succeeded/exit_zero/0, 1: UP succeeded
dstack-0.22.5/no_capacity     nocap-run    19  failed/no_capacity/-, 1: finishing failed
dstack-0.22.5/retry_success   retry-run   691  succeeded/exit_zero/0, 2: UP finishing queued UP succeeded
dstack-0.22.5/server_restart  surv-run    622  succeeded/exit_zero/0, 1: queued UP succeeded
dstack-0.22.5/several         m-2         842  failed/exit_nonzero/2, 1: queued UP failed
dstack-0.22.5/several         m-1         842  succeeded/exit_zero/0, 1: UP succeeded
dstack-0.22.5/several         m-3          26  failed/no_capacity/-, 1: queued finishing failed
dstack-0.22.5/stop_running    long-run    272  stopped/stopped_by_user/-, 1: UP finishing stopped
dstack-0.22.5/success         ok-run      331  succeeded/exit_zero/0, 1: UP succeeded
dstack-0.22.5/unreachable     spot-run   1466  failed/unreachable/-, 1: UP finishing failed
dstack-0.22.5/warm_reuse      warm-a      780  succeeded/exit_zero/0, 1: UP succeeded
dstack-0.22.5/warm_reuse      warm-b     1186  succeeded/exit_zero/0, 1: UP succeeded
"""
"""By hand from the lines of each recording: name of the run, line with the evidence, state, reason, exit status,
attempts; way through the states.
"""
UP = "provisioning pulling running"

MACHINES = """
dstack-0.19.37/failure        bb4ca1 13:41:14.178 - - -
    49 provisioning, 174 busy, 319 idle
    - bad-run cold 13:41:05.152 13:42:11.614
dstack-0.19.37/flap           2bfc58 14:00:32.242 - - -
    64 provisioning, 189 busy, 711 idle
    - flap-run cold 14:00:20.464 14:02:41.446
dstack-0.19.37/stop_running   bbf59d 13:41:14.191 - - -
    44 provisioning, 169 busy, 380 idle
    - long-run cold 13:41:05.764 13:42:24.668
dstack-0.19.37/success        19c1a4 13:41:14.136 13:42:54.017 13:42:53.011 idle_timeout
    54 provisioning, 174 busy, 319 idle, 480 terminating, 530 terminated
    - ok-run cold 13:41:04.678 13:42:11.627
dstack-0.19.37/warm_reuse     2fc32d 13:44:10.567 13:47:15.304 13:47:14.326 idle_timeout
    65 provisioning, 209 busy, 461 idle, 607 busy, 853 idle, 1106 terminating, 1172 terminated
    - warm-a cold 13:44:00.670 13:45:16.594; warm-b warm 13:45:37.309 13:46:22.015
dstack-0.22.5/failure         1beb4b 13:39:26.979 - - -
    10 provisioning, 106 busy, 352 idle
    - bad-run cold 13:39:26.915 13:40:25.024
dstack-0.22.5/name_reuse      4540f8 13:47:30.747 - - -
    10 provisioning, 82 busy, 448 idle, 491 busy, 719 idle
    - same-run cold 13:47:30.553 13:48:51.314; same-run warm 13:48:58.882 13:49:44.177
dstack-0.22.5/retry_success   70fc8f 13:40:54.099 - - -
    10 provisioning, 94 busy, 442 idle, 538 busy, 748 idle
    - retry-run cold 13:40:53.970 13:42:23.741; retry-run warm 13:42:40.181 13:43:14.805
dstack-0.22.5/server_restart  3e5cb2 13:53:19.024 - - -
    10 provisioning, 118 busy, 667 idle
    - surv-run cold 13:53:18.897 13:55:08.068
dstack-0.22.5/several         e6525d 13:47:31.605 - - -
    15 provisioning, 87 busy, 879 idle
    - m-1 cold 13:47:31.318 13:49:44.170
dstack-0.22.5/several         6a3d22 13:47:32.650 - - -
    23 provisioning, 95 busy, 879 idle
    - m-2 cold 13:47:31.785 13:49:44.717
dstack-0.22.5/stop_running    4ba69e 13:39:27.522 - - -
    10 provisioning, 100 busy, 275 idle
    - long-run cold 13:39:27.442 13:40:12.200
dstack-0.22.5/success         2122b5 13:37:20.773 13:38:57.618 13:38:57.618 idle_timeout
    10 provisioning, 136 busy, 382 idle, 533 terminating, 587 terminated
    - ok-run cold 13:37:20.627 13:38:23.417
dstack-0.22.5/unreachable     5cd969 13:40:52.038 - - unreachable
    10 provisioning, 88 busy, 1469 idle, 1625 terminating
    - spot-run cold 13:40:51.908 13:45:13.900
dstack-0.22.5/warm_reuse      0a1625 13:47:30.223 13:51:54.577 13:51:54.577 idle_timeout
    12 provisioning, 89 busy, 817 idle, 952 busy, 1211 idle, 1590 terminating, 1646 terminated
    - warm-a cold 13:47:29.938 13:49:44.129; warm-b warm 13:50:04.866 13:50:48.832
"""
"""By hand from the lines of each recording: the provider's id (six digits), creation, end and the earliest it can
have been, reason; line and state of each move; runs: name, start, since (the provider's `submitted_at`), until.
"""


class ExpectedRun(NamedTuple):
    name: str
    evidence: str
    verdict: str
    attempts: str
    states: str


class ExpectedMachine(NamedTuple):
    created: str
    finished: str
    finished_low: str
    reason: str
    states: str
    runs: list[str]


def expected_runs() -> dict[str, list[ExpectedRun]]:
    runs: dict[str, list[ExpectedRun]] = {}
    for line in RUNS.strip().splitlines():
        start, _, states = line.partition(": ")
        recording, *words = start.replace(",", "").split()
        runs.setdefault(recording, []).append(ExpectedRun(*words, states.replace("UP", UP)))
    return runs


def expected_machines() -> dict[str, dict[str, ExpectedMachine]]:
    """By recording and id."""
    machines: dict[str, dict[str, ExpectedMachine]] = {name: {} for name in RECORDINGS}
    for block in MACHINES.strip().replace("\n    ", "\t").splitlines():
        line, states, runs = block.split("\t")
        recording, name, *life = line.split()
        machines[recording][name] = ExpectedMachine(*life, states, runs.removeprefix("- ").split("; "))
    return machines


EXPECTED_RUNS = expected_runs()
RECORDINGS = sorted(EXPECTED_RUNS)
EXPECTED_MACHINES = expected_machines()
VANISHED = {"dstack-0.22.5/unreachable": [(AnomalyKind.UNREACHABLE, "last reached at 2026-11-20T13:41:55Z")]}


@cache
def polls_of(name: str) -> list[NumberedPoll]:
    return list(open_trace(TRACES / f"{name}.jsonl.zst"))


def thinned(polls: Sequence[NumberedPoll]) -> list[NumberedPoll]:
    """Per endpoint and request, polls 0, 10, 20 … and the last."""
    lanes: dict[tuple[str, bytes], list[NumberedPoll]] = {}
    for number, poll in polls:
        if poll is not None:
            lanes.setdefault((poll.path, poll.req), []).append((number, poll))
    kept = {number for lane in lanes.values() for number, _ in (*lane[::10], lane[-1])}
    return [(number, poll) for number, poll in polls if number in kept]


def verdicts(replay: Replay) -> list[tuple[str | None, str]]:
    """Name and verdict of every run."""
    return [
        (run.name, f"{run.state}/{run.reason}/{'-' if run.exit_status is None else run.exit_status}")
        for run in replay.runs
    ]


def right_verdicts(name: str) -> list[tuple[str | None, str]]:
    return [(run.name, run.verdict) for run in EXPECTED_RUNS[name]]


def test_every_recording_in_the_tree_has_its_expected_verdicts() -> None:
    """A recording without an expectation would be a recording nobody checks."""
    assert sorted(str(path.relative_to(TRACES)) for path in TRACES.glob("dstack-*/*.zst")) == [
        f"{name}.jsonl.zst" for name in RECORDINGS
    ]


def incidents(name: str) -> list[AnomalyKind]:
    return [kind for kind, _ in VANISHED.get(name, [])]


@pytest.mark.parametrize("name", RECORDINGS)
def test_a_whole_recording_settles_every_run_at_the_poll_with_the_evidence(name: str) -> None:
    """State, reason, exit status, evidence line, way through the states, attempts: as read by hand."""
    replay = replay_polls(polls_of(name))
    assert verdicts(replay) == right_verdicts(name)
    for run, expected in zip(replay.runs, EXPECTED_RUNS[name], strict=True):
        assert run.evidence == (int(expected.evidence),)
        assert " ".join(step.after for step in run.transitions) == expected.states
        assert str(run.attempts) == expected.attempts
    assert [anomaly.kind for anomaly in replay.anomalies] == incidents(name)


@pytest.mark.parametrize("name", RECORDINGS)
def test_a_thinned_recording_gives_the_same_verdicts_and_machines(name: str) -> None:
    """Dropping polls may delay a verdict and move edges; it flips no verdict, state, reason or link."""
    replay = replay_polls(thinned(polls_of(name)))
    assert sorted(verdicts(replay), key=str) == sorted(right_verdicts(name), key=str)
    assert [anomaly.kind for anomaly in replay.anomalies] == incidents(name)
    assert gist(fold(thinned(polls_of(name)))) == gist(fold(polls_of(name)))


@pytest.mark.parametrize("name", RECORDINGS)
def test_a_recording_without_its_last_polls_may_stay_open_and_is_never_wrong(name: str) -> None:
    """A thinned trace without the last poll of each lane."""
    polls = thinned(polls_of(name))
    replay = replay_polls(polls[:-8])
    ended = [verdict for run, verdict in zip(replay.runs, verdicts(replay), strict=True) if run.terminal]
    assert set(ended) <= set(right_verdicts(name))


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
    """Only decisive evidence ends a run: at every line the verdicts are exactly those whose evidence has come.
    Once seen, a machine stays in the world, and only a row that says so ends it.
    """
    world, seen = Fold(READINGS), set[str]()
    ends = {name: expected.states.rpartition(", ")[2] for name, expected in EXPECTED_MACHINES[name].items()}
    for step in fold_polls(world, polls_of(name)):
        settled = [run for run in world.state.runs.all() if run.terminal]
        for run in settled:
            assert run.evidence[0] <= step.position
        due = {int(run.evidence) for run in EXPECTED_RUNS[name] if int(run.evidence) <= step.position}
        assert {run.evidence[0] for run in settled} == due
        assert seen <= set(world.state.vms.ids())
        seen = set(world.state.vms.ids())
        for vm in world.state.vms.all():
            line, state = ends[vm.provider_id[:6]].split()
            assert (vm.state is VmState.TERMINATED) == (state == "terminated" and int(line) <= step.position)
            assert (vm.vm_id in world.state.vms.open_ids) == (vm.state is not VmState.TERMINATED)


@pytest.mark.parametrize("name", RECORDINGS)
def test_each_endpoint_alone_gives_the_same_verdicts(name: str) -> None:
    """The full list alone is enough, whatever else was polled."""
    full = [
        (number, poll)
        for number, poll in polls_of(name)
        if poll is not None and poll.path == "/api/runs/list" and b"only_active" not in poll.req
    ]
    assert sorted(verdicts(replay_polls(full)), key=str) == sorted(right_verdicts(name), key=str)


def test_times_and_cost_are_the_providers_where_it_gives_them() -> None:
    """submitted_at and finished_at from dstack, started_at the first poll that shows it running, cost the newest."""
    run = replay_polls(polls_of("dstack-0.22.5/success")).to_json()["runs"][0]
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
    replay = replay_polls(polls_of("dstack-0.22.5/server_restart")).to_json()
    assert replay["blind"] == [
        {
            "source": "dstack/server-restart",
            "from": "2026-11-20T13:54:04.025300Z",
            "to": "2026-11-20T13:54:21.945200Z",
            "kind": "no_answer",
        }
    ]


# -- machines


def fold(polls: Sequence[NumberedPoll], world: Fold | None = None) -> Fold:
    world = world if world is not None else Fold(READINGS)
    for _ in fold_polls(world, polls):
        pass
    return world


def clock(moment: int | None) -> str:
    return "" if moment is None else format_time(moment)[11:23]


def occupants(world: Fold, vm: Vm) -> list[str]:
    runs = world.state.runs
    return [
        f"{runs[stay.run_id].name} {'cold' if stay.cold else 'warm'} {clock(stay.since)} {clock(stay.until)}"
        for stay in vm.occupancies
    ]


def gist(world: Fold) -> dict[str, tuple[str, str | None, list[str]]]:
    """Machines by id: state, reason, occupants: what no way of delivering the polls may change."""
    return {
        vm.provider_id[:6]: (vm.state.value, None if vm.reason is None else vm.reason.value, occupants(world, vm))
        for vm in world.state.vms.all()
    }


def seen_incidents(world: Fold) -> list[tuple[AnomalyKind, str]]:
    return [(anomaly.kind, anomaly.detail) for anomaly in world.state.anomalies]


@pytest.mark.parametrize("name", RECORDINGS)
def test_a_recording_gives_its_machines(name: str) -> None:
    """Way through the states, life, reason, runs: as read by hand."""
    world = fold(polls_of(name))
    assert seen_incidents(world) == VANISHED.get(name, [])
    machines = sorted(world.state.vms.all(), key=lambda vm: vm.created)
    assert [vm.provider_id[:6] for vm in machines] == list(EXPECTED_MACHINES[name])
    for vm, expected in zip(machines, EXPECTED_MACHINES[name].values(), strict=True):
        assert ", ".join(f"{step.position} {step.after.value}" for step in vm.steps) == expected.states
        assert clock(vm.created) == expected.created
        assert occupants(world, vm) == expected.runs
        assert (clock(vm.finished_at) or "-") == expected.finished
        assert vm.finished_at is None or clock(vm.finished_low) == expected.finished_low
        assert ("-" if vm.reason is None else vm.reason.value) == expected.reason
        assert [price.hourly for price in vm.prices] == [1_990_000]
        assert vm.made_for == vm.occupancies[0].run_id
        assert not vm.ours


@pytest.mark.parametrize("name", RECORDINGS)
def test_every_run_of_a_recording_knows_its_machine(name: str) -> None:
    """The newest of its first job; `start` is that of the first attempt; without a machine there is neither."""
    world = fold(polls_of(name))
    for run in world.state.runs.all():
        there = [
            (vm.vm_id, "cold" if stay.cold else "warm")
            for vm in world.state.vms.all()
            for stay in vm.occupancies
            if stay.run_id == run.run_id
        ]
        assert (run.vm_id, run.start) == ((there[-1][0], there[0][1]) if there else (None, None))


@pytest.mark.parametrize("name", RECORDINGS)
def test_answers_that_come_late_move_no_machine(name: str) -> None:
    """Every tenth poll once more after the end, backwards: recorded, and nothing else."""
    polls = polls_of(name)
    whole = fold(polls)
    before = gist(whole), {vm.vm_id: vm.steps for vm in whole.state.vms.all()}
    last = polls[-1][0]
    late = [(last + place, poll) for place, (_, poll) in enumerate(reversed(thinned(polls)), start=1)]
    fold(late, whole)
    assert before == (gist(whole), {vm.vm_id: vm.steps for vm in whole.state.vms.all()})
    assert seen_incidents(whole) == VANISHED.get(name, [])


def test_a_row_without_a_price_is_no_machine() -> None:
    """0.22.5 lists a placeholder while it looks for an offer; it disappears without a word."""
    world = fold(polls_of("dstack-0.22.5/no_capacity"))
    assert not world.state.vms
    assert [run.vm_id for run in world.state.runs.all()] == [None]


@pytest.mark.parametrize(
    ("name", "spans"),
    [
        ("dstack-0.19.37/flap", [("14:01:36.848", "14:01:59.759")]),
        ("dstack-0.22.5/unreachable", [("13:41:56.170", "")]),
        ("dstack-0.22.5/success", []),
    ],
)
def test_a_machine_that_does_not_answer_is_a_span(name: str, spans: list[tuple[str, str]]) -> None:
    """From its first sight to the poll that shows it back; a machine that went meanwhile never came back."""
    (vm,) = fold(polls_of(name)).state.vms.all()
    assert [(clock(span.since), clock(span.until)) for span in vm.unreachable] == spans


def test_a_machine_that_stays_terminating_is_doubted_after_fourteen_minutes() -> None:
    """The recording ends there; its source goes on answering the same."""
    polls = polls_of("dstack-0.22.5/unreachable")
    world = fold(polls)
    (vm,) = world.state.vms.all()
    last = next(poll for _, poll in reversed(polls) if poll is not None and poll.path == "/api/instances/list")
    for turn in range(1, 40):
        by = turn * 30 * SECOND
        later = msgspec.structs.replace(last, started_at=last.started_at + by, observed_at=last.observed_at + by)
        fold([(polls[-1][0] + turn, later)], world)
        if vm.state is VmState.UNCONFIRMED:
            break
    assert vm.state is VmState.UNCONFIRMED
    waited = vm.steps[-1].at - vm.steps[-2].at
    assert 14 * 60 * SECOND <= waited < 15 * 60 * SECOND
    assert [kind for kind, _ in seen_incidents(world)] == [AnomalyKind.UNREACHABLE, AnomalyKind.ORPHAN_SUSPECTED]
    assert vm.vm_id in world.state.vms.open_ids
