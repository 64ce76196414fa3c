"""The cluster of the seeds, as its own commands describe it: types, nodes and limits that their dry runs show."""

from engine.providers.slurm.cluster import Cluster, describe
from engine.providers.slurm.plan import Probe

_POOLS = (
    ("gpu-mig", "1g.10gb", 56, 1, 128, 2_000_000),
    ("interactive-rtx3090", "rtx3090", 4, 5, 48, 380_000),
    ("gpu-v100", "v100", 4, 9, 36, 380_000),
    ("gpu-a6000", "a6000", 8, 12, 48, 256_000),
    ("gpu-a40", "a40", 8, 12, 48, 256_000),
    ("gpu-a100-40", "a100_40", 8, 2, 128, 1_000_000),
    ("gpu-a100-80", "a100_80", 8, 18, 128, 2_000_000),
    ("gpu-h200", "h200", 4, 2, 96, 1_500_000),
)
SINFO = "".join(
    f"{gpu}-{number}|{partition}|mixed|{cpus}|{memory}|1/{cpus - 1}/0/{cpus}|gpu:{gpu}:{count}(S:0-1)\n"
    for partition, gpu, count, nodes, cpus, memory in _POOLS
    for number in range(nodes)
)
PARTITIONS = "".join(
    f"PartitionName={partition} Default=NO MaxNodes=UNLIMITED MaxTime=3-00:00:00 "
    f"QoS={'small' if gpu == 'rtx3090' else 'four' if gpu == 'h200' else 'mig' if partition == 'gpu-mig' else 'N/A'} "
    f"State=UP MaxMemPerNode=UNLIMITED {'MaxMemPerCPU=32768' if partition == 'gpu-mig' else ''}\n"
    for partition, gpu, *_ in _POOLS
)
QOS = "small|gres/gpu=2|\nfour|gres/gpu=4|\nmig|cpu=2|\n"
RATES = {"h200": 816.67, "a100_80": 508.89, "a6000": 142.73, "rtx3090": 113.23}
ALIASES = {"a100": ("a100_80",)}


def cluster() -> Cluster:
    return describe(SINFO, PARTITIONS, QOS)


def probes(minutes: int, gpus: int) -> tuple[Probe, ...]:
    """What the seeds' probes found: gaps of 4 h for two A40 or A100_40, none for more GPUs, any for one A6000."""
    windows = {1: {"a6000": 10_000}, 2: {"rtx3090": 10_000, "a40": 240, "a100_40": 240}}.get(gpus, {})
    found = []
    for partition, gpu, *_ in _POOLS:
        for asked in sorted({30, 60, 120, 240, 480, minutes}):
            soon = asked <= windows.get(gpu, 0)
            start = (10 if gpu == "rtx3090" else 30) if soon else 1440 * 60
            found.append(Probe(partition=partition, gpu=gpu, gpus=gpus, nodes=1, minutes=asked, start=start))
    return tuple(found)
