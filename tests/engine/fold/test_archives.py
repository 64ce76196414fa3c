"""Law: what is imported beside live polls changes nothing live, and no live poll changes an archive."""

from functools import cache
from pathlib import Path

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from stenotest.segmented_world import apart

from steno.engine.decide.budget import account
from steno.engine.decide.decisions import decide
from steno.engine.fold.fold import Fold
from steno.engine.fold.poll_reader import PollReader
from steno.engine.money.costs import Costs
from steno.engine.providers.registry import READINGS
from steno.engine.replay.replay import open_trace
from steno.engine.state.archives import live_part
from steno.engine.state.case_log import cases_seen
from steno.engine.state.policy import Policy
from steno.engine.state.reading import Tick
from steno.engine.state.world import World
from steno.engine.wire import DOLLAR
from steno.events.poll import Poll

TRACES = Path(__file__).parents[2] / "traces"
NAMES = tuple(f"dstack-0.22.5/{name}" for name in ("several", "unreachable", "warm_reuse", "no_capacity"))
LIVE = "dstack/live"
POLICY = Policy(budget_total=5 * DOLLAR, max_vms=2)


@cache
def polls_of(name: str) -> tuple[Poll, ...]:
    """Some of a recording's polls, in order: every fifth of each endpoint, and its last polls."""
    polls = [poll for _, poll in open_trace(TRACES / f"{name}.jsonl.zst") if poll is not None]
    return tuple([poll for number, poll in enumerate(polls) if number // 6 % 5 == 0 or number > len(polls) - 12])


def ticks(name: str, source: str, positions: list[int], *, imported: bool) -> list[Tick]:
    """The polls of a recording as those of one source."""
    reader = PollReader(READINGS)
    return [
        msgspec.structs.replace(reader.read(position, msgspec.structs.replace(poll, source=source)), imported=imported)
        for position, poll in zip(positions, polls_of(name), strict=False)
    ]


def folded(polls: list[Tick]) -> World:
    """The world after these polls, in order of position."""
    world = Fold(READINGS)
    for tick in sorted(polls, key=lambda tick: tick.position):
        world.apply(tick)
    return world.state


def things(state: World, archive: str | None) -> tuple[object, ...]:
    """The runs and machines of one part of a world, with their bills; a case by what it is, not by its number."""
    billed, cases = Costs(state).bills(), {number: case for case, number in state.cases.items()}
    return (
        {
            run.run_id: msgspec.to_builtins(run)
            | {"cases": [(position, cases[number]) for position, number in cases_seen(run.cases)]}
            for run in state.runs.all()
            if run.archive == archive
        },
        {vm.vm_id: (msgspec.to_builtins(vm), billed[vm.vm_id]) for vm in state.vms.all() if vm.archive == archive},
    )


@settings(max_examples=25, deadline=None)
@given(live=st.sampled_from(NAMES), other=st.sampled_from(NAMES), places=st.lists(st.integers(0, 400), max_size=400))
def test_imports_between_live_polls_change_nothing_live(live: str, other: str, places: list[int]) -> None:
    """Same runs, machines, bills, clock, budget and decisions; also where the trace shows the same things."""
    of_live = ticks(live, LIVE, [2 * number for number in range(1, 1000)], imported=False)
    archive = ticks(other, "dstack/archive", [2 * place + 1 for place in sorted(set(places))], imported=True)
    alone, together = folded(of_live), folded([*of_live, *archive])
    assert things(together, None) == things(alone, None)
    assert together.last_at == alone.last_at
    assert together.sources[LIVE] == alone.sources[LIVE]
    assert [gap for gap in together.blind if gap.source == LIVE] == alone.blind
    now = alone.last_at or 0
    assert account(together, POLICY, now) == account(alone, POLICY, now)
    assert decide(together, LIVE, POLICY, now) == decide(alone, LIVE, POLICY, now)
    lazy = apart(together)
    assert decide(lazy, LIVE, POLICY, now) == decide(alone, LIVE, POLICY, now)
    assert live_part(lazy) == live_part(together)
    assert set(live_part(together).runs.open_ids) == set(alone.runs.open_ids)
    assert set(live_part(together).vms.open_ids) == set(alone.vms.open_ids)


@settings(max_examples=25, deadline=None)
@given(live=st.sampled_from(NAMES), other=st.sampled_from(NAMES), places=st.lists(st.integers(0, 400), max_size=400))
def test_live_polls_between_imports_change_no_archive(live: str, other: str, places: list[int]) -> None:
    """An archive is folded as if alone, unless a live poll shows the same run or machine, which is then live."""
    if live == other:
        return
    of_archive = ticks(other, "dstack/archive", [2 * number for number in range(1, 1000)], imported=True)
    between = ticks(live, LIVE, [2 * place + 1 for place in sorted(set(places))], imported=False)
    alone, together = folded(of_archive), folded([*of_archive, *between])
    assert things(together, "dstack/archive") == things(alone, "dstack/archive")
