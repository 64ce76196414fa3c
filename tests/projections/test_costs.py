"""Costs summed from what is kept of every bill are those of the bills, now and at any moment."""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stenotest.dstack_history import START, Item, job, poll_of, provider_id, run_item, submission
from stenotest.histories import History, histories
from stenotest.machines import HOST, MachineHistory, machine_event, machine_histories, machine_item
from stenotest.telling import Telling
from stenotest.whole_costs import cost_report, expect_ranges_to_sum, reconcile

from steno.engine.money.costs import Costs
from steno.engine.money.daily import STACKS, STRIPS
from steno.engine.money.reconcile import Cause
from steno.engine.state.kernel_mark import is_kept
from steno.engine.state.policy import DAY, Billing, Policy, Rate
from steno.engine.wire import wire
from steno.events import types
from steno.events.clock import SECOND, format_time, parse_time
from steno.events.poll import Poll
from steno.events.store.record import Record
from steno.projections.answers.costs import By, ChartRange, costs, run_reconciliations, spend, utilisation
from steno.projections.read_models import projection_writer as keeper
from steno.projections.read_models.past_worlds import opened
from steno.projections.read_models.projector import caught_up
from steno.projections.read_models.store import ProjectionStore
from steno.projections.read_models.view import View

Polls = Callable[[str], tuple[Poll, ...]]
Recorded = Callable[[Path, Sequence[Poll]], Record]
BYS: Final[tuple[By, ...]] = get_args(By)
OURS = "11111111-0000-4000-8000-000000000001"


def summed(store: ProjectionStore, by: By) -> dict[str, Any]:
    """The report from what is kept."""
    stored = costs(store, by)
    assert list(stored.places) == sorted(set(stored.places))
    return wire(stored.report) | {
        "runs": run_reconciliations(store),
        "reconciliation": wire(stored.reconciliation),
    }


def reckoned(store: ProjectionStore, by: By) -> dict[str, Any]:
    """The report from every bill, made for it."""
    state = View(store).whole()
    runs, everything = reconcile(Costs(state))
    assert sum(line.amount for line in everything.lines) == everything.ours - (everything.theirs or 0)
    return wire(cost_report(Costs(state), by)) | {"runs": runs, "reconciliation": wire(everything)}


def compare(store: ProjectionStore) -> None:
    """Both ways, by everything; and every run costs what it costs of all bills."""
    for by in BYS:
        assert summed(store, by) == reckoned(store, by)
    charted(store)
    state = View(store).whole()
    assert {row.run_id: row.cost for row in store.runs.all() if row.cost is not None} == Costs(state).of_runs()


