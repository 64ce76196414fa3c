"""When a run may start: the range holds the share that it says, of starts that it was not made from."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stenotest.row_simulation import RowSimulation

from steno.engine.decide.start_estimate import FEWEST, LEVEL, StartEstimate, hit_rate, start_estimate
from steno.engine.state.policy import HOUR, Policy
from steno.events.clock import SECOND
from steno.events.levers import LeverPulled

COUNT = 200


def _a_machine_cold_or_warm(draw: Random, _: int) -> float:
    return draw.uniform(240, 700) if draw.random() < 0.3 else draw.uniform(4, 12)


def _a_queue(draw: Random, _: int) -> float:
    return draw.lognormvariate(6, 1.5)


def _at_once(draw: Random, _: int) -> float:
    return draw.choice((1, 1, 1, 2))


def _ever_slower(draw: Random, number: int) -> float:
    return draw.uniform(0.8, 1.2) * (60 + number)


@pytest.mark.parametrize(
    ("takes", "least"), [(_a_machine_cold_or_warm, 78), (_a_queue, 78), (_at_once, 78), (_ever_slower, 55)]
)
def test_the_range_holds_its_share_of_starts_it_did_not_know(takes: object, least: int) -> None:
    """20 sites of 200 starts each; runs come while others wait. A site that gets ever slower says a lower rate."""
    assert callable(takes)
    checked = held = 0
    for seed in range(20):
        draw, at, starts = Random(seed), 0, list[tuple[int, int]]()
        for number in range(COUNT):
            at += round(draw.expovariate(1 / 300) * SECOND)
            starts.append((at, round(takes(draw, number) * SECOND)))
        known, right = hit_rate(starts)
        checked, held = checked + known, held + right
    assert checked > 20 * COUNT / 2
    assert least <= 100 * held / checked


@given(st.lists(st.tuples(st.integers(0, 10**4), st.integers(0, 10**3)), max_size=40), st.integers(0, 40))
def test_what_came_later_changes_no_earlier_range(starts: list[tuple[int, int]], count: int) -> None:
    """The rate of the first starts is the same, whether or not more follow."""
    starts.sort()
    every = [hit_rate(starts[:end]) for end in range(len(starts) + 1)]
    assert all(0 <= held <= checked <= max(0, end - FEWEST) for end, (checked, held) in enumerate(every))
    assert every == sorted(every)
    assert hit_rate(starts[:count]) == every[min(count, len(starts))]


def _town(*takes: int) -> RowSimulation:
    """A run of each of these starts, in seconds, an hour after the other."""
    town = RowSimulation(Policy(budget_total=None))
    for number, seconds in enumerate(takes):
        town.stage.request(f"old{number}")
        town.stage.settle()
        town.stage.wait(seconds)
        town.starts(f"old{number}", f"m{number}")
        town.stage.wait(30)
        town.ends(f"old{number}")
        town.stage.wait(HOUR // SECOND)
    return town


def _estimate(town: RowSimulation, name: str) -> StartEstimate | None:
    return start_estimate(town.stage.world.state, town.stage.run(name), town.stage.now)


def _asked(town: RowSimulation, name: str, **task: object) -> StartEstimate:
    town.stage.request(name, **task)
    town.stage.settle()
    estimate = _estimate(town, name)
    assert estimate is not None
    return estimate


def test_a_run_is_estimated_by_those_of_its_kind_until_it_starts() -> None:
    """From the shortest to the longest of ten; of a run that waits, by those that waited longer."""
    town = _town(*range(100, 2000, 100))
    estimate = _asked(town, "a")
    since = town.stage.run("a").waiting_since or 0
    shortest, longest = estimate.low_seconds or 0, estimate.high_seconds or 0
    assert (estimate.samples, estimate.checked, estimate.unknown) == (19, 10, None)
    assert 200 <= shortest < 210
    assert 1800 <= longest < 1810
    assert (estimate.low, estimate.high) == (since + round(shortest * SECOND), since + round(longest * SECOND))
    assert f"{LEVEL} % started 3 m" in str(estimate)
    town.stage.wait(950)
    later = _estimate(town, "a")
    assert later is not None
    assert (later.samples, round(later.low_seconds or 0, -2), round(later.high_seconds or 0, -2)) == (10, 1000, 1900)
    town.stage.wait(400)
    late = _estimate(town, "a")
    assert late is not None
    assert (late.low, late.high) == (None, None)
    assert str(late) == (
        f"When it starts is not known: it needs {FEWEST} runs of dstack/main without a GPU that waited longer than "
        f"22 m 30 s, and this record has 6."
    )
    town.starts("a", "m")
    assert _estimate(town, "a") is None


def test_a_run_that_somebody_holds_back_has_no_range() -> None:
    """Earlier starts say nothing of it; a lever about others changes nothing."""
    town = _town(*range(100, 2000, 100))
    town.stage.tell(LeverPulled(lever_id="l", action="pause", user="bob", why="x", by="eve"))
    assert _asked(town, "a").unknown is None
    town.stage.tell(LeverPulled(lever_id="m", action="pause", until=town.stage.now + HOUR, why="x", by="eve"))
    held = _estimate(town, "a")
    assert held is not None
    assert (held.low, held.high_seconds, held.unknown) == (None, None, "somebody holds it back")
    town.stage.wait(3600)
    assert "somebody" not in str(_estimate(town, "a"))


def test_of_few_starts_or_another_kind_nothing_is_said() -> None:
    """Neither of another GPU, nor of eight."""
    town = _town(*[10] * (FEWEST - 1))
    few, other = _asked(town, "a"), _asked(town, "b", resources={"gpu": "MI300X"})
    assert few.unknown == f"it needs {FEWEST} runs of dstack/main without a GPU, and this record has {FEWEST - 1}"
    assert other.unknown == f"it needs {FEWEST} runs of dstack/main on MI300X:1, and this record has 0"
    assert (few.low, few.high, few.low_seconds, few.checked, few.held) == (None, None, None, 0, 0)
