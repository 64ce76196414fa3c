"""The documents' cost figures, computed: by formula, and by the same bills that real machines get."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stenotest.bills import at, machine, on

from engine.money.bill import bill_vm
from engine.money.prices import Book
from engine.money.projection import (
    Claim,
    ClaimVerdict,
    Inputs,
    break_even,
    cost_of,
    month,
    most_saved,
    project,
    runs_to_save,
    saving,
    time_with_reuse,
    time_without_reuse,
)
from engine.policy import DOLLAR, MINUTE
from engine.states import VmState
from events.clock import SECOND

CLAIMS = {claim.topic: claim for claim in project()}
TIMES = st.integers(0, 20 * MINUTE)
INPUTS = st.builds(
    Inputs,
    hourly=st.integers(0, 50 * DOLLAR),
    provisioning=TIMES,
    run=TIMES,
    idle_timeout=TIMES,
    idle_timeout_configured=TIMES,
)


@pytest.mark.parametrize(
    ("topic", "amount", "verdict"),
    [
        ("cold start", 165_833, ClaimVerdict.PARTLY),
        ("warm start", 5_528, ClaimVerdict.WRONG),
        ("provisioning", 66_333, ClaimVerdict.HOLDS),
        ("idle ceiling", 165_833, ClaimVerdict.HOLDS),
        ("idle ceiling as configured", 331_667, ClaimVerdict.ADDED),
        ("3 runs without reuse", 248_750, ClaimVerdict.HOLDS),
        ("3 runs with reuse", 281_917, ClaimVerdict.HOLDS),
        ("what reuse saves in 3 runs", -33_167, ClaimVerdict.WRONG),
        ("a month of 10 tasks a day", 24_875_000, ClaimVerdict.PARTLY),
        ("a month of 50 tasks a day", 124_375_000, ClaimVerdict.PARTLY),
        ("a month of 200 tasks a day", 497_500_000, ClaimVerdict.PARTLY),
        ("how long the grant lasts at 10 tasks a day", None, ClaimVerdict.WRONG),
        ("how long the grant lasts at 50 tasks a day", None, ClaimVerdict.WRONG),
        ("how long the grant lasts at 200 tasks a day", None, ClaimVerdict.WRONG),
    ],
)
def test_each_figure_of_the_documents_is_computed_and_judged(
    topic: str, amount: int | None, verdict: ClaimVerdict
) -> None:
    """With the documents' own inputs."""
    assert (CLAIMS[topic].amount, CLAIMS[topic].verdict) == (amount, verdict)


@pytest.mark.parametrize(
    ("topic", "result"),
    [
        ("runs from which reuse pays, idle timeout 5m", "4 runs in a row"),
        ("runs from which reuse pays, idle timeout 10m", "7 runs in a row"),
        ("60–80 % saving, gap between runs 0s", "below 80.0 %; 60 % from 14 runs in a row on (idle timeout 5m)"),
        ("60–80 % saving, gap between runs 30s", "below 60.0 %; 60 % never"),
        ("60–80 % saving, gap between runs 2m", "nothing saved; 60 % never"),
        ("a month of 200 tasks a day", "one batch a day $111.44; no reuse $497.50; evenly spread $1432.80"),
    ],
)
def test_what_the_documents_leave_out_is_said(topic: str, result: str) -> None:
    """From how many runs reuse pays, and that gaps eat the saving."""
    assert CLAIMS[topic].result == result


def test_every_claim_that_does_not_hold_says_why() -> None:
    """And has its formula."""
    assert all(claim.formula and claim.said for claim in CLAIMS.values())
    wrong = [claim for claim in CLAIMS.values() if claim.verdict in (ClaimVerdict.WRONG, ClaimVerdict.PARTLY)]
    assert all(claim.why for claim in wrong)


def test_the_worked_example_costs_the_same_on_the_bill_of_a_machine() -> None:
    """Three runs of 30 s on one machine with five minutes of idling: $0.281917, as the formula says."""
    runs = [(120, 150), (150, 180), (180, 210)]
    vm = machine(
        "vm",
        (0, VmState.PROVISIONING),
        (120, VmState.BUSY),
        (210, VmState.IDLE),
        (510, VmState.TERMINATED),
        ended=510,
        occupancies=[on(f"r{number}", *times) for number, times in enumerate(runs)],
        made_for="r0",
    )
    assert bill_vm(vm, until=at(510), book=Book()).cost == CLAIMS["3 runs with reuse"].amount
    alone = machine("vm", (0, VmState.PROVISIONING), (120, VmState.BUSY), (150, VmState.TERMINATED), ended=150)
    assert abs(3 * bill_vm(alone, until=at(150), book=Book()).cost - (CLAIMS["3 runs without reuse"].amount or 0)) <= 1


@given(INPUTS, st.integers(0, 10 * MINUTE))
def test_the_break_even_is_the_first_number_of_runs_that_costs_less(inputs: Inputs, gap: int) -> None:
    """By trying them all."""

    def pays(runs: int) -> bool:
        return time_with_reuse(inputs, runs, gap) < time_without_reuse(inputs, runs)

    least = break_even(inputs, gap)
    if least is None:
        assert not any(pays(runs) for runs in range(1, 60))
    else:
        assert pays(least)
        assert least == 2 or not pays(least - 1)


@given(INPUTS, st.integers(0, MINUTE), st.sampled_from((200, 400, 600, 800)))
def test_the_runs_needed_for_a_saving_reach_it_and_one_fewer_does_not(inputs: Inputs, gap: int, part: int) -> None:
    """Exactly; and no series saves as much as the limit."""

    def enough(runs: int) -> bool:
        without = time_without_reuse(inputs, runs)
        return 1000 * (without - time_with_reuse(inputs, runs, gap)) >= part * without

    least = runs_to_save(inputs, part, gap)
    if least is None:
        assert inputs.provisioning + inputs.run == 0 or not any(enough(runs) for runs in (1, 2, 10, 1000))
        return
    assert enough(least)
    assert least == 1 or not enough(least - 1)
    assert saving(inputs, least, gap) <= most_saved(inputs, gap) + 1


@given(INPUTS, st.lists(st.integers(0, 5_000), max_size=3))
def test_any_inputs_give_a_projection(inputs: Inputs, tasks: list[int]) -> None:
    """Zeros and absurd values included; the three patterns of a month are never negative."""
    given_inputs = Inputs(
        hourly=inputs.hourly,
        provisioning=inputs.provisioning,
        run=inputs.run,
        idle_timeout=inputs.idle_timeout,
        idle_timeout_configured=inputs.idle_timeout_configured,
        tasks_a_day=tuple(tasks),
    )
    assert all(isinstance(claim, Claim) for claim in project(given_inputs))
    assert all(month(given_inputs, count, "evenly spread") >= 0 for count in tasks)
    assert all(month(given_inputs, count, "no reuse") >= 0 for count in tasks)


def test_a_machine_that_never_idles_out_is_never_off() -> None:
    """200 tasks a day leave gaps of 6.7 min: with a timeout of 10 min one machine runs all month, $1,432.80."""
    assert month(Inputs(), 200, "evenly spread") == 30 * 24 * 1_990_000
    assert cost_of(30 * 24 * 3600 * SECOND, 1_990_000) == month(Inputs(), 200, "evenly spread") > Inputs().grant
