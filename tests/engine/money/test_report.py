"""Reports, the export, the metrics object and the performance figures."""

import json
from decimal import Decimal
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from stenotest.bills import a_run, at, machine, machines, on, world
from stenotest.whole_costs import cost_report

from steno.engine.decide.budget import account, metrics, starts_of
from steno.engine.money.bill import Line
from steno.engine.money.costs import Charge, Costs, cut_at
from steno.engine.money.focus import COLUMNS, focus_rows
from steno.engine.money.report import Measure, performance
from steno.engine.state.facts import RunFacts
from steno.engine.state.policy import Policy, Rate
from steno.engine.state.run import Requirements
from steno.engine.state.states import State, VmReason, VmState
from steno.engine.state.vm import Vm
from steno.engine.state.world import World
from steno.engine.wire import DOLLAR
from steno.events.clock import SECOND
from steno.projections.answers.costs import By

EVERY: tuple[By, ...] = ("vm", "run", "day", "user", "gpu")
MIDNIGHT = 15 * 3600
"""Seconds from the story's beginning, nine o'clock, to midnight."""


def night() -> World:
    """A cold run over midnight on an MI300X, then a spot machine with two of them that nobody used."""
    first = machine(
        "first",
        (MIDNIGHT - 3600, VmState.PROVISIONING),
        (MIDNIGHT - 1800, VmState.BUSY),
        (MIDNIGHT + 3600, VmState.IDLE),
        (MIDNIGHT + 5400, VmState.TERMINATED),
        created=MIDNIGHT - 3600,
        ended=MIDNIGHT + 5400,
        prices=[(MIDNIGHT - 3600, 2.0)],
        occupancies=[on("r", MIDNIGHT - 3600, MIDNIGHT + 3600)],
        made_for="r",
    )
    second = machine(
        "second", (0, VmState.IDLE), (3600, VmState.TERMINATED), ended=3600, spot=True, gpus=2, prices=[(0, 1.0)]
    )
    run = a_run("r", name="leaky-relu", terms=Requirements(submitter="ada"), start="cold", vm_id="first")
    return world(first, second, last=MIDNIGHT + 5400, runs=[run])


def rows(state: World, by: By) -> dict[str, tuple[int, int]]:
    """key → (on demand, spot) in micro-dollars."""
    return {row.key: (row.on_demand_usd, row.spot_usd) for row in cost_report(Costs(state), by).rows}


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        ("vm", {"first": (5_000_000, 0), "second": (0, 1_000_000)}),
        ("run", {"r": (4_000_000, 0), "(idle)": (1_000_000, 1_000_000)}),
        ("day", {"2026-11-20": (2_000_000, 1_000_000), "2026-11-21": (3_000_000, 0)}),
        ("user", {"ada": (4_000_000, 0), "(idle)": (1_000_000, 1_000_000)}),
        ("gpu", {"MI300X:1": (5_000_000, 0), "MI300X:2": (0, 1_000_000)}),
    ],
)
def test_the_same_money_by_every_key(by: By, expected: dict[str, tuple[int, int]]) -> None:
    """Days are UTC and cut at midnight; spot and on-demand stay apart; what no run pays is a row of its own."""
    assert rows(night(), by) == expected


@given(st.lists(machines(), min_size=1, max_size=3), st.integers(0, 6_000))
def test_every_report_and_the_export_sum_to_the_machines(vms: list[Vm], last: int) -> None:
    """To the micro-dollar, whatever the key."""
    for number, vm in enumerate(vms):
        vm.vm_id = f"vm-{number}"
    state = world(*vms, last=last)
    billed = Costs(state).bills()
    whole = sum(bill.cost for bill in billed.values())
    for by in EVERY:
        report = cost_report(Costs(state), by)
        assert sum(row.total_usd for row in report.rows) == report.total.total_usd == whole
        assert all(sum(row.lines.values()) == row.total_usd for row in report.rows)
    header, *exported = focus_rows(Costs(state))
    billed_cost = header.index("BilledCost")
    assert sum(Decimal(row[billed_cost]) for row in exported) * DOLLAR == whole


