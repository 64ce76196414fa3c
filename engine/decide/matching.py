"""Whether a run could go to a machine: limits are inclusive, names ignore case, and what the machine does not say is
not compared.
"""

from collections.abc import Sequence
from typing import Final

from engine.fold.vm import Vm
from engine.policy import DOLLAR
from engine.requirements import Range, Requirements

MIB_IN_GB = 1024
_NAMES: Final = ("gpu", "backends", "regions", "instance_types", "fleets")
_RANGES: Final = ("gpu_counts", "gpu_memory", "total_gpu_memory", "cpus", "memory", "disk")
"""Requirements that are a choice of names, and requirements that are a range."""


def differences(terms: Requirements, vm: Vm) -> tuple[str, ...]:
    """How the machine differs from what the run asks for, one sentence each with both values; empty: it fits. Compares
    what the machine *is*; `engine.decide.placement` checks whether it is free.
    """
    facts, memory = vm.facts, _gigabytes(vm.facts.gpu_memory_mib)
    if terms.any_machine:
        if not terms.gpu or facts.gpu is None:
            return ()
        count = _within("number of GPUs", Range(terms.gpu_count), facts.gpu_count)
        return (*_named("GPU", terms.gpu, facts.gpu), *count)
    found = _named("GPU", terms.gpu, facts.gpu or "none")
    # Limits on GPUs do not apply to a machine without GPUs, if the run needs none.
    if terms.gpu_counts.least or facts.gpu_count:
        found += _within("number of GPUs", terms.gpu_counts, facts.gpu_count)
        if terms.gpu_vendor is not None and facts.gpu is not None and _vendor_of(facts.gpu) != terms.gpu_vendor:
            found.append(f"GPU vendor: {terms.gpu_vendor} requested, the machine has {facts.gpu}")
        found += _within("memory of a GPU", terms.gpu_memory, memory, " GB")
        whole = None if memory is None else memory * facts.gpu_count
        found += _within("memory of all GPUs", terms.total_gpu_memory, whole, " GB")
    found += _within("CPUs", terms.cpus, facts.cpus)
    found += _within("memory", terms.memory, _gigabytes(facts.memory_mib), " GB")
    found += _within("disk", terms.disk, _gigabytes(facts.disk_mib) or None, " GB")
    found += _named("backend", terms.backends, facts.backend)
    found += _named("region", terms.regions, facts.region)
    found += _named("instance type", terms.instance_types, facts.instance_type)
    spot = _spot_of(terms)
    if spot != "auto" and facts.spot is not None and facts.spot != (spot == "spot"):
        there = "spot" if facts.spot else "on-demand"
        found.append(f"spot policy: {spot} requested, the machine is {there}")
    if terms.max_price is not None and facts.price is not None and facts.price > terms.max_price:
        most, price = (f"${hourly / DOLLAR:g}/h" for hourly in (terms.max_price, facts.price))
        found.append(f"price: at most {most} requested, the machine costs {price}")
    found += _named("fleet", [name.rsplit("/", 1)[-1] for name in terms.fleets], facts.fleet or "none")
    return tuple(found)


def covers(terms: Requirements, other: Requirements) -> bool:
    """Whether every machine that may be made for `other` would suit `terms` too."""
    vendor = other.gpu_vendor
    made_by = {vendor} if vendor is not None or not other.gpu else set(map(_vendor_of, other.gpu))
    names = [(getattr(terms, name), getattr(other, name)) for name in _NAMES]
    ranges = [(getattr(terms, name), getattr(other, name)) for name in _RANGES]
    return (
        terms.nodes <= other.nodes
        and all(not wanted or (bool(given) and _lower(given) <= _lower(wanted)) for wanted, given in names)
        and all(wanted.contains(given) for wanted, given in ranges)
        and (terms.gpu_vendor is None or made_by == {terms.gpu_vendor})
        and _spot_of(terms) in ("auto", _spot_of(other))
        and (terms.max_price is None or (other.max_price is not None and other.max_price <= terms.max_price))
    )


def _lower(names: Sequence[str]) -> set[str]:
    return {name.lower() for name in names}


def _spot_of(terms: Requirements) -> str:
    """A task that says nothing of spot machines gets an on-demand one."""
    return terms.spot or "on-demand"


def _named(what: str, wanted: Sequence[str], there: str | None) -> list[str]:
    if not wanted or there is None or there.lower() in _lower(wanted):
        return []
    return [f"{what}: {' or '.join(wanted)} requested, the machine has {there}"]


def _within(what: str, wanted: Range, there: float | None, unit: str = "") -> list[str]:
    if there is None or wanted.holds(there):
        return []
    return [f"{what}: {wanted}{unit} requested, the machine has {there:g}{unit}"]


def _gigabytes(mebibytes: int | None) -> float | None:
    return None if mebibytes is None else mebibytes / MIB_IN_GB


def _vendor_of(model: str) -> str:
    """Who makes GPUs of that model, judged by its name."""
    name = model.lower()
    if name.startswith(("mi", "rx", "radeon")):
        return "amd"
    if name.startswith("gaudi"):
        return "intel"
    return "google" if name[:1] == "v" and name[1:2].isdigit() and name != "v100" else "nvidia"
