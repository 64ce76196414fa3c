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
from stenotest.gated_run import holding
from stenotest.inline_executor import InlineExecutor

from steno.engine.control.controller import Controller
from steno.engine.control.sampling import Sampling
from steno.engine.errors import ProviderUnreachable
from steno.engine.live.journal import Journal
from steno.engine.live.live_world import LiveWorld
from steno.engine.providers.registry import READINGS
from steno.engine.state.run import Run
from steno.engine.state.samples import Sample, unpack
from steno.engine.state.states import State
from steno.engine.state.world import World
from steno.events.clock import SECOND, SystemClock
from steno.events.store.record import Record

START = 1_800_000_000 * SECOND
EVERY = 600 * SECOND
HOUR = 3600 * SECOND


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


def test_a_question_asks_for_what_is_not_recorded(fleet):
    """By the device that is known least far; and after a restart, by the record."""
    fleet.run("r")
    fleet.answer = lambda *_: ("tool", [sample(10), sample(20), sample(10, "1")])
    fleet.look()
    ((_, _, since),) = fleet.look(EVERY)
    assert since == 0
    fleet.recorder()
    fleet.look()
    ((_, _, since),) = fleet.look(EVERY)
    assert since == START + 10 * SECOND
    assert len(fleet.events()) == 1
    assert fleet.events()[0].source == "tool"


def test_samples_of_an_earlier_submission_do_not_count(fleet):
    """A run that was submitted again has another id at its provider, and other samples."""
    fleet.run("r")
    fleet.answer = lambda *_: ("tool", [sample(900)])
    fleet.look()
    fleet.look(EVERY)
    fleet.run("r", provider_id="later")
    fleet.look()
    assert {(provider_id, since) for _, provider_id, since in fleet.look(EVERY)} == {("later", 0)}


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


def test_two_questions_keep_their_distance(fleet):
    """Also where all runs are due at once: at most two a second."""
    times, clock = [], SystemClock()
    for number in range(4):
        fleet.run(str(number))

    def answer(_provider_id, _since):
        times.append(clock.now())
        return "tool", []

    fleet.answer = answer
    fleet.recorder(gap=SECOND // 10)
    fleet.look()
    fleet.look(EVERY)
    assert len(times) == 4
    assert all(later - earlier >= SECOND // 10 for earlier, later in itertools.pairwise(times))


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


def test_an_ended_run_that_cannot_be_read_is_given_up_after_an_hour(fleet):
    """The samples that the provider forgot meanwhile cannot be had."""
    fleet.run("r")
    fleet.look()
    fleet.end("r")
    fleet.answer = lambda *_: ("tool", 1 // 0)
    tries = [at for _ in range(300) for at, *_ in fleet.look(60 * SECOND)]
    assert 5 < len(tries) < 12
    assert tries[-1] - tries[0] <= HOUR + EVERY


@pytest.mark.parametrize(("ago", "stays", "expected"), [(1800, True, True), (7200, True, False), (1800, False, False)])
def test_what_ended_while_nobody_looked_is_asked_about(fleet, ago, stays, expected):
    """If it ended within the hour, and by a recorder that stays: a command does not delay for it."""
    ended = {"first_at": START - 9000 * SECOND, "last_at": START - ago * SECOND}
    fleet.run("r", state=State.SUCCEEDED, **ended)
    assert bool(fleet.look(stays=stays)) == expected


@pytest.mark.parametrize(
    "other",
    [{"provider": "slurm"}, {"project": "there"}, {"archive": "old"}, {"provider_id": None}],
    ids=lambda other: next(iter(other)),
)
def test_only_what_runs_here_is_asked_about(fleet, other):
    """Not what belongs to others, is a copy, waits, or is not submitted yet."""
    fleet.run("r", **other)
    fleet.run("waits").state = State.QUEUED
    fleet.look()
    assert fleet.look(EVERY) == []


def test_a_time_far_ahead_hides_nothing(fleet):
    """A machine with a wrong clock: what it says later is recorded."""
    fleet.run("r")
    fleet.answer = lambda *_: ("tool", [sample(10), sample(10**8)])
    fleet.look()
    fleet.look(EVERY)
    fleet.answer = lambda *_: ("tool", [sample(20)])
    fleet.look(EVERY)
    assert fleet.recorded() == {("r", "0", 10): 1, ("r", "0", 20): 1}


def test_a_provider_that_hangs_holds_up_nobody(fleet):
    """Neither the controller nor the next holder of the lease, and its late answer is dropped."""
    fleet.run("r")
    reached, release = threading.Event(), threading.Event()

    def hangs(_provider_id, _since):
        reached.set()
        release.wait()
        return "tool", [sample(10)]

    fleet.answer = hangs
    fleet.sampling.look(fleet.state, stays=True)
    fleet.now += EVERY
    fleet.sampling.look(fleet.state, stays=True)
    assert reached.wait(60)
    fleet.sampling.close()
    fleet.answer = lambda *_: ("tool", [sample(20)])
    fleet.sampling.look(fleet.state, stays=True)
    fleet.now += EVERY
    fleet.sampling.look(fleet.state, stays=True)
    release.set()
    fleet.look()
    assert fleet.recorded() == {("r", "0", 20): 1}


def test_switched_off_it_asks_nothing(fleet):
    """`samples.every = 0`."""
    fleet.run("r")
    fleet.recorder(every=0)
    fleet.look()
    assert fleet.look(EVERY) == []


def test_a_controller_records_samples_and_they_move_nothing(bench, monkeypatch, gate):
    """The run is as it would be without: same states, same polls; and a replay of the record is the same world."""
    measured = Sample(at=bench.clock.now(), device="0", use=50)
    monkeypatch.setattr(bench.provider, "samples", lambda *_, **__: ("tool", [measured]))
    bench.controller = Controller(
        live=LiveWorld(READINGS, bench.record),
        provider=bench.provider,
        clock=bench.clock,
        policy=bench.policy,
        executor=InlineExecutor(bench.clock),
        samples_every=SECOND // 10,
    )
    run_id = bench.ask(holding(gate))
    bench.poll_until(lambda: "SamplesRecorded" in bench.kinds(run_id))
    moved = len(bench.run(run_id).transitions)
    assert [change for change in bench.controller.round().changes if getattr(change, "transition", None)] == []
    assert len(bench.run(run_id).transitions) == moved
    gate.touch()
    assert bench.finish(run_id).state is State.SUCCEEDED
    assert bench.kinds(run_id).count("SamplesRecorded") == 1
    assert bench.record.verify().ok
