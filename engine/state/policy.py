"""The policy in force: what the controller may do about machines, runs and money. It is an event, so a replay knows it.
Times are microseconds, money is micro-dollars, rates are micro-dollars an hour.
"""

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from steno.engine.wire import DOLLAR
from steno.events.clock import SECOND

MINUTE: Final = 60 * SECOND
HOUR: Final = 3600 * SECOND  # microseconds × micro-dollars an hour ÷ this = micro-dollars
DAY: Final = 24 * HOUR
CENT: Final = DOLLAR // 100
OFF: Final = -1  # `idle_duration: off`
BACKSTOP: Final = 30 * SECOND
"""How much later than the policy's timeout the provider ends a machine while somebody records: two polls at the slowest
pace, in which Steno drains the machine, looks once more and ends it. The provider's timer cannot cancel a drain.
"""


class Rate(msgspec.Struct, frozen=True, kw_only=True):
    """A price set by a user: it replaces the recorded one of on-demand machines with that GPU."""

    gpu: str  # the GPU model, without case. Empty in an assumed rate: any whole machine of the source.
    hourly: int  # of one GPU; a machine costs this times its GPUs


class Billing(msgspec.Struct, frozen=True, kw_only=True):
    """How a backend rounds what it charges for one machine."""

    backend: str
    minimum: int = 0  # the least time charged
    granularity: int = 0  # time charged is a multiple of this; 0: to the microsecond


class OwnerLimit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The limits of an owner of runs; None: not limited. Micro-dollars, and millionths of GPU-hours."""

    owner: str  # `user/alice`, `project/main`, `gpu/MI300X`, `label/team=vision`
    budget: int | None = None  # in all, without moves (`BudgetMoved`)
    daily: int | None = None  # on a day in UTC
    gpu_hours: int | None = None  # in all
    machines: int | None = None  # at once
    runs: int | None = None  # at once


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """Everything decisions depend on beside the world and the time."""

    mode: Literal["provider", "pool"] = "provider"
    """`provider`: the provider chooses among its idle machines; `pool`: Steno chooses the machine of a run."""
    max_vms: int | None = 3  # the most machines of ours at once; None: no limit
    idle_timeout: int | None = 600 * SECOND
    """How long a machine may idle; None: for ever. A task's shorter timeout wins for the machine it creates."""
    busy_idle_timeout: int | None = None  # how long the GPUs of a run may be idle; None: for ever
    share: Literal["any", "user"] = "any"  # whose runs may follow one another on one machine
    queue_patience: int = 30 * MINUTE
    """How long after its request a run without capacity, or offer, is submitted again; 0: it fails at once."""
    rates: tuple[Rate, ...] = ()  # overrides set by a user
    assumed: tuple[Rate, ...] = (Rate(gpu="MI300X", hourly=1_990_000),)
    """Assumed prices of machines without any recorded price: for estimates only, never bills."""
    billing: tuple[Billing, ...] = ()
    budget_total: int | None = None  # None: no budget
    thresholds: tuple[int, ...] = (800,)  # parts per thousand of the budget at which to alert, ascending
    assumed_duration: int = 24 * HOUR  # the assumed worst-case duration of a run without `max_duration`
    limits: tuple[OwnerLimit, ...] = ()  # by owner, each owner once
    free: bool = False
    """Machines of this source cost nothing: no cap, no budget, and none is kept warm unless its task says so."""

    @property
    def guarded(self) -> bool:
        """True if a place takes something that other sources may give too: a budget, or a limit of an owner."""
        return bool(self.limits) or (self.budget_total is not None and not self.free)


dump_policy: Final = msgspec.json.Encoder().encode  # the policy as the JSON text its event carries

load_policy: Final = msgspec.json.Decoder(Policy).decode
"""The policy of such a text; unknown fields of a newer version are ignored. ValueError: the text is not a policy."""


UNNAMED_GPU = "gpu"  # the row of GPUs whose model is not known


def rate_of(name: str, rates: Mapping[str, float]) -> float | None:
    """The rate of a resource: of exactly that name, else of a name that differs in case only."""
    if name in rates:
        return rates[name]
    return next((rate for known, rate in rates.items() if known.casefold() == name.casefold()), None)


def unrated(gpus: Mapping[str, float], rates: Mapping[str, float]) -> tuple[str, ...]:
    """The GPU models without a rate."""
    return tuple(name for name, count in gpus.items() if count and rate_of(name, rates) is None)


def list_price(gpus: Mapping[str, float], others: Mapping[str, float], rates: Mapping[str, float]) -> float | None:
    """The price of an hour of so many GPUs by model and of other resources (`cpu`), in plans, budget and bills. None: a
    GPU has no rate, or nothing has one. A resource without a rate costs nothing, a GPU without a rate is never free.
    """
    if unrated(gpus, rates):
        return None
    known = [(count, rate_of(name, rates)) for name, count in (*gpus.items(), *others.items())]
    priced = [count * rate for count, rate in known if rate is not None]
    return sum(priced) if priced else None
