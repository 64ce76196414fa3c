"""A real Slurm on this machine, by hand of the tests: four nodes, five partitions, accounting."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

CLUSTER = Path(__file__).parents[2] / "slurm" / "cluster"


class Cluster:
    """The cluster, and what a test does to it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {
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
