"""How long everything around a run took in the record: its start, the way from its end to an idle machine, and the end
of an idle machine. Durations are microseconds.
"""

from collections.abc import Iterable, Iterator, Mapping
from random import Random
from statistics import fmean
from typing import Final, Literal, NamedTuple

from steno.engine.decide.machine import backstop, timeout_of
from steno.engine.money.prices import in_force
from steno.engine.money.report import idle_moments
from steno.engine.state.policy import MINUTE
from steno.engine.state.run import Run
from steno.engine.state.states import VmReason, VmState
from steno.engine.state.vm import Vm
from steno.engine.state.world import World
from steno.events.clock import SECOND

Lag = Literal["admission", "creation", "cold", "warm", "release", "late", "confirmation", "teardown"]
ASSUMED: Final[Mapping[Lag, int]] = {  # where the record has no example
    "admission": SECOND,  # from the request to the place of a run that did not have to wait
    "creation": 0,  # from its place to the creation of its machine
    "cold": 2 * MINUTE,  # from its place until it ran, on a machine made for it
    "warm": 10 * SECOND,  # … on a machine that was there
    "release": 5 * SECOND,  # from its end until a poll showed its machine idle
    "late": 5 * SECOND,  # from the idle timeout to the drain
    "confirmation": 2 * SECOND,  # from the drain to our stop
    "teardown": 10 * SECOND,  # from the stop to the end of the machine's bill
}


class BlindSpans(NamedTuple):
    """The times in which a source did not answer, in order."""

    gaps: tuple[tuple[int, int], ...] = ()

    def seen(self, since: int, until: int) -> int:
        """How much of a time the source answered."""
        return until - since - sum(max(0, min(until, end) - max(since, begin)) for begin, end in self.gaps)

    def after(self, moment: int) -> int:
        """When something of that moment is seen."""
        return next((end for begin, end in self.gaps if begin < moment < end), moment)


class Lags(NamedTuple):
    """Lag → the run that it was measured on (of a machine, its last) → its length."""

    measured: Mapping[Lag, Mapping[str, int]]

    def of(self, name: Lag, run_id: str, seed: str | None) -> int:
        """The length of a lag. Without a seed as measured on this run, else the mean of all runs; with a seed that of
        any run, the same for the same seed, run and lag, whatever else is drawn.
        """
        known = self.measured[name]
        if not known:
            return ASSUMED[name]
        if seed is not None:
            draw = Random(f"{seed} {name} {run_id}")  # noqa: S311 - not for secrets
            return draw.choice(list(known.values()))
        return known[run_id] if run_id in known else round(fmean(known.values()))


def lags_of(state: World, runs: Iterable[Run], vms: Iterable[Vm], blind: BlindSpans) -> Lags:
    """The lags of these runs and machines; a run that was tried again has none of a start."""
    measured: dict[Lag, dict[str, int]] = {name: {} for name in ASSUMED}
    for run in runs:
        if run.placed is not None and run.requested_at is not None and not (run.retried or run.requeues):
            placed, began = run.placed.at, run.finished_at if run.started_at is None else run.started_at
            if not _waited(run):
                measured["admission"][run.run_id] = placed - run.requested_at
            if run.start == "cold" and run.vm_id is not None:
                measured["creation"][run.run_id] = max(0, state.vms[run.vm_id].created - placed)
            if run.start is not None and began is not None:
                measured[run.start][run.run_id] = max(0, began - placed)
    for vm in vms:
        for name, run_id, length in (*_releases(state, vm, blind), *_endings(state, vm, blind)):
            measured[name][run_id] = max(0, length)
    return Lags(measured)


def _waited(run: Run) -> bool:
    """True if it waited in Steno's queue."""
    return any((step.rule or "").endswith("/held") for step in run.transitions)


def _releases(state: World, vm: Vm, blind: BlindSpans) -> Iterator[tuple[Lag, str, int]]:
    """Up to the place of the next run on it, if that waited for it: the round that shows it idle may decide later."""
    stays = sorted(vm.occupancies, key=lambda stay: stay.since)
    for idle in idle_moments(vm):
        before = [(stay.until, stay.run_id) for stay in stays if stay.until is not None and stay.until <= idle]
        if before:
            ended, run_id = before[-1]
            following = next((state.runs.get(stay.run_id) for stay in stays if stay.since > idle), None)
            place = following.placed if following is not None and _waited(following) else None
            usable = idle if place is None else max(idle, place.at)
            if blind.seen(ended, usable) == usable - ended:
                yield "release", run_id, usable - ended


def _endings(state: World, vm: Vm, blind: BlindSpans) -> Iterator[tuple[Lag, str, int]]:
    """How a machine ended: by our drain, or by its provider's own timer."""
    policy, idle = in_force(state.policies.get(vm.source, ()), vm.finished_at or 0), idle_moments(vm)[-1:]
    if vm.state is not VmState.TERMINATED or vm.finished_at is None or not vm.runs or vm.unseen_end or policy is None:
        return
    last = vm.runs[-1]
    if vm.told is not None:
        yield "teardown", last, vm.finished_at - vm.told.intended_at
        if vm.drain is not None:
            yield "confirmation", last, vm.told.intended_at - vm.drain.at
            if vm.drain.by in ("idle", "create") and idle:
                allowed = timeout_of(state, vm, policy).after or 0
                yield "late", last, blind.seen(idle[0], vm.drain.at) - allowed
    elif vm.reason in (VmReason.IDLE_TIMEOUT, VmReason.RUN_ENDED):
        maker = None if vm.made_for is None else state.runs.get(vm.made_for)
        left = max((stay.until for stay in vm.occupancies if stay.until is not None), default=vm.created)
        if not idle or idle[0] < left:
            idle = [left]
            yield "release", last, 0
        if maker is not None and maker.terms is not None:
            yield "teardown", last, vm.finished_at - idle[0] - max(0, backstop(maker.terms, policy))
