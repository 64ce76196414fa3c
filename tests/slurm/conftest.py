"""A real Slurm on this machine: four nodes, five partitions, accounting. One for the whole run, in one process."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from stenolab.slurm import Cluster
from stenolab.steno import Steno

PROGRAMS = ("slurmctld", "slurmd", "slurmdbd", "sbatch", "munged", "mariadbd", "rsync", "sshd")
PACKAGES = "slurmctld slurmd slurmdbd slurm-client munge mariadb-server rsync openssh-server"


@pytest.fixture(scope="session")
def slurm_cluster() -> Iterator[Cluster]:
    """A cluster that is up."""
    path = f"/usr/sbin:/sbin:{os.environ['PATH']}"
    missing = [one for one in PROGRAMS if shutil.which(one, path=path) is None]
    if missing or os.geteuid() != 0:
        why = f"no {', '.join(missing)}" if missing else "not root"
        message = f"no Slurm to test against ({why}); as root: apt-get install --no-install-recommends {PACKAGES}"
        if os.environ.get("STENO_REQUIRE_LAB"):
            pytest.fail(message)
        pytest.skip(message)
    folder = Path(tempfile.mkdtemp(prefix="steno-slurm-"))
    folder.chmod(0o755)  # its daemons have users of their own
    cluster = Cluster(folder)
    try:
        cluster.up()
        yield cluster
    finally:
        cluster.down()
        shutil.rmtree(folder, ignore_errors=True)


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


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything on the cluster runs in one process, for there is one cluster."""
    for item in items:
        if "slurm_cluster" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.lab)
            item.add_marker(pytest.mark.xdist_group("slurm"))
