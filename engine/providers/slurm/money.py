"""What an allocation costs: its trackable resources (TRES) by the site's table of service units. Pure.

The table is in the question (`STENO_RATES=…`), so that a record replays without settings: `{"a6000": 100, "cpu": 1,
"usd": 1.0}`, service units an hour of one, and dollars of a service unit.
"""

from collections.abc import Mapping
from functools import lru_cache

import msgspec

from engine.price_list import UNNAMED_GPU, list_price, unrated

_MICRO = 1_000_000
_GPUS = "gres/gpu"


@lru_cache(maxsize=64)
def _table(text: str) -> Mapping[str, float] | None:
    try:
        return msgspec.json.decode(text.encode(), type=dict[str, float])
    except msgspec.MsgspecError:
        return None


def gpus_in(tres: Mapping[str, str]) -> dict[str, float]:
    """The GPUs of an allocation by type. Accounting counts all of them, and those of a type only where the site tracks
    that type: the others are of the type `gpu`.
    """
    found = {
        name.removeprefix(f"{_GPUS}:"): _number(count) for name, count in tres.items() if name.startswith(f"{_GPUS}:")
    }
    others = _number(tres.get(_GPUS, "")) - sum(found.values())
    return {**found, UNNAMED_GPU: others} if others > 0 else found


def units_of(tres: Mapping[str, str], rates: Mapping[str, float]) -> float | None:
    """Service units an hour: by the site's table if it has all the GPUs, else Slurm's own `billing`; None: neither."""
    others = {name: _number(count) for name, count in tres.items() if not name.startswith(_GPUS) and _is_number(count)}
    found, billing = list_price(gpus_in(tres), others, rates), tres.get("billing", "")
    return _number(billing) if found is None and _is_number(billing) else found


def price_of(tres: Mapping[str, str], table: str | None) -> tuple[int | None, str | None]:
    """Micro-dollars an hour, or why there is no price: (None, None) if the question had no table, so that nothing is
    billed.
    """
    rates = None if table is None else _table(table)
    if rates is None:
        return None, None
    units = units_of(tres, rates)
    if units is None:
        return None, no_rate(gpus_in(tres), rates)
    return round(units * rates.get("usd", 1.0) * _MICRO), None


def no_rate(gpus: Mapping[str, float], rates: Mapping[str, float]) -> str:
    """`no rate for A100`."""
    return f"no rate for {', '.join(unrated(gpus, rates)) or 'cpu'}"


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).isdecimal()


def _number(text: str) -> float:
    return float(text) if _is_number(text) else 0.0
