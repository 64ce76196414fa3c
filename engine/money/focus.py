"""Costs as rows in the columns of FOCUS 1.2, the FinOps Open Cost and Usage Specification (https://focus.finops.org).
One row for each sum of a machine's bill, cut at midnights. It has all mandatory columns, and the conditional columns
that we can fill; empty is null. The cloud sends us no invoice: the billing account is the source, and the billed cost
is Steno's. Moments are whole seconds, as the specification wants, and no period is empty; the exact time is in
`ConsumedQuantity`. A month has the columns of FOCUS 1.4: what a run pays is an allocated part of the machine's charge.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import Final, NamedTuple

from steno.engine.money.bill import Line
from steno.engine.money.costs import Charge, Costs, cut_at, keeper_of
from steno.engine.money.daily import DayRange
from steno.engine.money.prices import Book, rung_at
from steno.engine.money.report import gpu_of, midnights, user_of
from steno.engine.state.policy import DAY, HOUR
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
    keeper: str | None  # who pays because they had the machine kept
    parts: tuple[Charge, ...]  # all of the machine at that time, its own among them

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
    def tags(self) -> dict[str, str]:
        """Facts without a column of FOCUS."""
        charge, vm, run = self.charge, self.vm, self.run
        tags = {
            "line": charge.line.value,
            "vm_id": vm.vm_id,
            "gpu": gpu_of(vm),
            "fleet": vm.facts.fleet or None,
            "archive": vm.archive,
            "run_id": charge.run_id,
            "user": self.keeper if run is None else user_of(run),
            "run": None if run is None else run.name or None,
        }
        return {key: value for key, value in tags.items() if value is not None}

    @property
    def whole(self) -> "_Row":
        """The row of the machine's charge, whose dimensions all its parts share."""
        return self._replace(charge=self.parts[0])

    @property
    def share(self) -> str:
        """The part of the machine's charge; the ratios of all parts sum to 1."""
        place, costs = self.parts.index(self.charge), [part.cost for part in self.parts]
        sizes = costs if any(costs) else [1] * len(costs)
        until, since = (10**9 * sum(sizes[:end]) // sum(sizes) for end in (place + 1, place))
        part = {"AllocatedRatio": (until - since) / 10**9, "UsageUnit": "Seconds"}
        return _json({"Elements": [part | {"UsageQuantity": self.charge.time / SECOND}]})


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
    "ChargePeriodEnd": lambda row: format_second(max(row.charge.until, row.charge.since // SECOND * SECOND + SECOND)),
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
    "Tags": lambda row: _json(row.tags),
}  # in the specification's order: alphabetical
COLUMNS: Final = tuple(_COLUMNS)
_OF_RUN: Final = {"run_id", "user", "run"}  # tags of what a run pays
_ALLOCATED: Final[dict[str, Callable[[_Row], str]]] = {
    "AllocatedMethodDetails": lambda row: row.share,
    "AllocatedMethodId": lambda _: "steno/machine-time",
    "AllocatedResourceId": lambda row: row.charge.run_id or "",
    "AllocatedResourceName": lambda row: row.tags.get("run") or row.charge.run_id or "",
    "AllocatedTags": lambda row: _tags(row, _OF_RUN) if row.charge.run_id is not None else "",
}  # null if no run pays a part
_NEWEST: Final[dict[str, Callable[[_Row], str]]] = {
    **_COLUMNS,
    **_ALLOCATED,
    "ChargeDescription": lambda row: _COLUMNS["ChargeDescription"](row.whole),
    "HostProviderName": _COLUMNS["ProviderName"],
    "InvoiceDetailId": lambda _: "",
    "ServiceProviderName": _COLUMNS["ProviderName"],
    "Tags": lambda row: _tags(row.whole, row.tags.keys() - _OF_RUN),
}
COLUMNS_1_4: Final = tuple(sorted(_NEWEST.keys() - {"ProviderName", "PublisherName"}))


def focus_rows(costs: Costs) -> Iterator[tuple[str, ...]]:
    """The header, then one row of strings for each charge, ready for CSV."""
    yield COLUMNS
    yield from (tuple(csv_text(value(row)) for value in _COLUMNS.values()) for row in _rows(costs))


def month_rows(costs: Costs, days: DayRange) -> Iterator[tuple[str, ...]]:
    """As `focus_rows`, of some days and in the columns of 1.4."""
    yield COLUMNS_1_4
    for row in _rows(costs):
        if days.first <= row.charge.since // DAY <= days.last:
            left_out = () if any(part.run_id for part in row.parts) else _ALLOCATED
            yield tuple("" if name in left_out else csv_text(_NEWEST[name](row)) for name in COLUMNS_1_4)


def _rows(costs: Costs) -> Iterator[_Row]:
    state, listed = costs.state, Book()
    for (vm_id, since, until), together in groupby(costs.charges(), lambda part: (part.vm_id, part.since, part.until)):
        vm = state.vms[vm_id]
        edges = (*midnights(since, until), *(edge for span in vm.keeps for edge in (span.since, span.until)))
        cuts = [cut_at(charge, edges) for charge in together]
        machine, kind = vm.facts.instance_type or gpu_of(vm), "spot" if vm.facts.spot else "on-demand"
        for place, part in ((place, part) for parts in cuts for place, part in enumerate(parts)):
            run = None if part.run_id is None else state.runs.get(part.run_id)
            price = rung_at(listed.tariff(vm), part.since).best
            there = tuple(parts[place] for parts in cuts)
            backend = vm.facts.backend or vm.provider
            yield _Row(part, vm, run, price, backend, machine, kind, keeper_of(part, vm), there)


def _tags(row: _Row, names: Iterable[str]) -> str:
    return _json({f"steno/{name}": row.tags[name] for name in names if name in row.tags})


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


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
