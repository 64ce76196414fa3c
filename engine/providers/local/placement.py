"""Which machine a run goes to: pure, decided by whoever holds the gate, from what is there at that moment."""

from collections.abc import Sequence

import msgspec

from engine.providers.local.spec import LocalOffer, MachineSpec


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What a run asks of its machine."""

    slot: str | None = None
    """The name whose one machine it must be; None: any."""
    fresh: bool = False
    """Never one that was used before."""
    reuse: bool = False
    """Only one that is there."""
    idle: int = 0
    """Of a machine made for it, as in `MachineSpec`."""
    gpus: tuple[str, ...] = ()
    """Models it takes; empty: any, or none."""
    gpu_count: int = 0


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """A machine that is there."""

    spec: MachineSpec
    free: bool
    """Nothing runs on it and nobody has told it to go."""


class NoCapacity(msgspec.Struct, frozen=True):
    """There is no place for the run."""

    why: str


def place(wanted: Wanted, offer: LocalOffer, there: Sequence[Standing]) -> MachineSpec | NoCapacity | None:
    """The free machine it goes to, None where one is to be made, or why there is no place.

    A slot has at most one machine, of whatever kind: one that is busy, or going, leaves no place in it.
    """
    if wanted.slot is not None:
        here = [one for one in there if one.spec.slot == wanted.slot]
        if here and (wanted.fresh or not here[0].free):
            return NoCapacity(f"{wanted.slot} has its machine, {here[0].spec.name}, and it is not free")
    else:
        here = [one for one in there if one.free and not wanted.fresh]
    fitting = [one.spec for one in here if _fits(wanted, offer, one.spec)]
    if fitting:
        return min(fitting, key=lambda spec: (spec.created, spec.id))
    if wanted.slot is not None and here:
        return NoCapacity(f"{wanted.slot} has a machine of another kind, {here[0].spec.name}")
    if wanted.reuse:
        return NoCapacity("no idle machine matches, and none may be made (creation_policy: reuse)")
    if offer.gpu is not None and not _has(wanted, offer.gpu, offer.gpu_count):
        asked = f"{' or '.join(wanted.gpus) or 'GPU'}:{wanted.gpu_count}"
        return NoCapacity(
            f"no offers: {asked} is asked for and this host is said to have {offer.gpu}:{offer.gpu_count}"
        )
    return None


def _fits(wanted: Wanted, offer: LocalOffer, spec: MachineSpec) -> bool:
    if wanted.gpus and spec.gpu is not None:
        return _has(wanted, spec.gpu, spec.gpu_count)
    return (spec.gpu, spec.gpu_count) == (offer.gpu, offer.gpu_count)


def _has(wanted: Wanted, gpu: str, count: int) -> bool:
    return (not wanted.gpus or gpu.lower() in map(str.lower, wanted.gpus)) and wanted.gpu_count <= count
