"""Strategies for the cluster of the seeds: how many, of which kinds, how large, at what cost; why others are out."""

import math

from hypothesis import given
from hypothesis import strategies as st
from stenotest.seeds_cluster import ALIASES, RATES, cluster, probes

from steno.engine.providers.slurm.cluster import Limits, NodePool
from steno.engine.providers.slurm.plan import Allocation, Kind, Request, make, resolve, size


def plan(gpus: int, minutes: int, *names: str, mig: bool = False) -> Allocation:
    types = tuple(kind for name in names for kind in resolve(name, ALIASES, cluster()))
    request = Request(gpus=gpus, minutes=minutes, types=types, mig=mig)
    return make(request, cluster(), probes(minutes, gpus), RATES)


def test_checkpoint_plans_come_only_where_a_gap_is_shorter_than_the_time_asked() -> None:
    """Test 9, bug 8: 240 min for two A40 or A100_40 at 12 h, beside the direct plans; none for one A6000, or for 8."""
    ways = plan(2, 720).strategies
    segments = {way.gpu: way for way in ways if way.kind is Kind.CHECKPOINT}
    assert {gpu: (way.minutes, way.segments) for gpu, way in segments.items()} == {"a40": (240, 3), "a100_40": (240, 3)}
    for gpu in segments:
        assert any(way.gpu == gpu and way.kind is Kind.DIRECT for way in ways)
    assert not [way for way in plan(1, 720, "a6000").strategies if way.kind is Kind.CHECKPOINT]
    assert not [way for way in plan(8, 1440).strategies if way.kind is Kind.CHECKPOINT]


def test_a_slice_asks_for_one_cpu_and_sixteen_gigabytes() -> None:
    """Bugs 1 and 6: in proportion to its node it asked for 54 GB, and no QOS of 2 CPUs could ever start it."""
    (only,) = plan(1, 10, mig=True).strategies
    assert (only.kind, only.cpus, only.memory) == (Kind.MIG, 1, 16 * 1024)


def test_every_excluded_pool_has_its_reason() -> None:
    """A pool that cannot serve the request says why."""
    reasons = {pool.gpu: pool.why for pool in plan(8, 60).excluded}
    assert reasons["h200"] == "a job may have 4 GPUs there, 8 were asked for"
    assert reasons["rtx3090"] == "a job may have 2 GPUs there, 8 were asked for"
    assert reasons["1g.10gb"] == "a slice of a GPU; ask with --mig"
    assert not resolve("b300", ALIASES, cluster())
    assert resolve("A100", ALIASES, cluster()) == ("a100_80",)


def test_what_starts_soon_ranks_first_and_says_why() -> None:
    """An estimate of a day is shown as unknown."""
    first, *rest = plan(2, 30).strategies
    assert (first.gpu, first.kind, first.start) == ("rtx3090", Kind.BACKFILL, 10)
    assert first.why == "a probe starts within 1 min; 114 SU"
    direct = [way for way in rest if way.kind is Kind.DIRECT]
    assert all(way.start is None and way.why.startswith("start unknown") for way in direct)


@given(
    gpus=st.integers(1, 8),
    per_node=st.integers(1, 8),
    cpus=st.integers(1, 256),
    memory=st.integers(1024, 4_000_000),
    wanted=st.none() | st.integers(1, 2_000_000),
    each=st.none() | st.integers(1, 64_000),
    cap=st.none() | st.integers(1, 64),
)
def test_what_is_asked_for_can_run(
    gpus: int, per_node: int, cpus: int, memory: int, wanted: int | None, each: int | None, cap: int | None
) -> None:
    """Never more CPUs than the QOS or node allows, never memory for which Slurm would raise the CPUs."""
    limits = Limits(cpus=cap, memory_per_cpu=each)
    pool = NodePool(partition="p", gpu="a40", gpus_per_node=per_node, nodes=1, cpus=cpus, memory=memory, limits=limits)
    found_cpus, found_memory = size(pool, min(gpus, per_node), wanted)
    assert 1 <= found_cpus <= min(cpus, cap or cpus)
    assert 0 < found_memory <= memory
    assert each is None or math.ceil(found_memory / each) <= found_cpus
