"""What the provider says ended runs cost, looked at once it moves no more: news where it cannot be right."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import msgspec

from engine.fold.change import Anomaly
from engine.fold.run import Run
from engine.fold.world_codec import WorldState
from engine.money.figure import divergences, is_cut, is_settled
from engine.replay.record import fill_costs

if TYPE_CHECKING:
    from events.store.record import Record


class Figures:
    """Runs whose end is news, each until its figure is final."""

    def __init__(self, record: "Record", is_ours: Callable[[int], bool]) -> None:
        """
        Args:
            is_ours: whether the poll at a position was taken by who watches this source.
        """
        self._record = record
        self._is_ours = is_ours
        self._awaited: dict[str, None] = {}

    def forget(self) -> None:
        """Another process may have had its turn."""
        self._awaited.clear()

    def wait_for(self, runs: Iterable[Run]) -> None:
        """Look at the figures of these runs, whose end is news, when they are final."""
        self._awaited.update((run.run_id, None) for run in runs)

    def wrong(self, state: WorldState, since: int) -> tuple[Anomaly, ...]:
        """What is odd about the figures that are final by now; each run is looked at once.

        Args:
            since: ends seen before this are waited for no longer.
        """
        final = []
        for run_id in tuple(self._awaited):
            run = state.runs.get(run_id)
            if run is None or not run.terminal or run.transitions[-1].at < since:
                del self._awaited[run_id]
            elif _is_final(run) and run.cost_at is not None and self._is_ours(run.cost_at):
                del self._awaited[run_id]
                final.append(msgspec.structs.replace(run))  # the fold's own has no figure: it is in the record
        fill_costs(self._record, final)
        return divergences(WorldState(rules=state.rules, runs={run.run_id: run for run in final}))


def _is_final(run: Run) -> bool:
    """Whether nothing can move its figure, and the newest answer counts every submission."""
    return is_settled(run) and not is_cut(run)
