"""A demand that was run under six policies on a genuine dstack server (`tests/lab/test_whatif.py` makes it again): five
are predicted from the sixth, and every history from itself.
"""

from functools import cache
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from stenotest.history_file import world_of_history
from stenotest.policies import HISTORIES, POLICIES, RECORDED, question, truth, whole

from steno.engine.errors import Conflict, NothingRecorded
from steno.engine.money.costs import Costs
from steno.engine.state.world import World
from steno.engine.whatif.demand import Demand, demand_of, outcome_of, quiet_before
from steno.engine.whatif.lags import ASSUMED, BlindSpans, Lags
from steno.engine.whatif.simulator import Scenario, simulate
from steno.events.clock import SECOND
from steno.projections.answers.whatif import WhatIf, WhatIfQuestion, what_if

OTHERS: Final = [name for name in POLICIES if name != RECORDED]
EVER: Final = 1 << 60


@cache
def world(name: str) -> World:
    return world_of_history(HISTORIES / f"{name}.jsonl.zst")


@cache
def predicted(name: str) -> WhatIf:
    return what_if(world(RECORDED), question(name))


@cache
def demand(name: str = RECORDED) -> Demand:
    return whole(world(name))


@pytest.mark.parametrize("name", POLICIES)
def test_the_recorded_policy_is_predicted_within_one_percent(name: str) -> None:
    """The bill of each history, from itself."""
    assert abs(simulate(demand(name), Scenario()).bill / demand(name).outcome.bill - 1) < 0.01


@pytest.mark.parametrize("name", OTHERS)
def test_the_bounds_of_another_policy_contain_what_it_really_cost(name: str) -> None:
    (prediction,), happened = predicted(name).predictions, truth(world(name), demand())
    assert prediction.low.bill_usd <= happened.bill <= prediction.high.bill_usd


def test_each_answer_shows_the_error_of_the_validation() -> None:
    """The same, whatever is asked."""
    errors = {predicted(name).error for name in OTHERS}
    assert len(errors) == 1
    assert abs(errors.pop()) < 0.01


def test_equal_seeds_give_equal_answers_and_another_seed_other_bounds() -> None:
    again, other = (what_if(world(RECORDED), question("pool")._replace(seed=seed)) for seed in (1, 2))
    assert again == predicted("pool")
    assert other.predictions[0].best == again.predictions[0].best
    assert other.predictions[0].high != again.predictions[0].high


def test_a_price_changes_the_bill_alone() -> None:
    """In proportion, to the rounding of each machine's parts."""
    plain = simulate(demand(), Scenario())
    price = demand().work[0].made.price
    assert price is not None
    dear = simulate(demand(), Scenario(price=3 * price))
    assert dear.bill == pytest.approx(3 * plain.bill, abs=10 * plain.cold)
    assert dear._replace(bill=0, low=0, high=0) == plain._replace(bill=0, low=0, high=0)


def test_a_run_that_needs_more_machines_than_allowed_is_refused() -> None:
    """It takes no place: the others run as without it."""
    wide, *others = demand().work
    wide = wide._replace(terms=replace(wide.terms, nodes=3))
    two = Scenario((("max_vms", 2),))
    outcome = simulate(demand()._replace(work=(wide, *others)), two)
    assert outcome == simulate(demand()._replace(work=tuple(others)), two)._replace(refused=1)


def test_a_run_of_several_nodes_has_a_machine_for_each() -> None:
    wide = demand().work[0]._replace(terms=replace(demand().work[0].terms, nodes=3))
    alone = simulate(demand()._replace(work=(wide,)), Scenario((("max_vms", 3), ("idle_timeout", 0))))
    single = simulate(demand()._replace(work=demand().work[:1]), Scenario((("idle_timeout", 0),)))
    assert alone.bill == pytest.approx(3 * single.bill, rel=0.001)


def test_a_source_without_answers_ends_no_machine() -> None:
    """A gap in which nobody looked counts for no timeout: its machines idle on, if their provider does not end them."""
    last = max(stay.until or 0 for vm in world(RECORDED).vms.all() for stay in vm.occupancies)
    patient = Scenario((("idle_timeout", 40 * SECOND),))
    before, after = (
        simulate(demand()._replace(until=EVER, blind=blind), patient)
        for blind in (BlindSpans(), BlindSpans(((last + 5 * SECOND, last + 25 * SECOND),)))
    )
    assert after.bill > before.bill
    assert after.waits == before.waits


def test_a_run_that_still_waits_at_the_end_has_waited_until_then() -> None:
    """A policy under which runs never start does not look quick."""
    stuck = demand().work[0]._replace(terms=replace(demand().work[0].terms, creation="reuse"))
    outcome = simulate(demand()._replace(work=(stuck,)), Scenario())
    assert outcome.waits == (demand().until - stuck.requested_at,)
    assert (outcome.bill, outcome.cold) == (0, 0)


GAPS = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 90)), max_size=3)
POLICY = st.fixed_dictionaries(
    {
        "mode": st.sampled_from(["provider", "pool"]),
        "max_vms": st.sampled_from([1, 2, 3, None]),
        "idle_timeout": st.sampled_from([0, SECOND, 20 * SECOND, 90 * SECOND]),
        "share": st.sampled_from(["any", "user"]),
    }
)


