"""`steno attach` on a genuine cluster: a shell beside the job, and the address of a port it listens on."""

import json
import shlex
import socket
from pathlib import Path

from stenolab.slurm import Cluster
from stenolab.steno import Steno
from stenotest.waiting import wait

JOB = ("--partition", "gpu-a6000", "--memory", "500MB", "--max-duration", "5m", "--name", "notebook")


def test_the_way_into_a_job_leads_there(on_slurm: Steno, slurm_cluster: Cluster, tmp_path: Path) -> None:
    """The command for a shell runs in the job's allocation, and the address answers; refused before and after."""
    with socket.socket() as free:
        free.bind(("", 0))
        port = free.getsockname()[1]
    on_slurm("submit", *JOB, "--", f"echo $SLURM_JOB_ID > {tmp_path}/id; exec python3 -m http.server {port}")
    on_slurm.follow("0.3")
    wait(lambda: on_slurm("attach", "notebook", code=None).code == 0, what="the job runs")
    # all nodes of the cluster are this machine, which does not know their names
    wait(lambda: answers(port), what="the port answers: the job runs before its program does")
    way = json.loads(on_slurm("attach", "notebook", "--port", str(port), "--json").out)
    job = (tmp_path / "id").read_text().strip()
    assert (way["port"], way["commands"]) == (port, [])
    words = shlex.split(way["inside"].replace("--pty bash", "printenv SLURM_JOB_ID"))
    assert slurm_cluster.run(*words).strip() == job
    node = slurm_cluster.run("squeue", "-h", "-j", job, "-o", "%B").strip()
    assert way["address"] == f"http://{node}:{port}"
    on_slurm("stop", "notebook")
    ended = on_slurm("attach", "notebook", "--port", str(port), code=5)
    assert ended.out == ""
    assert "has ended" in ended.err


def answers(port: int) -> bool:
    """True if a program listens on `port` of this machine."""
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0
