"""Costs as rows in the columns of FOCUS 1.2, the FinOps Open Cost and Usage Specification (https://focus.finops.org).

One row for each sum of a machine's bill, cut at midnights. All its mandatory columns are here, and the conditional ones
that we can fill; empty is null. The cloud sends us no invoice: the billing account is the source, and what is billed is
what Steno bills. Moments are whole seconds, as the specification wants; the exact time is in
`ConsumedQuantity`.
"""

import json
from collections.abc import Iterator
from typing import Final

from engine.fold.run import Run
from engine.fold.vm import Vm
from engine.money.costs import Charge, Costs, Line, cut_at
from engine.money.prices import HOUR, Book, rung_at
from engine.money.report import gpu_of, midnights, user_of
from engine.policy import DOLLAR
from events.clock import SECOND, format_second, format_time

COLUMNS: Final = (
    "BilledCost",
    "BillingAccountId",
    "BillingAccountName",
    "BillingCurrency",
    "BillingPeriodEnd",
    "BillingPeriodStart",
    "ChargeCategory",
    "ChargeClass",
    "ChargeDescription",
    "ChargeFrequency",
    "ChargePeriodEnd",
    "ChargePeriodStart",
    "ConsumedQuantity",
    "ConsumedUnit",
    "ContractedCost",
    "ContractedUnitPrice",
    "EffectiveCost",
    "InvoiceIssuerName",
    "ListCost",
    "ListUnitPrice",
    "PricingCategory",
    "PricingQuantity",
    "PricingUnit",
    "ProviderName",
    "PublisherName",
    "RegionId",
    "RegionName",
    "ResourceId",
    "ResourceName",
    "ResourceType",
    "ServiceCategory",
    "ServiceName",
    "ServiceSubcategory",
    "SkuId",
    "SkuPriceId",
    "SubAccountId",
    "SubAccountName",
    "Tags",
)
"""In the specification's own order, which is that of the alphabet."""

_SAID: Final = {
    Line.PROVISIONING: "Machine being made for a run",
    Line.BUSY: "Machine busy with a run",
    Line.IDLE: "Machine idle",
    Line.TERMINATING: "Machine being ended",
    Line.UNCONFIRMED: "Machine told to go or no longer listed, not seen gone",
    Line.UNATTRIBUTED: "Machine time of no known run",
    Line.ROUNDING: "Minimum charge and billing granularity",
}


def focus_rows(costs: Costs) -> Iterator[tuple[str, ...]]:
    """The header, then one row of strings for each charge; to be written as CSV as they are."""
    yield COLUMNS
    state, listed = costs.state, Book()
    for charge in costs.charges():
        vm = state.vms[charge.vm_id]
        run = None if charge.run_id is None else state.runs.get(charge.run_id)
        for part in cut_at(charge, midnights(charge.since, charge.until)):
            price = rung_at(listed.tariff(vm), part.since).best
            values = _row(part, vm, run, price)
            yield tuple(values[column] for column in COLUMNS)


def _row(charge: Charge, vm: Vm, run: Run | None, listed: int) -> dict[str, str]:
    """One row. PricingQuantity × a unit price is the corresponding cost, as the specification asks: for a run that
    shares its machine it is the run's part of the machine's hours.
    """
    facts = vm.facts
    backend = facts.backend or vm.provider
    time = charge.until - charge.since
    quantity = _decimal(charge.cost, charge.hourly, 12) if charge.hourly else _decimal(time, HOUR, 12)
    list_cost = (2 * charge.cost * listed + charge.hourly) // (2 * charge.hourly) if charge.hourly else 0
    cost = _usd(charge.cost)
    name = facts.instance_type or gpu_of(vm)
    kind = "spot" if facts.spot else "on-demand"
    sku = f"{backend}/{facts.region or ''}/{name}"
    start, end = _month(charge.since)
    return {
        "BilledCost": cost,
        "BillingAccountId": vm.source,
        "BillingAccountName": vm.source,
        "BillingCurrency": "USD",
        "BillingPeriodEnd": end,
        "BillingPeriodStart": start,
        "ChargeCategory": "Usage",
        "ChargeClass": "",
        "ChargeDescription": f"{_SAID[charge.line]}: {name}, {kind}",
        "ChargeFrequency": "Usage-Based",
        "ChargePeriodEnd": format_second(charge.until),
        "ChargePeriodStart": format_second(charge.since),
        "ConsumedQuantity": _decimal(time, SECOND, 6),
        "ConsumedUnit": "Seconds",
        "ContractedCost": cost,
        "ContractedUnitPrice": _usd(charge.hourly),
        "EffectiveCost": cost,
        "InvoiceIssuerName": backend,
        "ListCost": _usd(list_cost),
        "ListUnitPrice": _usd(listed),
        "PricingCategory": "Dynamic" if facts.spot else "Standard",
        "PricingQuantity": quantity,
        "PricingUnit": "Hours",
        "ProviderName": backend,
        "PublisherName": backend,
        "RegionId": facts.region or "",
        "RegionName": facts.region or "",
        "ResourceId": vm.provider_id,
        "ResourceName": facts.name or "",
        "ResourceType": "GPU machine" if facts.gpu_count else "Machine",
        "ServiceCategory": "Compute",
        "ServiceName": f"{backend} machines",
        "ServiceSubcategory": "Virtual Machines",
        "SkuId": sku,
        "SkuPriceId": f"{sku}/{kind}",
        "SubAccountId": facts.project or "",
        "SubAccountName": facts.project or "",
        "Tags": _tags(charge, vm, run),
    }


def _tags(charge: Charge, vm: Vm, run: Run | None) -> str:
    """What FOCUS has no column for, as the JSON object its key-value format is."""
    tags: dict[str, str] = {"line": charge.line.value, "vm_id": vm.vm_id, "gpu": gpu_of(vm)}
    if vm.facts.fleet:
        tags["fleet"] = vm.facts.fleet
    if vm.archive is not None:
        tags["archive"] = vm.archive
    if charge.run_id is not None:
        tags["run_id"] = charge.run_id
    if run is not None:
        tags["user"] = user_of(run)
        if run.name:
            tags["run"] = run.name
    return json.dumps(tags, ensure_ascii=False, sort_keys=True)


def _usd(amount: int) -> str:
    return _decimal(amount, DOLLAR, 6)


def _decimal(number: int, unit: int, digits: int) -> str:
    """number ÷ unit, rounded half up to so many decimals, without trailing zeros; not negative."""
    scaled = (2 * number * 10**digits + unit) // (2 * unit)
    whole, part = divmod(scaled, 10**digits)
    decimals = f"{part:0{digits}d}".rstrip("0")
    return f"{whole}.{decimals}" if decimals else str(whole)


def _month(moment: int) -> tuple[str, str]:
    """The beginning of a moment's month and of the next, UTC."""
    year, month = (int(part) for part in format_time(moment)[:7].split("-"))
    following = (year + 1, 1) if month == 12 else (year, month + 1)
    return f"{year:04d}-{month:02d}-01T00:00:00Z", f"{following[0]:04d}-{following[1]:02d}-01T00:00:00Z"
