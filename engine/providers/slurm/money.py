"""What an allocation costs: its trackable resources (TRES) by the site's table of service units. Pure.

The table is in the question (`STENO_RATES=…`), so that a record replays without settings: `{"a6000": 100, "cpu": 1,
"usd": 1.0}`, service units an hour of one, and dollars of a service unit.
"""

from collections.abc import Mapping
from functools import lru_cache

import msgspec

_MICRO = 1_000_000


@lru_cache(maxsize=64)
def _table(text: str) -> Mapping[str, float] | None:
    try:
        return msgspec.json.decode(text.encode(), type=dict[str, float])
    except msgspec.MsgspecError:
        return None


def units_of(tres: Mapping[str, str], rates: Mapping[str, float]) -> float | None:
    """Service units an hour: by the site's table if it has the GPU or the CPUs, else Slurm's own `billing`."""
    found = 0.0
    priced = False
    for name, count in tres.items():
        kind = name.removeprefix("gres/gpu:") if name.startswith("gres/gpu:") else name
        if kind in rates and count.replace(".", "", 1).isdecimal():
            found, priced = found + rates[kind] * float(count), True
    if priced:
        return found
    billing = tres.get("billing", "")
    return float(billing) if billing.replace(".", "", 1).isdecimal() else None


def price_of(tres: Mapping[str, str], table: str | None) -> int | None:
    """Micro-dollars an hour; None if the question had no table: then nothing is billed."""
    rates = None if table is None else _table(table)
    if rates is None:
        return None
    units = units_of(tres, rates)
    return None if units is None else round(units * rates.get("usd", 1.0) * _MICRO)
