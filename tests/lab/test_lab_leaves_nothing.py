"""Nothing the lab starts outlives who started it."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from stenolab.lab import Lab
from stenolab.versions import LAB, NEWEST
from stenotest.waiting import wait

PARENT = """
import json, sys, time
from pathlib import Path
from stenolab.lab import Lab
lab = Lab(sys.argv[1], Path(sys.argv[2]))
project = lab.project()
lab.fleet(project)
lab.submit(project, "stays", ["echo $$ > $LAB_STATE/pid; sleep 300"])
pid = Path(sys.argv[2], "state", "pid")
while not (pid.exists() and pid.read_text().strip()):
    time.sleep(0.1)
print(json.dumps([lab._server.pid, lab.cloud._process.pid, int(pid.read_text())]), flush=True)
time.sleep(300)
"""


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.ci
@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_server_cloud_and_jobs_end_when_their_parent_is_killed(
    tmp_path: Path,
    dstack_22: Lab,  # for its environment
) -> None:
    """`kill -9` of the parent ends the server, the cloud and the commands of its jobs within seconds."""
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, NEWEST, str(tmp_path / "lab")],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(LAB)},
        stdout=subprocess.PIPE,
        text=True,
    )
    with parent:
        assert parent.stdout is not None
        server, cloud, job = json.loads(parent.stdout.readline())
        assert all(map(is_alive, (server, cloud, job)))
        parent.send_signal(signal.SIGKILL)
        wait(lambda: not any(map(is_alive, (server, cloud, job))) or None, what="everything to end")
