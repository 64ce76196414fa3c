"""What a machine for a task may cost an hour at most, from what is known before there is one."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from engine.fold.run import Terms
from engine.fold.vm import Vm
from engine.money.tariff import overridden
from engine.money.words import rate
from engine.policy import Policy, Rate


class Guess(NamedTuple):
    """A price and where it comes from."""

    hourly: int
    """Micro-dollars an hour of one machine."""
    why: str


def price_of(terms: Terms, policy: Policy, vms: Iterable[Vm]) -> Guess | None:
    """The highest price of any machine the task takes; None where nobody knows one.

    For each GPU model it names: the override, else the newest recorded price of a machine with it, else the assumed
    one, times its GPUs. A task for spot machines has no override. `max_price` is a ceiling, and stands alone where
    nothing else is known.
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


def _one(model: str | None, count: int, terms: Terms, policy: Policy, known: list[Vm]) -> Iterator[Guess]:
    """The price of a machine with that model, or of any where none is named."""
    of = "a machine" if model is None else f"{model}:{count}" if count > 1 else model
    override = None if terms.spot == "spot" else overridden(model, count, policy)
    if override is not None:
        yield Guess(override, f"the rate set for {of}")
        return
    recorded = _recorded(model, count, terms, known)
    if recorded is not None:
        yield Guess(recorded, f"the newest recorded price of {of}")
        return
    assumed = _assumed(model, count, policy.assumed)
    if assumed is not None:
        yield Guess(assumed, f"assumed for {of}")


def _recorded(model: str | None, count: int, terms: Terms, known: list[Vm]) -> int | None:
    """The price of the machine seen last that fits, scaled to the GPUs asked for."""
    fitting = [vm for vm in known if vm.prices and _fits(model, count, terms, vm)]
    newest = max(fitting, key=lambda vm: vm.last_at, default=None)
    if newest is None:
        return None
    price = newest.prices[-1].hourly
    return price if newest.facts.gpu_count == 0 or count == 0 else -(-price * count // newest.facts.gpu_count)


def _fits(model: str | None, count: int, terms: Terms, vm: Vm) -> bool:
    if terms.spot in ("spot", "on-demand") and bool(vm.facts.spot) is not (terms.spot == "spot"):
        return False
    if model is None:
        return (vm.facts.gpu_count > 0) is (count > 0)
    return vm.facts.gpu is not None and vm.facts.gpu.casefold() == model.casefold()


def _assumed(model: str | None, count: int, rates: tuple[Rate, ...]) -> int | None:
    """A rate of no model is that of any whole machine there."""
    fitting = [one.hourly * count for one in rates if model is not None and one.gpu.casefold() == model.casefold()]
    fitting += [one.hourly for one in rates if not one.gpu]
    return fitting[0] if fitting else None
