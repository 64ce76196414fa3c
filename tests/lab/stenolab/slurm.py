"""A real Slurm on this machine, by hand of the tests: four nodes, five partitions, accounting or none.

Any number of them run side by side: each has its own folder, ports and job ids. Its daemons leave the session of
whoever starts them, so a process of its own takes a cluster down as soon as the process that started it has ended,
`kill -9` included (see `child.py`): everything with the cluster's configuration in its environment, jobs too.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from stenotest.waiting import LIMIT_S, wait

CLUSTER = Path(__file__).parents[2] / "slurm" / "cluster"
PROGRAMS = ("slurmctld", "slurmd", "slurmdbd", "sbatch", "munged", "mariadbd", "rsync", "sshd")
PACKAGES = "slurmctld slurmd slurmdbd slurm-client munge mariadb-server rsync openssh-server"


PORTS = 7
"""The programs of the controller, the database daemon, the database and four nodes."""
FIRST_PORTS = range(17_100, 32_000, 10)
"""Below those that the system hands out. A cluster begins at one of them by chance: others look at the same time."""
GRACE_S = 10.0
"""How long the daemons of a cluster may take to end before they are killed."""


def lacking() -> str | None:
    """Why no cluster can be brought up here; None where one can."""
    path = f"/usr/sbin:/sbin:{os.environ['PATH']}"
    missing = [program for program in PROGRAMS if shutil.which(program, path=path) is None]
    if not missing and os.geteuid() == 0:
        return None
    why = f"no {', '.join(missing)}" if missing else "not root"
    return f"no Slurm to test against ({why}); as root: apt-get install --no-install-recommends {PACKAGES}"


@contextmanager
def running(*, accounting: bool = True, ids: int | None = None) -> Iterator[Cluster]:
    """A cluster that is up, in a folder of its own. `ids`: after how many jobs an id comes again."""
    cluster = Cluster(Path(tempfile.mkdtemp(prefix="steno-slurm-")), accounting=accounting)
    if ids is not None:
        cluster.environment["STENO_SLURM_JOB_IDS"] = str(ids)
    try:
        cluster.up()
        yield cluster
    finally:
        cluster.down()


class Cluster:
    """The cluster, and what a test does to it."""

    def __init__(self, folder: Path, *, accounting: bool = True) -> None:
        self.folder = folder
        self._keeper: subprocess.Popen[bytes] | None = None
        self._accounting = accounting
        self.environment = {
            "SLURM_CONF": str(folder / "etc" / "slurm.conf"),
            "PATH": f"/usr/sbin:/sbin:{os.environ['PATH']}",
        }

    def up(self) -> None:
        """Start it, without a job.

        Raises:
            AssertionError: it does not come up; what it said is in the message.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o755)  # its daemons have users of their own
        self._keeper = subprocess.Popen(
            [sys.executable, "-m", __name__, str(self.folder)],
            cwd=Path(__file__).parents[1],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        done = self._bash("up.sh", str(self.folder), str(_free_port()), "yes" if self._accounting else "no")
        logs = "".join(f"\n{log}:\n{log.read_text()[-1500:]}" for log in sorted(self.folder.glob("log/slurm*.log")))
        assert "4 nodes idle" in done.stdout, done.stdout[-2000:] + done.stderr[-2000:] + logs

    def down(self) -> None:
        """End it and every job, and remove its folder."""
        if self._keeper is not None:
            self._keeper.communicate()

    def stop(self, daemon: str, sign: signal.Signals = signal.SIGTERM) -> None:
        """End one daemon: `slurmdbd`, `slurmctld`, `slurmd-node1`."""
        pid = int((self.folder / "run" / f"{daemon}.pid").read_text())
        os.kill(pid, sign)
        wait(lambda: not _lives(pid), f"the end of {daemon}")

    def start_accounting(self) -> None:
        """Start slurmdbd and wait until it answers."""
        self.run("slurmdbd")
        wait(lambda: self.run("sacctmgr", "-nP", "list", "cluster", check=False), "slurmdbd", pause=0.1)

    def start_controller(self) -> None:
        self.run("slurmctld", "-f", self.environment["SLURM_CONF"])

    def start_node(self, node: str) -> None:
        self.run("slurmd", "-N", node, "-f", self.environment["SLURM_CONF"])

    def begun(self, job: str) -> bool:
        """Its script runs, and would write its end. One cancelled before leaves no trace but at the controller, which
        lists it as RUNNING a while earlier and forgets it within seconds.
        """
        return any((self.folder / "jobs").glob(f"*/ends/{job}"))

    def cancel_in(self, folder: str) -> None:
        """Cancel the jobs whose output goes into such a folder of Steno's: those of one test."""
        for line in self.run("squeue", "-h", "-O", "JobArrayID:20,STDOUT:500", check=False).splitlines():
            job, _, where = line.partition(" ")
            if f"{folder}/output/" in where:
                self.run("scancel", job.partition("_")[0], check=False)

    def run(self, *words: str, check: bool = True) -> str:
        """Runs a command of Slurm; its output."""
        done = subprocess.run(
            words, capture_output=True, text=True, env={**os.environ, **self.environment}, check=False, timeout=LIMIT_S
        )
        assert not check or done.returncode == 0, f"{words}: {done.stderr}"
        return done.stdout

    def _bash(self, script: str, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", str(CLUSTER / script), *words],
            capture_output=True,
            text=True,
            env={**os.environ, **self.environment},
            check=False,
            timeout=400,
        )


def take_down(folder: Path) -> None:
    """End every process of that cluster, and remove its folder."""
    _signal(processes := processes_of(folder), signal.SIGTERM)
    _await_end(processes)
    while left := processes_of(folder):  # a daemon may start one more while it is told to go
        _signal(left, signal.SIGKILL)
        _await_end(left)
    shutil.rmtree(folder, ignore_errors=True)


def processes_of(folder: Path) -> list[int]:
    """The processes that have the cluster's configuration in their environment."""
    mark = f"SLURM_CONF={folder}/etc/slurm.conf".encode()
    processes = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (process / "environ").read_bytes().split(b"\0"):
                processes.append(int(process.name))
        except OSError:  # it has ended meanwhile
            continue
    return processes


def _signal(processes: list[int], sign: signal.Signals) -> None:
    for pid in processes:
        try:
            os.kill(pid, sign)
        except ProcessLookupError:
            continue


def _await_end(processes: list[int]) -> None:
    end = time.monotonic() + GRACE_S
    while time.monotonic() < end and any(_lives(pid) for pid in processes):
        time.sleep(0.05)


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _free_port() -> int:
    """The first of seven that are free."""
    while True:
        first = random.choice(FIRST_PORTS)
        with suppress(OSError):
            for port in range(first, first + PORTS):
                with socket.socket() as tried:
                    tried.bind(("", port))
            return first


if __name__ == "__main__":
    sys.stdin.buffer.read()  # until whoever brought it up ends
    take_down(Path(sys.argv[1]))
