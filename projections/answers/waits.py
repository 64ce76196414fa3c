"""The wait of a run: the runs before it, the machines whose place it waits for, and what they cost meanwhile."""

from collections import Counter
from typing import Final

from steno.engine.decide.start_estimate import StartEstimate
from steno.engine.money.report import user_of
from steno.engine.state.policy import MINUTE
from steno.engine.state.run import Run
from steno.engine.state.world import World, ours_of, source_of
from steno.engine.wire import usd
from steno.events.clock import SECOND, duration, format_second
from steno.projections.answers.paid import paid
from steno.projections.read_models.view import View

_LEAST: Final = MINUTE  # a shorter wait that is over is not explained
_NAMED: Final = 5  # runs or machines in one sentence


def wait_of(view: View, run: Run, now: int, start: StartEstimate | None) -> tuple[str, ...]:
    """In sentences; nothing of a run that started within a minute."""
    state, source = view.state, source_of(run)
    since, until = run.waiting_since, run.started_at or run.finished_at or now
    queue = {} if run.held is None or run.terminal else view.queued(now)
    place = queue.get(run.run_id)
    lines = []
    if place is not None:
        before = [other.run_id for other in queue.values() if other.position < place.position]
        before = [run_id for run_id in before if source_of(state.runs[run_id]) == source]
        behind = f"behind {_several([_name(state, each) for each in before])}" if before else "and none is before it"
        lines.append(f"It is number {place.position} in the queue of {source}, {behind}.")
        at = place.estimated_start
        unknown = "It is not known when it starts: no run has ended here yet, or a run takes longer than usual."
        held_back = {"lever": "somebody", "limit": "a limit of its owner"}.get(place.why)
        unknown = f"It is not known when it starts: {held_back} holds it back." if held_back else unknown
        about = unknown if place.why else "It gets its place at the next look."
        how = "as the lever ends then" if place.why == "lever" else "by usual durations"
        lines.append(about if at is None else f"It gets its place about {format_second(at)}, {how}.")
        if machines := [_held(state, vm.vm_id) for vm in ours_of(state, source) if vm.billed]:
            lines.append(f"These have the places: {_several(machines)}.")
    elif since is None or (run.started_at is None and run.terminal) or (until - since < _LEAST and run.started_at):
        return ()
    if start is not None and (place is None or start.unknown is None):
        lines.append(str(start))
    costs = Counter[str]()
    for vm_id, run_id, who, cost in paid(view, since or until, until):
        if state.vms[vm_id].source == source and run_id != run.run_id:
            nobodys = who[1:-1] if who.startswith("(") else f"kept by {who}"
            costs[f"of runs of {who}" if run_id else nobodys] += cost
    if sum(costs.values()):
        parts = ", ".join(f"{usd(cost)} {who}" for who, cost in costs.most_common() if cost)
        waited = duration((until - (since or until)) // SECOND * SECOND)
        total = usd(sum(costs.values()))
        lines.append(f"While it waited ({waited}), other machines of {source} cost {total}: {parts}.")
    return tuple(lines)


def _held(state: World, vm_id: str) -> str:
    vm = state.vms[vm_id]
    stays = [f"{_name(state, stay.run_id)} since {format_second(stay.since)}" for stay in vm.occupants]
    return f"{vm.facts.name or vm_id[:8]} ({_several(stays) if stays else vm.state.value})"


def _name(state: World, run_id: str) -> str:
    run = state.runs.get(run_id)
    return run_id[:8] if run is None else f"{run.name or run_id[:8]} of {user_of(run)}"


def _several(names: list[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
