"""The output of a job: while it runs, and of jobs that somebody submitted with sbatch."""

from __future__ import annotations

from pathlib import Path

from stenolab.slurm import Cluster
from stenolab.steno import Steno
from stenolab.waiting import wait

A6000 = ("--partition", "gpu-a6000", "--mem", "500M", "--time", "5m")
INTERRUPTED = 130
LONG_S = 120.0


def test_a_race_prints_the_winners_output_as_it_comes(on_slurm: Steno, tmp_path: Path) -> None:
    """And its exit code is the run's: 1 for a run that did not succeed."""
    gate = tmp_path / "gate"
    line = f"echo begun; until [ -e {gate} ]; do sleep 0.1; done; echo over; exit 3"
    command = on_slurm.start("slurm", "run", *A6000, "--name", "printed", line)
    wait(lambda: command.out == "begun\n" or not command.alive, seconds=LONG_S, what="its first line")
    assert command.alive, command.err
    gate.touch()
    ended = command.finish()
    assert ended.code == 1
    assert ended.out.startswith("begun\nover\n")
    assert "exit 3" in ended.out


def test_after_ctrl_c_the_winner_goes_on(on_slurm: Steno, slurm_cluster: Cluster, tmp_path: Path) -> None:
    """Before one runs it stops all; afterwards the run belongs to the cluster."""
    gate = tmp_path / "gate"
    command = on_slurm.start(
        "slurm", "run", *A6000, "--name", "left", f"echo begun; until [ -e {gate} ]; do sleep 0.1; done"
    )
    wait(lambda: "begun" in command.out or not command.alive, seconds=LONG_S, what="its first line")
    command.interrupt()
    ended = command.finish()
    assert ended.code == INTERRUPTED
    assert ended.err.splitlines()[-1].startswith("steno: left still runs: ")
    assert "left" in slurm_cluster.run("squeue", "-h", "-t", "R", "-o", "%j")
    gate.touch()
    assert on_slurm("logs", "left", "-f").out == "begun\n"
