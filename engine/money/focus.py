"""Costs as rows in the columns of FOCUS 1.2, the FinOps Open Cost and Usage Specification (https://focus.finops.org).
One row for each sum of a machine's bill, cut at midnights. It has all mandatory columns, and the conditional columns
that we can fill; empty is null. The cloud sends us no invoice: the billing account is the source, and the billed cost
is Steno's. Moments are whole seconds, as the specification wants; the exact time is in `ConsumedQuantity`.
"""

import json
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from steno.engine.money.bill import Line
from steno.engine.money.costs import Charge, Costs, cut_at
from steno.engine.money.prices import Book, rung_at
from steno.engine.money.report import gpu_of, midnights, user_of
from steno.engine.state.policy import HOUR
from steno.engine.state.run import Run
from steno.engine.state.vm import Vm
from steno.engine.wire import DOLLAR, csv_text
from steno.events.clock import SECOND, format_second, format_time

_SAID: Final = {
    Line.PROVISIONING: "Machine being made for a run",
    Line.BUSY: "Machine busy with a run",
    Line.IDLE: "Machine idle",
    Line.TERMINATING: "Machine being ended",
    Line.UNCONFIRMED: "Machine told to go, no longer listed, or of unknown status; not seen gone",
    Line.UNATTRIBUTED: "Machine time of no known run",
    Line.ROUNDING: "Minimum charge and billing granularity",
}


class _Row(NamedTuple):
    """A charge. PricingQuantity × a unit price is the corresponding cost, as the specification asks: for a run that
    shares its machine it is the run's part of the machine's hours.
    """

    charge: Charge
    vm: Vm
    run: Run | None
    listed: int
    backend: str
    machine: str
    kind: str

    @property
    def sku(self) -> str:
        return f"{self.backend}/{self.vm.facts.region or ''}/{self.machine}"

    @property
    def list_cost(self) -> int:
        hourly = self.charge.hourly
        return (2 * self.charge.cost * self.listed + hourly) // (2 * hourly) if hourly else 0

    @property
    def hours(self) -> str:
        paid = (self.charge.cost, self.charge.hourly)
        return _decimal(*(paid if self.charge.hourly else (self.charge.time, HOUR)), 12)

    @property
    def tags(self) -> str:
        """Facts without a column of FOCUS, as a JSON object: its key-value format."""
        charge, vm, run = self.charge, self.vm, self.run
        tags = {
            "line": charge.line.value,
            "vm_id": vm.vm_id,
            "gpu": gpu_of(vm),
            "fleet": vm.facts.fleet or None,
            "archive": vm.archive,
            "run_id": charge.run_id,
            "user": None if run is None else user_of(run),
            "run": None if run is None else run.name or None,
        }
        tags = {key: value for key, value in tags.items() if value is not None}
        return json.dumps(tags, ensure_ascii=False, sort_keys=True)


_COLUMNS: Final[dict[str, Callable[[_Row], str]]] = {
    "BilledCost": lambda row: _usd(row.charge.cost),
    "BillingAccountId": lambda row: row.vm.source,
    "BillingAccountName": lambda row: row.vm.source,
    "BillingCurrency": lambda _: "USD",
    "BillingPeriodEnd": lambda row: _month(row.charge.since, 1),
    "BillingPeriodStart": lambda row: _month(row.charge.since),
    "ChargeCategory": lambda _: "Usage",
    "ChargeClass": lambda _: "",
    "ChargeDescription": lambda row: f"{_SAID[row.charge.line]}: {row.machine}, {row.kind}",
    "ChargeFrequency": lambda _: "Usage-Based",
    "ChargePeriodEnd": lambda row: format_second(row.charge.until),
    "ChargePeriodStart": lambda row: format_second(row.charge.since),
    "ConsumedQuantity": lambda row: _decimal(row.charge.time, SECOND, 6),
    "ConsumedUnit": lambda _: "Seconds",
    "ContractedCost": lambda row: _usd(row.charge.cost),
    "ContractedUnitPrice": lambda row: _usd(row.charge.hourly),
    "EffectiveCost": lambda row: _usd(row.charge.cost),
    "InvoiceIssuerName": lambda row: row.backend,
    "ListCost": lambda row: _usd(row.list_cost),
    "ListUnitPrice": lambda row: _usd(row.listed),
    "PricingCategory": lambda row: "Dynamic" if row.vm.facts.spot else "Standard",
    "PricingQuantity": lambda row: row.hours,
    "PricingUnit": lambda _: "Hours",
    "ProviderName": lambda row: row.backend,
    "PublisherName": lambda row: row.backend,
    "RegionId": lambda row: row.vm.facts.region or "",
    "RegionName": lambda row: row.vm.facts.region or "",
    "ResourceId": lambda row: row.vm.provider_id,
    "ResourceName": lambda row: row.vm.facts.name or "",
    "ResourceType": lambda row: "GPU machine" if row.vm.facts.gpu_count else "Machine",
    "ServiceCategory": lambda _: "Compute",
    "ServiceName": lambda row: f"{row.backend} machines",
    "ServiceSubcategory": lambda _: "Virtual Machines",
    "SkuId": lambda row: row.sku,
    "SkuPriceId": lambda row: f"{row.sku}/{row.kind}",
    "SubAccountId": lambda row: row.vm.facts.project or "",
    "SubAccountName": lambda row: row.vm.facts.project or "",
    "Tags": lambda row: row.tags,
}  # in the specification's order: alphabetical
COLUMNS: Final = tuple(_COLUMNS)


def focus_rows(costs: Costs) -> Iterator[tuple[str, ...]]:
    """The header, then one row of strings for each charge, ready for CSV."""
    yield COLUMNS
    state, listed = costs.state, Book()
    for charge in costs.charges():
        vm = state.vms[charge.vm_id]
        run = None if charge.run_id is None else state.runs.get(charge.run_id)
        machine, kind = vm.facts.instance_type or gpu_of(vm), "spot" if vm.facts.spot else "on-demand"
        for part in cut_at(charge, midnights(charge.since, charge.until)):
            price = rung_at(listed.tariff(vm), part.since).best
            row = _Row(part, vm, run, price, vm.facts.backend or vm.provider, machine, kind)
            yield tuple(csv_text(value(row)) for value in _COLUMNS.values())


def _usd(amount: int) -> str:
    return _decimal(amount, DOLLAR, 6)


def _decimal(number: int, unit: int, digits: int) -> str:
    """number ÷ unit, rounded half up to so many decimals, without trailing zeros; not negative."""
    scaled = (2 * number * 10**digits + unit) // (2 * unit)
    whole, part = divmod(scaled, 10**digits)
    decimals = f"{part:0{digits}d}".rstrip("0")
    return f"{whole}.{decimals}" if decimals else str(whole)


def _month(moment: int, later: int = 0) -> str:
    """The beginning of a moment's month, or of a later one, UTC."""
    year, month = (int(part) for part in format_time(moment)[:7].split("-"))
    years, month = divmod(month - 1 + later, 12)
    return f"{year + years:04d}-{month + 1:02d}-01T00:00:00Z"
