"""Strategies for the cluster of the seeds: how many, of which kinds, how large, at what cost; why others are out."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stenotest.seeds_cluster import ALIASES, RATES, cluster, probes

from engine.providers.slurm.cluster import Limits, NodePool
from engine.providers.slurm.plan import Allocation, Kind, Request, make, resolve, size


def plan(gpus: int, minutes: int, *names: str, mig: bool = False) -> Allocation:
    types = tuple(one for name in names for one in resolve(name, ALIASES, cluster()))
    request = Request(gpus=gpus, minutes=minutes, types=types, mig=mig)
    return make(request, cluster(), probes(minutes, gpus), RATES)


@pytest.mark.parametrize(
    ("gpus", "minutes", "name", "count"),
    [
        (2, 30, None, 7),
        (4, 30, None, 12),
        (4, 30, "a100", 2),
        (8, 60, None, 9),
        (8, 1440, None, 9),
        (2, 30, "h200", 1),
    ],
)
def test_the_six_dry_runs_of_the_seeds(gpus: int, minutes: int, name: str | None, count: int) -> None:
    """Test 3: 7, 12, 2, 9, 9 and 1 strategies."""
    assert len(plan(gpus, minutes, *([name] if name else [])).strategies) == count


def test_what_two_h200_cost_for_half_an_hour() -> None:
    """Test 7: 817 service units."""
    (only,) = plan(2, 30, "h200").strategies
    assert only.units is not None
    assert math.ceil(only.units) == 817
    assert only.kind is Kind.DIRECT
    assert "start unknown" in only.why


def test_checkpoint_plans_come_only_where_a_gap_is_shorter_than_the_time_asked() -> None:
    """Test 9, bug 8: 240 min for two A40 or A100_40 at 12 h, beside the direct ones; none for one A6000, or for 8."""
    found = plan(2, 720).strategies
    segments = {one.gpu: one for one in found if one.kind is Kind.CHECKPOINT}
    assert {gpu: (one.minutes, one.segments) for gpu, one in segments.items()} == {
        "a40": (240, 3),
        "a100_40": (240, 3),
    }
    for gpu in segments:
        assert any(one.gpu == gpu and one.kind is Kind.DIRECT for one in found)
    assert not [one for one in plan(1, 720, "a6000").strategies if one.kind is Kind.CHECKPOINT]
    assert not [one for one in plan(8, 1440).strategies if one.kind is Kind.CHECKPOINT]


def test_a_slice_asks_for_one_cpu_and_sixteen_gigabytes() -> None:
    """Bugs 1 and 6: in proportion to its node it asked for 54 GB, and no QOS of 2 CPUs could ever start it."""
    (only,) = plan(1, 10, mig=True).strategies
    assert (only.kind, only.cpus, only.memory) == (Kind.MIG, 1, 16 * 1024)


def test_every_excluded_pool_has_its_reason() -> None:
    """What cannot serve the request says why."""
    reasons = {one.gpu: one.why for one in plan(8, 60).excluded}
    assert reasons["h200"] == "a job may have 4 GPUs there, 8 were asked for"
    assert reasons["rtx3090"] == "a job may have 2 GPUs there, 8 were asked for"
    assert reasons["1g.10gb"] == "a slice of a GPU; ask with --mig"
    assert not resolve("b300", ALIASES, cluster())
    assert resolve("A100", ALIASES, cluster()) == ("a100_80",)


def test_what_starts_soon_ranks_first_and_says_why() -> None:
    """An estimate of a day is no estimate: it is shown as unknown."""
    first, *rest = plan(2, 30).strategies
    assert (first.gpu, first.kind, first.start) == ("rtx3090", Kind.BACKFILL, 10)
    assert first.why == "a probe starts within 1 min; 114 SU"
    assert all(one.start is None for one in rest if one.kind is Kind.DIRECT)


@given(
    gpus=st.integers(1, 8),
    per_node=st.integers(1, 8),
    cpus=st.integers(1, 256),
    memory=st.integers(1024, 4_000_000),
    asked=st.none() | st.integers(1, 2_000_000),
    each=st.none() | st.integers(1, 64_000),
    cap=st.none() | st.integers(1, 64),
)
def test_what_is_asked_for_can_run(
    gpus: int, per_node: int, cpus: int, memory: int, asked: int | None, each: int | None, cap: int | None
) -> None:
    """Never more CPUs than the QOS or node allows, never memory for which Slurm would raise the CPUs."""
    limits = Limits(cpus=cap, memory_per_cpu=each)
    pool = NodePool(partition="p", gpu="a40", gpus_per_node=per_node, nodes=1, cpus=cpus, memory=memory, limits=limits)
    found_cpus, found_memory = size(pool, min(gpus, per_node), asked)
    assert 1 <= found_cpus <= min(cpus, cap or cpus)
    assert 0 < found_memory <= memory
    assert each is None or math.ceil(found_memory / each) <= found_cpus