@settings(max_examples=15)
@given(POLICY, GAPS, st.integers(1, 2), st.sampled_from(["create", "reuse-or-create"]), st.none() | st.text(max_size=2))
def test_each_run_gets_its_machines_under_any_policy(
    policy: dict[str, Any], gaps: list[tuple[int, int]], nodes: int, creation: Any, seed: str | None
) -> None:
    """Whenever the source did not answer: each runs or is refused, and its machines cost at least its own time."""
    begins, blind = demand().work[0].requested_at, list[tuple[int, int]]()
    for pause, length in gaps:
        begins += pause * SECOND
        blind.append((begins, begins + length * SECOND))
        begins += length * SECOND
    work = tuple(each._replace(terms=replace(each.terms, nodes=nodes, creation=creation)) for each in demand().work)
    whole = demand()._replace(work=work, until=begins + 3600 * SECOND, blind=BlindSpans(tuple(blind)))
    outcome = simulate(whole, Scenario(tuple(policy.items())), seed)
    if policy["max_vms"] is not None and policy["max_vms"] < nodes:
        assert (outcome.refused, outcome.bill) == (len(work), 0)
        return
    price = work[0].made.price or 0
    assert outcome.refused == 0
    assert outcome.bill >= nodes * sum(each.lasts or 0 for each in work) * price // (3600 * SECOND) - len(work)


@given(st.floats(0, 1))
def test_two_windows_cost_what_the_whole_costs(part: float) -> None:
    """To the micro-dollar, wherever they meet."""
    state, whole = world(RECORDED), demand()
    first = min(vm.created for vm in state.vms.all())
    middle = first + round((whole.until - first) * part)
    bills = [
        outcome_of(Costs(state), state.vms.all(), state.runs.all(), since, until).bill
        for since, until in ((first, middle), (middle, whole.until), (first, whole.until))
    ]
    assert bills[0] + bills[1] == bills[2]


def test_a_window_begins_when_nothing_was_there() -> None:
    """Machines that are up at its beginning are simulated from their own beginning."""
    runs = demand().work
    later = demand_of(world(RECORDED), None, runs[2].requested_at, demand().until)
    assert later.begins <= runs[0].requested_at
    assert later.work == runs
    assert simulate(later, Scenario()).bill == pytest.approx(later.outcome.bill, rel=0.01)


def test_a_busy_month_has_one_quiet_moment_before_it() -> None:
    """Lives that overlap in a long chain; those that end in a gap before it do not count."""
    chain = [(100 + number * 10, 115 + number * 10) for number in range(5_000)]
    assert quiet_before(50_095, [(0, 99), *chain]) == 100
    assert quiet_before(50_095, [(0, None), *chain]) == 0
    assert quiet_before(50, chain) == 50


def test_of_a_sweep_the_cheapest_is_named_that_keeps_the_wait() -> None:
    """Longer timeouts cost more here and make no run wait longer; with a limit that no policy keeps, none is named."""
    values = (SECOND, 20 * SECOND, 600 * SECOND)
    swept_question = WhatIfQuestion(sweep=("idle-timeout", values), keep_p95=3600 * SECOND)
    swept = what_if(world(RECORDED), swept_question)
    bills = [each.best.bill_usd for each in swept.predictions]
    assert [each.policy for each in swept.predictions] == ["idle-timeout=1s", "idle-timeout=20s", "idle-timeout=10m"]
    assert bills == sorted(bills)
    assert swept.cheapest == "idle-timeout=1s"
    single = swept_question._replace(sweep=("idle-timeout", values[:1]))
    assert what_if(world(RECORDED), single._replace(keep_p95=1)).cheapest is None
    assert what_if(world(RECORDED), single._replace(keep_p95=None)).cheapest is None


# -- nothing to begin with --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", [None, "dstack/main"])
def test_a_window_without_events_is_one_clear_line(source: str | None) -> None:
    state = world(RECORDED)
    with pytest.raises(NothingRecorded, match=r"between 1970-01-01T00:00:00Z and 1970-01-01T00:00:01Z|No source"):
        what_if(state, WhatIfQuestion(source=source, since=0, until=SECOND))


def test_a_policy_that_was_never_recorded_is_one_clear_line() -> None:
    state = replace(world(RECORDED), policies={})
    with pytest.raises(NothingRecorded, match=r"No policy of dstack/.* is recorded"):
        what_if(state, WhatIfQuestion())


def test_free_machines_have_no_bill_to_predict() -> None:
    state, source = world(RECORDED), demand().source
    steps = tuple(replace(step, policy=replace(step.policy, free=True)) for step in state.policies[source])
    with pytest.raises(NothingRecorded, match="cost nothing"):
        what_if(replace(state, policies={source: steps}), WhatIfQuestion())


def test_more_runs_than_allowed_are_refused_before_anything_is_simulated() -> None:
    with pytest.raises(Conflict, match="are too many here"):
        what_if(world(RECORDED), WhatIfQuestion(most=1))


# -- lags -------------------------------------------------------------------------------------------------------------


@given(st.dictionaries(st.text(), st.integers(0, 10**9)), st.text(), st.none() | st.text())
def test_a_lag_is_its_own_the_mean_or_a_draw(known: dict[str, int], run_id: str, seed: str | None) -> None:
    """A lag that no run shows is assumed."""
    length = Lags({**{name: {} for name in ASSUMED}, "warm": known}).of("warm", run_id, seed)
    if not known:
        assert length == ASSUMED["warm"]
    elif seed is not None:
        assert length in known.values()
    else:
        assert length == known.get(run_id, round(sum(known.values()) / len(known)))


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50))), st.integers(0, 60), st.integers(0, 60))
def test_seen_time_is_the_rest_of_blind_time(gaps: list[tuple[int, int]], since: int, until: int) -> None:
    """Counted moment by moment."""
    apart, end = [], 0
    for pause, length in gaps:
        apart.append((end + pause, end + pause + length))
        end += pause + length
    blind = BlindSpans(tuple(apart))
    seen = [moment for moment in range(since, max(since, until)) if not any(a <= moment < b for a, b in apart)]
    assert blind.seen(since, max(since, until)) == len(seen)
    assert blind.after(since) >= since
