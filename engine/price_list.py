"""What an hour costs by a table of rates: the one formula of plans, budget and bills. Pure."""

from collections.abc import Mapping

UNNAMED_GPU = "gpu"  # the row of GPUs whose model is not known


def rate_of(name: str, rates: Mapping[str, float]) -> float | None:
    """The rate of a resource: of exactly that name, else of one that differs in case only."""
    if name in rates:
        return rates[name]
    return next((rate for known, rate in rates.items() if known.casefold() == name.casefold()), None)


def unrated(gpus: Mapping[str, float], rates: Mapping[str, float]) -> tuple[str, ...]:
    """The GPU models without a rate."""
    return tuple(name for name, count in gpus.items() if count and rate_of(name, rates) is None)


def list_price(gpus: Mapping[str, float], others: Mapping[str, float], rates: Mapping[str, float]) -> float | None:
    """The price of so many GPUs by model and of other resources (`cpu`). None: a GPU has no rate, or nothing has one. A
    resource without a rate costs nothing, a GPU without a rate is never free.
    """
    if unrated(gpus, rates):
        return None
    known = [(count, rate_of(name, rates)) for name, count in (*gpus.items(), *others.items())]
    priced = [count * rate for count, rate in known if rate is not None]
    return sum(priced) if priced else None
