"""Money as people read it; exact, never rounded silently."""

from typing import overload

from engine.policy import DOLLAR


@overload
def money(amount: int) -> str: ...
@overload
def money(amount: int | None) -> str | None: ...
def money(amount: int | None) -> str | None:
    """Micro-dollars as dollars with six decimals, as JSON objects have them: `1.990000`."""
    if amount is None:
        return None
    if amount < 0:
        return f"-{money(-amount)}"
    return f"{amount // DOLLAR}.{amount % DOLLAR:06d}"


def usd(amount: int) -> str:
    """Micro-dollars as `$1.99` or `$0.000012`: at least cents, no more digits than it has."""
    sign = "-" if amount < 0 else ""
    whole, part = divmod(abs(amount), DOLLAR)
    digits = f"{part:06d}".rstrip("0").ljust(2, "0")
    return f"{sign}${whole}.{digits}"


def rate(hourly: int) -> str:
    """Micro-dollars an hour as `$1.99/h`."""
    return f"{usd(hourly)}/h"
