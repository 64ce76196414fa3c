"""Whether a run could go to a machine: limits include their ends, names are compared without case, and what the
machine does not say is not compared.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from engine.facts import VmFacts
from engine.fold.vm import Vm
from engine.policy import DOLLAR
from engine.requirements import Range, Requirements

MIB_IN_GB = 1024

ON_DEMAND: Final = "on-demand"
"""What a task gets that says nothing of spot machines."""


def differences(terms: Requirements, vm: Vm) -> tuple[str, ...]:
    """What of the machine is not what the run asks for, one sentence each with both values; empty: it fits.

    Only what the machine *is*; whether it is free is for `engine.decide.placement`.
    """
    facts = vm.facts
    if terms.any_machine:
        return tuple(_known_gpu(terms, facts))
    return (
        *_named("GPU", terms.gpu, facts.gpu or "none"),
        *_gpus(terms, facts),
        *_within("CPUs", terms.cpus, facts.cpus, ""),
        *_within("memory", terms.memory, _gigabytes(facts.memory_mib), " GB"),
        *_within("disk", terms.disk, _gigabytes(facts.disk_mib) or None, " GB"),
        *_named("backend", terms.backends, facts.backend),
        *_named("region", terms.regions, facts.region),
        *_named("instance type", terms.instance_types, facts.instance_type),
        *_spot(terms, facts),
        *_price(terms, facts),
        *_named("fleet", tuple(name.rsplit("/", 1)[-1] for name in terms.fleets), facts.fleet or "none"),
    )


def covers(terms: Requirements, other: Requirements) -> bool:
    """Whether every machine that may be made for `other` would do for `terms` too."""
    models, vendor = other.gpu, other.gpu_vendor
    made_by = {vendor} if vendor is not None or not models else set(map(vendor_of, models))
    return (
        terms.nodes <= other.nodes
        and all(
            _takes(wanted, given)
            for wanted, given in (
                (terms.gpu, models),
                (terms.backends, other.backends),
                (terms.regions, other.regions),
                (terms.instance_types, other.instance_types),
                (terms.fleets, other.fleets),
            )
        )
        and (terms.gpu_vendor is None or made_by == {terms.gpu_vendor})
        and terms.gpu_counts.contains(other.gpu_counts)
        and terms.gpu_memory.contains(other.gpu_memory)
        and terms.total_gpu_memory.contains(other.total_gpu_memory)
        and terms.cpus.contains(other.cpus)
        and terms.memory.contains(other.memory)
        and terms.disk.contains(other.disk)
        and (terms.spot == "auto" or (terms.spot or ON_DEMAND) == (other.spot or ON_DEMAND))
        and (terms.max_price is None or (other.max_price is not None and other.max_price <= terms.max_price))
    )


def _takes(wanted: Sequence[str], given: Sequence[str]) -> bool:
    return not wanted or (bool(given) and {name.lower() for name in given} <= {name.lower() for name in wanted})


def _known_gpu(terms: Requirements, facts: VmFacts) -> Iterator[str]:
    if terms.gpu and facts.gpu is not None:
        yield from _named("GPU", terms.gpu, facts.gpu)
        yield from _within("number of GPUs", Range(terms.gpu_count), facts.gpu_count, "")


def _gpus(terms: Requirements, facts: VmFacts) -> Iterator[str]:
    count = terms.gpu_counts
    if not count.least and facts.gpu_count == 0:
        return  # limits on GPUs say nothing of a machine without any, where none need be there
    yield from _within("number of GPUs", count, facts.gpu_count, "")
    if terms.gpu_vendor is not None and facts.gpu is not None and vendor_of(facts.gpu) != terms.gpu_vendor:
        yield f"GPU vendor: {terms.gpu_vendor} requested, the machine has {facts.gpu}"
    memory = _gigabytes(facts.gpu_memory_mib)
    if memory is not None:
        yield from _within("memory of a GPU", terms.gpu_memory, memory, " GB")
        yield from _within("memory of all GPUs", terms.total_gpu_memory, memory * facts.gpu_count, " GB")


def _named(what: str, wanted: Sequence[str], there: str | None) -> Iterator[str]:
    if wanted and there is not None and there.lower() not in {name.lower() for name in wanted}:
        yield f"{what}: {' or '.join(wanted)} requested, the machine has {there}"


def _within(what: str, wanted: Range, there: float | None, unit: str) -> Iterator[str]:
    if there is not None and not wanted.holds(there):
        yield f"{what}: {wanted}{unit} requested, the machine has {there:g}{unit}"


def _spot(terms: Requirements, facts: VmFacts) -> Iterator[str]:
    wanted = terms.spot or ON_DEMAND
    if wanted != "auto" and facts.spot is not None and facts.spot != (wanted == "spot"):
        yield f"spot policy: {wanted} requested, the machine is {'spot' if facts.spot else 'on-demand'}"


def _price(terms: Requirements, facts: VmFacts) -> Iterator[str]:
    if terms.max_price is not None and facts.price is not None and facts.price > terms.max_price:
        yield f"price: at most ${terms.max_price / DOLLAR:g}/h requested, the machine costs ${facts.price / DOLLAR:g}/h"


def _gigabytes(mebibytes: int | None) -> float | None:
    return None if mebibytes is None else mebibytes / MIB_IN_GB


def vendor_of(model: str) -> str:
    """Who makes GPUs of that model, as far as its name tells."""
    name = model.lower()
    if name.startswith(("mi", "rx", "radeon")):
        return "amd"
    if name.startswith("gaudi"):
        return "intel"
    if name[:1] == "v" and name[1:2].isdigit() and name != "v100":
        return "google"
    return "nvidia"