def test_the_user_of_a_run_is_its_submitter_else_the_providers_user() -> None:
    """And nobody where nobody says."""
    vms = [
        machine(name, (0, VmState.BUSY), last=3600, prices=[(0, 1.0)], occupancies=[on(name, 0)])
        for name in ("ours", "theirs", "none")
    ]
    runs = [
        a_run("ours", State.RUNNING, terms=Requirements(submitter="ada")),
        a_run("theirs", State.RUNNING, facts=RunFacts(provider_id="x", user="bob")),
        a_run("none", State.RUNNING),
    ]
    state = world(*vms, last=3600, runs=runs)
    assert rows(state, "user") == dict.fromkeys(("ada", "bob", "unknown"), (DOLLAR, 0))


@given(st.integers(0, 10**7), st.integers(0, 10**6), st.lists(st.integers(-10, 2 * 10**6), max_size=5), st.data())
def test_a_charge_cut_anywhere_is_the_same_charge(
    cost: int, length: int, moments: list[int], data: st.DataObject
) -> None:
    """Its parts follow one another and sum to it."""
    time = data.draw(st.integers(0, length))
    charge = Charge(vm_id="v", line=Line.IDLE, run_id=None, since=0, until=length, time=time, cost=cost, hourly=1)
    parts = cut_at(charge, moments)
    assert (sum(part.cost for part in parts), sum(part.time for part in parts)) == (cost, time)
    assert parts[0].since == 0
    assert parts[-1].until == length
    assert all(before.until == after.since for before, after in pairwise(parts))


def test_no_spreadsheet_computes_a_name_in_the_export() -> None:
    """As in every other CSV, a text that begins like a formula gets an apostrophe."""
    state = night()
    facts = msgspec.structs.replace(state.vms["first"].facts, name="=cmd('x')", region="@SUM(A1)")
    state = world(msgspec.structs.replace(state.vms["first"], facts=facts), last=MIDNIGHT + 5400)
    _, *rows = (dict(zip(COLUMNS, row, strict=True)) for row in focus_rows(Costs(state)))
    assert {(row["ResourceName"], row["RegionId"]) for row in rows} == {("'=cmd('x')", "'@SUM(A1)")}


def test_the_export_has_the_columns_of_focus_and_a_row_for_each_charge() -> None:
    """With an override the list price stays the recorded one; the quantity times the price is the cost."""
    state = night()
    vm = state.vms["first"]
    state = world(
        *state.vms.all(),
        last=MIDNIGHT + 5400,
        runs=list(state.runs.all()),
        policies=[(-1, Policy(rates=(Rate(gpu="MI300X", hourly=3_000_000),)))],
    )
    header, *rows = (dict(zip(COLUMNS, row, strict=True)) for row in focus_rows(Costs(state)))
    assert list(header.values()) == sorted(COLUMNS)
    assert [row["BilledCost"] for row in rows] == ["1.5", "1.5", "3", "1.5", "1"]
    busy = rows[1]
    assert busy == busy | {
        "ListCost": "1",
        "ListUnitPrice": "2",
        "ContractedUnitPrice": "3",
        "PricingQuantity": "0.5",
        "PricingUnit": "Hours",
        "ConsumedQuantity": "1800",
        "ChargePeriodStart": "2026-11-20T23:30:00Z",
        "ChargePeriodEnd": "2026-11-21T00:00:00Z",
        "BillingPeriodStart": "2026-11-01T00:00:00Z",
        "BillingPeriodEnd": "2026-12-01T00:00:00Z",
        "PricingCategory": "Standard",
        "ResourceId": vm.provider_id,
        "RegionId": "atl1",
        "ProviderName": "amddevcloud",
    }
    assert json.loads(busy["Tags"]) == {
        "line": "busy",
        "vm_id": "first",
        "gpu": "MI300X:1",
        "run_id": "r",
        "run": "leaky-relu",
        "user": "ada",
    }
    assert (rows[-1]["PricingCategory"], rows[-1]["ChargeDescription"]) == (
        "Dynamic",
        "Machine idle: gpu-mi300x1, spot",
    )


