"""Runs that were asked for together, of which the first that runs is wanted: the others are stopped. Pure.

A run that is over, or ending, before any was seen to run has not won: only one that truly ran has. Of several that
started between two polls the earliest start wins, then the one asked for first. It is decided in the round that shows
the winner, from the record alone, so a crash at any point changes nothing.
"""

from collections.abc import Iterable, Iterator

from engine.decide.idle_policy import STENO, stop_request
from engine.decide.source_view import Scene
from engine.fold.run import Run
from engine.states import State
from events.types import StopRequested


def losers(scene: Scene) -> Iterator[StopRequested]:
    """The stop of every run that another one of its race has beaten."""
    going = [run for run in scene.live if race_of(run) is not None and run.stop_by is None]
    for race in dict.fromkeys(map(race_of, going)):
        won = winner(run for run in scene.state.runs.values() if race_of(run) == race)
        for run in going:
            if won is not None and race_of(run) == race and run is not won:
                project = run.project or scene.source.partition("/")[2]
                yield stop_request(run, project, by="policy", submitter=STENO)


def race_of(run: Run) -> str | None:
    """The race a run is in."""
    return None if run.terms is None else run.terms.race


def winner(runs: Iterable[Run]) -> Run | None:
    """The run of a race that is wanted; None: none has run yet."""
    ran = [run for run in runs if _ran(run)]
    return min(ran, key=lambda run: (_started(run), run.first_position), default=None)


def _ran(run: Run) -> bool:
    return run.started_at is not None or run.state is State.SUCCEEDED or run.exit_status is not None


def _started(run: Run) -> int:
    """When it was first seen running; of one that ended between two polls, when it ended."""
    return next(at for at in (run.started_at, run.finished_at, run.last_at) if at is not None)
