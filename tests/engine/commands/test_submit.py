"""Requests that come at one moment: where names are unique, one name has one active run."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from engine.commands.submit import refuse_taken_name, request_run
from engine.errors import NameInUse
from engine.live.journal import Journal
from engine.live.live_world import LiveWorld
from engine.providers.readings import READINGS
from engine.providers.task import Completed
from events.clock import SystemClock
from events.store.record import Record
from events.types import RunRequested

AT_ONCE = 8


def _requests(path: Path, provider: str, names: list[str]) -> list[str]:
    """Request a run of each name at one moment, each through a record of its own; the run ids, or why not."""
    barrier, clock = Barrier(len(names)), SystemClock()
    Record.open(path, write=True, create=True, shapes=READINGS.shape, clock=clock).close()

    def one(number: int) -> str:
        with Record.open(path, write=True, shapes=READINGS.shape, clock=clock) as record:
            journal, name, first = Journal(record, LiveWorld(READINGS, record)), names[number], True

            def admitted() -> int:
                nonlocal first
                state = journal.state()
                refuse_taken_name(state, provider, "here", name, f"{number:032x}", clock.now())
                if first:
                    first = False
                    barrier.wait()  # each has seen the name free
                return state.position

            task = Completed(name=name, configuration={"type": "task", "commands": ["true"]})
            run_id, about = f"{number:032x}", {"provider": provider, "project": "here", "task": task}
            try:
                return request_run(journal, run_id=run_id, submitter="ada", check=admitted, **about).run_id  # type: ignore[arg-type]
            except NameInUse as error:
                return str(error)

    with ThreadPoolExecutor(len(names)) as threads:
        return list(threads.map(one, range(len(names))))


def _requested(path: Path) -> list[str]:
    with Record.open(path, shapes=READINGS.shape, clock=SystemClock()) as record:
        return [one.data.run_id for one in record.read() if isinstance(one.data, RunRequested)]


@pytest.mark.parametrize("provider", ["local", "dstack"])
def test_of_requests_of_one_name_at_one_moment_one_is_accepted(tmp_path: Path, provider: str) -> None:
    """The others are refused, and told the run that has the name; nothing of them is in the record."""
    answers = _requests(tmp_path / "record.db", provider, ["train"] * AT_ONCE)
    (winner,) = _requested(tmp_path / "record.db")
    assert answers.count(winner) == 1
    assert all(f"the active run {winner} is named train" in one for one in answers if one != winner)


def test_requests_of_different_names_at_one_moment_are_all_accepted(tmp_path: Path) -> None:
    answers = _requests(tmp_path / "record.db", "local", [f"train-{number}" for number in range(AT_ONCE)])
    assert sorted(answers) == sorted(_requested(tmp_path / "record.db"))


def test_slurm_jobs_may_have_one_name(tmp_path: Path) -> None:
    answers = _requests(tmp_path / "record.db", "slurm", ["train"] * AT_ONCE)
    assert sorted(answers) == sorted(_requested(tmp_path / "record.db"))
