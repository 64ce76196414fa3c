"""Several recorders in one thread: none waits for another's answer, and each hands its source over in order."""

import threading
import time
from contextlib import ExitStack

import pytest
from stenotest.records import poll_of

from engine.act.executor import Executor
from engine.fold.change import Blind
from engine.live.live_world import LiveWorld
from engine.policy import Policy
from engine.providers.local.provider import LocalProvider
from engine.providers.readings import READINGS
from engine.recorder.interval import Pace
from engine.recorder.recorder import Recorder
from engine.recorder.turns import Turns
from events.clock import SECOND, RandomIds, SystemClock
from events.errors import LeaseLost
from events.store.record import Record

PATIENCE_S = 300


class Listed(LocalProvider):
    """Answers that nothing runs there; where `gate` is not set, it waits for it."""

    def __init__(self, folder, host):
        super().__init__(folder, clock=SystemClock(), ids=RandomIds(), host=host, environment={})
        self.gate = threading.Event()
        self.gate.set()

    def poll(self, follow, *, since):
        self.gate.wait()
        yield poll_of(b"[]", source=self.source, at=SystemClock().now())


@pytest.fixture
def two(tmp_path):
    """The turns of two sources on one world, and their providers."""
    with ExitStack() as opened:
        record = opened.enter_context(
            Record.open(tmp_path / "record.db", write=True, create=True, shapes=READINGS.shape, clock=SystemClock())
        )
        live, made = LiveWorld(READINGS, record), []
        for host in ("a", "b"):
            provider = Listed(tmp_path / host, host)
            recorder = Recorder(
                live=live,
                provider=provider,
                clock=SystemClock(),
                policy=Policy(free=True),
                pace=Pace(fast=SECOND // 100, slow=SECOND // 100),
                executor=Executor(),
            )
            rounds = []
            turns = Turns(recorder, lambda found, _held, rounds=rounds: rounds.append(found))
            opened.callback(turns.end, "the test ends")
            opened.callback(provider.gate.set)
            made.append((turns, provider, rounds))
        yield made


def step(two, until):
    """Go on with both until it holds."""
    end = time.monotonic() + PATIENCE_S
    while not until():
        assert time.monotonic() < end
        for turns, _, _ in two:
            turns.step()
        time.sleep(0.001)


def test_a_source_that_does_not_answer_delays_no_other(two):
    """The other one's rounds go on; what waited goes on when its answer comes."""
    (_, slow, waiting), (_, _, others) = two
    slow.gate.clear()
    step(two, lambda: len(others) >= 5)
    assert not waiting
    slow.gate.set()
    step(two, lambda: waiting)
    assert (waiting[0].polls, waiting[0].answered) == (1, 1)


def test_a_source_is_handed_over_when_its_round_and_its_effects_have_ended(two):
    """No new round begins; the lease is free, and taken again if the source comes back."""
    (leaving, provider, rounds), (staying, _, others) = two
    step(two, lambda: rounds and others)
    provider.gate.clear()
    step(two, lambda: leaving.recorder.asked_at is not None)
    leaving.leave()
    before = len(others)
    step(two, lambda: len(others) >= before + 3)
    assert leaving.recorder.holds
    provider.gate.set()
    step(two, lambda: not leaving.recorder.holds)
    done = len(rounds)
    before = len(others)
    step(two, lambda: len(others) >= before + 3)
    assert len(rounds) == done
    assert staying.recorder.holds
    leaving.stay()
    step(two, lambda: len(rounds) > done)
    assert leaving.recorder.holds


def test_a_round_that_fails_is_over_and_another_one_follows(two, monkeypatch):
    """A lost lease stops neither the thread nor the other source."""
    (failing, _, rounds), (_, _, others) = two
    step(two, lambda: rounds and others)
    monkeypatch.setattr(failing.recorder.live.record, "append_polls", lambda *_, **__: failing_append())

    def failing_append():
        raise LeaseLost("another process acts")

    with pytest.raises(LeaseLost):
        step([two[0]], lambda: False)
    monkeypatch.undo()
    before = len(rounds), len(others)
    step(two, lambda: len(rounds) > before[0] and len(others) > before[1])


def test_changes_of_another_source_do_not_hurry_this_one(two):
    """A world has all sources; each is polled as often as its own changes ask for."""
    (here, _, rounds), _ = two
    step(two, lambda: rounds)
    assert here.recorder._concerns(Blind(source=here.recorder.source, since=1, until=None))
    assert not here.recorder._concerns(Blind(source="dstack/elsewhere", since=1, until=None))
