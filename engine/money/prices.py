"""What an hour of a machine costs: at each moment of its life, and before it exists. The price is the provider's
recorded one, unless the settings override it. An override is of one GPU of a model; it applies to on-demand machines of
that model, times their GPUs, from the adoption of the policy on. Spot machines and other models keep the recorded
price.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, Literal, NamedTuple

import msgspec

from engine.amounts import rate
from engine.fold.vm import Pause, PriceStep, Vm
from engine.fold.world_codec import PolicyStep, WorldState
from engine.policy import Billing, Policy
from engine.price_list import UNNAMED_GPU, list_price
from engine.requirements import Requirements


class Rung(NamedTuple):
    """Prices from a moment on, micro-dollars an hour of the whole machine."""

    since: int
    best: int
    low: int
    high: int


Bound = Literal[1, 2, 3]
BEST: Final = 1
LOW: Final = 2
HIGH: Final = 3  # which of a rung's prices

Tariff = tuple[Rung, ...]  # in order of time; the first holds before its own moment too


class Book(msgspec.Struct, frozen=True, kw_only=True):
    """What the policies in force at each time say about prices and rounding."""

    policies: Mapping[str, tuple[PolicyStep, ...]] = {}  # source → policies, oldest first

    @classmethod
    def of(cls, state: WorldState) -> "Book":
        return cls(policies=state.policies)

    def digest(self) -> str:
        """Books of equal digest make equal bills."""
        said: dict[str, list[tuple[object, ...]]] = {}
        for source, steps in sorted(self.policies.items()):
            if any(step.policy.rates or step.policy.billing for step in steps):
                said[source] = [(step.at, step.policy.rates, step.policy.billing) for step in steps]
        return hashlib.sha256(msgspec.msgpack.encode(said)).hexdigest()

    def tariff(self, vm: Vm) -> Tariff:
        recorded = _recorded(vm)
        steps = self.policies.get(vm.source, ())
        if vm.facts.spot or not any(step.policy.rates for step in steps):
            return _without(recorded, vm.pauses)
        rungs = []
        for moment in sorted({rung.since for rung in recorded} | {step.at for step in steps}):
            override = overridden(vm.facts.gpu, vm.facts.gpu_count, in_force(steps, moment))
            rung = rung_at(recorded, moment) if override is None else Rung(moment, override, override, override)
            rungs.append(rung._replace(since=moment))
        return _without(tuple(rungs), vm.pauses)

    def fixed(self, vm: Vm) -> int | None:
        """The hourly price of the machine's whole life; None if it changed, or a policy sets prices or rounding."""
        steps = self.policies.get(vm.source, ())
        if len(vm.prices) > 1 or vm.pauses or any(step.policy.rates or step.policy.billing for step in steps):
            return None
        return vm.prices[0].hourly if vm.prices else vm.facts.price or 0

    def billing(self, vm: Vm, moment: int) -> Billing:
        """How its backend rounds what it charges, by the policy in force at that moment."""
        policy = in_force(self.policies.get(vm.source, ()), moment)
        backend = (vm.facts.backend or "").casefold()
        known = (one for one in (() if policy is None else policy.billing) if one.backend.casefold() == backend)
        return next(known, Billing(backend=backend))


def overridden(gpu: str | None, count: int, policy: Policy | None) -> int | None:
    """The price set by an override: micro-dollars an hour of an on-demand machine with that many of that GPU."""
    if policy is None or gpu is None or count <= 0:
        return None
    return next((one.hourly * count for one in policy.rates if one.gpu.casefold() == gpu.casefold()), None)


def rung_at(tariff: Tariff, moment: int) -> Rung:
    found = tariff[0]
    for rung in tariff:
        if rung.since > moment:
            break
        found = rung
    return found


def exact(tariff: Tariff, since: int, until: int, bound: Bound = BEST) -> int:
    """Micro-dollars × HOUR of a span of time; 0 if it ends before it begins."""
    if until <= since:
        return 0
    if len(tariff) == 1:
        return (until - since) * tariff[0][bound]
    edges = [since, *(rung.since for rung in tariff if since < rung.since < until), until]
    return sum((end - start) * rung_at(tariff, start)[bound] for start, end in pairwise(edges))


