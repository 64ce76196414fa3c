"""A real Slurm on this machine, by hand of the tests: four nodes, five partitions, accounting."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

CLUSTER = Path(__file__).parents[2] / "slurm" / "cluster"


PROGRAMS = ("slurmctld", "slurmd", "slurmdbd", "sbatch", "munged", "mariadbd", "rsync", "sshd")
PACKAGES = "slurmctld slurmd slurmdbd slurm-client munge mariadb-server rsync openssh-server"
PORTS = range(17_100, 17_700, 10)
"""Where clusters begin: each takes seven ports, below those that the system hands out."""


def lacking() -> str | None:
    """Why no cluster can be brought up here; None where one can."""
    path = f"/usr/sbin:/sbin:{os.environ['PATH']}"
    missing = [one for one in PROGRAMS if shutil.which(one, path=path) is None]
    if not missing and os.geteuid() == 0:
        return None
    why = f"no {', '.join(missing)}" if missing else "not root"
    return f"no Slurm to test against ({why}); as root: apt-get install --no-install-recommends {PACKAGES}"


@contextmanager
def running(*, accounting: bool = True) -> Iterator[Cluster]:
    """A cluster that is up, in a folder of its own."""
    folder = Path(tempfile.mkdtemp(prefix="steno-slurm-"))
    folder.chmod(0o755)  # its daemons have users of their own
    cluster = Cluster(folder, accounting=accounting)
    try:
        cluster.up()
        yield cluster
    finally:
        cluster.down()
        shutil.rmtree(folder, ignore_errors=True)


def _free_port() -> int:
    for first in PORTS:
        with suppress(OSError):
            for port in range(first, first + 7):
                with socket.socket() as tried:
                    tried.bind(("", port))
            return first
    raise RuntimeError(f"no free ports from {PORTS.start} to {PORTS.stop}")


class Cluster:
    """The cluster, and what a test does to it."""

    def __init__(self, folder: Path, *, accounting: bool = True) -> None:
        self.folder = folder
        port = _free_port()
        self.environment = {
            "STENO_SLURM_PORT": str(port),
            "STENO_SLURM_ACCOUNTED": "yes" if accounting else "no",
            # Clusters on one machine share the cgroups of nodes with the same names: their jobs must not.
            "STENO_SLURM_FIRST": str(1 + (port - PORTS.start) * 1000),
            "STENO_SLURM_LAB": str(folder),
            "SLURM_CONF": str(folder / "etc" / "slurm.conf"),
            "PATH": f"/usr/sbin:/sbin:{os.environ['PATH']}",
        }

    def up(self) -> None:
        """Start what is not up; a fresh one has no jobs."""
        done = self._bash("up.sh", "--fresh")
        assert "4 nodes idle" in done.stdout, done.stdout[-2000:] + done.stderr[-2000:]

    def down(self) -> None:
        self._bash("down.sh")

    def stop(self, daemon: str, signal: str = "TERM") -> None:
        """End one daemon: `slurmdbd`, `slurmctld`, `slurmd-node1`."""
        self._bash("stop.sh", daemon, signal)

    def start_accounting(self) -> None:
        self._bash("dbd-start.sh")

    def start_controller(self) -> None:
        self.run("slurmctld", "-f", self.environment["SLURM_CONF"])

    def start_node(self, node: str) -> None:
        self.run("slurmd", "-N", node, "-f", self.environment["SLURM_CONF"])

    def run(self, *words: str, check: bool = True) -> str:
        """One of Slurm's own commands; its output."""
        done = subprocess.run(
            words, capture_output=True, text=True, env={**os.environ, **self.environment}, check=False, timeout=120
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
            timeout=300,
        )
