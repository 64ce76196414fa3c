"""Jobs of a real cluster that end slowly or are tried again: one run each, with its attempts, and the right verdict."""

import time
from typing import Any

import pytest
from stenolab.slurm import Cluster
from stenolab.slurm_slow import batch
from stenolab.steno import Steno
from stenotest.waiting import wait

ENDS = ("succeeded", "failed", "stopped")


def ended(steno: Steno, name: str) -> dict[str, Any]:
    """The run of that name once it has its verdict."""
    return steno.wait(name, *ENDS)


def verdict(run: dict[str, Any]) -> tuple[str, str, int | None, int]:
    """State, reason, exit status, attempts."""
    return run["state"], run["reason"], run["exit_status"], run["attempts"]


def test_an_array_is_one_run_per_task(slow_endings: Steno, slurm_cluster: Cluster) -> None:
    """Submitted outside Steno, two tasks at a time."""
    batch(slurm_cluster, "array", "exit $SLURM_ARRAY_TASK_ID", "-p", "gpu-a6000", "--array=0-3%2")

    def tasks() -> list[dict[str, Any]] | None:
        runs = slow_endings("ps", "--all", "--json").json()["runs"]
        listed = [run for run in runs if run["name"] == "array"]
        return listed if len(listed) == 4 and all(run["state"] in ENDS for run in listed) else None

    ended_tasks = sorted(wait(tasks, what="four tasks", pause=0.5), key=lambda run: run["provider_id"])
    array = ended_tasks[0]["provider_id"].partition("_")[0]
    assert [run["provider_id"] for run in ended_tasks] == [f"{array}_{task}" for task in range(4)]
    assert [verdict(run) for run in ended_tasks] == [
        ("succeeded", "exit_zero", 0, 1),
        *(("failed", "exit_nonzero", task, 1) for task in (1, 2, 3)),
    ]


def test_tasks_that_wait_are_cancelled_while_others_run(slow_endings: Steno) -> None:
    """`scancel -t PENDING`: those that had begun end well, the others were stopped, and nothing else is a run."""

    def tasks() -> dict[str, dict[str, Any]] | None:
        runs = slow_endings("ps", "--all", "--json").json()["runs"]
        listed = {run["provider_id"].partition("_")[2]: run for run in runs if run["name"] == "cut-short"}
        return listed if all(run["state"] in ENDS for run in listed.values()) else None

    by_task = wait(tasks, what="every task", pause=0.5)
    assert {*by_task} == {str(task) for task in range(8)}
    began = {task for task, run in by_task.items() if run["start"] is not None}
    assert {"0", "1"} <= began < {*by_task}
    assert {by_task[task]["state"] for task in began} == {"succeeded"}
    assert {by_task[task]["state"] for task in {*by_task} - began} == {"stopped"}
    assert {run["attempts"] for run in by_task.values()} == {1}


@pytest.mark.ci
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("requeued", ("failed", "exit_nonzero", 4, 2)),
        ("gives-way", ("succeeded", "exit_zero", 0, 2)),
        ("gives-way-for-good", ("failed", "interrupted", None, 1)),
        ("too-long", ("failed", "timed_out", None, 1)),
        ("node-dies-for-good", ("failed", "node_failed", None, 1)),
    ],
)
def test_how_a_slow_job_ends(slow_endings: Steno, name: str, expected: tuple[str, str, int | None, int]) -> None:
    """Requeued by hand, preempted with and without another attempt, at its time limit, on a node that died."""
    assert verdict(ended(slow_endings, name)) == expected


def test_a_job_whose_node_died_is_tried_again(slow_endings: Steno, slurm_cluster: Cluster) -> None:
    """It waits, runs once its node is back, and what both attempts cost counts."""
    ended(slow_endings, "node-dies-for-good")
    first = slow_endings.world().runs["node-dies"]
    assert (first["state"], first["attempts"]) in (("queued", 2), ("finishing", 1))
    job = first["provider_id"]
    # A node that comes back ends the attempt that it lost, and starts no other of the same job in that second.
    slurm_cluster.run("scontrol", "hold", job)
    slurm_cluster.start_node("node4")
    wait(lambda: "idle" in slurm_cluster.run("sinfo", "-h", "-n", "node4", "-o", "%T"), what="node4")
    back = int(time.time())
    wait(lambda: int(time.time()) > back + 1, what="the next second")
    slurm_cluster.run("scontrol", "release", job)
    again = slow_endings.wait("node-dies", "running")
    assert again["attempts"] == 2
    slow_endings("stop", "node-dies")
    run = ended(slow_endings, "node-dies")
    assert verdict(run) == ("stopped", "stopped_by_user", None, 2)
    vms = slow_endings("vms", "--all", "--json").json()["vms"]
    bills = [float(vm["cost_usd"]) for vm in vms if vm["provider_id"].startswith(f"{run['provider_id']}@")]
    assert len(bills) == 2
    assert float(run["cost_usd"]) == pytest.approx(sum(bills), abs=1e-5)


def test_a_checkpoint_chain_is_one_run(slow_endings: Steno) -> None:
    """Told before its time limit, requeued, gone on in the same folder: two attempts, one log, one verdict."""
    assert verdict(ended(slow_endings, "chain")) == ("succeeded", "exit_zero", 0, 2)
    output = slow_endings("logs", "chain").out
    assert [output.count(words) for words in ("began", "wrote a checkpoint", "went on after")] == [1, 1, 1]


def test_the_last_segment_of_a_chain_has_not_succeeded(slow_endings: Steno) -> None:
    """It wrote its checkpoint and exited 0, but the work is not done, and no resubmission is left."""
    assert verdict(ended(slow_endings, "last-segment")) == ("failed", "exit_nonzero", 124, 1)
    assert "out of time" in slow_endings("logs", "last-segment").out


def test_no_slow_ending_is_a_contradiction(slow_endings: Steno) -> None:
    """No verdict was ever taken back, and no attempt moved a run where it cannot go."""
    wrong = ("contradiction", "illegal_transition")
    assert [anomaly for anomaly in slow_endings.world().anomalies if anomaly["kind"] in wrong] == []
