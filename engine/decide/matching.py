"""Whether a run could go to a machine, as dstack matches its idle instances to a task's requirements.

dstack compares a machine's *offer* with the requirements (`services/instances.py` and gpuhunt's `matches`, 0.19.37 and
0.22.5): limits include their ends, names are compared without case, what the machine does not say is not compared.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final

from engine.decide.requirements import Asked, Range, read_asked, vendor_of
from engine.facts import VmFacts
from engine.fold.run import Terms
from engine.fold.vm import Vm
from engine.policy import DOLLAR

MIB_IN_GB = 1024

ON_DEMAND: Final = "on-demand"
"""dstack's `spot_policy` of a task that says none."""


def differences(terms: Terms, vm: Vm) -> tuple[str, ...]:
    """What of the machine is not what the run asks for, one sentence each with both values; empty: it fits.

    Only what the machine *is*; whether it is free is for `engine.decide.placement`.
    """
    facts = vm.facts
    if vm.provider == "local":
        return tuple(_local(terms, facts))
    asked = _asked(terms.resources)
    return (
        *_named("GPU", terms.gpu or asked.gpus, facts.gpu or "none"),
        *_gpus(terms, asked, facts),
        *_within("CPUs", asked.cpus, facts.cpus, ""),
        *_within("memory", asked.memory, _gigabytes(facts.memory_mib), " GB"),
        *_within("disk", asked.disk, _gigabytes(facts.disk_mib) or None, " GB"),
        *_named("backend", terms.backends, facts.backend),
        *_named("region", terms.regions, facts.region),
        *_named("instance type", terms.instance_types, facts.instance_type),
        *_spot(terms, facts),
        *_price(terms, facts),
        *_named("fleet", tuple(name.rsplit("/", 1)[-1] for name in terms.fleets), facts.fleet or "none"),
    )


def covers(terms: Terms, other: Terms) -> bool:
    """Whether every machine that may be made for `other` would do for `terms` too."""
    mine, theirs = _asked(terms.resources), _asked(other.resources)
    models = other.gpu or theirs.gpus
    made_by = {theirs.vendor} if theirs.vendor is not None or not models else set(map(vendor_of, models))
    return (
        terms.nodes <= other.nodes
        and all(
            _takes(wanted, given)
            for wanted, given in (
                (terms.gpu or mine.gpus, models),
                (terms.backends, other.backends),
                (terms.regions, other.regions),
                (terms.instance_types, other.instance_types),
                (terms.fleets, other.fleets),
            )
        )
        and (mine.vendor is None or made_by == {mine.vendor})
        and _gpu_count(terms, mine).contains(_gpu_count(other, theirs))
        and mine.gpu_memory.contains(theirs.gpu_memory)
        and mine.total_gpu_memory.contains(theirs.total_gpu_memory)
        and mine.cpus.contains(theirs.cpus)
        and mine.memory.contains(theirs.memory)
        and mine.disk.contains(theirs.disk)
        and (terms.spot == "auto" or (terms.spot or ON_DEMAND) == (other.spot or ON_DEMAND))
        and (terms.max_price is None or (other.max_price is not None and other.max_price <= terms.max_price))
    )


def _takes(wanted: Sequence[str], given: Sequence[str]) -> bool:
    return not wanted or (bool(given) and {name.lower() for name in given} <= {name.lower() for name in wanted})


_asked = lru_cache(maxsize=1024)(read_asked)


def _local(terms: Terms, facts: VmFacts) -> Iterator[str]:
    """A machine of this host takes every task, but for the GPU it is said to have (`engine.providers.local`)."""
    if terms.gpu and facts.gpu is not None:
        yield from _named("GPU", terms.gpu, facts.gpu)
        yield from _within("number of GPUs", Range(terms.gpu_count), facts.gpu_count, "")


def _gpus(terms: Terms, asked: Asked, facts: VmFacts) -> Iterator[str]:
    count = _gpu_count(terms, asked)
    if not count.least and facts.gpu_count == 0:
        return  # limits on GPUs say nothing of a machine without any, where none need be there
    yield from _within("number of GPUs", count, facts.gpu_count, "")
    if asked.vendor is not None and facts.gpu is not None and vendor_of(facts.gpu) != asked.vendor:
        yield f"GPU vendor: {asked.vendor} requested, the machine has {facts.gpu}"
    memory = _gigabytes(facts.gpu_memory_mib)
    if memory is not None:
        yield from _within("memory of a GPU", asked.gpu_memory, memory, " GB")
        yield from _within("memory of all GPUs", asked.total_gpu_memory, memory * facts.gpu_count, " GB")


def _gpu_count(terms: Terms, asked: Asked) -> Range:
    count = asked.gpu_count
    if terms.gpu_count and not (count.least or 0) >= terms.gpu_count:
        return Range(terms.gpu_count, count.most)
    return count


def _named(what: str, wanted: Sequence[str], there: str | None) -> Iterator[str]:
    if wanted and there is not None and there.lower() not in {name.lower() for name in wanted}:
        yield f"{what}: {' or '.join(wanted)} requested, the machine has {there}"


def _within(what: str, wanted: Range, there: float | None, unit: str) -> Iterator[str]:
    if there is not None and not wanted.holds(there):
        yield f"{what}: {wanted}{unit} requested, the machine has {there:g}{unit}"


def _spot(terms: Terms, facts: VmFacts) -> Iterator[str]:
    wanted = terms.spot or ON_DEMAND
    if wanted != "auto" and facts.spot is not None and facts.spot != (wanted == "spot"):
        yield f"spot policy: {wanted} requested, the machine is {'spot' if facts.spot else 'on-demand'}"


def _price(terms: Terms, facts: VmFacts) -> Iterator[str]:
    if terms.max_price is not None and facts.price is not None and facts.price > terms.max_price:
        yield f"price: at most ${terms.max_price / DOLLAR:g}/h requested, the machine costs ${facts.price / DOLLAR:g}/h"


def _gigabytes(mebibytes: int | None) -> float | None:
    return None if mebibytes is None else mebibytes / MIB_IN_GB