def _recorded(vm: Vm) -> Tariff:
    """The provider's price. Between the last poll of the old one and the first of the new, either may be true."""
    steps = vm.prices or (PriceStep(at=vm.created, low_at=vm.created, hourly=vm.facts.price or 0),)
    first, *later = steps
    rungs = [Rung(vm.created, first.hourly, first.hourly, first.hourly)]
    before = first.hourly
    for step in later:
        at = max(step.at, rungs[-1].since)
        doubt = min(at, max(step.low_at, rungs[-1].since))
        rungs.append(Rung(doubt, before, min(before, step.hourly), max(before, step.hourly)))
        rungs.append(Rung(at, step.hourly, step.hourly, step.hourly))
        before = step.hourly
    return tuple(rungs)


def _without(tariff: Tariff, pauses: Sequence[Pause]) -> Tariff:
    """The tariff with no price while the machine was suspended."""
    if not pauses:
        return tariff
    edges = {edge for one in pauses for edge in (one.since, one.until)}
    return tuple(
        Rung(moment, 0, 0, 0)
        if any(one.since <= moment < one.until for one in pauses)
        else rung_at(tariff, moment)._replace(since=moment)
        for moment in sorted(edges | {rung.since for rung in tariff})
    )


def in_force(steps: tuple[PolicyStep, ...], moment: int) -> Policy | None:
    """The policy of a source at a moment; None: it had none yet."""
    return next((step.policy for step in reversed(steps) if step.at <= moment), None)


# -- before there is a machine -----------------------------------------------------------------------------------------


class Guess(NamedTuple):
    """Micro-dollars an hour of one machine, and the source of that price."""

    hourly: int
    why: str


def price_of(terms: Requirements, policy: Policy, vms: Iterable[Vm]) -> Guess | None:
    """The highest price of any machine the task takes; None: unknown. For each GPU model it names: the override, else
    the newest recorded price of a machine with it, else the assumed one, times its GPUs. A task for spot machines has
    no override. `max_price` is a ceiling, and the price itself if no other is known.
    """
    if policy.free:
        return Guess(0, "machines of this source are free")
    known = [vm for vm in vms if not terms.backends or (vm.facts.backend or "") in terms.backends]
    count = max(1, terms.gpu_count) if terms.gpu else terms.gpu_count
    models: tuple[str | None, ...] = (*terms.gpu, *terms.fallback) or (None,)
    guesses = [found for model in models for found in _one(model, count, terms, policy, known)]
    highest = max(guesses, key=lambda guess: guess.hourly, default=None)
    if terms.max_price is not None and (highest is None or highest.hourly > terms.max_price):
        return Guess(terms.max_price, f"max_price {rate(terms.max_price)}")
    return highest


def _one(model: str | None, count: int, terms: Requirements, policy: Policy, known: list[Vm]) -> Iterator[Guess]:
    """The price of a machine with that model, or of any if none is named."""
    of = "a machine" if model is None else f"{model}:{count}" if count > 1 else model
    override = None if terms.spot == "spot" else overridden(model, count, policy)
    fitting = [vm for vm in known if vm.prices and _fits(model, count, terms, vm)]
    named = [one for one in policy.assumed if one.gpu and model is not None and one.gpu.casefold() == model.casefold()]
    # A rate without a model is that of any whole machine there.
    assumed = [one.hourly * count for one in named] + [one.hourly for one in policy.assumed if not one.gpu]
    listed = _by_list(model, count, terms, policy) if terms.any_machine else None
    if override is not None:
        yield Guess(override, f"the rate set for {of}")
    elif listed is not None:
        yield Guess(listed, f"by the rates for {of}")
    elif fitting:
        newest = max(fitting, key=lambda vm: vm.last_at)
        price, gpus = newest.prices[-1].hourly, newest.facts.gpu_count
        scaled = price if gpus == 0 or count == 0 else -(-price * count // gpus)
        yield Guess(scaled, f"the newest recorded price of {of}")
    elif assumed:
        yield Guess(assumed[0], f"assumed for {of}")


def _by_list(model: str | None, count: int, terms: Requirements, policy: Policy) -> int | None:
    """The price of a machine made to measure, as its bill computes it; None: a GPU of it has no rate."""
    gpus = {UNNAMED_GPU if model is None else model: count} if count else {}
    found = list_price(gpus, {"cpu": terms.cpus.least or 0}, {one.gpu: one.hourly for one in policy.assumed if one.gpu})
    return None if found is None else round(found)


def _fits(model: str | None, count: int, terms: Requirements, vm: Vm) -> bool:
    if terms.spot in ("spot", "on-demand") and bool(vm.facts.spot) is not (terms.spot == "spot"):
        return False
    if model is None:
        return (vm.facts.gpu_count > 0) is (count > 0)
    return vm.facts.gpu is not None and vm.facts.gpu.casefold() == model.casefold()
