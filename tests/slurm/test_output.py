"""The output of a job: while it runs, and of jobs that somebody submitted with sbatch."""

from pathlib import Path

import pytest
from stenolab.slurm import Cluster
from stenolab.steno import Steno
from stenotest.waiting import wait

A6000 = ("--partition", "gpu-a6000", "--mem", "500M", "--time", "5m")
INTERRUPTED = 130


def test_a_race_prints_the_winners_output_as_it_comes(on_slurm: Steno, tmp_path: Path) -> None:
    """And its exit code is the run's: 1 for a run that did not succeed."""
    gate = tmp_path / "gate"
    line = f"echo begun; until [ -e {gate} ]; do sleep 0.1; done; echo over; exit 3"
    command = on_slurm.start("slurm", "run", *A6000, "--name", "printed", line)
    wait(lambda: command.out == "begun\n" or not command.alive, what="its first line")
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
    wait(lambda: "begun" in command.out or not command.alive, what="its first line")
    command.interrupt()
    ended = command.finish()
    assert ended.code == INTERRUPTED
    assert ended.err.splitlines()[-1].startswith("steno: left still runs: ")
    assert "left" in slurm_cluster.run("squeue", "-h", "-t", "R", "-o", "%j")
    gate.touch()
    assert on_slurm("logs", "left", "-f").out == "begun\n"


def sbatch(cluster: Cluster, here: Path, *words: str) -> str:
    """A job as its user submits it: the id."""
    options = ("-p", "gpu-a6000", "--mem=100M", f"--chdir={here}", "--parsable")
    return cluster.run("sbatch", *options, *words).strip()


@pytest.mark.ci
def test_the_output_of_jobs_that_somebody_submitted_with_sbatch(
    on_slurm: Steno, slurm_cluster: Cluster, tmp_path: Path
) -> None:
    """While the controller knows them, and by accounting when it has forgotten them; of tasks of an array too."""
    here, gate = on_slurm.work, f"until [ -e {tmp_path}/gate ]; do sleep 0.1; done"
    (here / "root").mkdir()
    script = here / "own.sh"
    script.write_text(f"#!/bin/bash\n#SBATCH --output=own-%j.txt\necho by the script; {gate}\n")
    odd = ("-J", "a StdOut=/etc/passwd", "--comment=x StdOut=/etc/passwd", "-o", "%u/%5j.%%")
    array = sbatch(slurm_cluster, here, "-a", "4-5", "--wrap", f"echo task $SLURM_ARRAY_TASK_ID; {gate}")
    wanted = {
        sbatch(slurm_cluster, here, "--wrap", f"echo by default; {gate}"): "by default\n",
        sbatch(slurm_cluster, here, *odd, "--wrap", f"echo named; {gate}"): "named\n",
        f"{array}_4": "task 4\n",
        f"{array}_5": "task 5\n",
    }
    named = sbatch(slurm_cluster, here, str(script))
    on_slurm.follow("0.3")

    def shows(job: str, text: str) -> bool:
        return on_slurm("logs", job, code=None).out == text

    for job, text in {**wanted, named: "by the script\n"}.items():
        on_slurm.until(lambda job=job, text=text: shows(job, text), what=f"the output of {job}")
    searched = ("logs", "--search", "by the script")
    on_slurm.until(lambda: "by the script" in on_slurm(*searched, code=None).out, what="it in the record")
    (tmp_path / "gate").touch()
    assert on_slurm("logs", f"{array}_5", "-f").out == "task 5\n"

    def forgotten() -> bool:
        listed = slurm_cluster.run("squeue", "-h", "-t", "all", "-r", "-o", "%i").split()
        return not {*wanted, named} & set(listed)

    wait(forgotten, what="the controller to forget them")
    assert [job for job, text in wanted.items() if not shows(job, text)] == []
    recorded = on_slurm("logs", named)
    assert recorded.out == "by the script\n"
    missing = recorded.err.splitlines()
    assert len(missing) == 1
    assert "from the record, because" in missing[0]
    assert f"the controller has forgotten job {named}" in missing[0]
    assert "look for the --output of its script" in missing[0]
