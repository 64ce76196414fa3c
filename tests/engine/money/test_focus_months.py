"""A month in the columns of FOCUS 1.4: the rules of its specification that a file alone can be checked by."""

import json
import re
from collections import defaultdict
from decimal import Decimal

from hypothesis import given, settings
from hypothesis import strategies as st
from stenotest.bills import a_run, at, machine, machines, on, world

from steno.engine.money.costs import Costs
from steno.engine.money.daily import DayRange
from steno.engine.money.focus import COLUMNS, COLUMNS_1_4, focus_rows, month_rows
from steno.engine.state.policy import DAY
from steno.engine.state.run import Requirements
from steno.engine.state.states import VmState
from steno.engine.state.vm import Vm
from steno.engine.state.world import World

EVER = DayRange(0, 10**6)
NEVER_NULL = {
    "BilledCost", "BillingAccountId", "BillingCurrency", "BillingPeriodEnd", "BillingPeriodStart", "ChargeCategory",
    "ChargeDescription", "ChargePeriodEnd", "ChargePeriodStart", "ContractedCost", "EffectiveCost", "HostProviderName",
    "InvoiceIssuerName", "ListCost", "PricingQuantity", "PricingUnit", "ServiceCategory", "ServiceName",
    "ServiceProviderName",
}  # fmt: skip
MANDATORY = NEVER_NULL | {"BillingAccountName", "ChargeClass", "InvoiceDetailId"}
SUMMED = {"BilledCost", "ConsumedQuantity", "ContractedCost", "EffectiveCost", "ListCost", "PricingQuantity"}
PERIOD = ("ResourceId", "ChargePeriodStart", "ChargePeriodEnd")
Row = dict[str, str]


def rows_of(state: World, days: DayRange = EVER) -> list[Row]:
    header, *rows = month_rows(Costs(state), days)
    assert header == COLUMNS_1_4
    return [dict(zip(header, row, strict=True)) for row in rows]


def check(rows: list[Row]) -> None:
    """Null where a column must be null, and only there; all parts of a machine's charge agree and sum to it."""
    parts = defaultdict[tuple[str, ...], list[Row]](list)
    for row in rows:
        assert not {name for name in NEVER_NULL if row[name] == ""}
        assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", row[name]) for name in row if "Period" in name)
        assert row["BillingPeriodStart"] <= row["ChargePeriodStart"] < row["ChargePeriodEnd"] <= row["BillingPeriodEnd"]
        assert all(Decimal(row[name]) >= 0 for name in SUMMED)
        assert (
            (row["AllocatedResourceId"] == "") == (row["AllocatedResourceName"] == "") == (row["AllocatedTags"] == "")
        )
        assert (row["AllocatedMethodId"] == "") == (row["AllocatedMethodDetails"] == "")
        assert row["AllocatedMethodId"] or not row["AllocatedResourceId"]
        assert not json.loads(row["Tags"]).keys() & json.loads(row["AllocatedTags"] or "{}").keys()
        assert all(name.startswith("steno/") for name in json.loads(row["Tags"]))
        if row["AllocatedMethodId"]:
            parts[tuple(row[name] for name in PERIOD)].append(row)
    for together in parts.values():
        ratios = [json.loads(row["AllocatedMethodDetails"])["Elements"][0]["AllocatedRatio"] for row in together]
        assert round(sum(ratios), 9) % 1 == 0  # within a second there can be several
        whole = sum(Decimal(row["BilledCost"]) for row in together)
        if len(together) > 1 and sum(ratios) == 1 and whole:
            for row, ratio in zip(together, ratios, strict=True):
                assert abs(float(Decimal(row["BilledCost"]) / whole) - ratio) < 1e-6


def shared() -> World:
    """Two runs on the halves of a machine for an hour, then one of them alone."""
    vm = machine(
        "both",
        (0, VmState.BUSY),
        (7200, VmState.TERMINATED),
        ended=7200,
        prices=[(0, 2.0)],
        blocks=2,
        occupancies=[on("ours", 0, 7200, blocks=1), on("theirs", 0, 3600, blocks=1)],
    )
    runs = [a_run(name, name=f"{name}-name", terms=Requirements(submitter=name)) for name in ("ours", "theirs")]
    return world(vm, last=7200, runs=runs)


def test_the_share_of_a_run_is_an_allocated_part_of_the_machines_charge() -> None:
    """Its ratio, its run and its tags; the rest of the machine is a part of nobody."""
    rows = rows_of(shared())
    check(rows)
    first = [row for row in rows if row["ChargePeriodStart"] == min(row["ChargePeriodStart"] for row in rows)]
    assert {row["AllocatedResourceName"]: Decimal(row["BilledCost"]) for row in first} == {
        "ours-name": Decimal(1), "theirs-name": Decimal(1)
    }  # fmt: skip
    assert json.loads(first[0]["AllocatedMethodDetails"])["Elements"] == [
        {"AllocatedRatio": 0.5, "UsageUnit": "Seconds", "UsageQuantity": 1800.0}
    ]
    assert json.loads(first[0]["AllocatedTags"]) == {
        "steno/run": "ours-name", "steno/run_id": "ours", "steno/user": "ours"
    }  # fmt: skip
    alone = [row for row in rows if row not in first]
    assert {row["AllocatedResourceId"] for row in alone} == {"ours", ""}
    assert len({(row["Tags"], row["ChargeDescription"], row["SkuId"]) for row in alone}) == 1


@settings(max_examples=60)
@given(st.lists(machines(), min_size=1, max_size=3), st.integers(0, 6_000))
def test_any_machines_give_rows_that_follow_the_rules_and_sum_to_the_bills(vms: list[Vm], last: int) -> None:
    """Over all days as the export in 1.2; each day once."""
    for number, vm in enumerate(vms):
        vm.vm_id = vm.provider_id = f"vm-{number}"
    state = world(*vms, last=last)
    rows = rows_of(state)
    check(rows)
    assert sum(Decimal(row["BilledCost"]) * 10**6 for row in rows) == sum(
        bill.cost for bill in Costs(state).bills().values()
    )
    day = at(0) // DAY
    halves = [rows_of(state, DayRange(0, day)), rows_of(state, DayRange(day + 1, 10**6))]
    assert sorted(map(str, rows)) == sorted(map(str, halves[0] + halves[1]))
    older = [dict(zip(COLUMNS, row, strict=True)) for row in list(focus_rows(Costs(state)))[1:]]
    same = set(COLUMNS) & set(COLUMNS_1_4) - {"Tags", "ChargeDescription"}
    assert [{name: row[name] for name in same} for row in rows] == [{name: row[name] for name in same} for row in older]


def test_the_columns_are_those_of_the_specification() -> None:
    assert set(COLUMNS_1_4) >= MANDATORY
    assert not set(COLUMNS_1_4) & {"ProviderName", "PublisherName"}  # removed in 1.4
    assert list(COLUMNS_1_4) == sorted(COLUMNS_1_4)
