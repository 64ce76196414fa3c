"""How long runs and machines were in a state before they left it, and the runs that are in it for much longer."""

from collections.abc import Iterable
from itertools import islice, pairwise
from typing import Final

from steno.engine.money.report import rank
from steno.engine.state.run import Run
from steno.engine.state.states import State
from steno.engine.state.vm import Vm
from steno.engine.state.world import World
from steno.events.clock import SECOND, duration

LEAST: Final = 20  # ended dwells without which nothing is judged
LOOKED_AT: Final = 200  # ended runs or machines, the newest
WAITS: Final = (State.QUEUED, State.PROVISIONING, State.PULLING, State.FINISHING)
_NEWEST: Final = 2_000  # runs among which those of a kind are looked for
_KEPT: Final = 600 * SECOND  # what ends meanwhile hardly moves a percentile
_SHORT: Final = 60 * SECOND  # of quick states 1 run in 20 would be a notice

History = dict[str, list[int]]  # state → lengths of ended dwells in it, microseconds


def history_of(things: Iterable[Run | Vm]) -> History:
    """The dwells that are over, of these."""
    history: History = {}
    for thing in things:
        steps = thing.transitions if isinstance(thing, Run) else thing.steps
        states, moments = [step.after.value for step in steps], [step.at for step in steps]
        for state, (entered, left) in zip(states, pairwise(moments), strict=False):
            history.setdefault(state, []).append(left - entered)
    return history


class Dwells:
    """The runs that are stuck, by the newest runs of the same name, else of the same provider and GPU."""

    def __init__(self) -> None:
        self._made_at = 0
        self._histories: dict[str, History] = {}

    def overdue(self, run: Run, answered: int, state: World, now: int) -> tuple[int, str] | None:
        """(since when, in words) a run is in its state for longer than 95 of 100 of its kind were, by the newest answer
        of its source (`answered`); None: it waits as others do.
        """
        step = run.transitions[-1] if run.transitions else None
        lasts = 0 if step is None else answered - step.at
        if step is None or run.state not in WAITS or run.is_schedule or lasts <= _SHORT:
            return None
        if not 0 <= now - self._made_at < _KEPT:
            self._made_at, self._histories = now, _histories(state)
        for kind in _kinds(run):
            ended = self._histories.get(kind, {}).get(run.state.value, [])
            if len(ended) < LEAST:
                continue
            usual = max(_SHORT, rank(sorted(ended), 95) or 0)
            if lasts <= usual:
                return None
            lasting, most = (duration(round(length / SECOND) * SECOND) for length in (lasts, usual))
            detail = f"{run.state.value} for {lasting}; of {len(ended)} {kind} 95 % took at most {most}"
            return step.at + usual, detail
        return None


def _histories(state: World) -> dict[str, History]:
    alike: dict[str, list[Run]] = {}
    for run in islice(state.runs.newest(), _NEWEST):
        for kind in _kinds(run) if run.terminal and run.archive is None else ():
            alike.setdefault(kind, []).append(run)
    return {kind: history_of(runs[:LOOKED_AT]) for kind, runs in alike.items()}


def _kinds(run: Run) -> tuple[str, ...]:
    """With whom a run is compared, the nearest first."""
    models = "" if run.terms is None else ", ".join(run.terms.gpu)
    return (*(() if run.name is None else (f"runs named {run.name}",)), f"{run.provider} runs on {models or 'no GPU'}")
