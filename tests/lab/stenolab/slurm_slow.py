"""Jobs of a real Slurm that end slowly: at their time limit, in segments, after their node died or they were requeued.

They are begun together, so that the tests that wait for them wait once.
"""

from __future__ import annotations

import json
import signal
from pathlib import Path

from stenotest.waiting import wait

from stenolab.slurm import Cluster
from stenolab.steno import Steno

A6000 = ("--partition", "gpu-a6000", "--gpu", "a6000:1", "--memory", "200M")
IN_SEGMENTS = """
import os, signal, sys, time
from pathlib import Path

done = Path(os.environ["RV_CHECKPOINT_DIR"], "done")
if done.exists():
    print("went on after", os.environ["RV_TOTAL_ELAPSED"], "s")
    sys.exit(0)

def end(*_):
    done.touch()
    print("wrote a checkpoint", flush=True)
    sys.exit(0)

signal.signal(signal.SIGUSR1, end)
print("began", flush=True)
time.sleep(600)
"""


def begin(steno: Steno, cluster: Cluster) -> None:
    """Submit them all, and kill a node below two of them."""
    chains = {"chain": {"total_time": "20m"}, "last-segment": {"resubmissions": 0}}
    for name, limits in chains.items():
        task = {
            "type": "task",
            "name": name,
            "partition": "gpu-a6000",
            "resources": {"gpu": "a6000:1", "memory": "200M"},
            "checkpoint": "2m",
            "commands": [f"python3 {_program(steno)}"],
            **limits,
        }
        file = steno.work / f"{name}.json"
        file.write_text(json.dumps(task))
        steno("submit", "-f", file)
    steno("submit", "--name", "too-long", *A6000, "--max-duration", "1m", "--", "sleep 300")
    steno(
        "submit", "--name", "node-dies", "--partition", "gpu-a40", "--gpu", "a40:1", "--memory", "200M",
        "--max-duration", "10m", "--", "sleep 300",
    )  # fmt: skip
    batch(cluster, "node-dies-for-good", "sleep 300", "-p", "gpu-a40", "--no-requeue")
    batch(cluster, "gives-way", once_more("exit 0"), "-p", "low", "-w", "node3", "-c", "8")
    batch(cluster, "gives-way-for-good", "sleep 300", "-p", "low", "-w", "node3", "-c", "8", "--no-requeue")
    again = batch(cluster, "requeued", once_more("exit 4"), "-p", "gpu-a6000")
    for name in ("node-dies", "node-dies-for-good", "gives-way", "gives-way-for-good", "requeued"):
        wait(lambda name=name: _runs(cluster, name), what=f"{name} to run")
    cluster.run("scontrol", "requeue", again)
    batch(cluster, "takes-its-place", "sleep 2", "-p", "gpu-v100", "--exclusive")
    cluster.stop("slurmd-node4", signal.SIGKILL)
    # Accounting says for seconds that the tasks that have just begun were among those that are cancelled.
    array = batch(cluster, "cut-short", "sleep 2", "-p", "gpu-a6000", "--array=0-7%2")
    running = ("squeue", "-h", "-t", "R", "-j", array, "-o", "%K")
    wait(lambda: {"2", "3"} & {*cluster.run(*running).split()}, what="task 2 or 3 to run")
    cluster.run("scancel", "-t", "PENDING", array)


def once_more(end: str) -> str:
    """A command that goes on until its attempt is ended, and in the next attempt ends like that."""
    return f'[ "$SLURM_RESTART_COUNT" ] && {end}; sleep 600'


def batch(cluster: Cluster, name: str, command: str, *options: str) -> str:
    """A job submitted by hand, outside Steno; its id."""
    words = ("--parsable", "--mem=50M", "-t", "10", "-o", "/dev/null", "-D", "/tmp", "-J", name, *options)
    return cluster.run("sbatch", *words, "--wrap", command).strip()


def _runs(cluster: Cluster, name: str) -> bool:
    return "RUNNING" in cluster.run("squeue", "-h", "-n", name, "-o", "%T")


def _program(steno: Steno) -> Path:
    program = steno.work / "in_segments.py"
    program.write_text(IN_SEGMENTS)
    return program
