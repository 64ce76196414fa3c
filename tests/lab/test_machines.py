"""Machines, money and idle shutdown on genuine servers, through our command: who gets which machine, for how long, at
what price, held against what the cloud itself charged.
"""

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest
from stenolab.lab import Gate, Lab
from stenolab.ledger import bill_of, bills_of, micros, most_at_once, of_kind, seconds
from stenolab.plugin import StenoAt
from stenolab.steno import Steno, StenoWorld
from stenolab.versions import NEWEST, OLDEST

from steno.engine.control.poll_interval import Pace
from steno.engine.state.policy import BACKSTOP
from steno.events.clock import SECOND

pytestmark = [pytest.mark.slow, pytest.mark.suffices(OLDEST)]

BURST_MODE = {NEWEST: "provider", OLDEST: "pool"}
PAIR_MODE = {NEWEST: "pool", OLDEST: "provider"}
TEN = tuple(f"run-{number}" for number in range(10))
CAP = 3
BURST_IDLE_S = 6
PAIR_IDLE_S = 20
"""Long enough for the second run to come in time on a crowded machine."""
PRICE = 1.99


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The history of a project until no machine was left, as Steno and the cloud report it."""

    lab: Lab
    project: str
    runs: dict[str, dict[str, Any]]
    vms: list[dict[str, Any]]
    bills: list[dict[str, Any]]
    events: list[dict[str, Any]]
    looks: list[float]
    """The times at which Steno saw machines, seconds since the epoch."""

    def interval(self, vm: dict[str, Any]) -> float:
        """The longest time between two looks while that machine lived, seconds: a loaded machine looks less often."""
        until = seconds(vm["intervals"][-1]["to"])
        lived = [look for look in self.looks if seconds(vm["intervals"][0]["from"]) <= look <= until + 1]
        return max(Pace().fast / SECOND, *(after - before for before, after in itertools.pairwise(lived)))


def settings(mode: str, idle: int) -> dict[str, str]:
    chosen = {"STENO_VMS_MODE": mode, "STENO_MAX_VMS": str(CAP), "STENO_IDLE_TIMEOUT": f"{idle}s"}
    return {**chosen, "STENO_BUDGET": "off"}


def busy(world: StenoWorld, run: str) -> bool:
    """True if that run's machine is known and busy."""
    vm = world.machine_of(run)
    return vm is not None and vm["state"] == "busy"


def until_all_is_over(steno: Steno, lab: Lab, project: str) -> History:
    """The history once every run has its verdict and every machine is gone, at the cloud and in the record."""

    world: StenoWorld | None = None

    def over() -> bool:
        nonlocal world
        world = steno.world()
        ended = all(run["state"] in ("succeeded", "failed", "stopped") for run in world.runs.values())
        return ended and all(vm["state"] == "terminated" for vm in world.vms)

    steno.until(over, what="every run to end, and every machine to go")
    assert world is not None
    return History(
        lab=lab,
        project=project,
        runs=world.runs,
        vms=world.vms,
        bills=bills_of(lab, project),
        events=steno.events("VmDrainStarted", "VmStopIntended", "VmStopSucceeded", "VmStopFailed"),
        looks=[
            seconds(poll["t"])
            for poll in steno("polls", "--json").lines()
            if poll["path"] == "/api/instances/list" and poll["status"] == 200
        ],
    )


@pytest.fixture(scope="module")
def burst(dstack: Lab, steno_for_module: StenoAt) -> Iterator[History]:
    """Ten runs submitted at once where three machines are allowed."""
    project = dstack.project()
    steno = steno_for_module(dstack, project, **settings(BURST_MODE[dstack.version], BURST_IDLE_S))
    controller = steno.follow("0.5")
    with ThreadPoolExecutor(len(TEN)) as users:
        list(users.map(lambda name: steno.submit(name, ["sleep 1"]), TEN))
    yield until_all_is_over(steno, dstack, project)
    controller.kill()


@pytest.fixture(scope="module")
def pair(dstack: Lab, steno_for_module: StenoAt) -> Iterator[History]:
    """Two runs, the second submitted when the first has ended and its machine is free: a loaded dstack calls the
    machine busy for some seconds more, and then another machine is made.
    """
    project = dstack.project()
    steno = steno_for_module(dstack, project, **settings(PAIR_MODE[dstack.version], PAIR_IDLE_S))
    controller = steno.up()
    for name in ("first", "second"):
        gate = Gate(dstack, f"{project}-{name}")
        steno.submit(name, [gate.passed])
        # Any machine of that run: had the first machine gone meanwhile, the tests below say so at once.
        steno.until(lambda name=name: busy(steno.world(), name), what=f"the machine of {name} to be busy")
        gate.open()
        steno.wait(name, "succeeded")
        steno.until(lambda name=name: not busy(steno.world(), name), what=f"the machine of {name} to be free")
    yield until_all_is_over(steno, dstack, project)
    controller.kill()


