"""Law: what is imported beside live polls changes nothing live, and no live poll changes an archive."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from stenotest.apart import apart

from engine.decide.budget import account
from engine.decide.controller import decide
from engine.fold.archives import live_part
from engine.fold.tick import PollReader, Tick
from engine.fold.world import World
from engine.fold.world_codec import WorldState
from engine.money.costs import Costs
from engine.policy import DOLLAR, Policy
from engine.providers.readings import READINGS
from engine.replay.trace import open_trace
from events.poll import Poll

TRACES = Path(__file__).parents[2] / "traces"
NAMES = tuple(f"dstack-0.22.5/{name}" for name in ("several", "unreachable", "warm_reuse", "no_capacity"))
LIVE = "dstack/live"
POLICY = Policy(budget_total=5 * DOLLAR, max_vms=2)


@cache
def polls_of(name: str) -> tuple[Poll, ...]:
    """Some of a recording's polls, in order: every fifth of each endpoint, and its last ones."""
    found = [poll for _, poll in open_trace(TRACES / f"{name}.jsonl.zst") if poll is not None]
    return tuple([poll for number, poll in enumerate(found) if number // 6 % 5 == 0 or number > len(found) - 12])


def ticks(name: str, source: str, positions: list[int], *, imported: bool) -> list[Tick]:
    """The polls of a recording as those of one source."""
    reader = PollReader(READINGS)
    return [
        msgspec.structs.replace(reader.read(position, msgspec.structs.replace(poll, source=source)), imported=imported)
        for position, poll in zip(positions, polls_of(name), strict=False)
    ]


def folded(found: list[Tick]) -> WorldState:
    """The world after these polls, in order of position."""
    world = World(READINGS)
    for tick in sorted(found, key=lambda tick: tick.position):
        world.apply(tick)
    return world.state


def things(state: WorldState, archive: str | None) -> tuple[object, ...]:
    """The runs and machines of one part of a world, with their bills."""
    billed = Costs(state).bills()
    return (
        {run_id: msgspec.to_builtins(run) for run_id, run in state.runs.items() if run.archive == archive},
        {vm_id: (msgspec.to_builtins(vm), billed[vm_id]) for vm_id, vm in state.vms.items() if vm.archive == archive},
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
    assert [one for one in together.blind if one.source == LIVE] == alone.blind
    now = alone.last_at or 0
    assert account(together, POLICY, now) == account(alone, POLICY, now)
    assert decide(together, LIVE, POLICY, now) == decide(alone, LIVE, POLICY, now)
    lazy = apart(together)
    assert decide(lazy, LIVE, POLICY, now) == decide(alone, LIVE, POLICY, now)
    assert live_part(lazy) == live_part(together)
    assert set(live_part(together).unsettled) == set(alone.unsettled)
    assert set(live_part(together).open_vms) == set(alone.open_vms)


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
