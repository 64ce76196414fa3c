"""Schedules hold no place; their firings, which the provider starts, count once they are seen."""

import json

import pytest
from apscheduler.triggers.cron import CronTrigger
from stenotest.bills import world
from stenotest.dstack_history import Item, job, nightly, provider_id, read_run, submission
from stenotest.row_simulation import holds, places
from stenotest.simulation import SOURCE, Simulation, vm_row

from steno.engine.decide.budget import committed, worst_case
from steno.engine.decide.queue import over_limit
from steno.engine.providers.dstack.requirements import read_terms
from steno.engine.state.policy import DAY, HOUR, Policy
from steno.engine.state.states import State
from steno.events.clock import SECOND, count_due, next_due, parse_time

ONE = Policy(max_vms=1, budget_total=None)
CRON = {"cron": "0 3 * * *"}


def shown(stage: Simulation, row: Item) -> None:
    stage.runs(read_run(json.dumps(row).encode()))


def accepted(policy: Policy = ONE) -> Simulation:
    """A schedule of ours that waits at its provider."""
    made = Simulation(policy)
    made.ensured("shared")
    made.request("nightly", schedule=CRON)
    made.settle()
    made.taken("nightly", provider_id("nightly"))
    made.wait(5)
    shown(made, nightly("pending", due=900))
    return made


def fired(made: Simulation, hostname: str | None = None) -> None:
    """Its first firing runs, on a machine if that has an address."""
    made.wait(900)
    at = (made.now - parse_time("2025-12-15T09:00:00Z")) / SECOND
    attempt = submission("running" if hostname else "submitted", submitted=at - 1, hostname=hostname, price=1.99)
    shown(made, nightly("running", job(attempt)))


def test_schedules_wait_for_no_place_and_hold_none() -> None:
    """The limit is reached: three schedules go to their provider all the same, the next run does not."""
    made = Simulation(ONE)
    made.ensured("shared")
    made.request("first")
    for name in ("a", "b", "c"):
        made.request(name, schedule=CRON)
    made.request("second")
    decisions = made.settle()
    assert [place.run_id for place in places(decisions)] == ["run-first", "run-a", "run-b", "run-c"]
    assert holds(decisions) == [("run-second", "cap")]


def test_a_schedule_that_waits_leaves_the_place_to_others() -> None:
    made = accepted()
    made.request("other")
    assert [place.run_id for place in places(made.settle())] == ["run-other"]


def test_a_firing_takes_a_place_once_it_is_seen() -> None:
    """With a machine and before it has one; the machine is ours, so that it is drained and counts."""
    made = accepted()
    fired(made)
    made.request("other")
    assert holds(made.settle()) == [("run-other", "cap")]
    made.machines(vm_row("m1", "busy", hostname="h1", created=made.now))
    fired(made, "h1")
    (vm,) = made.world.state.vms.all()
    firing = made.world.state.runs[vm.runs[0]]
    assert (vm.ours, firing.schedule, firing.state) == (True, "run-nightly", State.RUNNING)


def test_firings_above_the_limit_are_named() -> None:
    """Steno cannot hold them back: it says who starts them."""
    made = accepted()
    assert over_limit(made.world.state, SOURCE, ONE, made.now) is None
    made.request("other")
    made.settle()
    made.taken("other")
    fired(made)
    sentence = over_limit(made.world.state, SOURCE, ONE, made.now)
    assert sentence == (
        "dstack/main is 1 above its machine limit (1, `vms.max`): dstack itself starts what has a schedule (nightly)"
    )


def test_a_firing_without_capacity_is_not_requested_again() -> None:
    """Only its provider starts it."""
    made = accepted()
    made.wait(900)
    lacks = submission("failed", submitted=901, finished=905, reason="failed_to_start_due_to_no_capacity")
    shown(made, nightly("terminating", job(lacks), reason="job_failed"))
    assert made.settle() == ()


def test_the_budget_counts_the_firings_of_thirty_days() -> None:
    """And says so. One begins only after the one before: there are no more than fit one after another."""
    now = parse_time("2025-12-15T09:00:00Z")
    task = {"type": "task", "resources": {"gpu": "MI300X"}, "schedule": CRON, "max_duration": "1h"}
    terms = read_terms(json.dumps(task).encode(), "ada")
    once = worst_case(read_terms(json.dumps({**task, "schedule": None}).encode(), "ada"), Policy(), world(last=0), now)
    thirty = worst_case(terms, Policy(), world(last=0), now)
    assert once.amount is not None
    assert thirty.amount == 30 * once.amount
    assert "× 30 firings in 30 days" in thirty.lines[0]
    often = {**task, "schedule": {"cron": ["*/15 * * * *"]}}
    many = worst_case(read_terms(json.dumps(often).encode(), "ada"), Policy(), world(last=0), now)
    assert f"× {30 * 24 + 1} firings in 30 days" in many.lines[0]


def test_a_schedule_is_committed_to_the_firings_still_to_come() -> None:
    """A firing is not counted as a schedule again."""
    made = accepted(Policy(max_vms=1))
    before = committed(made.world.state, made.policy, made.now)
    fired(made)
    firing = next(run for run in made.world.state.runs.all() if run.schedule is not None)
    assert firing.terms is not None
    alone = worst_case(firing.terms, made.policy, made.world.state, made.now).amount or 0
    assert committed(made.world.state, made.policy, made.now) == before + alone


def test_a_cron_expression_is_due_in_utc() -> None:
    """The days of the week count from Monday, 0: so its parser reads them. What cannot be read is never due."""
    noon = parse_time("2025-12-15T12:00:00Z")  # a Monday
    assert next_due(("0 3 * * *",), noon) == parse_time("2025-12-16T03:00:00Z")
    assert next_due(("0 12 * * 0", "0 3 * * *"), noon) == noon
    assert next_due(("61 3 * * *", "nonsense"), noon) is None
    assert next_due(("0 0 29 2 0",), noon) == parse_time("2044-02-29T00:00:00Z")
    assert count_due(("0 3 * * *",), noon, noon + 30 * DAY, 100) == 30
    assert count_due(("*/15 * * * *",), noon, noon + HOUR, 100) == 4


def test_a_schedule_that_is_never_due_is_not_searched_for_thousands_of_years(monkeypatch: pytest.MonkeyPatch) -> None:
    """A 30 February: the budget counts its firings of each day, and each round asks when it is due. Nor is more counted
    than asked for.
    """
    steps, step = list[int](), CronTrigger._increment_field_value
    monkeypatch.setattr(CronTrigger, "_increment_field_value", lambda *args: steps.append(1) or step(*args))
    noon = parse_time("2025-12-15T12:00:00Z")
    assert next_due(("0 0 30 2 *",), noon + SECOND) is None
    assert count_due(("0 0 30 2 *",), noon, noon + DAY, 100) == 0
    assert count_due(("* * * * *",), noon, noon + 3_000 * DAY, 31) == 31
    assert 0 < len(steps) < 10_000
