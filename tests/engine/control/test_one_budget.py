"""A shared budget for the recorders of several sources: the second decision knows the place of the first."""

import pytest

from steno.engine.decide.decisions import decide
from steno.engine.state.policy import HOUR, Policy, Rate
from steno.engine.wire import DOLLAR
from steno.events.clock import SECOND

POLICY = Policy(
    max_vms=5,
    idle_timeout=0,
    assumed_duration=HOUR,
    assumed=(Rate(gpu="", hourly=10 * DOLLAR),),
    budget_total=15 * DOLLAR,
)
"""A run of an hour at most costs 10 dollars: the budget has room for one."""


@pytest.fixture
def here(open_bench, tmp_path):
    return open_bench(tmp_path / "record.db", policy=POLICY, host="here", price=10 * DOLLAR)


@pytest.fixture
def there(open_bench, tmp_path):
    return open_bench(tmp_path / "record.db", policy=POLICY, host="there", price=10 * DOLLAR)


def test_two_sources_that_decide_at_once_never_spend_more_than_there_is(here, there, monkeypatch):
    """While one has decided and not yet appended, the other places a run that its own clock requested earlier, and
    does not count the first run, which has no place yet. The first append is void, and its process decides again.
    """
    second = there.ask("true")
    first = []

    def overtaken(*situation):
        decisions = decide(*situation)
        if not first:
            here.clock.ahead = -60 * SECOND
            first.append(here.ask("sleep 3600"))
            here.controller.round()
        return decisions

    monkeypatch.setattr(there.controller, "_decide", overtaken)
    there.controller.round()
    placed = [stored.data.run_id for stored in there.record.read(types={"RunPlaced"})]
    assert placed == first
    (refused,) = there.facts("IntentAbandoned")
    assert (refused.run_id, refused.policy) == (second, True)
    assert "The budget does not allow this run" in refused.why


def test_a_place_that_costs_nothing_is_not_held_up_by_others(here, there, monkeypatch):
    """Without a budget nobody looks at the places of other sources."""
    for bench in (here, there):
        bench.controller.policy = Policy(max_vms=5, idle_timeout=0, assumed_duration=HOUR)
    run_id = there.ask("true")
    decided = []

    def overtaken(*situation):
        decided.append(decide(*situation))
        if len(decided) == 1:
            here.ask("true")
            here.controller.round()
        return decided[-1]

    monkeypatch.setattr(there.controller, "_decide", overtaken)
    there.controller.round()
    assert len(decided) == 1
    assert run_id in [stored.data.run_id for stored in there.record.read(types={"RunPlaced"})]
