"""Every way a job of a real cluster ends, through the command line: state, reason and exit status."""

from collections.abc import Callable

import pytest
from stenolab.slurm import Cluster
from stenolab.slurm_slow import batch
from stenolab.steno import Steno
from stenotest.waiting import wait

A6000 = ("--partition", "gpu-a6000", "--gpu", "a6000:1", "--memory", "500M")
ENDS = ("succeeded", "failed", "stopped")


def submitted(steno: Steno, name: str, command: str, *options: str) -> str:
    """A job that goes on; its id."""
    done = steno("submit", "--json", "--name", name, *A6000, *options, "--", command).done()
    return str(done.json()["provider_id"])


@pytest.fixture
def recorded(on_slurm: Steno) -> Steno:
    """Our command while `steno record` follows the cluster."""
    on_slurm.follow("1s")
    return on_slurm


@pytest.fixture
def listed(slurm_cluster: Cluster) -> Callable[[], str]:
    """The answer of squeue."""
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
    done = on_slurm(
        "submit", "--wait", "--json", "--name", "ends", *A6000, "--max-duration", "5m", "--", command, code=None
    )
    run = done.json()
    assert (run["state"], run["reason"], run["exit_status"]) == (state, reason, exit_status)
    assert done.code == (0 if state == "succeeded" else 1)


def test_a_job_that_takes_too_much_memory(on_slurm: Steno) -> None:
    """Slurm kills it; what its script would have exited with is not known."""
    greedy = "python3 -c 'import time; taken = bytearray(300 << 20); time.sleep(60)'"
    limits = ("--partition", "gpu-a6000", "--gpu", "a6000:1", "--memory", "60M", "--max-duration", "5m")
    run = on_slurm("submit", "--wait", "--json", "--name", "greedy", *limits, "--", greedy, code=None).json()
    assert (run["state"], run["reason"]) == ("failed", "out_of_memory")


def test_a_fast_job_at_a_slow_poll(on_slurm: Steno, listed: Callable[[], str]) -> None:
    """Bugs 2 and 7 of the first tool: it ended between two polls, and squeue had forgotten it."""
    job = submitted(on_slurm, "fast", "true")
    wait(lambda: f"{job}|" not in listed(), what="squeue to forget it")
    on_slurm.start("record", "--interval", "5s")
    run = on_slurm.wait("fast", *ENDS)
    assert (run["state"], run["reason"], run["exit_status"]) == ("succeeded", "exit_zero", 0)


def test_a_job_that_came_and_went_while_nothing_recorded(
    on_slurm: Steno, slurm_cluster: Cluster, listed: Callable[[], str]
) -> None:
    """Seen: while another job is active accounting was asked for that job alone, so this one was neither listed nor
    billed.
    """
    recorder = on_slurm.follow("1s")
    batch(slurm_cluster, "stays", "sleep 300", "-p", "gpu-a6000")
    try:
        on_slurm.wait("stays", "running")
        recorder.interrupt()
        recorder.finish()
        job = batch(slurm_cluster, "came-and-went", "exit 6", "-p", "gpu-a6000")
        wait(lambda: f"{job}|" not in listed(), what="squeue to forget it")
        on_slurm.follow("1s")
        run = on_slurm.wait("came-and-went", *ENDS)
    finally:
        slurm_cluster.run("scancel", "-n", "stays")
    assert (run["state"], run["reason"], run["exit_status"]) == ("failed", "exit_nonzero", 6)


def test_cancelled_while_it_waits_and_while_it_runs(recorded: Steno, listed: Callable[[], str]) -> None:
    """Both are stopped by the user; neither has an exit status."""
    going = submitted(recorded, "stays-running", "sleep 300")
    held = submitted(recorded, "stays-queued", "true", "--account", "lab", "--qos", "capped", "--cpu", "8")
    wait(lambda: f"{going}|RUNNING" in listed(), what="the job to run")
    assert f"{held}|PENDING" in listed()
    for name in ("stays-queued", "stays-running"):
        recorded("stop", name)
        run = recorded.wait(name, *ENDS)
        assert (run["state"], run["reason"], run["exit_status"]) == ("stopped", "stopped_by_user", None)


def test_its_output_its_machine_and_its_bill(recorded: Steno) -> None:
    """Logs are the job's output; the bill is what it had, for as long as it had it."""
    submitted(recorded, "says", "echo one; echo two >&2; sleep 2")
    run = recorded.wait("says", *ENDS)
    assert recorded("logs", "says").done().out == "one\ntwo\n"
    assert run["start"] == "cold"
    (machine,) = [vm for vm in recorded("vms", "--json").done().json()["vms"] if vm["vm_id"] == run["vm_id"]]
    assert machine["price_usd_per_hour"] == "1.000000"
    assert run["cost_usd"] == machine["cost_usd"] != "0.000000"
