"""The price of an hour of a machine: at each moment of its life, and before it exists. The price is the provider's
recorded one, unless the settings override it. An override is of one GPU of a model; it applies to on-demand machines of
that model, times their GPUs, from the adoption of the policy on. Spot machines and other models keep the recorded
price.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, Literal, NamedTuple

import msgspec

from steno.engine.state.kernel_mark import is_kept
from steno.engine.state.policy import UNNAMED_GPU, Billing, Policy, list_price
from steno.engine.state.run import Requirements
from steno.engine.state.vm import Pause, PriceStep, Vm
from steno.engine.state.world import PolicyStep, World
from steno.engine.wire import DOLLAR, rate


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
    """The rates and rounding of the policies in force at each time."""

    policies: Mapping[str, tuple[PolicyStep, ...]] = {}  # source → policies, oldest first

    @classmethod
    def of(cls, state: World) -> "Book":
        return cls(policies=state.policies)

    def digest(self) -> str:
        """Books of equal digest make equal bills."""
        terms: dict[str, list[tuple[object, ...]]] = {}
        for source, steps in sorted(self.policies.items()):
            if any(step.policy.rates or step.policy.billing for step in steps):
                terms[source] = [(step.at, step.policy.rates, step.policy.billing) for step in steps]
        return hashlib.sha256(msgspec.msgpack.encode(terms)).hexdigest()

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
        known = (
            billing for billing in (() if policy is None else policy.billing) if billing.backend.casefold() == backend
        )
        return next(known, Billing(backend=backend))


class GpuHours(Book, frozen=True, kw_only=True):
    """GPU-hours in place of money: each GPU costs a dollar an hour; a kernels' machine is part of the one beneath."""

    def digest(self) -> str:
        return "gpu-hours"

    def tariff(self, vm: Vm) -> Tariff:
        hourly = 0 if is_kept(vm) else vm.facts.gpu_count * DOLLAR
        return _without((Rung(vm.created, hourly, hourly, hourly),), vm.pauses)

    def billing(self, vm: Vm, moment: int) -> Billing:  # noqa: ARG002 - as of every book
        return Billing(backend="")


def overridden(gpu: str | None, count: int, policy: Policy | None) -> int | None:
    """The price set by an override: micro-dollars an hour of an on-demand machine with that many of that GPU."""
    if policy is None or gpu is None or count <= 0:
        return None
    return next((rate.hourly * count for rate in policy.rates if rate.gpu.casefold() == gpu.casefold()), None)


def rung_at(tariff: Tariff, moment: int) -> Rung:
    return next((rung for rung in reversed(tariff) if rung.since <= moment), tariff[0])


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
    edges = {edge for pause in pauses for edge in (pause.since, pause.until)}
    return tuple(
        Rung(moment, 0, 0, 0)
        if any(pause.since <= moment < pause.until for pause in pauses)
        else rung_at(tariff, moment)._replace(since=moment)
        for moment in sorted(edges | {rung.since for rung in tariff})
    )


def in_force(steps: tuple[PolicyStep, ...], moment: int) -> Policy | None:
    """The policy of a source at a moment; None: it had none yet."""
    return next((step.policy for step in reversed(steps) if step.at <= moment), None)


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
    guesses = [guess for model in models for guess in _one(model, count, terms, policy, known)]
    highest = max(guesses, key=lambda guess: guess.hourly, default=None)
    if terms.max_price is not None and (highest is None or highest.hourly > terms.max_price):
        return Guess(terms.max_price, f"max_price {rate(terms.max_price)}")
    return highest


def _one(model: str | None, count: int, terms: Requirements, policy: Policy, known: list[Vm]) -> Iterator[Guess]:
    """The price of a machine with that model, or of any if none is named."""
    of = "a machine" if model is None else f"{model}:{count}" if count > 1 else model
    override = None if terms.spot == "spot" else overridden(model, count, policy)
    fitting = [vm for vm in known if vm.prices and _fits(model, count, terms, vm)]
    named = [
        rate for rate in policy.assumed if rate.gpu and model is not None and rate.gpu.casefold() == model.casefold()
    ]
    # A rate without a model is that of any whole machine there.
    assumed = [named_rate.hourly * count for named_rate in named] + [
        rate.hourly for rate in policy.assumed if not rate.gpu
    ]
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
    price = list_price(
        gpus, {"cpu": terms.cpus.least or 0}, {rate.gpu: rate.hourly for rate in policy.assumed if rate.gpu}
    )
    return None if price is None else round(price)


def _fits(model: str | None, count: int, terms: Requirements, vm: Vm) -> bool:
    if terms.spot in ("spot", "on-demand") and bool(vm.facts.spot) is not (terms.spot == "spot"):
        return False
    if model is None:
        return (vm.facts.gpu_count > 0) is (count > 0)
    return vm.facts.gpu is not None and vm.facts.gpu.casefold() == model.casefold()
