"""Every recording of a real server gives its machines: states, life, reason, who was on it, cold or warm."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import msgspec
import pytest

from engine.fold.change import AnomalyKind
from engine.fold.vm import Vm
from engine.fold.world import World
from engine.providers.readings import READINGS
from engine.replay.trace import NumberedPoll, fold_polls, open_trace
from engine.states import VmState
from events.clock import SECOND, format_time

TRACES = Path(__file__).parents[2] / "traces"


@dataclass(frozen=True)
class Expected:
    """One machine of a recording, read by hand from its lines."""

    id: str
    """The provider's, the first six digits."""
    states: str
    """Line and state of each move."""
    created: str
    runs: tuple[str, ...]
    """Name, how it started, and from when (the provider's `submitted_at`) to when it was there."""
    finished: tuple[str, str] | None = None
    """The end and the earliest it can have been."""
    reason: str | None = None


EXPECTED: dict[str, tuple[Expected, ...]] = {
    "dstack-0.19.37/failure": (
        Expected(
            "bb4ca1",
            "49 provisioning, 174 busy, 319 idle",
            "13:41:14.178",
            ("bad-run cold 13:41:05.152 13:42:11.614",),
        ),
    ),
    "dstack-0.19.37/flap": (
        Expected(
            "2bfc58",
            "64 provisioning, 189 busy, 711 idle",
            "14:00:32.242",
            ("flap-run cold 14:00:20.464 14:02:41.446",),
        ),
    ),
    "dstack-0.19.37/stop_running": (
        Expected(
            "bbf59d",
            "44 provisioning, 169 busy, 380 idle",
            "13:41:14.191",
            ("long-run cold 13:41:05.764 13:42:24.668",),
        ),
    ),
    "dstack-0.19.37/success": (
        Expected(
            "19c1a4",
            "54 provisioning, 174 busy, 319 idle, 480 terminating, 530 terminated",
            "13:41:14.136",
            ("ok-run cold 13:41:04.678 13:42:11.627",),
            finished=("13:42:54.017", "13:42:53.011"),
            reason="idle_timeout",
        ),
    ),
    "dstack-0.19.37/warm_reuse": (
        Expected(
            "2fc32d",
            "65 provisioning, 209 busy, 461 idle, 607 busy, 853 idle, 1106 terminating, 1172 terminated",
            "13:44:10.567",
            ("warm-a cold 13:44:00.670 13:45:16.594", "warm-b warm 13:45:37.309 13:46:22.015"),
            finished=("13:47:15.304", "13:47:14.326"),
            reason="idle_timeout",
        ),
    ),
    "dstack-0.22.5/failure": (
        Expected(
            "1beb4b",
            "10 provisioning, 106 busy, 352 idle",
            "13:39:26.979",
            ("bad-run cold 13:39:26.915 13:40:25.024",),
        ),
    ),
    "dstack-0.22.5/name_reuse": (
        Expected(
            "4540f8",
            "10 provisioning, 82 busy, 448 idle, 491 busy, 719 idle",
            "13:47:30.747",
            ("same-run cold 13:47:30.553 13:48:51.314", "same-run warm 13:48:58.882 13:49:44.177"),
        ),
    ),
    "dstack-0.22.5/no_capacity": (),
    "dstack-0.22.5/retry_success": (
        Expected(
            "70fc8f",
            "10 provisioning, 94 busy, 442 idle, 538 busy, 748 idle",
            "13:40:54.099",
            ("retry-run cold 13:40:53.970 13:42:23.741", "retry-run warm 13:42:40.181 13:43:14.805"),
        ),
    ),
    "dstack-0.22.5/server_restart": (
        Expected(
            "3e5cb2",
            "10 provisioning, 118 busy, 667 idle",
            "13:53:19.024",
            ("surv-run cold 13:53:18.897 13:55:08.068",),
        ),
    ),
    "dstack-0.22.5/several": (
        Expected(
            "e6525d",
            "15 provisioning, 87 busy, 879 idle",
            "13:47:31.605",
            ("m-1 cold 13:47:31.318 13:49:44.170",),
        ),
        Expected(
            "6a3d22",
            "23 provisioning, 95 busy, 879 idle",
            "13:47:32.650",
            ("m-2 cold 13:47:31.785 13:49:44.717",),
        ),
    ),
    "dstack-0.22.5/stop_running": (
        Expected(
            "4ba69e",
            "10 provisioning, 100 busy, 275 idle",
            "13:39:27.522",
            ("long-run cold 13:39:27.442 13:40:12.200",),
        ),
    ),
    "dstack-0.22.5/success": (
        Expected(
            "2122b5",
            "10 provisioning, 136 busy, 382 idle, 533 terminating, 587 terminated",
            "13:37:20.773",
            ("ok-run cold 13:37:20.627 13:38:23.417",),
            finished=("13:38:57.618", "13:38:57.618"),
            reason="idle_timeout",
        ),
    ),
    "dstack-0.22.5/unreachable": (
        Expected(
            "5cd969",
            "10 provisioning, 88 busy, 1469 idle, 1625 terminating",
            "13:40:52.038",
            ("spot-run cold 13:40:51.908 13:45:13.900",),
            reason="unreachable",
        ),
    ),
    "dstack-0.22.5/warm_reuse": (
        Expected(
            "0a1625",
            "12 provisioning, 89 busy, 817 idle, 952 busy, 1211 idle, 1590 terminating, 1646 terminated",
            "13:47:30.223",
            ("warm-a cold 13:47:29.938 13:49:44.129", "warm-b warm 13:50:04.866 13:50:48.832"),
            finished=("13:51:54.577", "13:51:54.577"),
            reason="idle_timeout",
        ),
    ),
}
RECORDINGS = sorted(EXPECTED)


