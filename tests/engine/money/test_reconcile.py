"""Our figure against dstack's own: every difference is a line, and only what cannot be explained is left over."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stenotest.bills import a_run, at, machine, machines, on, world
from stenotest.whole_costs import reconcile

from steno.engine.money.costs import Costs
from steno.engine.money.reconcile import Cause, Reconciliation, divergences
from steno.engine.state.changes import AnomalyKind
from steno.engine.state.facts import AttemptFacts, JobFacts, RunFacts
from steno.engine.state.policy import Policy, Rate
from steno.engine.state.run import Run
from steno.engine.state.states import State, VmState
from steno.engine.state.vm import Vm
from steno.engine.state.world import World

HOURLY = 1_990_000


def theirs(seconds: float, hourly: int = HOURLY) -> int:
    """dstack's own rounding: four decimals."""
    return round(seconds * hourly / 3600 / 100) * 100


def charged(
    run_id: str,
    submissions: Sequence[tuple[float, float | None]],
    cost: int | None,
    *,
    state: State = State.SUCCEEDED,
    price: int = HOURLY,
    first: int = 0,
    last: float = 0,
) -> Run:
    """A run of one job with these submissions, and dstack's figure."""
    attempts = tuple(
        AttemptFacts(
            num=first + number,
            submitted_at=at(since),
            finished_at=None if until is None else at(until),
            hostname="10.0.0.1",
            price=price,
        )
        for number, (since, until) in enumerate(submissions)
    )
    facts = RunFacts(provider_id=run_id, jobs=(JobFacts(attempts=attempts),))
    return a_run(run_id, state, facts=facts, cost=cost, last_at=at(last))


def lines(figures: Reconciliation) -> dict[Cause, int]:
    return {line.cause: line.amount for line in figures.lines}


def of(state: World) -> tuple[Reconciliation, Reconciliation]:
    """(the first run, everything)."""
    runs, everything = reconcile(Costs(state))
    return runs[0], everything


def cold(**more: object) -> Vm:
    """Created 10 s after the submission, busy from 100 to 205 s, terminating from 300, gone at 310."""
    return machine(
        "vm",
        (12, VmState.PROVISIONING),
        (100, VmState.BUSY),
        (205, VmState.IDLE),
        (300, VmState.TERMINATING),
        (310, VmState.TERMINATED),
        created=10,
        ended=310,
        occupancies=[on("r", 0, 200)],
        made_for="r",
        **more,  # type: ignore[arg-type]
    )


def test_a_cold_runs_figures_differ_by_the_queue_and_by_what_the_machine_does_behind_it() -> None:
    """dstack: 200 s from the submission; ours: 195 s of the machine, from its creation on; the rest is its own."""
    state = world(cold(), last=400, runs=[charged("r", [(0, 200)], theirs(200))])
    run, everything = of(state)
    assert (run.ours, run.theirs) == (round(195 * HOURLY / 3600), 110_600)
    assert lines(run) == {Cause.QUEUEING: -5_528, Cause.CLEANING_UP: 2_764, Cause.ROUNDING: -44}
    assert lines(everything) == lines(run) | {Cause.IDLE: 52_514, Cause.TEAR_DOWN: 5_527}
    assert everything.ours == 165_833


def test_a_warm_run_waits_for_the_machine_to_be_busy() -> None:
    """dstack charges from the submission; the machine idles until a poll shows it busy."""
    vm = machine(
        "vm", (0, VmState.IDLE), (60, VmState.BUSY), (90, VmState.IDLE), last=90, occupancies=[on("r", 50, 90)]
    )
    run, _ = of(world(vm, last=90, runs=[charged("r", [(50, 90)], theirs(40))]))
    assert lines(run)[Cause.QUEUEING] == -round(10 * HOURLY / 3600)


def test_a_run_too_short_for_any_poll_is_charged_its_own_time() -> None:
    """No poll showed the machine busy; the run's own times do."""
    vm = machine("vm", (0, VmState.IDLE), last=90, occupancies=[on("r", 50, 51)])
    run, everything = of(world(vm, last=90, runs=[charged("r", [(50, 51)], theirs(1))]))
    assert (run.ours, set(lines(run))) == (553, {Cause.ROUNDING})
    assert sum(line.amount for line in everything.lines) == everything.ours - (everything.theirs or 0)


def test_a_submission_whose_machine_was_never_seen_is_dstacks_alone() -> None:
    """As where the machines were never polled."""
    run, _ = of(world(last=200, runs=[charged("r", [(0, 200)], theirs(200))]))
    assert lines(run) == {Cause.NO_MACHINE: -110_556, Cause.ROUNDING: -44}


