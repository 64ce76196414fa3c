"""The cap holds whoever decides: several processes at once, none of them kept out by the lease."""

import os
from contextlib import ExitStack
from pathlib import Path

import pytest
from stenotest import steno_process

from steno.engine.fold.fold import Fold
from steno.engine.fold.poll_reader import PollReader
from steno.engine.providers.registry import READINGS
from steno.engine.state.states import State
from steno.events.clock import SystemClock
from steno.events.store.record import Record

RACE = Path(__file__).with_name("race.py").read_text()


@pytest.mark.slow
def test_processes_that_race_for_the_last_place_never_exceed_the_cap(tmp_path):
    """Each place is appended at the version it was decided on: whoever comes second decides again. No run is lost, none
    runs twice; neither runs that have their place and are not over, nor machines, are ever more than there may be.
    """
    path = tmp_path / "record.db"
    with ExitStack() as started:
        options = {"program": RACE, "env": os.environ, "cwd": tmp_path}
        racers = [started.enter_context(steno_process.Popen((str(path), "4"), **options)) for _ in range(3)]
        for racer in racers:
            started.callback(racer.kill)
        assert [racer.wait(1200) for racer in racers] == [0, 0, 0]
    ran = (tmp_path / "ran.txt").read_text().split()
    assert len(ran) == len(set(ran)) == 12
    placed, world, reader = {}, Fold(READINGS), PollReader(READINGS)
    with Record.open(path, shapes=READINGS.shape, clock=SystemClock()) as record:
        for stored in record.read():
            if stored.type in ("RunObserved", "VmObserved"):
                continue
            if stored.type == "RunPlaced":
                placed[stored.data.run_id] = stored.observed_at
            if stored.type in ("PollRecorded", "PollFailed"):
                world.apply(reader.read(stored.position, record.poll(stored.position)))
            else:
                world.apply_event(stored.position, stored.observed_at, stored.data)
    assert all(run.state is State.SUCCEEDED for run in world.state.runs.all())
    places = [(placed[run.run_id], run.finished_at) for run in world.state.runs.all()]
    lives = [(vm.created, vm.finished_at) for vm in world.state.vms.all()]
    assert most_at_once(places) <= 2
    assert most_at_once(lives) <= 2


def most_at_once(spans):
    return max(sum(since <= moment < until for since, until in spans) for moment, _ in spans)
