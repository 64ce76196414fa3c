"""The cluster of the seeds, as its own commands describe it: types, nodes and limits that their dry runs show."""

import subprocess
from functools import cache
from pathlib import Path

from steno.engine.providers.slurm.cluster import Cluster, describe
from steno.engine.providers.slurm.plan import Probe

COMMANDS = Path(__file__).parents[3] / "examples" / "slurm-cluster" / "bin"
"""Stand-ins for Slurm's, to be put on PATH."""
RATES = {"h200": 816.67, "a100_80": 508.89, "a6000": 142.73, "rtx3090": 113.23}
ALIASES = {"a100": ("a100_80",)}


@cache
def cluster() -> Cluster:
    names = ("sinfo", "scontrol", "sacctmgr")
    answers = [subprocess.run([COMMANDS / name], capture_output=True, text=True, check=True).stdout for name in names]
    return describe(*answers)


def probes(minutes: int, gpus: int) -> tuple[Probe, ...]:
    """The offers of the seeds' probes: gaps of 4 h for two A40 or A100_40, none for more GPUs, any for one A6000."""
    windows = {1: {"a6000": 10_000}, 2: {"rtx3090": 10_000, "a40": 240, "a100_40": 240}}.get(gpus, {})
    offers = []
    for pool in cluster().pools:
        for limit in sorted({30, 60, 120, 240, 480, minutes}):
            soon = limit <= windows.get(pool.gpu, 0)
            start = (10 if pool.gpu == "rtx3090" else 30) if soon else 1440 * 60
            offers.append(Probe(partition=pool.partition, gpu=pool.gpu, gpus=gpus, nodes=1, minutes=limit, start=start))
    return tuple(offers)
