"""The charts about money and times, from what the read models keep of each machine and run."""

from collections.abc import Iterator
from typing import Final

import msgspec

from engine.money.daily import (
    BilledMachine,
    MachineDays,
    Spend,
    Stack,
    Strip,
    Utilisation,
    range_of,
    spend_of,
    utilisation_of,
)
from engine.money.starts import Like, Starts, like_of, starts_of
from engine.policy import DAY
from projections.store.schema import RunRow
from projections.store.store import ProjectionStore
from projections.store.world_table import decode_run

LIKE: Final = 200  # runs of the same name that one is compared with
_decode: Final = msgspec.msgpack.Decoder(MachineDays).decode


class ChartRange(msgspec.Struct, frozen=True, kw_only=True):
    """The moments of a chart (microseconds UTC): whole days; by default the last 30 up to `now`."""

    since: int | None = None
    until: int | None = None
    now: int


def spend(store: ProjectionStore, by: Stack, of: ChartRange) -> Spend:
    return spend_of(_machines(store, of), by, range_of(of.since, of.until, of.now))


def utilisation(store: ProjectionStore, by: Strip, of: ChartRange) -> Utilisation:
    """Busy of billed time by day."""
    return utilisation_of(_machines(store, of), by, range_of(of.since, of.until, of.now))


def starts(store: ProjectionStore, of: ChartRange) -> Starts:
    """Start-up times of the runs submitted on these days."""
    shown = range_of(of.since, of.until, of.now)
    return starts_of(store.runs.starts(shown.first * DAY, (shown.last + 1) * DAY - 1))


def like(store: ProjectionStore, row: RunRow) -> Like:
    """A run beside the newest ended ones of its name."""
    found = () if row.name is None else store.runs.ended_named(row.name, LIKE + 1)
    others = [one for one in found if one.run_id != row.run_id][:LIKE]
    costs = [one.cost for one in others if one.cost is not None]
    return like_of(decode_run(row.folded), [decode_run(one.folded) for one in others], cost=row.cost, costs=costs)


def _machines(store: ProjectionStore, of: ChartRange) -> Iterator[BilledMachine]:
    shown = range_of(of.since, of.until, of.now)
    for vm_id, name, gpu, days in store.vms.days(shown.first * DAY):
        yield BilledMachine(vm_id, name, gpu, _decode(days))
