"""Requests that come at one moment: where names are unique, one name has one active run."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Barrier

import pytest

from steno.engine.errors import NameInUse
from steno.engine.live.journal import Journal
from steno.engine.live.live_world import LiveWorld
from steno.engine.providers.registry import READINGS
from steno.engine.providers.task import Completed
from steno.engine.state.policy import Policy
from steno.engine.state.world import World
from steno.engine.submit.requests import submit
from steno.events.clock import SystemClock
from steno.events.store.record import Record
from steno.events.types import RunRequested

AT_ONCE = 8
FREE = Policy(free=True)


def _requests(path: Path, provider: str, names: list[str]) -> list[str]:
    """Request a run of each name at one moment, each through a record of its own; the run ids, or why not."""
    barrier, clock = Barrier(len(names)), SystemClock()
    Record.open(path, write=True, create=True, shapes=READINGS.shape, clock=clock).close()

    def one(number: int) -> str:
        with Record.open(path, write=True, shapes=READINGS.shape, clock=clock) as record:
            journal, seen = Journal(record, LiveWorld(READINGS, record)), list[int]()

            @contextmanager
            def newest() -> Iterator[tuple[World, Policy, int]]:
                yield journal.state(), FREE, clock.now()
                seen.append(number)
                if len(seen) == 1:
                    barrier.wait()  # each has seen its name free

            task = Completed(name=names[number], configuration={"type": "task", "commands": ["true"]})
            about = {"provider": provider, "project": "here", "submitter": "ada"}
            try:
                return submit(journal, run_id=f"{number:032x}", task=task, newest=newest, **about).run_id  # type: ignore[arg-type]
            except NameInUse as error:
                return str(error)

    with ThreadPoolExecutor(len(names)) as threads:
        return list(threads.map(one, range(len(names))))


def _requested(path: Path) -> list[str]:
    with Record.open(path, shapes=READINGS.shape, clock=SystemClock()) as record:
        return [event.data.run_id for event in record.read() if isinstance(event.data, RunRequested)]


@pytest.mark.parametrize("provider", ["local", "dstack"])
def test_of_requests_of_one_name_at_one_moment_one_is_accepted(tmp_path: Path, provider: str) -> None:
    """The others are refused, and told the run that has the name; nothing of them is in the record."""
    answers = _requests(tmp_path / "record.db", provider, ["train"] * AT_ONCE)
    (winner,) = _requested(tmp_path / "record.db")
    assert answers.count(winner) == 1
    assert all(f"the active run {winner} is named train" in answer for answer in answers if answer != winner)


def test_requests_of_different_names_at_one_moment_are_all_accepted(tmp_path: Path) -> None:
    answers = _requests(tmp_path / "record.db", "local", [f"train-{number}" for number in range(AT_ONCE)])
    assert sorted(answers) == sorted(_requested(tmp_path / "record.db"))


def test_slurm_jobs_may_have_one_name(tmp_path: Path) -> None:
    answers = _requests(tmp_path / "record.db", "slurm", ["train"] * AT_ONCE)
    assert sorted(answers) == sorted(_requested(tmp_path / "record.db"))