def charted(store: ProjectionStore) -> None:
    """Days and stacks of the charts sum to the bill, to the micro-dollar; machines are busy at most while billed."""
    state = View(store).whole()
    everything = ChartRange(since=0, until=None, now=(state.last_at or START) + 30 * DAY)
    by_day = {row.key: row.total_usd for row in costs(store, "day").report.rows if row.total_usd}
    total = costs(store, "vm").report.total
    for by in STACKS:
        chart = spend(store, by, everything)
        daily = [dollars_of(amount) for amount in chart.daily]
        assert chart.total_usd == sum(daily) == total.total_usd
        assert {day: cost for day, cost in zip(chart.days, daily, strict=True) if cost} == by_day
        for place, cost in enumerate(daily):
            assert sum(dollars_of(series.daily[place]) for series in chart.series) == cost
        if by != "line":
            rows = {row.key: row.total_usd for row in costs(store, by).report.rows}
            assert {series.key: series.total_usd for series in chart.series if series.total_usd} == {
                key: cost for key, cost in rows.items() if cost
            }
    expect_ranges_to_sum(store, everything, [parse_time(f"{day}T12:00:00Z") for day in chart.days])
    bills = [
        bill
        for vm_id, bill in Costs(state).bills().items()
        if not store.vms.get(vm_id).hidden and not is_kept(state.vms[vm_id])
    ]
    lives = sum(bill.until - bill.since for bill in bills) / SECOND
    for by in BYS:
        report = costs(store, by).report
        assert report.total.machine_seconds == lives
        assert sum(row.machine_seconds for row in report.rows) == pytest.approx(lives)
    for strip in STRIPS:
        used = utilisation(store, strip, everything)
        assert used.total.billed_seconds == pytest.approx(lives)
        assert sum(strip.billed_seconds for strip in used.strips) == pytest.approx(used.total.billed_seconds)
        for part in (*used.strips, used.total):
            assert all(0 <= busy <= billed <= DAY // SECOND * len(bills) for billed, busy in part.days)


def dollars_of(text: str) -> int:
    """Micro-dollars of dollars with six decimals."""
    return int(text.replace(".", ""))


@pytest.fixture
def close_moments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Moments every 32 positions, so that a short recording has many."""
    monkeypatch.setattr(keeper, "SPACING", 32)


@pytest.mark.usefixtures("close_moments")
@pytest.mark.parametrize(
    "name",
    [
        "dstack-0.22.5/warm_reuse",
        "dstack-0.22.5/several",
        "dstack-0.22.5/unreachable",
        "dstack-0.22.5/no_capacity",
        "dstack-0.22.5/retry_success",
        "dstack-0.19.37/flap",
    ],
)
def test_costs_of_a_recording_are_those_of_its_bills(
    name: str, tmp_path: Path, recording: Polls, recorded: Recorded
) -> None:
    """While it goes on and at its end, and at moments of its past."""
    polls = recording(name)
    for part in range(4):
        with recorded(tmp_path / "record.db", polls[len(polls) * part // 4 : len(polls) * (part + 1) // 4]) as record:
            with caught_up(record) as store:
                compare(store)
            head = record.head().position
    with recorded(tmp_path / "record.db", []) as record:
        for position in {head // 5, head // 2, head - 1}:
            store = opened(record, position)
            with store:
                compare(store)


POLICIES = [
    Policy(rates=(Rate(gpu="MI300X", hourly=3_210_000),)),
    Policy(billing=(Billing(backend="amddevcloud", granularity=60 * SECOND, minimum=600 * SECOND),)),
    Policy(),
]


@st.composite
def events(draw: st.DrawFn) -> Item:
    """Any status change of the machine, dated at any moment."""
    before, after = draw(st.permutations(("provisioning", "busy", "idle", "terminating")))[:2]
    return machine_event(before, after, draw(st.integers(0, 200)))


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(
    first=histories("a-run"),
    second=histories("b-run"),
    machine=machine_histories(),
    policies=st.dictionaries(st.integers(0, 20), st.sampled_from(POLICIES), max_size=3),
    every=st.integers(1, 7),
    log=st.dictionaries(st.integers(0, 20), st.lists(events(), min_size=1, max_size=4), max_size=4),
)
def test_costs_of_any_history_are_those_of_its_bills(
    first: History,
    second: History,
    machine: MachineHistory,
    policies: dict[int, Policy],
    every: int,
    log: dict[int, list[Item]],
) -> None:
    """Two runs one after another on a machine, at prices that policies change and with times that the provider dates
    late, however often it is caught up and with whatever the keeper had in memory.
    """
    listings = [*((item,) for item in first.items), *((item, first.items[-1]) for item in second.items)]
    with tempfile.TemporaryDirectory() as folder, Telling(Path(folder) / "record.db") as telling:
        for step in range(max(len(listings), len(machine.items))):
            if step in policies:
                telling.adopted(policies[step])
            rows = machine.items[min(step, len(machine.items) - 1) :][:1]
            telling.look(listings[min(step, len(listings) - 1)], rows, log=log.get(step, ()))
            if step % every == 0:
                compare(telling.caught_up(restarted=step % 2 == 0))
        compare(telling.caught_up())


def a_run(name: str, hostname: str | None, submitted: float, finished: float | None, cost: float) -> Item:
    """A run of one job that succeeded."""
    over = finished is not None
    attempt = submission(
        "done" if over else "running",
        exit_status=0 if over else None,
        reason="done_by_runner" if over else None,
        submitted=submitted,
        finished=finished,
        hostname=hostname,
        price=1.99,
    )
    return run_item(name, "done" if over else "running", job(attempt), submitted=submitted, cost=cost)


def test_an_event_that_arrives_late_moves_what_is_kept_of_a_machine_and_its_runs(tmp_path: Path) -> None:
    """An ended run is billed for 39 s. A late event of the provider says that it ran 20 s: the bill changes."""
    run = a_run("a-run", HOST, submitted=1, finished=40, cost=0.0216)
    gone = machine_item(status="terminated", finished=90, reason="idle_timeout")
    with Telling(tmp_path / "record.db") as telling:
        telling.look([], [machine_item(status="idle")], after=1)
        telling.look([run], [gone], after=100)
        (before,) = [row.cost for row in telling.caught_up().runs.all()]
        compare(telling.store)
        telling.look([run], [gone], after=500)
        compare(telling.caught_up())
        log = [machine_event("idle", "busy", 20), machine_event("busy", "idle", 40)]
        telling.look([run], [gone], log=log)
        (after,) = [row.cost for row in telling.caught_up().runs.all()]
        compare(telling.store)
    assert (before, after) == (21_558, 11_055)


def test_a_machine_that_falls_silent_moves_the_causes_of_its_run(tmp_path: Path) -> None:
    """A later charge of dstack is named for it, in stored rows too."""
    run = a_run("a-run", HOST, submitted=1, finished=None, cost=0.0216)
    with Telling(tmp_path / "record.db") as telling:
        for after, silent in ((5, False), (30, True), (30, True)):
            telling.look([run], [machine_item(status="busy", unreachable=silent)], after=after)
            compare(telling.caught_up())
        causes = {line["cause"] for line in summed(telling.store, "vm")["reconciliation"]["lines"]}
    assert Cause.SILENT in causes


def test_a_machine_that_has_cost_nothing_yet_has_its_part_of_the_bounds(tmp_path: Path) -> None:
    """Its price was zero and changed: the days that it was there may cost as much as the whole bill."""
    with Telling(tmp_path / "record.db") as telling:
        for price in (0.0, 0.25):
            telling.look([], [machine_item(status="provisioning", price=price)])
        compare(telling.caught_up())
        assert costs(telling.store, "vm").report.high_usd > costs(telling.store, "vm").report.total.total_usd


def test_a_run_asked_for_again_pays_for_the_machine_it_had_before(tmp_path: Path) -> None:
    """A node of it had a machine when the other found none; both keepers, old and new, know that."""
    with Telling(tmp_path / "record.db") as telling:
        telling.event(
            f"run/{OURS}",
            types.RunRequested(
                run_id=OURS, provider="dstack", project="main", name="ours", configuration=b"{}", submitter="ada"
            ),
        )
        item = a_run("ours", HOST, submitted=1, finished=None, cost=0.01)
        done = types.SubmitSucceeded(run_id=OURS, provider="dstack", provider_id=item["id"], name="ours")
        telling.event(f"run/{OURS}", done)
        telling.look([item], [machine_item(status="busy", created=2)])
        telling.look([item], [machine_item(status="busy", created=2)])
        compare(telling.caught_up())
        again = types.RunRequeued(
            run_id=OURS, provider="dstack", provider_id=item["id"], attempt=2, gpu=None, not_before=0
        )
        telling.event(f"run/{OURS}", again)
        telling.look([], [machine_item(status="idle", created=2)])
        telling.look([], [machine_item(status="terminated", created=2, finished=25)])
        compare(telling.caught_up())
        for restarted in (False, True):
            telling.event(f"run/{OURS}", types.RunPlaced(run_id=OURS, provider="dstack"))
            compare(telling.caught_up(restarted=restarted))
        (row,) = telling.store.runs.all()
        assert row.cost
        assert row.cost == Costs(View(telling.store).whole()).of_run(OURS)


def test_a_policy_moves_the_bill_of_a_machine_that_had_gone_when_it_came_into_force(tmp_path: Path) -> None:
    """The provider's clock is ahead of ours: the machine rests, and its last seconds are dearer all the same."""
    ahead = machine_item(status="terminated", finished=500)
    with Telling(tmp_path / "record.db") as telling:
        telling.look([], [machine_item(status="idle")])
        telling.look([], [ahead])
        telling.look([], [ahead])
        compare(telling.caught_up())
        before = summed(telling.store, "vm")["total"]["total_usd"]
        telling.adopted(Policy(rates=(Rate(gpu="MI300X", hourly=90_000_000),)))
        compare(telling.caught_up())
        assert summed(telling.store, "vm")["total"]["total_usd"] > before


LISTENER = "kernels-mi300x-0123456789ab"


def heard(telling: Telling, state: str, *kernels: tuple[str, float | None, float | None]) -> None:
    """A report of the listener: its machine's state, and (kernel, when it started, when it ended) in seconds."""
    moments = {"t": format_time(START + round(telling.story.now * SECOND)), "ep": "kernels", "status": 200, "ms": 1}
    machine = {
        "id": OURS, "name": LISTENER, "project": "main", "gpu": "MI300X", "slot": "s", "state": state, "created": START,
    }  # fmt: skip
    rows = [
        {
            "id": f"{name}.{OURS}", "run": name, "name": name, "project": "main", "machine": LISTENER,
            "state": "queued" if since is None else "running" if until is None else "ended",
            "code": None if until is None else 0, "submitted_at": START,
            "started_at": None if since is None else START + round(since * SECOND),
            "ended_at": None if until is None else START + round(until * SECOND),
        }
        for name, since, until in kernels
    ]  # fmt: skip
    for path, body in (("/kernels/machines", [machine]), ("/kernels/tasks", rows)):
        telling.record.append_polls([poll_of({**moments, "path": path, "req": {"project": "main"}, "body": body})])


def test_a_kernel_pays_its_time_on_the_machine_that_a_listener_keeps(tmp_path: Path) -> None:
    """Two kernels, known late or early: the stored costs are those of the bills at every step, and the listener's
    machine is not counted beside it.
    """
    with Telling(tmp_path / "record.db") as telling:
        listener = {"run_id": OURS, "provider": "dstack", "name": LISTENER}
        request = types.RunRequested(**listener, project="main", configuration=b'{"type":"task"}', submitter="ada")
        telling.event(f"run/{OURS}", request)
        telling.event(f"run/{OURS}", types.SubmitSucceeded(**listener, provider_id=provider_id(LISTENER)))
        run, row = a_run(LISTENER, HOST, 0, None, 0), machine_item("vm", "busy", hostname=HOST, created=0)
        telling.look([run], [row])
        over = ("a", 6, 11)
        for kernels in ([("a", None, None)], [("a", 6, None)], [over, ("b", 12, None)], [over, ("b", 12, 13)]):
            heard(telling, "busy", *kernels)  # type: ignore[arg-type]
            compare(telling.caught_up())
            telling.look([run], [row])
            compare(telling.caught_up(restarted=True))
        telling.look([a_run(LISTENER, HOST, 0, 30, 0)], [machine_item("vm", "idle", hostname=HOST, created=0)])
        store = telling.caught_up()
        compare(store)
        paid = {row.name: row.cost for row in store.runs.all()}
        assert paid == pytest.approx({LISTENER: 0, "a": 5 * 1.99e6 / 3600, "b": 1.99e6 / 3600}, abs=1)
        assert [row.label for row in costs(store, "vm").report.rows] == ["vm"]
        assert sum(store.runs.start_counts().values()) == 2
