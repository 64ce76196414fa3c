"""Samples of devices become events: each sample once, whatever is answered, killed or hanging, and evenly spread."""

import itertools
import tempfile
import threading
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steno.engine.control.sampling import Sampling
from steno.engine.errors import ProviderUnreachable
from steno.engine.live.journal import Journal
from steno.engine.providers.registry import READINGS
from steno.engine.state.run import Run
from steno.engine.state.samples import Sample, unpack
from steno.engine.state.states import State
from steno.engine.state.world import World
from steno.events.clock import SECOND, SystemClock
from steno.events.store.record import Record

START = 1_800_000_000 * SECOND
EVERY = 600 * SECOND


def sample(second, device="0", use=50):
    return Sample(at=START + second * SECOND, device=device, use=use)


class Fleet:
    """A record, a world of running runs, and a provider that has samples of them."""

    def __init__(self, record):
        self.record = record
        self.now = START
        self.state = World(rules="current")
        self.calls = []  # (time, provider's id, since)
        self.answer = lambda _provider_id, _since: ("tool", [])
        self.provider = SimpleNamespace(name="local", project="here", samples=self._samples)
        self.recorder()

    def recorder(self, **more):
        """A recorder begins: it has none of the memory of the one before."""
        clock = SimpleNamespace(now=lambda: self.now)
        self.sampling = Sampling(Journal(self.record), self.provider, clock, **{"every": EVERY, "gap": 0, **more})

    def run(self, name, state=State.RUNNING, **more):
        where = {"first_position": 1, "first_at": START, "last_position": 1, "last_at": self.now}
        about = {"provider": "local", "project": "here", "provider_id": f"id-{name}", "name": name}
        run = self.state.runs[name] = Run(run_id=name, state=state, **{**about, **where, **more})
        if state is State.RUNNING:
            self.state.runs.open_ids[name] = None
        return run

    def end(self, name):
        self.state.runs[name].state = State.SUCCEEDED
        self.state.runs.open_ids.pop(name)

    def look(self, after=0, *, stays=True):
        """Time goes on, and all that is due is asked and recorded; the calls of this look."""
        self.now += after
        before = len(self.calls)
        self.sampling.look(self.state, stays=stays)
        for thread in threading.enumerate():
            if thread.name == "steno-samples":
                thread.join()
        self.sampling.look(self.state, stays=stays)
        return self.calls[before:]

    def events(self):
        return [stored.data for stored in self.record.read(types={"SamplesRecorded"})]

    def recorded(self):
        """(run, device, second) → how often it is recorded."""
        rows = ((event.run_id, row.device, row.at) for event in self.events() for row in unpack(event.block))
        return Counter((run_id, device, (at - START) // SECOND) for run_id, device, at in rows)

    def _samples(self, provider_id, _name, *, since):
        self.calls.append((self.now, provider_id, since))
        return self.answer(provider_id, since)


@contextmanager
def opened():
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "record.db"
        with Record.open(path, write=True, create=True, shapes=READINGS.shape, clock=SystemClock()) as record:
            yield Fleet(record)


@pytest.fixture
def fleet():
    with opened() as made:
        yield made


STEPS = st.lists(st.tuples(st.integers(0, 900), st.integers(0, 600), st.booleans()), min_size=1, max_size=6)


@settings(deadline=None, max_examples=15)
@given(steps=STEPS, lag=st.integers(0, 30))
def test_every_sample_is_recorded_once(steps, lag):
    """Law: what the provider still has when it is asked is recorded once, however far back it answers, and also if the
    recorder is another one each time. An answer without news appends nothing. The second device lags behind the first.
    """
    with opened() as fleet:
        fleet.run("r")
        expected, events = set(), 0
        for ahead, kept, killed in steps:
            if killed:
                fleet.recorder()
            end = (fleet.now - START) // SECOND + ahead + 600
            rows = [sample(second) for second in range(0, end, 10) if second >= end - kept]
            rows += [sample(second, "1") for second in range(0, end - lag, 10) if second >= end - kept]
            fleet.answer = lambda _provider_id, _since, rows=rows: ("tool", rows)
            fleet.look(ahead * SECOND)
            fleet.look(EVERY)
            before, recorded = events, fleet.recorded()
            events = len(fleet.events())
            offered = {("r", row.device, (row.at - START) // SECOND) for row in rows}
            newest = {device: max((at for _, name, at in expected if name == device), default=-1) for device in "01"}
            assert max(recorded.values(), default=0) <= 1
            assert {row for row in offered if row[2] > max(newest.values())} <= recorded.keys()
            assert recorded.keys() <= expected | offered
            assert (events > before) == (recorded.keys() != expected)
            expected = set(recorded)
        assert fleet.record.verify().ok


def test_questions_are_spread_evenly(fleet):
    """In every interval each run is asked about once, at its own moment."""
    names = [f"run-{number}" for number in range(300)]
    for name in names:
        fleet.run(name)
    fleet.look()
    for _ in range(2):
        bursts = [fleet.look(EVERY // 60) for _ in range(60)]
        assert Counter(call[1] for burst in bursts for call in burst) == dict.fromkeys([f"id-{n}" for n in names], 1)
        assert max(map(len, bursts)) < 20


def test_a_failure_is_tried_again_later_and_later(fleet):
    """Without harm to other runs; what was missed comes with the next answer."""
    fleet.run("bad")
    fleet.run("good")

    def answer(provider_id, _since):
        if provider_id == "id-bad":
            raise ProviderUnreachable("no answer", sent=False)
        return "tool", [sample(10)]

    fleet.answer = answer
    fleet.look()
    tries = [call for _ in range(100) for call in fleet.look(30 * SECOND)]
    times = [at for at, provider_id, _ in tries if provider_id == "id-bad"]
    pauses = [(later - earlier) // SECOND for earlier, later in itertools.pairwise(times)]
    assert pauses[:4] == [60, 120, 240, 480]
    assert set(pauses[4:]) == {600}
    assert {event.run_id for event in fleet.events()} == {"good"}
    fleet.answer = lambda *_: ("tool", [sample(10)])
    fleet.look(EVERY)
    assert {event.run_id for event in fleet.events()} == {"good", "bad"}


def test_a_run_that_nobody_measures_is_asked_about_once_an_hour(fleet):
    """A provider without samples has not failed."""
    fleet.run("r")
    fleet.answer = lambda *_: None
    fleet.look()
    assert len([call for _ in range(24) for call in fleet.look(EVERY)]) == 4


def test_an_ended_run_is_asked_about_once_more(fleet):
    """At once, however lately it was asked about."""
    fleet.run("r")
    fleet.look()
    fleet.look(EVERY)
    fleet.end("r")
    assert len(fleet.look(SECOND)) == 1
    assert [call for _ in range(12) for call in fleet.look(EVERY)] == []


@pytest.mark.parametrize(("ago", "stays", "expected"), [(1800, True, True), (7200, True, False), (1800, False, False)])
def test_what_ended_while_nobody_looked_is_asked_about(fleet, ago, stays, expected):
    """If it ended within the hour, and by a recorder that stays: a command does not delay for it."""
    ended = {"first_at": START - 9000 * SECOND, "last_at": START - ago * SECOND}
    fleet.run("r", state=State.SUCCEEDED, **ended)
    assert bool(fleet.look(stays=stays)) == expected


def test_a_question_asks_for_what_is_not_recorded(fleet):
    """By the device that is known least far, after a restart by the record; of a new submission, for all. A time far
    ahead, of a machine with a wrong clock, hides nothing later.
    """
    fleet.run("r")
    fleet.run("waits").state = State.QUEUED
    fleet.run("there", project="there")
    fleet.answer = lambda *_: ("tool", [sample(10), sample(20), sample(10, "1"), sample(10**8)])
    fleet.look()
    assert fleet.look(EVERY) == [(fleet.now, "id-r", 0)]
    fleet.recorder()
    fleet.look()
    assert fleet.look(EVERY) == [(fleet.now, "id-r", START + 10 * SECOND)]
    assert sorted(fleet.recorded()) == [("r", "0", 10), ("r", "0", 20), ("r", "1", 10)]
    fleet.run("r", provider_id="later")
    fleet.look()
    assert fleet.look(EVERY) == [(fleet.now, "later", 0)]


def test_a_provider_that_hangs_holds_up_nobody(fleet):
    """Neither the controller nor the next holder of the lease, and its late answer is dropped."""
    fleet.run("r")
    release = threading.Event()
    fleet.answer = lambda *_: (release.wait(), ("tool", [sample(10)]))[1]
    fleet.sampling.look(fleet.state, stays=True)
    fleet.now += EVERY
    fleet.sampling.look(fleet.state, stays=True)
    fleet.sampling.close()
    release.set()
    fleet.look()
    assert fleet.events() == []
