"""A real Slurm on this machine: four nodes, five partitions, accounting. Each process of the tests has its own."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from stenolab import slurm_slow as slow
from stenolab.slurm import Cluster
from stenolab.steno import Steno


@pytest.fixture(scope="session")
def steno_on_slurm(slurm_cluster: Cluster) -> Callable[[Path], Steno]:
    """Our command with a home and a record in that folder, set up for the cluster."""
    return lambda folder: Steno(
        folder=folder,
        STENO_PROVIDER="slurm",
        STENO_SLURM_FOLDER=str(slurm_cluster.folder / "jobs" / folder.name),
        STENO_SLURM_CLUSTER="lab",
        STENO_SLURM_RATES="a6000=100,v100=60,a40=80,usd=0.01",
        **slurm_cluster.environment,
    )


@pytest.fixture
def on_slurm(slurm_cluster: Cluster, steno_on_slurm: Callable[[Path], Steno], tmp_path: Path) -> Iterator[Steno]:
    """Our command; its jobs are cancelled when the test ends."""
    steno = steno_on_slurm(tmp_path)
    yield steno
    steno.close()
    slurm_cluster.cancel_in(f"/jobs/{tmp_path.name}")


@pytest.fixture(scope="session")
def slow_endings(
    slurm_cluster: Cluster, steno_on_slurm: Callable[[Path], Steno], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Steno]:
    """Jobs that take a minute or two to end, begun together, and a recorder that follows them."""
    steno = steno_on_slurm(tmp_path_factory.mktemp("slow"))
    steno.follow("1s")
    slow.begin(steno, slurm_cluster)
    yield steno
    steno.close()