@cache
def polls_of(name: str) -> list[NumberedPoll]:
    return list(open_trace(TRACES / f"{name}.jsonl.zst"))


def fold(polls: Sequence[NumberedPoll], world: World | None = None) -> World:
    world = world if world is not None else World(READINGS)
    for _ in fold_polls(world, polls):
        pass
    return world


def clock(moment: int | None) -> str:
    return "" if moment is None else format_time(moment)[11:23]


def occupants(world: World, vm: Vm) -> list[str]:
    return [
        f"{world.state.runs[one.run_id].name} {'cold' if one.cold else 'warm'} {clock(one.since)} {clock(one.until)}"
        for one in vm.occupancies
    ]


def gist(world: World) -> dict[str, tuple[str, str | None, list[str]]]:
    """Machines by id: state, reason, occupants: what no way of delivering the polls may change."""
    return {
        vm.provider_id[:6]: (vm.state.value, None if vm.reason is None else vm.reason.value, occupants(world, vm))
        for vm in world.state.vms.values()
    }


def thinned(polls: Sequence[NumberedPoll], every: int = 10) -> list[NumberedPoll]:
    """Per endpoint and request, polls 0, 10, 20 … and the last."""
    lanes: dict[tuple[str, bytes], list[NumberedPoll]] = {}
    for number, poll in polls:
        if poll is not None:
            lanes.setdefault((poll.path, poll.req), []).append((number, poll))
    kept = {number for lane in lanes.values() for number, _ in (*lane[::every], lane[-1])}
    return [(number, poll) for number, poll in polls if number in kept]


VANISHED = {"dstack-0.22.5/unreachable": [(AnomalyKind.UNREACHABLE, "last reached at 2026-11-20T13:41:55Z")]}


def incidents(world: World) -> list[tuple[AnomalyKind, str]]:
    return [(one.kind, one.detail) for one in world.state.anomalies]


def test_every_recording_in_the_tree_has_its_expected_machines() -> None:
    """A recording without an expectation would be a recording nobody checks."""
    assert sorted(str(path.relative_to(TRACES)) for path in TRACES.glob("dstack-*/*.zst")) == [
        f"{name}.jsonl.zst" for name in RECORDINGS
    ]


@pytest.mark.parametrize("name", RECORDINGS)
def test_a_recording_gives_its_machines(name: str) -> None:
    """Way through the states, life, reason, runs: as read by hand."""
    world = fold(polls_of(name))
    assert incidents(world) == VANISHED.get(name, [])
    machines = sorted(world.state.vms.values(), key=lambda vm: vm.created)
    for vm, expected in zip(machines, EXPECTED[name], strict=True):
        assert vm.provider_id[:6] == expected.id
        assert ", ".join(f"{step.position} {step.after.value}" for step in vm.steps) == expected.states
        assert clock(vm.created) == expected.created
        assert occupants(world, vm) == list(expected.runs)
        ends = None if vm.finished_at is None else (clock(vm.finished_at), clock(vm.finished_low))
        assert ends == expected.finished
        assert (None if vm.reason is None else vm.reason.value) == expected.reason
        assert [price.hourly for price in vm.prices] == [1_990_000]
        assert vm.made_for == vm.occupancies[0].run_id
        assert not vm.ours


