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

RUNS = (TRACES / "dstack-runs.txt").read_text(encoding="utf-8")
"""By hand from the lines of each recording: name of the run, line with the evidence, state, reason, exit status,
attempts; way through the states.
"""
UP = "provisioning pulling running"

MACHINES = (TRACES / "dstack-machines.txt").read_text(encoding="utf-8")
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
