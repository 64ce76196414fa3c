"""Bills at real pace against the cloud's own: as recorded, and with ever fewer of the polls."""

import random
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from stenolab.environment import EnvironmentUnavailable, ensure
from stenolab.lab import ENDED, Lab
from stenolab.ledger import bill_of, micros
from stenolab.plugin import StenoAt
from stenolab.versions import NEWEST, OLDEST

from steno.engine.fold.fold import Fold
from steno.engine.providers.registry import READINGS
from steno.engine.replay.replay import fold_polls, open_trace
from steno.engine.replay.result import Replay
from steno.events.poll import Poll

pytestmark = [pytest.mark.long, pytest.mark.lab]

CENT = 10_000
RUNS = ("cold", "warm-1", "warm-2")
MINUTES = 60.0
Polls = list[tuple[int, Poll]]


@pytest.fixture(scope="module", params=[NEWEST, OLDEST])
def slow(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A server with dstack's own pauses; a cloud whose machines take as long as real machines to boot and to go."""
    try:
        ensure(request.param)
    except EnvironmentUnavailable as error:
        pytest.skip(str(error))
    with closing(Lab(request.param, tmp_path_factory.mktemp("slow"), pace=1, patience=1)) as lab:
        lab.cloud.configure(boot_s=8.0, shim_s=4.0, pull_s=3.0, delete_s=2.0)
        yield lab


def polls_of(trace: Path) -> Polls:
    return [(number, poll) for number, poll in open_trace(trace) if poll is not None]


def thinned(polls: Polls, every: int) -> Polls:
    """Every `step`th poll of each question to the server, and the last."""
    lanes: dict[tuple[str, bytes], Polls] = {}
    for number, poll in polls:
        lanes.setdefault((poll.path, poll.req), []).append((number, poll))
    kept = {number for lane in lanes.values() for number, _ in (*lane[::every], lane[-1])}
    return [(number, poll) for number, poll in polls if number in kept]


def a_few(polls: Polls, count: int, seed: int) -> Polls:
    """So many polls, chosen at random, and the last of each question."""
    some = {number for number, _ in random.Random(seed).sample(polls, count)}
    last = {number for number, _ in thinned(polls, len(polls))}
    return [(number, poll) for number, poll in polls if number in some or number in last]


def replayed(polls: Sequence[tuple[int, Poll]]) -> dict[str, Any]:
    world = Fold(READINGS)
    for _ in fold_polls(world, polls):
        pass
    return Replay(world).to_json()


def test_bills_hold_against_the_clouds_own_at_any_thinning(slow: Lab, steno_at: StenoAt, tmp_path: Path) -> None:
    """A machine for a cold run and two warm runs costs what the cloud charged to the cent, and each run the same at any
    thinning. The charge of a machine that the cloud takes away is within the bounds.
    """
    project = slow.project()
    slow.fleet(project)
    slow.fleet(project, "doomed-fleet")
    trace = tmp_path / "trace.jsonl"
    steno = steno_at(slow, project)
    controller = steno.follow("1", "--trace", str(trace))
    slow.submit(project, "doomed", ["sleep 600"], fleets=["doomed-fleet"])
    for name in RUNS:
        slow.submit(project, name, ["sleep 2"], fleets=["lab-fleet"])
        if name == "cold":
            slow.wait_status(project, "doomed", "running")
            slow.cloud.kill(slow.hostname(project, "doomed") or "", "gone")
        slow.wait_status(project, name)
    slow.wait_status(project, "doomed", *ENDED)

    def kept() -> dict[str, Any] | None:
        rows = [row for row in slow.instances(project) if row["fleet_name"] == "lab-fleet" and row["price"]]
        return rows[0] if rows and all(row["status"] == "terminated" for row in rows) else None

    machine = slow.wait(kept, what="the machine to idle out")

    def seen_gone() -> bool:
        return any(vm["provider_id"] == machine["id"] and vm["state"] == "terminated" for vm in steno.world().vms)

    steno.until(seen_gone, what="the recorder to see it gone")
    controller.interrupt()  # it writes the trace to its end
    controller.finish()
    polls = polls_of(trace)
    ledger = {row["id"]: bill_of(slow, project, row["id"]) for row in slow.instances(project) if row["price"]}
    whole = replayed(polls)
    versions = [whole, *(replayed(thinned(polls, every)) for every in (3, 10, 30))]
    versions += [replayed(a_few(polls, count, seed)) for count in (0, 5, 20) for seed in range(5)]
    for version in versions:
        for vm in version["vms"]:
            charged = ledger[vm["provider_id"]]
            assert micros(vm["cost_low_usd"]) <= charged["micro_dollars"] <= micros(vm["cost_high_usd"]), (vm, charged)
            assert sum(micros(interval["cost_usd"]) for interval in vm["intervals"]) == micros(vm["cost_usd"])
            if vm["provider_id"] == machine["id"] and (machine.get("finished_at") or version is whole):
                assert abs(micros(vm["cost_usd"]) - charged["micro_dollars"]) <= CENT
        costs = {run["name"]: run["cost_usd"] for run in version["runs"]}
        for run in whole["runs"]:
            if run["name"] in RUNS:
                assert abs(micros(costs[run["name"]]) - micros(run["cost_usd"])) <= CENT, (run["name"], costs)
