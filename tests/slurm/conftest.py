"""A real Slurm on this machine: four nodes, five partitions, accounting. One for the whole run, in one process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from stenolab.slurm import Cluster
from stenolab.steno import Steno


@pytest.fixture
def on_slurm(slurm_cluster: Cluster, tmp_path: Path) -> Iterator[Steno]:
    """Our command, set up for the cluster."""
    steno = Steno(
        folder=tmp_path,
        STENO_PROVIDER="slurm",
        STENO_SLURM_FOLDER=str(slurm_cluster.folder / "jobs" / tmp_path.name),
        STENO_SLURM_CLUSTER="lab",
        STENO_SLURM_RATES="a6000=100,v100=60,a40=80,usd=0.01",
        **slurm_cluster.environment,
    )
    yield steno
    steno.close()
    slurm_cluster.run("scancel", "-u", "root", check=False)
