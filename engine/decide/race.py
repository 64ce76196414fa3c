"""Runs that were asked for together, of which only the first that runs is wanted: the others are stopped. Pure. A run
that is over, or ending, before any was seen to run has not won: only one that truly ran has. Of several that started
between two polls the earliest start wins, then the earliest request. The round that shows the winner decides, from the
record alone, so a crash at any point changes nothing.
"""

from collections.abc import Iterable, Iterator

from engine.decide.idle_policy import STENO, stop_request
from engine.decide.placement import Plan
from engine.fold.lazy_things import found_by
from engine.fold.run import Run
from engine.states import State
from events.types import StopRequested


def losers(plan: Plan) -> Iterator[StopRequested]:
    """Stops for the runs that lost their race."""
    scene = plan.scene
    going = [run for run in scene.live if race_of(run) is not None and run.stop_by is None]
    races: dict[str, list[Run]] = {race: [] for run in going if (race := race_of(run)) is not None}
    for race, runs in races.items():
        runs += [run for run in found_by(scene.state.runs, race) if race_of(run) == race]
    won = {race: winner(runs) for race, runs in races.items()}
    for run in going:
        first = won[race_of(run) or ""]
        if first is not None and run is not first:
            project = run.project or scene.source.partition("/")[2]
            yield stop_request(run, project, by="policy", submitter=STENO)


def race_of(run: Run) -> str | None:
    return None if run.terms is None else run.terms.race


def winner(runs: Iterable[Run]) -> Run | None:
    """The run of a race that is wanted; None: none has run yet. A loser stays a loser, even if the winner is queued
    again as if it had never run.
    """
    ran = [run for run in runs if _ran(run) and run.stop_by != "policy"]
    return min(ran, key=lambda run: (_started(run), run.first_position), default=None)


def _ran(run: Run) -> bool:
    return run.started_at is not None or run.state is State.SUCCEEDED or run.exit_status is not None


def _started(run: Run) -> int:
    """When it was first seen running; if it ended between two polls, when it ended."""
    return next(at for at in (run.started_at, run.finished_at) if at is not None)