@pytest.mark.ci
def test_ten_at_once_are_never_more_than_three_machines(burst: History) -> None:
    """By the cloud's own account; all ten succeed, each machine was made for one of them and taken over by others."""
    assert {run["state"] for run in burst.runs.values()} == {"succeeded"}
    assert set(burst.runs) == set(TEN)
    assert most_at_once(burst.bills) <= CAP
    starts = [run["start"] for run in burst.runs.values()]
    assert starts.count("cold") == len(burst.bills) == len(burst.vms)
    assert starts.count("warm") == len(TEN) - len(burst.vms)
    assert sorted(run for vm in burst.vms for run in vm["runs"]) == sorted(run["run_id"] for run in burst.runs.values())
    assert len(burst.bills) < len(TEN)


def test_two_runs_back_to_back_are_one_machine(pair: History) -> None:
    """A cold and a warm start on a single machine at the cloud, both runs on it in order."""
    first, second = pair.runs["first"], pair.runs["second"]
    assert (first["start"], second["start"]) == ("cold", "warm")
    (vm,) = pair.vms
    assert vm["runs"] == [first["run_id"], second["run_id"]]
    assert len(pair.bills) == 1


def test_an_idle_machine_goes_after_the_timeout_and_not_before(pair: History) -> None:
    """Ended by Steno, once, after at least the timeout by the cloud's account; dstack was told 30 s more."""
    (vm,) = pair.vms
    (bill,) = pair.bills
    assert (vm["state"], vm["reason"]) == ("terminated", "idle_timeout")
    kinds = [event["type"] for event in pair.events if event["stream"].startswith("vm/")]
    assert kinds.count("VmStopSucceeded") == 1
    drained = len(kinds) - 1 - kinds[::-1].index("VmDrainStarted")  # one before it was cancelled: the second run came
    end = kinds[drained:]
    assert set(end[1:-2]) <= {"VmStopIntended", "VmStopFailed"}  # a busy dstack may refuse at first
    assert end[-2:] == ["VmStopIntended", "VmStopSucceeded"]
    assert bill["deleted"] - seconds(pair.runs["second"]["finished_at"]) >= PAIR_IDLE_S
    duration = pair.lab.run(pair.project, "second")["run_spec"]["configuration"]["idle_duration"]
    assert duration == PAIR_IDLE_S + BACKSTOP // SECOND


def test_the_ledger_agrees_with_what_the_cloud_charged(burst: History, pair: History) -> None:
    """Every machine, to within one poll interval at its price; its intervals are its life, without gap or rest."""
    for history in (burst, pair):
        for vm in history.vms:
            charged = bill_of(history.lab, history.project, vm["provider_id"])["micro_dollars"]
            assert abs(micros(vm["cost_usd"]) - charged) <= history.interval(vm) * PRICE / 3600 * 1e6, vm
            assert micros(vm["cost_low_usd"]) <= micros(vm["cost_usd"]) <= micros(vm["cost_high_usd"])
            assert sum(micros(interval["cost_usd"]) for interval in vm["intervals"]) == micros(vm["cost_usd"])
            assert all(interval["to"] == other["from"] for interval, other in itertools.pairwise(vm["intervals"]))
            row = next(row for row in history.lab.instances(history.project) if row["id"] == vm["provider_id"])
            assert seconds(vm["intervals"][0]["from"]) == seconds(row["created"])
            if row.get("finished_at") is not None:  # 0.19.37 does not say
                assert seconds(vm["intervals"][-1]["to"]) == seconds(row["finished_at"])


def test_every_run_pays_its_time_and_idling_is_its_own_line(pair: History) -> None:
    """The cold run pays the boot, the warm one none; what neither was there for is idle time of the machine."""
    (vm,) = pair.vms
    assert len(of_kind(vm, "busy")) == 2
    assert all(micros(run["cost_usd"]) > 0 for run in pair.runs.values())
    idle = sum(micros(interval["cost_usd"]) for interval in of_kind(vm, "idle"))
    assert idle >= PAIR_IDLE_S * PRICE / 3600 * 1e6
    rest = sum(micros(interval["cost_usd"]) for interval in of_kind(vm, "idle", "terminating", "unconfirmed"))
    paid = sum(micros(run["cost_usd"]) for run in pair.runs.values())
    assert paid + rest == micros(vm["cost_usd"])
