"""The cluster of the tests itself."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from stenolab.slurm import processes_of
from stenolab.versions import LAB
from stenotest.waiting import wait

PARENT = """
import sys, time
from pathlib import Path
from stenolab.slurm import Cluster
cluster = Cluster(Path(sys.argv[1]), accounting=False)
cluster.up()
cluster.run("sbatch", "-D", "/tmp", "-o", "/dev/null", "--wrap", "sleep 300")
print("up", flush=True)
time.sleep(300)
"""


@pytest.mark.slow
@pytest.mark.lab
@pytest.mark.usefixtures("needs_slurm")
def test_nothing_of_a_cluster_outlives_a_killed_run() -> None:
    """`kill -9` of whoever brought it up ends its daemons and its jobs, and removes its folder."""
    folder = Path("/tmp") / f"steno-slurm-{os.getpid()}-killed"  # its daemons must get there
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(folder)],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(LAB)},
        stdout=subprocess.PIPE,
        text=True,
    )
    with parent:
        assert parent.stdout is not None
        assert parent.stdout.readline().strip() == "up"
        assert processes_of(folder)
        parent.send_signal(signal.SIGKILL)
    wait(lambda: not folder.exists() and not processes_of(folder), what="everything to end")