def test_an_override_is_a_line() -> None:
    """Twice the recorded price: what both charge for is the same time, at another rate."""
    policies = [(-1, Policy(rates=(Rate(gpu="MI300X", hourly=2 * HOURLY),)))]
    state = world(cold(), last=400, runs=[charged("r", [(0, 200)], theirs(200))], policies=policies)
    run, _ = of(state)
    assert lines(run)[Cause.RATE] == pytest.approx(190 * HOURLY / 3600, abs=1)
    assert lines(run)[Cause.CLEANING_UP] == pytest.approx(5 * 2 * HOURLY / 3600, abs=1)
    assert Cause.PRICE not in lines(run)


def test_a_price_that_changed_is_a_line_because_dstack_charges_all_at_one() -> None:
    """$1.99, from the middle of the run on $3.98."""
    run, _ = of(world(cold(prices=[(10, 1.99), (150, 3.98)]), last=400, runs=[charged("r", [(0, 200)], theirs(200))]))
    assert lines(run)[Cause.PRICE] == pytest.approx(50 * HOURLY / 3600, abs=1)
    assert Cause.RATE not in lines(run)


def test_a_part_of_a_machine_is_a_line() -> None:
    """A run on one of two blocks: dstack's figure is the whole machine's here."""
    vm = machine("vm", (0, VmState.BUSY), last=3600, occupancies=[on("r", 0, 3600)], blocks=2)
    run, everything = of(world(vm, last=3600, runs=[charged("r", [(0, 3600)], HOURLY)]))
    assert lines(run) == {Cause.BLOCKS: -HOURLY // 2}
    assert lines(everything) == {Cause.BLOCKS: -HOURLY // 2, Cause.NOBODY: HOURLY // 2}


def test_a_figure_that_leaves_submissions_out_is_explained_by_the_request() -> None:
    """The answer shows the third submission only, dstack's figure counts all three."""
    run, _ = of(world(cold(), last=400, runs=[charged("r", [(0, 200)], theirs(200) + 50_000, first=2)]))
    assert lines(run)[Cause.LIMITS] == -50_044
    assert run.divergence == 0


@pytest.mark.parametrize(("more", "divergence"), [(5_000, 0), (11_000, -11_044), (-11_000, 10_956)])
def test_what_nothing_explains_diverges_above_a_cent(more: int, divergence: int) -> None:
    """A figure that its own submissions do not give."""
    run, everything = of(world(cold(), last=400, runs=[charged("r", [(0, 200)], theirs(200) + more)]))
    assert run.divergence == everything.divergence == divergence
    assert lines(run)[Cause.UNEXPLAINED] == -more - 44


def test_a_figure_that_its_own_submissions_do_not_give_is_an_anomaly() -> None:
    """Above a cent; not where the answer left submissions out, nor while the run goes on."""
    wrong = charged("wrong", [(0, 200)], theirs(200) + 20_000)
    near = charged("near", [(0, 200)], theirs(200) + 9_000)
    cut = charged("cut", [(0, 200)], theirs(200) + 20_000, first=2)
    going = charged("going", [(0, None)], 90_000, state=State.RUNNING, last=200)
    (anomaly,) = divergences(world(last=400, runs=[wrong, near, cut, going]))
    assert (anomaly.kind, anomaly.subject) == (AnomalyKind.COST_DIVERGENCE, "run/wrong")
    assert anomaly.detail == "dstack says $0.1306, its own submissions give $0.110555"


def test_a_run_that_goes_on_differs_by_the_moment() -> None:
    """dstack's figure is of the newest poll of the run, ours of the newest poll of any source."""
    vm = machine("vm", (0, VmState.BUSY), last=100, occupancies=[on("r", 0)])
    going = charged("r", [(0, None)], theirs(80), state=State.RUNNING, last=90)
    run, _ = of(world(vm, last=100, runs=[going]))
    assert set(lines(run)) <= {Cause.CLEANING_UP, Cause.RUNNING, Cause.ROUNDING}
    assert run.divergence == 0


def test_a_run_dstack_gives_no_figure_of_is_ours_alone() -> None:
    """As with the local provider."""
    run, everything = of(world(cold(), last=400, runs=[charged("r", [(0, 200)], None)]))
    assert (run.theirs, lines(run)) == (None, {Cause.NO_FIGURE: run.ours})
    assert everything.theirs == 0


@given(machines(), st.integers(0, 6_000), st.integers(0, 10**7), st.integers(-100, 5_000), st.integers(0, 2_000))
def test_the_lines_always_sum_to_the_difference(vm: Vm, last: int, cost: int, since: int, length: int) -> None:
    """The lines of each run and of everything sum up, whatever the two figures are."""
    runs = [charged(f"run-{n}", [(since, since + length)], cost) for n in range(2)]
    state = world(vm, last=last, runs=runs)
    by_run, everything = reconcile(Costs(state))
    for figures in (*by_run, everything):
        assert sum(line.amount for line in figures.lines) == figures.ours - (figures.theirs or 0)
        assert all(line.amount for line in figures.lines)
    assert everything.ours == sum(bill.cost for bill in Costs(state).bills().values())