@pytest.mark.parametrize("name", RECORDINGS)
def test_every_run_of_a_recording_knows_its_machine(name: str) -> None:
    """The newest of its first job; `start` is that of the first attempt; without a machine there is neither."""
    world = fold(polls_of(name))
    for run in world.state.runs.values():
        there = [
            (vm.vm_id, "cold" if one.cold else "warm")
            for vm in world.state.vms.values()
            for one in vm.occupancies
            if one.run_id == run.run_id
        ]
        assert (run.vm_id, run.start) == ((there[-1][0], there[0][1]) if there else (None, None))


@pytest.mark.parametrize("name", RECORDINGS)
def test_a_thinned_recording_gives_the_same_machines(name: str) -> None:
    """Dropping polls moves edges, never states, reasons or links."""
    polls = polls_of(name)
    assert gist(fold(thinned(polls))) == gist(fold(polls))


@pytest.mark.parametrize("name", RECORDINGS)
def test_doubled_polls_change_no_machine(name: str) -> None:
    """The same observation twice changes nothing."""
    polls = polls_of(name)
    once, twice = fold(polls).state, fold([pair for pair in polls for _ in range(2)]).state
    assert once.vms == twice.vms
    assert once.anomalies == twice.anomalies


@pytest.mark.parametrize("name", RECORDINGS)
def test_no_prefix_of_a_recording_loses_a_machine_or_ends_one_early(name: str) -> None:
    """Once seen, a machine stays in the world, and only a row that says so ends it."""
    world = World(READINGS)
    ends = {expected.id: expected.states.rpartition(", ")[2] for expected in EXPECTED[name]}
    seen: set[str] = set()
    for step in fold_polls(world, polls_of(name)):
        assert seen <= set(world.state.vms)
        seen = set(world.state.vms)
        for vm in world.state.vms.values():
            line, state = ends[vm.provider_id[:6]].split()
            assert (vm.state is VmState.TERMINATED) == (state == "terminated" and int(line) <= step.position)
            assert (vm.vm_id in world.state.open_vms) == (vm.state is not VmState.TERMINATED)


@pytest.mark.parametrize("name", RECORDINGS)
def test_answers_that_come_late_move_no_machine(name: str) -> None:
    """Every tenth poll once more after the end, backwards: recorded, and nothing else."""
    polls = polls_of(name)
    whole = fold(polls)
    before = gist(whole), {vm_id: vm.steps for vm_id, vm in whole.state.vms.items()}
    last = polls[-1][0]
    late = [(last + place, poll) for place, (_, poll) in enumerate(reversed(thinned(polls)), start=1)]
    fold(late, whole)
    assert before == (gist(whole), {vm_id: vm.steps for vm_id, vm in whole.state.vms.items()})
    assert incidents(whole) == VANISHED.get(name, [])


def test_a_row_without_a_price_is_no_machine() -> None:
    """0.22.5 lists a placeholder while it looks for an offer; it disappears without a word."""
    world = fold(polls_of("dstack-0.22.5/no_capacity"))
    assert world.state.vms == {}
    assert [run.vm_id for run in world.state.runs.values()] == [None]


@pytest.mark.parametrize(
    ("name", "spans"),
    [
        ("dstack-0.19.37/flap", [("14:01:36.848", "14:01:59.759")]),
        ("dstack-0.22.5/unreachable", [("13:41:56.170", "")]),
        ("dstack-0.22.5/success", []),
    ],
)
def test_a_machine_that_does_not_answer_is_a_span(name: str, spans: list[tuple[str, str]]) -> None:
    """From its first sight to the poll that shows it back; one that went meanwhile never came back."""
    (vm,) = fold(polls_of(name)).state.vms.values()
    assert [(clock(span.since), clock(span.until)) for span in vm.unreachable] == spans


def test_a_machine_that_stays_terminating_is_doubted_after_fourteen_minutes() -> None:
    """The recording ends there; its source goes on answering the same."""
    polls = polls_of("dstack-0.22.5/unreachable")
    world = fold(polls)
    (vm,) = world.state.vms.values()
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
    assert [kind for kind, _ in incidents(world)] == [AnomalyKind.UNREACHABLE, AnomalyKind.ORPHAN_SUSPECTED]
    assert vm.vm_id in world.state.open_vms
