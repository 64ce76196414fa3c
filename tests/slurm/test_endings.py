"""Every way a job of a real cluster ends, through the command line: state, reason and exit status."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from stenolab.slurm import Cluster
from stenolab.slurm_slow import once_more
from stenolab.steno import Steno
from stenolab.waiting import wait

A6000 = ("--partition", "gpu-a6000", "--gpu", "a6000:1", "--memory", "500M")
LONG_S = 120.0


def runs_of(steno: Steno) -> dict[str, dict[str, Any]]:
    """Runs by name, as `steno ps --json` has them."""
    return {run["name"]: run for run in steno("ps", "--json").done().json()["runs"]}


def submitted(steno: Steno, name: str, command: str, *options: str) -> str:
    """A job that goes on; its id."""
    said = steno("submit", "--json", "--name", name, *A6000, *options, "--", command).done()
    return str(said.json()["provider_id"])


def settled(steno: Steno, name: str, seconds: float = LONG_S) -> dict[str, Any]:
    """The run once it has its verdict; `steno record` is running."""

    def look() -> dict[str, Any] | None:
        run = runs_of(steno)[name]
        return run if run["state"] in ("succeeded", "failed", "stopped") else None

    return wait(look, seconds=seconds, what=f"the verdict of {name}", pause=0.5)


@pytest.fixture
def recorded(on_slurm: Steno) -> Steno:
    """Our command while `steno record` follows the cluster."""
    on_slurm.follow("1s")
    return on_slurm


@pytest.fixture
def listed(slurm_cluster: Cluster) -> Callable[[], str]:
    """What squeue lists."""
    return lambda: slurm_cluster.run("squeue", "-h", "-t", "all", "-o", "%i|%T")


@pytest.mark.parametrize(
    ("command", "state", "reason", "exit_status"),
    [
        ("true", "succeeded", "exit_zero", 0),
        ("exit 7", "failed", "exit_nonzero", 7),
        ("kill -SEGV $$", "failed", "exit_nonzero", 139),
        ("srun bash -c 'exit 3' || true", "succeeded", "exit_zero", 0),
    ],
)
def test_a_job_that_ends_by_itself(
    on_slurm: Steno, command: str, state: str, reason: str, exit_status: int | None
) -> None:
    """A script that succeeds over a step that failed has succeeded; a signal counts 128 more."""
    said = on_slurm(
        "submit", "--wait", "--json", "--name", "ends", *A6000, "--max-duration", "5m", "--", command, code=None
    )
    run = said.json()
    assert (run["state"], run["reason"], run["exit_status"]) == (state, reason, exit_status)
    assert said.code == (0 if state == "succeeded" else 1)


def test_a_job_that_takes_too_much_memory(on_slurm: Steno) -> None:
    """Slurm kills it; what its script would have exited with is not known."""
    greedy = "python3 -c 'import time; taken = bytearray(300 << 20); time.sleep(60)'"
    limits = ("--partition", "gpu-a6000", "--gpu", "a6000:1", "--memory", "60M", "--max-duration", "5m")
    run = on_slurm("submit", "--wait", "--json", "--name", "greedy", *limits, "--", greedy, code=None).json()
    assert (run["state"], run["reason"]) == ("failed", "out_of_memory")


def test_a_fast_job_at_a_slow_poll(on_slurm: Steno, listed: Callable[[], str]) -> None:
    """Bugs 2 and 7 of the first tool: it ended between two polls, and squeue had forgotten it."""
    job = submitted(on_slurm, "fast", "true")
    wait(lambda: f"{job}|" not in listed(), seconds=LONG_S, what="squeue to forget it")
    on_slurm.start("record", "--interval", "5s")
    run = settled(on_slurm, "fast")
    assert (run["state"], run["reason"], run["exit_status"]) == ("succeeded", "exit_zero", 0)


def test_cancelled_while_it_waits_and_while_it_runs(recorded: Steno, listed: Callable[[], str]) -> None:
    """Both are stopped by the user; neither has an exit status."""
    going = submitted(recorded, "stays-running", "sleep 300")
    held = submitted(recorded, "stays-queued", "true", "--account", "lab", "--qos", "capped", "--cpu", "8")
    wait(lambda: f"{going}|RUNNING" in listed(), seconds=LONG_S, what="the job to run")
    assert f"{held}|PENDING" in listed()
    for name in ("stays-queued", "stays-running"):
        recorded("stop", name)
        run = settled(recorded, name)
        assert (run["state"], run["reason"], run["exit_status"]) == ("stopped", "stopped_by_user", None)


def test_a_requeued_job_is_one_run_of_two_attempts(
    recorded: Steno, slurm_cluster: Cluster, listed: Callable[[], str]
) -> None:
    """The end of its first attempt, which accounting shows at once, is not its own."""
    job = submitted(recorded, "requeued-by-hand", once_more("exit 3"))
    wait(lambda: f"{job}|RUNNING" in listed(), seconds=LONG_S, what="the job to run")
    slurm_cluster.run("scontrol", "requeue", job)
    wait(lambda: f"{job}|PENDING" in listed(), seconds=LONG_S, what="the job to be queued again")
    wait(
        lambda: runs_of(recorded)["requeued-by-hand"]["state"] == "queued",
        seconds=LONG_S,
        what="the run to be queued again",
    )
    slurm_cluster.run("scontrol", "update", f"JobId={job}", "StartTime=now")
    run = settled(recorded, "requeued-by-hand", 3 * LONG_S)
    assert (run["state"], run["exit_status"], run["attempts"]) == ("failed", 3, 2)


def test_its_output_its_machine_and_its_bill(recorded: Steno) -> None:
    """Logs are the job's output; the bill is what it had, for as long as it had it."""
    submitted(recorded, "says", "echo one; echo two >&2; sleep 2")
    run = settled(recorded, "says")
    assert recorded("logs", "says").done().out == "one\ntwo\n"
    assert run["start"] == "cold"
    (machine,) = [one for one in recorded("vms", "--json").done().json()["vms"] if one["vm_id"] == run["vm_id"]]
    assert machine["price_usd_per_hour"] == "1.000000"
    assert run["cost_usd"] == machine["cost_usd"] != "0.000000"


def test_the_record_replays_without_the_cluster(recorded: Steno, tmp_path: Path) -> None:
    """What a trace of it says is what the record says."""
    submitted(recorded, "replayed", "exit 3")
    run = settled(recorded, "replayed")
    trace = tmp_path / "trace.jsonl"
    recorded("export", "--trace", str(trace)).done()
    runs = recorded("replay", str(trace), "--json").done().json()["runs"]
    (same,) = [one for one in runs if one["name"] == "replayed"]
    assert (same["state"], same["reason"], same["exit_status"]) == (run["state"], run["reason"], run["exit_status"])
    assert json.loads(trace.read_text().splitlines()[0])["kind"] == "poll"
