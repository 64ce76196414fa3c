"""Matching follows dstack's own (`services/instances.py`, gpuhunt's `matches`), and names every difference."""

from typing import Any

import msgspec
import pytest
from stenotest.simulation import Simulation, vm_row

from steno.engine.decide.machine import differences
from steno.engine.providers.dstack.requirements import read_range, read_terms
from steno.engine.providers.registry import READINGS
from steno.engine.state.run import Range
from steno.engine.state.vm import Vm


def machine(**row: Any) -> Vm:
    stage = Simulation()
    stage.machines(vm_row("m", **row))
    return stage.vm("m")


def asks(**task: object) -> tuple[str, ...]:
    return against(machine(), **task)


def against(vm: Vm, **task: object) -> tuple[str, ...]:
    terms = read_terms(msgspec.json.encode({"type": "task", **task}), "ada", ())
    return differences(terms, vm)


@pytest.mark.parametrize(
    "resources",
    [
        {"gpu": "MI300X"},
        {"gpu": "mi300x:1"},
        {"gpu": "amd:MI300X:192GB"},
        {"gpu": "MI210,MI300X:64GB.."},
        {"gpu": {"name": "MI300X", "count": 1}},
        {"gpu": {"name": ["MI210", "MI300X"], "count": {"min": 1, "max": None}, "total_memory": "100GB.."}},
        {"gpu": 1},
        {"gpu": "0.."},
        {"cpu": "2.."},
        {"cpu": "x86:2..20"},
        {"cpu": {"min": 2}},
        {"cpu": {"arch": None, "count": {"min": 20, "max": None}}},
        {"memory": "8GB.."},
        {"memory": {"min": 240.0, "max": None}},
        {"memory": 240},
        {"disk": "100GB.."},
        {"disk": {"size": {"min": 100.0, "max": 720}}},
        {"disk": "0.5TB.."},
        {},
    ],
)
def test_what_dstack_would_reuse_fits(resources: dict[str, object]) -> None:
    """Every way of writing a requirement, against 20 CPUs, 240 GB, 720 GB, one MI300X of 192 GB; ends included."""
    assert asks(resources=resources) == ()


@pytest.mark.parametrize(
    ("task", "difference"),
    [
        ({"resources": {"gpu": "MI210"}}, "GPU: MI210 requested, the machine has MI300X"),
        ({"resources": {"gpu": "H100,A100"}}, "GPU: H100 or A100 requested, the machine has MI300X"),
        ({"resources": {"gpu": "MI300X:2"}}, "number of GPUs: 2 requested, the machine has 1"),
        ({"resources": {"gpu": {"count": "2..4"}}}, "number of GPUs: 2..4 requested, the machine has 1"),
        ({"resources": {"gpu": "nvidia"}}, "GPU vendor: nvidia requested, the machine has MI300X"),
        ({"resources": {"gpu": "MI300X:256GB.."}}, "memory of a GPU: 256.. GB requested, the machine has 192 GB"),
        (
            {"resources": {"gpu": {"total_memory": "200GB.."}}},
            "memory of all GPUs: 200.. GB requested, the machine has 192 GB",
        ),
        ({"resources": {"cpu": "32.."}}, "CPUs: 32.. requested, the machine has 20"),
        ({"resources": {"cpu": "2..8"}}, "CPUs: 2..8 requested, the machine has 20"),
        ({"resources": {"memory": "1TB.."}}, "memory: 1024.. GB requested, the machine has 240 GB"),
        ({"resources": {"disk": "1TB.."}}, "disk: 1024.. GB requested, the machine has 720 GB"),
        ({"backends": ["hotaisle"]}, "backend: hotaisle requested, the machine has amddevcloud"),
        ({"regions": ["us-east"]}, "region: us-east requested, the machine has atl1"),
        ({"instance_types": ["big"]}, "instance type: big requested, the machine has gpu-mi300x1"),
        ({"spot_policy": "spot"}, "spot policy: spot requested, the machine is on-demand"),
        ({"max_price": 1.5}, "price: at most $1.5/h requested, the machine costs $1.99/h"),
        ({"fleets": ["other"]}, "fleet: other requested, the machine has shared"),
    ],
)
def test_each_difference_is_named_with_both_values(task: dict[str, object], difference: str) -> None:
    assert against(machine(instance_type="gpu-mi300x1"), **task) == (difference,)


def test_several_differences_are_all_named() -> None:
    unlike = asks(resources={"gpu": "MI210:2", "memory": "300GB.."}, spot_policy="spot")
    assert [sentence.split(":")[0] for sentence in unlike] == ["GPU", "number of GPUs", "memory", "spot policy"]


def test_a_task_that_says_nothing_is_on_demand_and_auto_takes_both() -> None:
    """dstack's default for tasks; `auto` takes any machine."""
    spot = machine(spot=True)
    assert against(spot) == ("spot policy: on-demand requested, the machine is spot",)
    assert against(spot, spot_policy="auto") == ()
    assert against(spot, spot_policy="spot") == ()


def test_a_gpu_is_no_hindrance_to_a_task_without_one_and_none_is_to_a_task_with_one() -> None:
    """gpuhunt skips the GPU limits only where neither side has any."""
    bare = machine(gpu=None, gpu_count=0, gpu_memory_mib=None)
    assert against(bare) == ()
    assert against(bare, resources={"gpu": "MI300X"}) == (
        "GPU: MI300X requested, the machine has none",
        "number of GPUs: 1.. requested, the machine has 0",
    )
    assert asks(resources={"cpu": 4}) == ("CPUs: 4 requested, the machine has 20",)


def test_what_the_machine_does_not_say_is_not_compared() -> None:
    unknown = machine(cpus=None, memory_mib=None, disk_mib=0, spot=None, region=None)
    assert against(unknown, resources={"cpu": "64..", "memory": "1TB..", "disk": "9TB.."}, regions=["x"]) == ()


def test_a_fleet_of_another_project_is_compared_by_its_name() -> None:
    assert asks(fleets=["main/shared"]) == ()


@pytest.mark.parametrize(
    "resources",
    [b'""', b"[]", b"null", b'{"cpu": "many"}', b'{"gpu": {"name": 3, "count": []}}', b'{"disk": {"size": true}}'],
)
def test_what_cannot_be_read_asks_for_nothing(resources: bytes) -> None:
    """dstack would have refused such a task; a decision never raises."""
    assert read_terms(b'{"resources": ' + resources + b"}", "ada").gpu == ()


def test_sizes_are_dstacks_gigabytes() -> None:
    assert read_range("512MB..1TB") == Range(0.5, 1024)
    assert read_range("8 GB") == Range(8, 8)
    assert read_range({"min": 8.0, "max": None}) == Range(8, None)


def test_a_machine_of_this_host_takes_every_task_but_for_the_gpu_it_is_said_to_have() -> None:
    """The local provider heeds nothing else a task asks of its machine."""
    wanted = b'{"resources": {"gpu": "MI300X:2", "memory": "9TB.."}, "backends": ["hotaisle"], "max_price": 0.1}'
    terms = READINGS.terms("local", wanted, "ada")
    here = [
        msgspec.structs.replace(machine(**row), provider="local")
        for row in ({"gpu": None, "gpu_count": 0}, {"gpu": "MI300X", "gpu_count": 2}, {"gpu": "MI210", "gpu_count": 1})
    ]
    assert [differences(terms, vm) for vm in here] == [
        (),
        (),
        ("GPU: MI300X requested, the machine has MI210", "number of GPUs: 2.. requested, the machine has 1"),
    ]
