"""Runs of which one is wanted, on a real cluster: the first that runs wins, whoever dies meanwhile."""

from pathlib import Path
from typing import Any

import pytest
from stenolab.slurm import Cluster
from stenolab.slurm_slow import batch
from stenolab.steno import Steno
from stenotest.waiting import wait

ENDS = ("succeeded", "failed", "stopped")
ASKED = ("slurm", "run", "--gpu", "1", "--mem", "200M", "--time", "5m", "--type", "a6000", "--type", "v100")
"""Strategies on node1 or node2, and on node3."""


@pytest.fixture
def crowded(slurm_cluster: Cluster) -> Any:
    """Takes every GPU of a partition until it is released, or the test ends; a list of job ids."""
    taken: list[str] = []

    def take(partition: str, nodes: int = 1) -> str:
        job = batch(slurm_cluster, "crowd", "sleep 600", "-p", partition, "-N", str(nodes), "--exclusive")
        taken.append(job)
        wait(lambda: slurm_cluster.run("squeue", "-h", "-t", "R", "-j", job), what="the crowd")
        return job

    yield take
    for job in taken:
        slurm_cluster.run("scancel", job, check=False)


def raced(steno: Steno, stem: str) -> list[dict[str, Any]] | None:
    """The runs of a race once all are over."""
    runs = [run for name, run in steno.world().runs.items() if name is not None and name.startswith(stem)]
    return runs if len(runs) > 1 and all(run["state"] in ENDS for run in runs) else None


def over(steno: Steno, stem: str) -> int:
    """How many runs of a race are over."""
    runs = [run for name, run in steno.world().runs.items() if name is not None and name.startswith(stem)]
    return sum(run["state"] in ENDS for run in runs)


@pytest.mark.long
def test_the_one_that_can_start_wins_and_the_other_costs_nothing(on_slurm: Steno, crowded: Any) -> None:
    """A single starter: the other waits for the node somebody has, and is cancelled in the queue."""
    crowded("gpu-v100")
    done = on_slurm(*ASKED, "--name", "alone", "sleep 2; echo done", code=None)
    assert done.code == 0, done.err
    assert "runs" in done.err
    on_slurm.follow("1s")
    runs = wait(lambda: raced(on_slurm, "alone"), what="the race", pause=0.5)
    won, *lost = sorted(runs, key=lambda run: run["state"], reverse=True)
    assert (won["state"], won["reason"]) == ("succeeded", "exit_zero")
    assert {(run["state"], run["reason"]) for run in lost} == {("stopped", "stopped_by_policy")}
    waited = [run for run in lost if run["started_at"] is None]
    assert waited
    assert all(float(run["cost_usd"] or 0) == 0 for run in waited)


@pytest.mark.ci
def test_of_several_starters_one_is_left_and_the_other_is_paid(on_slurm: Steno) -> None:
    """Both nodes are free, so both start; the loser is stopped in the poll that shows it, and its cost counts."""
    on_slurm.follow("1s")
    done = on_slurm(*ASKED, "--name", "both", "sleep 30", code=None)
    assert done.code == 0, done.err
    runs = wait(lambda: raced(on_slurm, "both"), what="the race", pause=0.5)
    ends = sorted((run["state"], run["reason"]) for run in runs)
    assert ends.pop() == ("succeeded", "exit_zero")
    assert set(ends) == {("stopped", "stopped_by_policy")}


def test_a_race_goes_on_when_its_command_is_killed(
    on_slurm: Steno, slurm_cluster: Cluster, crowded: Any, tmp_path: Path
) -> None:
    """`kill -9` while all wait: whoever records next sees the first that runs and stops the other."""
    crowds = [crowded("gpu-a6000", 2), crowded("gpu-v100")]
    strategies = on_slurm.json("slurm", "plan", *ASKED[2:])["strategies"]
    gate = tmp_path / "gate"
    command = on_slurm.start(*ASKED, "--name", "killed", f"until [ -e {gate} ]; do sleep 0.2; done")
    where = "squeue", "-h", "-t", "PD", "-o", "%j"
    wait(
        lambda: slurm_cluster.run(*where).count("killed") == len(strategies) or not command.alive,
        what="every strategy to wait",
    )
    assert command.alive, command.err
    command.kill()
    for job in crowds:
        slurm_cluster.run("scancel", job)
    on_slurm.follow("1s")
    wait(lambda: over(on_slurm, "killed") == len(strategies) - 1, what="one to be left", pause=0.5)
    gate.touch()
    runs = wait(lambda: raced(on_slurm, "killed"), what="the race", pause=0.5)
    *lost, won = sorted(run["state"] for run in runs)
    assert (won, set(lost)) == ("succeeded", {"stopped"})
    assert len(runs) == len(strategies)


def test_nothing_starts_in_time(on_slurm: Steno, slurm_cluster: Cluster, crowded: Any) -> None:
    """Each strategy's reason to wait is told in words; then all are stopped."""
    crowded("gpu-a6000", 2)
    crowded("gpu-v100")
    done = on_slurm(*ASKED, "--name", "never", "--give-up-after", "6s", "true", code=None)
    assert done.code != 0
    assert done.err.count("the nodes it asks for are in use") + done.err.count("other jobs are before it") >= 2
    assert "never" not in slurm_cluster.run("squeue", "-h", "-o", "%j")