def test_the_metrics_are_the_documents_own() -> None:
    """5.25 of 1400 is 0.4 %; 3 cold and 44 warm starts are 47 tasks; a machine nobody saw go is active."""
    vms = [
        machine("old", (0, VmState.IDLE), (3600, VmState.TERMINATED), ended=3600, prices=[(0, 5.25)]),
        machine("doubtful", (3600, VmState.UNCONFIRMED), created=3600, last=3600, prices=[(3600, 1.99)]),
    ]
    runs = [a_run(f"cold-{n}", start="cold") for n in range(3)] + [a_run(f"warm-{n}", start="warm") for n in range(44)]
    runs += [a_run("going on", State.RUNNING, start="warm"), a_run("never had one", State.FAILED)]
    state = world(*vms, last=3600, runs=runs)
    policy = Policy(budget_total=1_400_000_000)
    figures = json.loads(msgspec.json.encode(metrics(state, account(state, policy, at(3600)), starts_of(state))))
    assert figures == {
        "total_cost_usd": 5.25,
        "remaining_credits_usd": 1394.75,
        "credits_used_pct": 0.4,
        "tasks_completed": 47,
        "cold_starts": 3,
        "warm_reuses": 44,
        "active_vms": 1,
    }


def test_without_a_budget_there_is_nothing_to_remain() -> None:
    """Null, not a number that looks like one; of a budget of nothing, everything is used."""
    state = world(machine("vm", (0, VmState.IDLE), last=3600), last=3600)
    none = metrics(state, account(state, Policy(budget_total=None), at(3600)), {})
    assert (none.remaining_credits_usd, none.credits_used_pct) == (None, None)
    assert metrics(state, account(state, Policy(budget_total=0), at(3600)), {}).credits_used_pct == 100.0
    assert metrics(world(last=0), account(world(last=0), Policy(budget_total=0), at(0)), {}).credits_used_pct == 0.0


def measured(state: World) -> dict[str, Measure]:
    return {measure.name: measure for measure in performance(Costs(state))}


def test_starts_and_costs_are_held_against_the_targets() -> None:
    """Two cold starts of 2 and 6 min, twenty warm starts of 5 s; a retried run says nothing."""
    cold = [
        a_run(f"c{minutes}", start="cold", submitted_at=at(0), started_at=at(60 * minutes), finished_at=at(400))
        for minutes in (2, 6)
    ]
    warm = [a_run(f"w{n}", start="warm", submitted_at=at(0), started_at=at(5), finished_at=at(31)) for n in range(20)]
    retried = a_run("again", start="cold", attempt=1, submitted_at=at(0), started_at=at(9000), finished_at=at(9001))
    vm = machine("vm", (0, VmState.BUSY), last=360, prices=[(0, 10.0)], occupancies=[on("c2", 0)])
    measures = measured(world(vm, last=360, runs=[*cold, *warm, retried]))
    start = measures["cold start"]
    assert (start.count, start.median, start.p95, start.worst) == (2, 120 * SECOND, 360 * SECOND, 360 * SECOND)
    assert (start.target, start.met) == ("< 5 min", False)
    assert (measures["warm start"].p95, measures["warm start"].met) == (5 * SECOND, True)
    assert (measures["cold total"].met, measures["warm total"].met) == (False, False)
    assert (measures["cost per task"].count, measures["cost per task"].mean, measures["cost per task"].met) == (
        1,
        1_000_000,
        False,
    )
    assert (measures["cost per task, idle included"].count, measures["cost per task, idle included"].mean) == (
        23,
        43_478,
    )
    assert measures["cost per task, idle included"].met is True


def test_an_idle_shutdown_counts_from_the_last_time_it_was_seen_idle() -> None:
    """Taking a drain back does not begin a new idle time; machines that went for another reason do not count."""
    moves = (
        (0, VmState.IDLE),
        (100, VmState.BUSY),
        (200, VmState.IDLE),
        (500, VmState.DRAINING),
        (510, VmState.IDLE),
        (800, VmState.DRAINING),
        (820, VmState.TERMINATED),
    )
    went = machine("went", *moves, ended=820)
    went.reason = VmReason.IDLE_TIMEOUT
    stopped = machine("stopped", *moves, ended=5000)
    stopped.reason = VmReason.STOPPED_BY_USER
    shutdown = measured(world(went, stopped, last=5000))["idle shutdown"]
    assert (shutdown.count, shutdown.worst, shutdown.met) == (1, 620 * SECOND, True)


def test_nothing_measured_is_nothing_claimed() -> None:
    """No verdict without a value."""
    assert all(
        (measure.count, measure.median, measure.met) == (0, None, None) for measure in measured(world(last=0)).values()
    )
